//! MDS shards of MosaicML Streaming, in a folder with an `index.json`.
//!
//! A shard contains the number of records, the first byte of each and the end of the last (uint32),
//! a description in JSON, and the records. A record contains the sizes of its variable-size
//! columns, then the columns. Source: streaming/base/format/mds in mosaicml-streaming.

use std::collections::{BTreeMap, HashSet};
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use ring::digest;
use serde::Deserialize;
use twox_hash::{XxHash3_64, XxHash64};

use super::format::FileFormat;
use crate::field_spec::field_requests;
use crate::left_out::LeftOut;
use crate::shards::column::{ColumnEncoding, kind_of, value};
use crate::shards::index::{IndexedShard, PACKED_BYTES, PACKED_RECORDS, ShardIndex, invalid};
use crate::shards::notes::MemberNotes;
use crate::shards::values::{FieldRequest, KindHint, cause, first_good_fields, specified_fields};
use crate::shards::{ExtraBytes, ShardFormat, Shards};
use crate::store::links::check_no_link;
use crate::store::{self, Blob, unreadable};
use infeed_core::error::{Cause, Error};
use infeed_core::parse_problem::in_words;
use infeed_core::sample::{Field, FieldKind, Pixels};

/// Maximum bytes of an `index.json`.
const INDEX_BYTES: u64 = 1 << 30;

/// The used parts of an `index.json`.
#[derive(Debug, Deserialize)]
struct MdsIndex {
    version: u32,
    shards: Vec<ListedShard>,
}

/// A shard in `index.json`.
#[derive(Debug, Deserialize)]
struct ListedShard {
    version: u32,
    format: String,
    samples: u64,
    column_names: Vec<String>,
    column_encodings: Vec<String>,
    column_sizes: Vec<Option<u64>>,
    #[serde(default)]
    compression: Option<String>,
    raw_data: MdsFile,
    #[serde(default)]
    zip_data: Option<MdsFile>,
}

/// A file of a shard.
#[derive(Debug, Deserialize)]
struct MdsFile {
    basename: String,
    bytes: u64,
    /// Hexadecimal, by the name of the algorithm; empty unless the writer used `hashes=`.
    #[serde(default)]
    hashes: Hashes,
}

/// Size and compression of a shard.
#[derive(Clone, Copy, Debug)]
struct MdsShard {
    records: u64,
    bytes: u64,
    packing: Option<MdsCompression>,
}

/// Digests of a file.
type Hashes = BTreeMap<String, String>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MdsCompression {
    Zstd,
    Gzip,
}

/// MDS shards and the fields that their columns become.
#[derive(Debug)]
pub(crate) struct Mds {
    shards: Vec<MdsShard>,
    /// Digests of each shard's compressed file.
    hashes: Vec<Hashes>,
    columns: Vec<MdsColumn>,
    wanted: Vec<FieldRequest>,
    /// Column number of each field.
    from: Vec<usize>,
    /// Empty until they are determined.
    fields: Vec<Field>,
    /// Columns that cannot be a field, without their location, and shards that are not listed.
    left_out: Vec<LeftOut>,
}

#[derive(Clone, Debug)]
struct MdsColumn {
    name: String,
    coding: ColumnEncoding,
    /// Bytes of one value, if all have the same size.
    size: Option<u64>,
}

/// Name of the file that lists the shards.
const INDEX: &str = "index.json";

/// MDS shards in the table of formats.
pub static FORMAT: FileFormat = FileFormat {
    name: "mds",
    label: "MDS",
    is_table: false,
    endings: &[],
    numbered: false,
    index_file: Some(INDEX),
    known_fields: |fields| Ok(specified_fields(&field_requests(fields)?)),
    open: |files, fields| {
        let requests = field_requests(fields)?;
        let [folder] = files.names else {
            let problem = format!(
                "MDS shards are in 1 folder, not in {}; mix one source for each folder",
                files.names.len()
            );
            return Err(Error::config("source", problem));
        };
        Ok(Arc::new(open(folder, &requests, files.follow_links)?))
    },
};

