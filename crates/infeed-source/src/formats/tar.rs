//! Tar archives in the layout of the `webdataset` package: consecutive files of equal stem are one
//! record, and the part of a base name after its first dot decides the field.

use std::io;
use std::sync::Arc;

use bytes::Bytes;

use super::FileFormat;
use crate::field_spec::field_requests;
use crate::shards::index::{PieceReader, ShardIndex, invalid};
use crate::shards::member::{BLOCK, MemberError, MemberKind, Members, TarMember};
use crate::shards::npy;
use crate::shards::text_index;
use crate::shards::values::{FieldRequest, KindHint, array, cause, decimal, first_settled, plain};
use crate::shards::{ExtraBytes, ShardFormat, Shards};
use crate::store;
use infeed_core::error::{Cause, Error};
use infeed_core::sample::{DType, Field, FieldKind, Pixels};

/// Extensions of images that the decoder reads.
const IMAGES: &str = "jpg;jpeg;jpe;png;webp;bmp;gif;tif;tiff";

/// Extensions of text that is an integer.
const WHOLE: [&str; 7] = ["cls", "cls2", "class", "count", "index", "inx", "id"];

/// Extensions of text.
const TEXT: [&str; 6] = ["txt", "text", "transcript", "caption", "json", "jsn"];

/// Words of an extension that mark an image as a mask, such as `seg.png`.
const MASKS: [&str; 6] = ["mask", "masks", "seg", "segmentation", "label", "labels"];

/// Maximum number of files of a record.
const FILES: usize = 1024;

/// Name under which a record's stem is available.
const KEY: &str = "__key__";

/// Tar shards in the table of formats.
pub static FORMAT: FileFormat = FileFormat {
    name: "webdataset",
    label: ".tar",
    is_table: false,
    endings: &[".tar", ".tar.gz", ".tgz"],
    numbered: false,
    index_file: None,
    known_fields: |fields| Ok(known(&field_requests(fields)?)),
    open: |files, fields| Ok(Arc::new(open(files, &field_requests(fields)?)?)),
};

/// Opens tar shards.
///
/// # Errors
///
/// Errors of [`store::find`] and `Shards::open`, and [`Error::Config`] for a compressed archive.
pub fn open(shards: &[String], wanted: &[FieldRequest]) -> Result<Shards, Error> {
    Shards::open(Box::new(Tar::new(wanted)), store::find(shards)?)
}

/// Returns the fields if they are known before any shard is opened; None if the first record
/// decides.
fn known(wanted: &[FieldRequest]) -> Option<Vec<Field>> {
    Tar::new(wanted)
        .is_settled()
        .then(|| Tar::new(wanted).fields)
}

/// Tar shards and the fields that their members become.
#[derive(Debug)]
pub(crate) struct Tar {
    wanted: Vec<FieldRequest>,
    /// Empty until they are determined.
    fields: Vec<Field>,
    /// Extensions of each field; the first that a record has counts.
    from: Vec<Vec<String>>,
}

/// Files of a record.
struct RecordFiles {
    key: String,
    /// Extensions and contents.
    files: Vec<(String, Bytes)>,
    /// Extensions of links.
    links: Vec<String>,
}

impl Tar {
    pub(crate) fn new(wanted: &[FieldRequest]) -> Tar {
        let from: Vec<Vec<String>> = wanted.iter().map(extensions).collect();
        let kinds = wanted.iter().zip(&from).map(|(wanted, from)| {
            let kind = match &wanted.hint {
                KindHint::Kind(kind) => Some(kind.clone()),
                KindHint::Nothing => by_extension(&from[0]),
                KindHint::Tensor | KindHint::Ragged => None,
            };
            kind.map(|kind| wanted.field(kind))
        });
        let fields: Option<Vec<Field>> = kinds.collect();
        Tar {
            fields: fields.unwrap_or_default(),
            wanted: wanted.to_vec(),
            from,
        }
    }

