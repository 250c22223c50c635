//! TFRecord files of `tf.train.Example`, plain or compressed as a whole with gzip or zlib.
//!
//! A record is its length, the checksum of the length, its bytes, and the checksum of the bytes;
//! the checksums are masked CRC-32C. Source: tensorflow/core/lib/io/record_writer.h.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use crc_fast::crc32_iscsi;
use flate2::bufread::{MultiGzDecoder, ZlibDecoder};

use super::format::FileFormat;
use crate::columns::names_encoded_masks;
use crate::field_spec::field_requests;
use crate::left_out::LeftOut;
use crate::shards::example::{Feature, ListKind, features};
use crate::shards::index::{
    IndexedShard, PACKED_BYTES, PACKED_RECORDS, PieceReader, ShardBytes, ShardIndex, invalid,
};
use crate::shards::notes::MemberNotes;
use crate::shards::text_index;
use crate::shards::values::{FieldRequest, KindHint, LISTED, cause, list_names, specified_fields};
use crate::shards::{ExtraBytes, ShardFormat, Shards};
use crate::store::{self, Blob, FilePatterns};
use infeed_codec::decode;
use infeed_core::error::{Cause, Error, IncompleteRecord};
use infeed_core::printable::printable;
use infeed_core::sample::{DType, Field, FieldKind, Pixels};

/// Bytes before and after those of a record.
const HEAD: u64 = 12;
const FOOT: u64 = 4;

/// Bytes of a compressed file that are read at a time.
const CHUNK_BYTES: u64 = 1 << 20;

/// Maximum ratio of deflate.
const DEFLATE: u64 = 1032;

/// Maximum number of features of a record in a dataset without requested fields.
const FEATURES: usize = 4096;

/// Features for `image`, `label` and `mask` in datasets that TensorFlow's scripts write.
const USUAL: [(&str, [&str; 2]); 3] = [
    ("image", ["image/encoded", "image"]),
    ("label", ["image/class/label", "label"]),
    ("mask", ["image/segmentation/class/encoded", "mask"]),
];

/// TFRecord shards in the table of formats.
pub static FORMAT: FileFormat = FileFormat {
    name: "tfrecord",
    label: ".tfrecord",
    is_table: false,
    endings: &[
        ".tfrecord",
        ".tfrecords",
        ".tfrec",
        ".tfrecord.gz",
        ".tfrecords.gz",
    ],
    numbered: true,
    index_file: None,
    known_fields: |fields| Ok(specified_fields(&field_requests(fields)?)),
    open: |files, fields| Ok(Arc::new(open(files, &field_requests(fields)?)?)),
};

/// Opens TFRecord shards.
///
/// # Errors
///
/// Errors of [`store::find_in`] and `Shards::open`.
pub fn open(shards: FilePatterns<'_>, wanted: &[FieldRequest]) -> Result<Shards, Error> {
    let blobs = store::find_in(shards)?;
    Shards::open(Box::new(TfRecord::new(wanted)), blobs, shards.follow_links)
}

/// TFRecord shards and the fields that their features become.
#[derive(Debug)]
pub(crate) struct TfRecord {
    wanted: Vec<FieldRequest>,
    /// Empty until they are determined.
    fields: Vec<Field>,
    /// Names of the feature of each field; the first that a record has counts.
    from: Vec<Vec<String>>,
    /// Names of the features of the first records, if these determined the fields.
    guessed_from: Option<BTreeSet<Vec<u8>>>,
    /// Whether a warning about a feature that the first records lack was logged.
    has_warned: AtomicBool,
    /// Features that no field can have, without their location.
    left_out: Vec<LeftOut>,
}

impl TfRecord {
    pub(crate) fn new(wanted: &[FieldRequest]) -> TfRecord {
        TfRecord {
            fields: specified_fields(wanted).unwrap_or_default(),
            from: wanted.iter().map(names).collect(),
            wanted: wanted.to_vec(),
            guessed_from: None,
            has_warned: AtomicBool::new(false),
            left_out: Vec::new(),
        }
    }
}