/// Opens the shards below a folder or URL.
///
/// # Errors
///
/// [`Error::Open`] for files that do not exist or differ in length from `index.json`, and
/// [`Error::Config`] for columns that cannot be read.
pub fn open(folder: &str, wanted: &[FieldRequest], follow_links: bool) -> Result<Shards, Error> {
    let folder = store::local_path(folder);
    let path = join_path(folder, INDEX);
    let check_links = |name: &str| match follow_links || store::is_url(folder) {
        true => Ok(()),
        false => check_no_link(Path::new(folder), Path::new(name))
            .map_err(|error| Error::open(name, error)),
    };
    check_links(&path)?;
    let index = store::open(&path)?;
    let wrong = |problem: String| Error::open(path.as_str(), invalid(problem));
    if index.len() > INDEX_BYTES {
        return Err(wrong(format!("{} bytes are not an index", index.len())));
    }
    let text = index.read(0..index.len());
    let text = text.map_err(|error| Error::open(path.as_str(), error))?;
    let listing: MdsIndex = serde_json::from_slice(&text).map_err(|error| {
        let problem = invalid(in_words(&error.to_string()));
        unreadable(&*index, problem)
    })?;
    if listing.version != 2 {
        return Err(wrong(format!(
            "version {} is not supported; use version 2",
            listing.version
        )));
    }
    let mut format = Mds::new(&listing.shards, wanted)?;
    format
        .left_out
        .extend(find_unlisted(folder, &listing.shards));
    let found = listing
        .shards
        .iter()
        .map(|stated| find_shard(folder, stated));
    let found: Vec<(String, &MdsFile)> = found.collect::<Result<_, _>>()?;
    let names: Vec<String> = found.iter().map(|(name, _)| name.clone()).collect();
    for name in &names {
        check_links(name)?;
    }
    let blobs = store::open_all(&names)?;
    let shards = format.shards.iter_mut().zip(&listing.shards);
    for ((known, stated), (blob, (_, file))) in shards.zip(blobs.iter().zip(&found)) {
        if blob.len() != file.bytes {
            let problem = format!(
                "it has {} bytes, not the {} of its index.json: it may be truncated",
                blob.len(),
                file.bytes
            );
            return Err(unreadable(&**blob, invalid(problem)));
        }
        if std::ptr::eq(*file, &stated.raw_data) {
            known.packing = None;
        }
    }
    Shards::open(Box::new(format), blobs, follow_links)
}

/// Name and file of a shard: uncompressed, or compressed if only that exists.
fn find_shard<'a>(folder: &str, stated: &'a ListedShard) -> Result<(String, &'a MdsFile), Error> {
    let name = |file: &MdsFile| -> Result<String, Error> {
        let name = &file.basename;
        let leaves = name.starts_with(['/', '\\'])
            || name.split(['/', '\\']).any(|part| part == "..")
            || name.contains(':');
        match leaves {
            true => Err(Error::config(
                "source",
                format!("index.json names the file `{name}`, which is outside its folder"),
            )),
            false => Ok(join_path(folder, name)),
        }
    };
    let raw = name(&stated.raw_data)?;
    match &stated.zip_data {
        // Checking each file of a bucket would cost a request; a compressed file is also smaller to
        // read.
        Some(zip) if folder.contains("://") || !Path::new(&raw).exists() => Ok((name(zip)?, zip)),
        _ => Ok((raw, &stated.raw_data)),
    }
}

/// Returns the shards of a local folder that its index does not list.
fn find_unlisted(folder: &str, listed: &[ListedShard]) -> Option<LeftOut> {
    let files = listed
        .iter()
        .flat_map(|shard| [Some(&shard.raw_data), shard.zip_data.as_ref()]);
    let listed: HashSet<&str> = files.flatten().map(|file| &*file.basename).collect();
    let mut unlisted = LeftOut::new(folder, "shard that index.json does not list");
    // A folder of a bucket would cost a request.
    for entry in std::fs::read_dir(folder).ok()?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_shard = name.ends_with(".mds") || name.contains(".mds.");
        if is_shard && !listed.contains(name.as_str()) {
            unlisted.add(&name);
        }
    }
    (unlisted.count > 0).then_some(unlisted)
}

fn join_path(folder: &str, name: &str) -> String {
    match folder.contains("://") {
        true => format!("{}/{name}", folder.trim_end_matches('/')),
        false => Path::new(folder).join(name).display().to_string(),
    }
}