    /// Fields and extensions of all files of a record, for a dataset without requested fields.
    fn guess(files: &RecordFiles) -> Result<Vec<(FieldRequest, Vec<String>)>, String> {
        let kinds: Vec<Option<FieldKind>> = files
            .files
            .iter()
            .map(|(extension, content)| first_kind(extension, content))
            .collect();
        let only = |wanted: fn(&FieldKind) -> bool| {
            kinds.iter().flatten().filter(|kind| wanted(kind)).count() == 1
        };
        let one_image = only(|kind| matches!(kind, FieldKind::Image(_)));
        let one_mask = only(|kind| matches!(kind, FieldKind::Mask(_)));
        let mut fields: Vec<(FieldRequest, Vec<String>)> = Vec::new();
        for ((extension, _), kind) in files.files.iter().zip(&kinds) {
            let mut from = vec![extension.clone()];
            let name = match kind {
                Some(FieldKind::Image(_)) if one_image => {
                    // The next record may hold it in another encoding.
                    if IMAGES.split(';').any(|image| image == extension) {
                        from = IMAGES.split(';').map(str::to_owned).collect();
                    }
                    "image"
                }
                Some(FieldKind::Mask(_)) if one_mask => "mask",
                Some(_) if extension == "cls" => "label",
                _ => extension,
            };
            let hint = match kind {
                Some(kind) => KindHint::Kind(kind.clone()),
                None => KindHint::Nothing,
            };
            let wanted = FieldRequest {
                name: name.to_owned(),
                from: None,
                hint,
            };
            fields.push((wanted, from));
        }
        match fields.is_empty() {
            true => Err(format!(
                "the files `{}` have no extensions, which name the fields; pack them again with \
                 names such as `{}.jpg`",
                files.key, files.key
            )),
            false => Ok(fields),
        }
    }

    /// Determines the field of a file whose kind is not fully specified.
    fn settled(
        wanted: &FieldRequest,
        from: &[String],
        files: &RecordFiles,
    ) -> Result<Field, String> {
        let about = |problem: String| format!("field `{}`: {problem}", wanted.name);
        if from[0] == KEY {
            return Ok(wanted.field(FieldKind::Text));
        }
        let (extension, content) = files.find(from).map_err(about)?;
        let kind = match &wanted.hint {
            KindHint::Kind(kind) => kind.clone(),
            KindHint::Nothing => first_kind(extension, content).unwrap_or(FieldKind::Bytes),
            KindHint::Tensor | KindHint::Ragged
                if !npy::is(content) && WHOLE.contains(&extension) =>
            {
                let dtype = DType::Int64;
                let shape = Vec::new();
                match wanted.hint {
                    KindHint::Ragged => FieldKind::Ragged { dtype },
                    _ => FieldKind::Tensor { dtype, shape },
                }
            }
            KindHint::Tensor | KindHint::Ragged => {
                let array = npy::array(content)
                    .map_err(|problem| about(format!("give its dtype; {problem}")))?;
                let (dtype, shape) = (array.dtype, array.shape);
                match wanted.hint {
                    KindHint::Ragged => FieldKind::Ragged { dtype },
                    _ => FieldKind::Tensor { dtype, shape },
                }
            }
        };
        Ok(wanted.field(kind))
    }
}