/// A feature in the first records.
#[derive(Debug, Default)]
struct SeenFeature {
    /// First value of a list of bytes.
    value: Option<Bytes>,
    /// Number of each record that has it.
    records: Vec<usize>,
    counts: Vec<u64>,
    of: Vec<ListKind>,
    /// Whether a value is an image file.
    is_image: bool,
}

impl SeenFeature {
    /// Type of the lists, where these are set.
    fn types(&self) -> impl Iterator<Item = ListKind> {
        self.of
            .iter()
            .copied()
            .filter(|of| *of != ListKind::Nothing)
    }

    /// Returns the first record with another number of values than one.
    fn other_than_one(&self) -> Option<(usize, u64)> {
        let mut counts = self
            .records
            .iter()
            .copied()
            .zip(self.counts.iter().copied());
        counts.find(|(_, count)| *count != 1)
    }
}

impl ShardFormat for TfRecord {
    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn kept_as(&self) -> Option<&'static str> {
        Some("tfrecord")
    }

    fn index(&self, _number: usize, shard: &dyn Blob) -> io::Result<IndexedShard> {
        let start = shard.read(0..shard.len().min(HEAD))?;
        match FileCompression::of(&start) {
            None => Ok(ShardIndex::Plain(plain_starts(shard)?).into()),
            Some(packing) => Ok(ShardIndex::Packed(packed_starts(packing, shard)?).into()),
        }
    }

    fn text_index(&self, text: &str, shard: &dyn Blob) -> Option<IndexedShard> {
        let starts = text_index::tfrecord(text)?;
        let [.., before, end] = starts[..] else {
            return None;
        };
        if end != shard.len() {
            return None;
        }
        for start in [0, before] {
            let head = shard.read(start..start.checked_add(HEAD)?.min(end)).ok()?;
            length(&head)?;
        }
        Some(ShardIndex::Plain(starts).into())
    }

    fn unpack(&self, _number: usize, stored: Bytes, expected: u64) -> io::Result<Bytes> {
        let packing = FileCompression::of(&stored)
            .ok_or_else(|| invalid("it is no longer compressed".to_owned()))?;
        let most = (stored.len() as u64).saturating_mul(DEFLATE);
        if expected > most.saturating_add(1024) {
            return Err(invalid(format!("it cannot hold {expected} bytes")));
        }
        let mut content = Vec::with_capacity(expected as usize);
        packing
            .over(&stored[..])
            .take(expected + 1)
            .read_to_end(&mut content)
            .map_err(|error| invalid(format!("it does not unpack: {error}")))?;
        match content.len() as u64 == expected {
            true => Ok(content.into()),
            false => Err(invalid(format!("it does not unpack to {expected} bytes"))),
        }
    }

    fn extra_bytes(&self) -> ExtraBytes {
        // A varint has at least a byte.
        ExtraBytes::of(self.fields.iter(), 1)
    }

    fn is_settled(&self) -> bool {
        // Records may lack a ragged feature, so the first records show whether its name is right.
        let is_ragged = |field: &Field| matches!(field.kind, FieldKind::Ragged { .. });
        !self.fields.is_empty() && !self.fields.iter().any(is_ragged)
    }

    fn settle(&mut self, records: &[Bytes], _shards: &[(&str, &MemberNotes)]) -> Result<(), Cause> {
        if self.is_settled() {
            return Ok(());
        }
        let mut seen: BTreeMap<String, SeenFeature> = BTreeMap::new();
        let (mut problem, mut good) = (None, Vec::new());
        for (number, record) in records.iter().enumerate() {
            match add_features(number, record, &mut seen) {
                Ok(()) => good.push(number),
                Err(error) => problem = problem.or(Some(error)),
            }
        }
        if good.is_empty() {
            return Err(cause(problem.unwrap_or_default()));
        }
        if self.wanted.is_empty() {
            self.guess(&seen, &good).map_err(cause)?;
        }
        let all = self.wanted.iter().zip(&self.from);
        let fields = all.map(|(wanted, from)| settle_field(wanted, from, &seen));
        self.fields = fields.collect::<Result<_, _>>().map_err(cause)?;
        match self.fields.is_empty() {
            true => Err(cause(format!(
                "no feature can be a field by itself; name fields of {}",
                list_names(seen.keys().map(String::as_str))
            ))),
            false => Ok(()),
        }
    }

    fn left_out(&self, first: &str, _shards: &[(&str, &MemberNotes)]) -> Vec<LeftOut> {
        let mut left_out = self.left_out.clone();
        for part in &mut left_out {
            part.location = first.to_owned();
        }
        left_out
    }

    fn parse(&self, bytes: Bytes) -> Result<Vec<Bytes>, Cause> {
        let example = unframe(&bytes).map_err(cause)?;
        // For each field: the feature, and the rank of its name among the field's names.
        let mut found: Vec<Option<(usize, Feature)>> = vec![None; self.from.len()];
        features(&example, &mut |name, feature| {
            self.warn_about(name);
            for (slot, from) in found.iter_mut().zip(&self.from) {
                let choice = from.iter().position(|one| one.as_bytes() == name);
                if let Some(choice) = choice
                    && slot.as_ref().is_none_or(|(known, _)| choice <= *known)
                {
                    *slot = Some((choice, feature.clone()));
                }
            }
            Ok(())
        })
        .map_err(cause)?;
        let all = self.fields.iter().zip(&self.from).zip(found);
        let values = all.map(|((field, from), found)| {
            let described = |problem: String| {
                let feature = from.join(";");
                format!("field `{}`, feature `{feature}`: {problem}", field.name)
            };
            let about = |problem| cause(described(problem));
            match found {
                Some((_, feature)) => feature.value(&field.kind).map_err(about),
                // An empty list, as TensorFlow reads it. Opening has found the feature in another
                // record, so its name is right.
                None if matches!(field.kind, FieldKind::Ragged { .. }) => Ok(Bytes::new()),
                None => {
                    let problem = format!("it is missing; the record has {}", there(&example));
                    let incomplete: Cause = Arc::new(IncompleteRecord(described(problem)));
                    Err(incomplete)
                }
            }
        });
        values.collect()
    }
}