impl Mds {
    fn new(listed: &[ListedShard], wanted: &[FieldRequest]) -> Result<Mds, Error> {
        let wrong = |problem: String| Error::config("source", problem);
        let Some(first) = listed.first() else {
            return Err(wrong("index.json lists no shards".to_owned()));
        };
        let mut shards = Vec::with_capacity(listed.len());
        let zipped = listed.iter().map(|shard| shard.zip_data.as_ref());
        let hashes = zipped.map(|file| file.map_or_else(Hashes::new, |file| file.hashes.clone()));
        for (number, shard) in listed.iter().enumerate() {
            let about = |problem: String| wrong(format!("shard {number} of index.json {problem}"));
            if shard.version != 2 || shard.format != "mds" {
                return Err(about(format!(
                    "is {} version {}; MDS version 2 is supported",
                    shard.format, shard.version
                )));
            }
            if shard.column_names != first.column_names
                || shard.column_encodings != first.column_encodings
                || shard.column_sizes != first.column_sizes
            {
                return Err(about("has other columns than the first".to_owned()));
            }
            shards.push(MdsShard {
                records: shard.samples,
                bytes: shard.raw_data.bytes,
                packing: packing(shard.compression.as_deref()).map_err(about)?,
            });
        }
        let count = first.column_names.len();
        if first.column_encodings.len() != count || first.column_sizes.len() != count {
            let problem = "index.json has different numbers of columns, encodings and sizes";
            return Err(wrong(problem.to_owned()));
        }
        let names = first.column_names.iter().zip(&first.column_encodings);
        let columns = names
            .zip(&first.column_sizes)
            .map(|((name, encoding), size)| MdsColumn {
                name: name.clone(),
                coding: ColumnEncoding::of(encoding),
                size: *size,
            });
        let columns: Vec<MdsColumn> = columns.collect();
        let mut left_out = Vec::new();
        let mut all = Vec::new();
        for column in &columns {
            match &column.coding {
                ColumnEncoding::Refused(reason) => {
                    let column = LeftOut::new("", "column").with(&column.name);
                    left_out.push(column.note(reason));
                }
                _ => all.push(FieldRequest {
                    name: column.name.clone(),
                    from: None,
                    hint: KindHint::Nothing,
                }),
            }
        }
        let wanted: Vec<FieldRequest> = match wanted.is_empty() {
            true if all.is_empty() => {
                let reasons = left_out.iter().map(|column| format!(": {column}"));
                let problem = format!("no column can be a field{}", reasons.collect::<String>());
                return Err(wrong(problem));
            }
            true => all,
            false => {
                left_out.clear();
                wanted.to_vec()
            }
        };
        let mut from = Vec::with_capacity(wanted.len());
        let mut kinds = Vec::with_capacity(wanted.len());
        for one in &wanted {
            let about =
                |problem: String| Error::config(format!("source field `{}`", one.name), problem);
            let name = one.source_name();
            let at = columns.iter().position(|column| column.name == name);
            let at = at.ok_or_else(|| {
                let there: Vec<&str> = columns.iter().map(|c| c.name.as_str()).collect();
                about(format!(
                    "no column `{name}`; there are `{}`",
                    there.join("`, `")
                ))
            })?;
            let kind = kind_of(name, &columns[at].coding, columns[at].size, &one.hint);
            kinds.push(kind.map_err(about)?);
            from.push(at);
        }
        // The first records show how many images a list has.
        let lists = |at: &usize| matches!(columns[*at].coding, ColumnEncoding::Images(_));
        let needs_records = from.iter().any(lists);
        let fields = wanted.iter().zip(kinds);
        let fields = fields.map(|(wanted, kind)| Some(wanted.field(kind?)));
        let fields = fields.collect::<Option<_>>().filter(|_| !needs_records);
        Ok(Mds {
            fields: fields.unwrap_or_default(),
            left_out,
            shards,
            hashes: hashes.collect(),
            columns,
            wanted,
            from,
        })
    }

    /// Bytes of each column of a record.
    fn columns(&self, record: &Bytes) -> Result<Vec<Bytes>, String> {
        const CUT: &str = "it ends within its columns";
        let mut at = 0_usize;
        let mut sizes = Vec::with_capacity(self.columns.len());
        for column in &self.columns {
            sizes.push(match column.size.filter(|&size| size > 0) {
                Some(size) => size,
                None => {
                    let four = record.get(at..).and_then(|rest| rest.first_chunk::<4>());
                    at += 4;
                    u64::from(u32::from_le_bytes(*four.ok_or(CUT)?))
                }
            });
        }
        let mut values = Vec::with_capacity(sizes.len());
        for size in sizes {
            let end = usize::try_from(size)
                .ok()
                .and_then(|size| at.checked_add(size));
            let end = end.filter(|&end| end <= record.len()).ok_or(CUT)?;
            values.push(record.slice(at..end));
            at = end;
        }
        match at == record.len() {
            true => Ok(values),
            false => Err(format!("{} bytes after its columns", record.len() - at)),
        }
    }
}