impl ShardFormat for Tar {
    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn kept_as(&self) -> Option<&'static str> {
        Some("tar")
    }

    fn index(&self, _number: usize, shard: &dyn store::Blob) -> io::Result<ShardIndex> {
        let start = shard.read(0..shard.len().min(4))?;
        let packed = match start[..] {
            [0x1F, 0x8B, ..] => Some("gzip"),
            [0x28, 0xB5, 0x2F, 0xFD] => Some("zstd"),
            [b'B', b'Z', b'h', _] => Some("bzip2"),
            [0xFD, b'7', b'z', b'X'] => Some("xz"),
            _ => None,
        };
        if let Some(packed) = packed {
            return Err(invalid(format!(
                "it is compressed with {packed}, and no record could be read by itself; unpack it \
                 (images are compressed already)"
            )));
        }
        let mut members = Members::of(PieceReader::over(shard));
        let mut starts: Vec<u64> = Vec::new();
        let (mut last_key, mut end) = (String::new(), 0);
        while let Some(member) = members.next().map_err(of_shard)? {
            let Some((key, _)) = split(&member) else {
                continue;
            };
            if starts.is_empty() || key != last_key {
                starts.push(member.begin);
                last_key = key.to_owned();
            }
            end = member.end;
        }
        if !starts.is_empty() {
            starts.push(end);
        }
        Ok(ShardIndex::Plain(starts))
    }

    fn text_index(&self, text: &str, shard: &dyn store::Blob) -> Option<ShardIndex> {
        let mut members = Members::of(PieceReader::over(shard));
        let mut starts = Vec::new();
        let (mut last_key, mut end) = (String::new(), 0_u64);
        for record in text_index::tar(text)? {
            let begin = end;
            let mut key = None;
            for member in &record {
                // Usually one header is between two files. Further members between them must not be
                // files of records: otherwise the index has lost a line.
                if end.checked_add(BLOCK)? != member.offset {
                    members.seek(end);
                    loop {
                        let found = members.next().ok()??;
                        if found.data.start == member.offset {
                            break;
                        }
                        if found.data.start > member.offset || split(&found).is_some() {
                            return None;
                        }
                    }
                }
                end = member
                    .offset
                    .checked_add(member.size)?
                    .checked_next_multiple_of(BLOCK)?;
                let Some((own, _)) = key_and_extension(member.name) else {
                    continue;
                };
                if key.is_some_and(|key| key != own) {
                    return None;
                }
                key = Some(own);
            }
            if let Some(key) = key {
                if !starts.is_empty() && key == last_key {
                    return None;
                }
                starts.push(begin);
                last_key = key.to_owned();
            }
        }
        if !starts.is_empty() {
            starts.push(end);
        }
        // The first and the last record are at their offsets, and no record follows.
        let [first, second, ..] = starts[..] else {
            return None;
        };
        let before = starts[starts.len() - 2];
        if !starts.is_sorted() || end > shard.len() {
            return None;
        }
        for (start, stop) in [(first, second), (before, end)] {
            files(&shard.read(start..stop).ok()?).ok()?;
        }
        members.seek(end);
        while let Some(member) = members.next().ok()? {
            if split(&member).is_some() {
                return None;
            }
        }
        Some(ShardIndex::Plain(starts))
    }

    fn grown(&self) -> ExtraBytes {
        // Arrays are slices; a decimal number has a digit and a separator.
        let array = |from: &&Vec<String>| from.iter().all(|extension| extension.ends_with("npy"));
        let fields = self.fields.iter().zip(&self.from);
        let written = fields.filter(|(_, from)| !array(from));
        ExtraBytes::of(written.map(|(field, _)| field), 2)
    }

    fn is_settled(&self) -> bool {
        !self.fields.is_empty()
    }

    fn settle(&mut self, records: &[Bytes]) -> Result<(), Cause> {
        self.fields = first_settled(records, |record| {
            let files = files(record)?;
            if self.wanted.is_empty() {
                let (wanted, from) = Tar::guess(&files)?.into_iter().unzip();
                (self.wanted, self.from) = (wanted, from);
            }
            let all = self.wanted.iter().zip(&self.from);
            let fields = all.map(|(wanted, from)| Tar::settled(wanted, from, &files));
            fields.collect()
        })?;
        Ok(())
    }

    fn parse(&self, bytes: Bytes) -> Result<Vec<Bytes>, Cause> {
        let files = files(&bytes).map_err(cause)?;
        let fields = self.fields.iter().zip(&self.from);
        let values = fields.map(|(field, from)| {
            let about = |problem: String| {
                cause(format!(
                    "`{}`, field `{}`: {problem}",
                    files.key, field.name
                ))
            };
            if from[0] == KEY {
                return plain(&field.kind, Bytes::from(files.key.clone())).map_err(about);
            }
            let (extension, content) = files.find(from).map_err(about)?;
            value(&field.kind, extension, content).map_err(about)
        });
        values.collect()
    }
}

impl RecordFiles {
    /// Returns the first of some extensions that the record has, and its content.
    fn find<'a>(&'a self, from: &[String]) -> Result<(&'a str, &'a Bytes), String> {
        for extension in from {
            if let Some((found, content)) = self.files.iter().find(|(one, _)| one == extension) {
                return Ok((found, content));
            }
        }
        let wanted = from.join("` or `");
        let link = from.iter().any(|extension| self.links.contains(extension));
        let there: Vec<&str> = self.files.iter().map(|(one, _)| one.as_str()).collect();
        Err(match link {
            true => format!("its `{wanted}` is a link; pack it again with --dereference"),
            false => format!("it has no `{wanted}`; it has `{}`", there.join("`, `")),
        })
    }
}

/// Returns key and extension of a member. None for members that are not files of a record: folders,
/// links, hidden files, files without extension, and names like `__info__`, which hold no data.
fn split(member: &TarMember) -> Option<(&str, String)> {
    match member.kind {
        MemberKind::File => key_and_extension(&member.name),
        _ => None,
    }
}

fn key_and_extension(name: &str) -> Option<(&str, String)> {
    let top = name.split('/').next().unwrap_or_default();
    if top.len() >= 4 && top.starts_with("__") && top.ends_with("__") {
        return None;
    }
    let base = name.rfind('/').map_or(0, |slash| slash + 1);
    let dot = base + name[base..].find('.')?;
    (dot > base).then(|| (&name[..dot], name[dot + 1..].to_lowercase()))
}