impl TfRecord {
    /// Fields of the features of the first records, for a dataset without requested fields. All of
    /// these records have the same features.
    fn guess(
        &mut self,
        seen: &BTreeMap<String, SeenFeature>,
        records: &[usize],
    ) -> Result<(), String> {
        const FIX: &str = "declare the features to read with fields=";
        const RAGGED: &str = ", and lists that records may lack with kind=\"ragged\"";
        let mut fields: Vec<(FieldRequest, Vec<String>)> = Vec::new();
        let images = seen.values().filter(|one| one.is_image).count();
        for (feature, one) in seen {
            if let Some(without) = records.iter().find(|number| !one.records.contains(number)) {
                return Err(format!(
                    "only some records have the feature `{feature}`: record {} has it, but record \
                     {without} has not; {FIX}{}",
                    one.records[0],
                    match one.types().next() {
                        Some(ListKind::Bytes) => "",
                        _ => RAGGED,
                    }
                ));
            }
            let of = one.types().next();
            match (of, one.other_than_one()) {
                (None, _) => {
                    let unset = LeftOut::new("", "feature without a value in the first records");
                    unset.with(feature).append_to(&mut self.left_out);
                    continue;
                }
                (Some(ListKind::Bytes), Some((number, count))) if one.is_image => {
                    return Err(format!(
                        "the feature `{feature}` has {count} images in record {number}, but a field \
                         has one; {FIX}"
                    ));
                }
                (Some(ListKind::Bytes), Some(_)) => {
                    let several = LeftOut::new("", "feature that is a list of bytes");
                    let several = several.note("a field has one value of bytes in each record");
                    several.with(feature).append_to(&mut self.left_out);
                    continue;
                }
                _ => {}
            }
            let usual = USUAL
                .iter()
                .find(|(_, names)| names.contains(&feature.as_str()));
            let name = match usual {
                Some((name, _)) => name,
                None if images == 1 && one.is_image && !names_encoded_masks(feature) => "image",
                None => feature.as_str(),
            };
            let name = match fields.iter().any(|(known, _)| known.name == name) {
                true => feature.as_str(),
                false => name,
            };
            let wanted = FieldRequest {
                name: name.to_owned(),
                from: Some(feature.clone()),
                hint: KindHint::Nothing,
            };
            fields.push((wanted, vec![feature.clone()]));
        }
        let place = |wanted: &FieldRequest| USUAL.iter().position(|(name, _)| *name == wanted.name);
        fields.sort_by_key(|(wanted, _)| place(wanted).unwrap_or(USUAL.len()));
        (self.wanted, self.from) = fields.into_iter().unzip();
        self.guessed_from = Some(seen.keys().map(|name| name.clone().into_bytes()).collect());
        Ok(())
    }