fn packing(compression: Option<&str>) -> Result<Option<MdsCompression>, String> {
    match compression.map(|text| text.split(':').next().unwrap_or_default()) {
        None | Some("") => Ok(None),
        Some("zstd") => Ok(Some(MdsCompression::Zstd)),
        Some("gz") => Ok(Some(MdsCompression::Gzip)),
        Some(other) => Err(format!(
            "is compressed with {other}; use zstd or gz, or unpack it"
        )),
    }
}

/// Returns the first algorithm whose digest in `stated` differs from that of the bytes. Compares
/// one known digest, a fast one if possible.
fn differing(stated: &Hashes, bytes: &[u8]) -> Option<&'static str> {
    type Hash = fn(&[u8]) -> String;
    fn sha(algorithm: &'static digest::Algorithm, bytes: &[u8]) -> String {
        let digest = digest::digest(algorithm, bytes);
        let bytes = digest.as_ref().iter();
        bytes.map(|byte| format!("{byte:02x}")).collect()
    }
    let known: [(&str, Hash); 6] = [
        ("xxh3_64", |bytes| {
            format!("{:016x}", XxHash3_64::oneshot(bytes))
        }),
        ("xxh64", |bytes| {
            format!("{:016x}", XxHash64::oneshot(0, bytes))
        }),
        ("sha1", |bytes| {
            sha(&digest::SHA1_FOR_LEGACY_USE_ONLY, bytes)
        }),
        ("sha256", |bytes| sha(&digest::SHA256, bytes)),
        ("sha384", |bytes| sha(&digest::SHA384, bytes)),
        ("sha512", |bytes| sha(&digest::SHA512, bytes)),
    ];
    let mut known = known.iter();
    let (name, expected, hash) =
        known.find_map(|(name, hash)| Some((*name, stated.get(*name)?, hash)))?;
    (!expected.eq_ignore_ascii_case(&hash(bytes))).then_some(name)
}

/// Returns the first byte of each record and the end of the last, from the first bytes of a shard.
fn starts(head: &[u8], known: MdsShard) -> io::Result<Vec<u64>> {
    let (count, offsets) = head.split_first_chunk::<4>().ok_or_else(|| {
        invalid("at byte 0: no number of records: it may be truncated".to_owned())
    })?;
    let count = u64::from(u32::from_le_bytes(*count));
    if count != known.records {
        return Err(invalid(format!(
            "at byte 0: {count} records, not the {} of its index.json",
            known.records
        )));
    }
    let starts: Vec<u64> = offsets
        .as_chunks::<4>()
        .0
        .iter()
        .map(|bytes| u64::from(u32::from_le_bytes(*bytes)))
        .collect();
    let inside = starts
        .first()
        .is_some_and(|&first| first >= head.len() as u64)
        && starts.last().is_some_and(|&last| last == known.bytes);
    match inside && starts.is_sorted() && starts.len() as u64 == known.records + 1 {
        true => Ok(starts),
        false => Err(invalid(format!(
            "at byte 4: the record offsets do not fit in {} bytes",
            known.bytes
        ))),
    }
}

/// Bytes before the description: the number of records and their offsets.
fn head_bytes(known: MdsShard) -> io::Result<u64> {
    let bytes = known
        .records
        .checked_add(2)
        .and_then(|count| count.checked_mul(4));
    bytes.filter(|&bytes| bytes <= known.bytes).ok_or_else(|| {
        invalid(format!(
            "{} records do not fit in its {} bytes",
            known.records, known.bytes
        ))
    })
}

impl ShardFormat for Mds {
    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn index(&self, number: usize, shard: &dyn Blob) -> io::Result<IndexedShard> {
        let known = self.shards[number];
        let head = head_bytes(known)?;
        if known.packing.is_none() {
            return Ok(ShardIndex::Plain(starts(&shard.read(0..head)?, known)?).into());
        }
        if known.bytes > PACKED_BYTES || known.records > PACKED_RECORDS as u64 {
            return Err(invalid(format!(
                "{} records of {} bytes are compressed as one, over the limit of {PACKED_BYTES} \
                 bytes; write smaller shards",
                known.records, known.bytes
            )));
        }
        Ok(ShardIndex::Sealed {
            records: known.records,
            bytes: known.bytes,
        }
        .into())
    }