/// Collects the files of the record in these bytes.
fn files(bytes: &Bytes) -> Result<RecordFiles, String> {
    let mut found = RecordFiles {
        key: String::new(),
        files: Vec::new(),
        links: Vec::new(),
    };
    let mut members = Members::of(bytes.clone());
    while members.offset() < members.len() {
        let member = match members.next() {
            Ok(Some(member)) => member,
            Ok(None) => return Err("an end mark lies where a file should".to_owned()),
            Err(MemberError::Io(error)) => return Err(error.to_string()),
            Err(MemberError::Bad { offset, what }) => {
                return Err(format!("{offset} bytes into it: {what}"));
            }
        };
        if member.kind == MemberKind::Link
            && let Some((_, extension)) = key_and_extension(&member.name)
        {
            found.links.push(extension);
        }
        let Some((key, extension)) = split(&member) else {
            continue;
        };
        if found.files.is_empty() {
            found.key = key.to_owned();
        }
        if found.key != key {
            return Err(format!(
                "files of both `{}` and `{key}`; its index belongs to another shard; remove it",
                found.key
            ));
        }
        if found.files.len() >= FILES {
            return Err(format!("over {FILES} files of `{key}`"));
        }
        if found.files.iter().any(|(known, _)| *known == extension) {
            return Err(format!("`{}` occurs twice", member.name));
        }
        // Both ends are within the bytes, since the iteration has passed them.
        let content = bytes.slice(member.data.start as usize..member.data.end as usize);
        found.files.push((extension, content));
    }
    match found.files.is_empty() {
        true => Err("no file with an extension".to_owned()),
        false => Ok(found),
    }
}

/// Extensions from which a field is taken.
fn extensions(wanted: &FieldRequest) -> Vec<String> {
    let own;
    let text = match (wanted.from.as_deref(), wanted.name.as_str()) {
        (Some(from), _) => from,
        (None, "image") => IMAGES,
        (None, "label") => "cls",
        (None, "mask") => {
            own = MASKS.map(|word| format!("{word}.png")).join(";");
            &own
        }
        (None, name) => name,
    };
    let parts = text.split(';').map(|part| part.trim().to_lowercase());
    let parts = parts.map(|part| part.trim_start_matches('.').to_owned());
    let parts: Vec<String> = parts.filter(|part| !part.is_empty()).collect();
    match parts.is_empty() {
        true => vec![wanted.source_name().to_owned()],
        false => parts,
    }
}

/// Kind of a field by its extension alone; None for arrays, whose type and shape a record decides.
fn by_extension(extension: &str) -> Option<FieldKind> {
    let mut words: Vec<&str> = extension.split(['.', '_', '-']).collect();
    let last = words.pop().unwrap_or_default();
    let is_image = IMAGES.split(';').any(|image| image == last);
    match last {
        _ if is_image && words.iter().any(|word| MASKS.contains(word)) => {
            Some(FieldKind::Mask(Pixels::Encoded))
        }
        _ if is_image => Some(FieldKind::Image(Pixels::Encoded)),
        "npy" => None,
        _ if WHOLE.contains(&last) => Some(FieldKind::Tensor {
            dtype: DType::Int64,
            shape: Vec::new(),
        }),
        _ if TEXT.contains(&last) || extension == KEY => Some(FieldKind::Text),
        _ => Some(FieldKind::Bytes),
    }
}

/// Kind of a field by its extension and first content; None for a damaged array.
fn first_kind(extension: &str, content: &Bytes) -> Option<FieldKind> {
    match by_extension(extension) {
        None => npy::array(content).ok().map(|array| FieldKind::Tensor {
            dtype: array.dtype,
            shape: array.shape,
        }),
        // Some datasets have class names in `cls`.
        Some(kind @ FieldKind::Tensor { .. }) => match decimal(&kind, content) {
            Ok(_) => Some(kind),
            Err(_) => Some(FieldKind::Text),
        },
        other => other,
    }
}

/// Converts the content of a file to a value.
fn value(kind: &FieldKind, extension: &str, content: &Bytes) -> Result<Bytes, String> {
    let numbers = matches!(kind, FieldKind::Tensor { .. } | FieldKind::Ragged { .. });
    let raw_pixels = !numbers && kind.record_bytes().is_some();
    if (numbers || raw_pixels) && npy::is(content) {
        return array(kind, npy::array(content)?);
    }
    let last = extension.rsplit('.').next().unwrap_or_default();
    if numbers && (WHOLE.contains(&last) || TEXT.contains(&last)) {
        return decimal(kind, content);
    }
    plain(kind, content.clone())
}

/// Converts a problem to an error about the whole shard.
fn of_shard(problem: MemberError) -> io::Error {
    match problem {
        MemberError::Io(error) => error,
        MemberError::Bad { offset, what } => invalid(format!("at byte {offset}: {what}")),
    }
}