    /// Warns once about a feature that the first records do not have.
    fn warn_about(&self, feature: &[u8]) {
        let is_new = self
            .guessed_from
            .as_ref()
            .is_some_and(|known| !known.contains(feature));
        if is_new && !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "the feature `{}` is left out, because the first records do not have it; declare the \
                 features to read with fields=",
                printable(&String::from_utf8_lossy(feature))
            );
        }
    }
}

/// Determines the field of a feature from the first records.
fn settle_field(
    wanted: &FieldRequest,
    from: &[String],
    seen: &BTreeMap<String, SeenFeature>,
) -> Result<Field, String> {
    let found = from.iter().find_map(|name| seen.get_key_value(name));
    if let KindHint::Kind(kind) = &wanted.hint {
        let encoded = matches!(
            kind,
            FieldKind::Image(Pixels::Encoded) | FieldKind::Mask(Pixels::Encoded)
        );
        return match found {
            Some((feature, one)) if encoded && !one.is_image && one.value.is_some() => {
                Err(format!(
                    "field `{}`: `{feature}` is no image file in the first records; declare pixels as \
                 Field(kind=\"tensor\", dtype=\"uint8\", shape=(height, width, channels))",
                    wanted.name
                ))
            }
            None if matches!(kind, FieldKind::Ragged { .. }) => Err(absent(wanted, from, seen)),
            _ => Ok(wanted.field(kind.clone())),
        };
    }
    let Some((feature, one)) = found else {
        return Err(absent(wanted, from, seen));
    };
    let of = one.types().next().unwrap_or(ListKind::Nothing);
    let dtype = match of {
        _ if one.types().any(|other| other != of) => {
            return Err(format!(
                "field `{}`: `{feature}` has different types in different records",
                wanted.name
            ));
        }
        ListKind::Floats => DType::Float32,
        ListKind::Wholes => DType::Int64,
        ListKind::Bytes if wanted.hint != KindHint::Nothing => {
            return Err(format!(
                "field `{}`: `{feature}` is bytes; give the dtype and shape of their content",
                wanted.name
            ));
        }
        ListKind::Bytes => {
            let kind = match one.is_image {
                true if names_encoded_masks(feature) || wanted.name == "mask" => {
                    FieldKind::Mask(Pixels::Encoded)
                }
                true => FieldKind::Image(Pixels::Encoded),
                false => FieldKind::Bytes,
            };
            return Ok(wanted.field(kind));
        }
        ListKind::Nothing => {
            return Err(format!(
                "field `{}`: `{feature}` has no value in the first records; declare its kind and \
                 dtype with Field(...)",
                wanted.name
            ));
        }
    };
    let count = one.counts[0];
    let same = one.counts.iter().all(|&other| other == count);
    let kind = match (same, &wanted.hint) {
        (true, KindHint::Nothing | KindHint::Tensor) => FieldKind::Tensor {
            dtype,
            shape: match count {
                1 => Vec::new(),
                count => vec![count as usize],
            },
        },
        _ => FieldKind::Ragged { dtype },
    };
    Ok(wanted.field(kind))
}