    fn unpack(&self, number: usize, stored: Bytes, length: u64) -> io::Result<Bytes> {
        if let Some(algorithm) = differing(&self.hashes[number], &stored) {
            return Err(invalid(format!(
                "its {algorithm} is not that of index.json: the file was changed after it was \
                 written; copy it again"
            )));
        }
        // Allocates once: a vector that grows holds up to twice the admitted bytes.
        let mut content = Vec::new();
        usize::try_from(length)
            .ok()
            .and_then(|length| content.try_reserve_exact(length).ok())
            .ok_or_else(|| invalid(format!("out of memory: cannot allocate its {length} bytes")))?;
        let gzip = stored.starts_with(&[0x1F, 0x8B]);
        let read = match gzip {
            true => flate2::bufread::MultiGzDecoder::new(&stored[..])
                .take(length.saturating_add(1))
                .read_to_end(&mut content),
            false => zstd::stream::read::Decoder::with_buffer(&stored[..])?
                .take(length.saturating_add(1))
                .read_to_end(&mut content),
        };
        read.map_err(|error| invalid(format!("it does not unpack: {error}")))?;
        match content.len() as u64 == length {
            true => Ok(content.into()),
            false => Err(invalid(format!("it does not unpack to {length} bytes"))),
        }
    }

    fn starts(&self, content: &Bytes, records: u64) -> io::Result<Vec<u64>> {
        let known = MdsShard {
            records,
            bytes: content.len() as u64,
            packing: None,
        };
        let head = head_bytes(known)? as usize;
        starts(&content[..head], known)
    }

    fn extra_bytes(&self) -> ExtraBytes {
        // Arrays are slices; a decimal number has a digit and a separator.
        let fields = self.fields.iter().zip(&self.from);
        let written = fields
            .filter(|(_, at)| matches!(self.columns[**at].coding, ColumnEncoding::Decimal(_)));
        ExtraBytes::of(written.map(|(field, _)| field), 2)
    }

    fn is_settled(&self) -> bool {
        !self.fields.is_empty()
    }

    fn settle(&mut self, records: &[Bytes], _shards: &[(&str, &MemberNotes)]) -> Result<(), Cause> {
        if self.is_settled() {
            return Ok(());
        }
        let fields = first_good_fields(records, |record| {
            let values = self.columns(record)?;
            let all = self.wanted.iter().zip(&self.from);
            let fields = all.map(|(wanted, &at)| {
                let column = &self.columns[at];
                let kind = match kind_of(&column.name, &column.coding, column.size, &wanted.hint)? {
                    Some(kind) => kind,
                    None => column.coding.infer_kind(&values[at], &wanted.hint)?,
                };
                Ok(wanted.field(kind))
            });
            fields.collect()
        });
        let fields: Vec<Field> = fields?;
        for (field, &at) in fields.iter().zip(&self.from) {
            let encoded = matches!(
                field.kind,
                FieldKind::Image(Pixels::Encoded) | FieldKind::Mask(Pixels::Encoded)
            );
            for (number, record) in records.iter().enumerate().filter(|_| encoded) {
                let column = &self.columns[at];
                let values = self.columns(record);
                let count = values
                    .ok()
                    .and_then(|values| column.coding.images(&values[at]));
                if let Some(count) = count.filter(|count| *count != 1) {
                    return Err(cause(format!(
                        "column `{}` has {count} images in record {number}, but a field has one; \
                         declare the columns to read with fields=",
                        column.name
                    )));
                }
            }
        }
        self.fields = fields;
        Ok(())
    }

    fn left_out(&self, first: &str, _shards: &[(&str, &MemberNotes)]) -> Vec<LeftOut> {
        let mut left_out = self.left_out.clone();
        for part in left_out.iter_mut().filter(|part| part.location.is_empty()) {
            part.location = first.to_owned();
        }
        left_out
    }

    fn parse(&self, bytes: Bytes) -> Result<Vec<Bytes>, Cause> {
        let columns = self.columns(&bytes).map_err(cause)?;
        let all = self.fields.iter().zip(&self.from);
        let values = all.map(|(field, &at)| {
            let about = |problem| cause(format!("column `{}`: {problem}", self.columns[at].name));
            value(&field.kind, &self.columns[at].coding, &columns[at]).map_err(about)
        });
        values.collect()
    }
}