/// Describes a field whose feature the first records lack.
fn absent(wanted: &FieldRequest, from: &[String], seen: &BTreeMap<String, SeenFeature>) -> String {
    let there = list_names(seen.keys().map(String::as_str));
    let from = from.join("` or `");
    format!(
        "field `{}`: no feature `{from}`; the records have {there}",
        wanted.name
    )
}

/// Adds the features of a record.
fn add_features(
    number: usize,
    record: &Bytes,
    seen: &mut BTreeMap<String, SeenFeature>,
) -> Result<(), String> {
    let example = unframe(record)?;
    features(&example, &mut |name, feature| {
        let name = String::from_utf8_lossy(name).into_owned();
        if seen.len() >= FEATURES && !seen.contains_key(&name) {
            return Err(format!("over {FEATURES} features; name the fields to read"));
        }
        let (count, value) = (feature.count()?, feature.first_bytes());
        let one = seen.entry(name).or_default();
        one.is_image |= value
            .as_ref()
            .is_some_and(|value| decode::Format::of(value).is_some());
        one.value = one.value.take().or(value);
        one.records.push(number);
        one.counts.push(count);
        one.of.push(feature.of);
        Ok(())
    })
}

/// Lists the names of the features of an Example for an error.
fn there(example: &Bytes) -> String {
    let mut names: Vec<String> = Vec::new();
    let _ = features(example, &mut |name, _| {
        if names.len() <= LISTED {
            names.push(String::from_utf8_lossy(name).into_owned());
        }
        Ok(())
    });
    match names.is_empty() {
        true => "no features".to_owned(),
        false => list_names(names.iter().map(String::as_str)),
    }
}

/// Names that a field's feature may have.
fn names(wanted: &FieldRequest) -> Vec<String> {
    let usual = USUAL.iter().find(|(name, _)| *name == wanted.name);
    match (&wanted.from, usual) {
        (Some(from), _) => from.split(';').map(|name| name.trim().to_owned()).collect(),
        (None, Some((_, names))) => names.map(str::to_owned).to_vec(),
        (None, None) => vec![wanted.name.clone()],
    }
}

/// Masked checksum of some bytes.
fn masked_crc(bytes: &[u8]) -> u32 {
    crc32_iscsi(bytes)
        .rotate_right(15)
        .wrapping_add(0xA282_EAD8)
}

/// Length in the first bytes of a record; None if its checksum differs.
fn length(head: &[u8]) -> Option<u64> {
    let (length, rest) = head.split_first_chunk::<8>()?;
    let sum = rest.first_chunk::<4>()?;
    (masked_crc(length) == u32::from_le_bytes(*sum)).then(|| u64::from_le_bytes(*length))
}

/// Content of a record without its framing, if both checksums match.
fn unframe(record: &Bytes) -> Result<Bytes, String> {
    let length = length(record).ok_or("the checksum of its length differs")?;
    let fits = length.checked_add(HEAD + FOOT) == Some(record.len() as u64);
    if !fits {
        return Err(format!("{length} bytes, unlike the length in its index"));
    }
    let end = record.len() - FOOT as usize;
    let bytes = record.slice(HEAD as usize..end);
    match masked_crc(&bytes).to_le_bytes()[..] == record[end..] {
        true => Ok(bytes),
        false => Err("the checksum of its bytes differs".to_owned()),
    }
}

fn plain_starts(shard: &dyn Blob) -> io::Result<Vec<u64>> {
    let mut scan = PieceReader::over(shard);
    let mut starts = vec![0];
    let mut at = 0;
    while at < shard.len() {
        let head = scan.at(at, HEAD as usize)?;
        at = next_start(at, &head, shard.len())?;
        starts.push(at);
    }
    Ok(starts)
}

/// Returns the first byte of the record after the one at `at`, which must be at most `end`.
fn next_start(at: u64, head: &[u8], end: u64) -> io::Result<u64> {
    if (head.len() as u64) < HEAD {
        return Err(invalid(format!(
            "at byte {at}: a record without its length: it may be truncated"
        )));
    }
    let length = length(head).ok_or_else(|| {
        let what = match at {
            0 => ": it is not a TFRecord file, or it is damaged",
            _ => "",
        };
        invalid(format!(
            "at byte {at}: the checksum of a record's length differs{what}"
        ))
    })?;
    let next = length
        .checked_add(HEAD + FOOT)
        .and_then(|bytes| at.checked_add(bytes));
    next.filter(|&next| next <= end).ok_or_else(|| {
        invalid(format!(
            "at byte {at}: a record of {length} bytes, past the end at byte {end}: it may be \
             truncated"
        ))
    })
}

/// Compression of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileCompression {
    Gzip,
    Zlib,
}

impl FileCompression {
    /// Detects the compression by the first bytes; None for an uncompressed or unknown file.
    fn of(start: &[u8]) -> Option<FileCompression> {
        if start.len() >= HEAD as usize && length(&start[..HEAD as usize]).is_some() {
            return None;
        }
        match *start {
            [0x1F, 0x8B, ..] => Some(FileCompression::Gzip),
            // A window of at most 32 KiB, and a header checksum divisible by 31.
            [a, b, ..]
                if a & 0x0F == 8 && a <= 0x78 && u16::from_be_bytes([a, b]).is_multiple_of(31) =>
            {
                Some(FileCompression::Zlib)
            }
            _ => None,
        }
    }

    fn over<'a>(self, stored: impl io::BufRead + 'a) -> Box<dyn Read + 'a> {
        match self {
            FileCompression::Gzip => Box::new(MultiGzDecoder::new(stored)),
            FileCompression::Zlib => Box::new(ZlibDecoder::new(stored)),
        }
    }
}

/// Reads a blob from its beginning, and stores the storage's error.
struct BlobStream<'a> {
    shard: &'a dyn Blob,
    at: u64,
    failed: &'a std::cell::Cell<Option<io::Error>>,
}

impl Read for BlobStream<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let end = self.shard.len().min(self.at + into.len() as u64);
        match self.shard.read(self.at..end) {
            Ok(bytes) => {
                into[..bytes.len()].copy_from_slice(&bytes);
                self.at = end;
                Ok(bytes.len())
            }
            Err(error) => {
                let kind = error.kind();
                self.failed.set(Some(error));
                Err(kind.into())
            }
        }
    }
}

/// Unpacks a file piece by piece, without keeping it, to find its records.
fn packed_starts(packing: FileCompression, shard: &dyn Blob) -> io::Result<Vec<u64>> {
    let failed = std::cell::Cell::new(None);
    let stream = BlobStream {
        shard,
        at: 0,
        failed: &failed,
    };
    let mut content = packing.over(BufReader::with_capacity(CHUNK_BYTES as usize, stream));
    let mut starts = vec![0];
    let mut at = 0;
    let mut walk = || -> io::Result<Vec<u64>> {
        loop {
            let mut head = Vec::new();
            content.by_ref().take(HEAD).read_to_end(&mut head)?;
            if head.is_empty() {
                return Ok(std::mem::take(&mut starts));
            }
            let next = next_start(at, &head, u64::MAX)?;
            let rest = next - at - HEAD;
            if io::copy(&mut content.by_ref().take(rest), &mut io::sink())? < rest {
                return Err(invalid(format!("at byte {at}: a record is cut")));
            }
            at = next;
            starts.push(at);
            if at > PACKED_BYTES || starts.len() > PACKED_RECORDS {
                return Err(invalid(format!(
                    "over {PACKED_BYTES} bytes or {PACKED_RECORDS} records are compressed as one, \
                     which cannot be read in parts; write smaller shards, or without compression"
                )));
            }
        }
    };
    walk().map_err(|error| match (failed.take(), error) {
        (Some(error), _) => error,
        (None, error) if error.kind() == io::ErrorKind::InvalidData => {
            invalid(format!("unpacked, {error}"))
        }
        (None, error) => invalid(format!("it does not unpack: {error}")),
    })
}
