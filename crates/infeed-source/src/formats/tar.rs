//! Tar archives in the layout of the `webdataset` package: consecutive files of equal stem are one
//! record, and the part of a base name after its first dot decides the field.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use bytes::Bytes;

use super::format::FileFormat;
use crate::columns::names_encoded_masks;
use crate::field_spec::field_requests;
use crate::left_out::LeftOut;
use crate::shards::index::{IndexedShard, PieceReader, ShardIndex, invalid};
use crate::shards::member::{BLOCK, MemberError, Members, TrailingData};
use crate::shards::notes::{MemberClass, MemberNote, MemberNotes};
use crate::shards::npy;
use crate::shards::tar_scan::{DOTS, FILES, TarScan, has_further_dot, key_and_extension, split};
use crate::shards::text_index;
use crate::shards::values::{FieldRequest, KindHint, array, cause, decimal, list_names, plain};
use crate::shards::{ExtraBytes, ShardFormat, Shards};
use crate::store::{self, FilePatterns};
use infeed_core::error::{Cause, Error, IncompleteRecord};
use infeed_core::sample::{DType, Field, FieldKind, Pixels};

/// Extensions of images that the decoder reads.
const IMAGES: &str = "jpg;jpeg;jpe;jfif;png;webp;bmp;gif;tif;tiff;ppm;pgm;pbm;pnm";

/// Extensions of text that is an integer.
const WHOLE: [&str; 7] = ["cls", "cls2", "class", "count", "index", "inx", "id"];

/// Extensions of text.
const TEXT: [&str; 6] = ["txt", "text", "transcript", "caption", "json", "jsn"];

/// Words of an extension that mark an image as a mask, such as `seg.png`.
const MASKS: [&str; 6] = ["mask", "masks", "seg", "segmentation", "label", "labels"];

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
    known_fields: |fields| Ok(requested_fields(&field_requests(fields)?)),
    open: |files, fields| Ok(Arc::new(open(files, &field_requests(fields)?)?)),
};

/// Opens tar shards.
///
/// # Errors
///
/// Errors of [`store::find_in`] and `Shards::open`, and [`Error::Config`] for a compressed archive.
pub fn open(shards: FilePatterns<'_>, wanted: &[FieldRequest]) -> Result<Shards, Error> {
    let blobs = store::find_in(shards)?;
    Shards::open(Box::new(Tar::new(wanted)), blobs, shards.follow_links)
}

/// Returns the fields if they are known before any shard is opened; None if the first records
/// decide.
fn requested_fields(wanted: &[FieldRequest]) -> Option<Vec<Field>> {
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
    /// Whether the first records determined the fields.
    are_guessed: bool,
}

/// Files of a record.
struct RecordFiles {
    key: String,
    /// Extensions and contents.
    files: Vec<(String, Bytes)>,
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
            are_guessed: false,
        }
    }

    /// Fields and extensions of the files of the first records, for a dataset without requested
    /// fields. All of these records have the same fields.
    fn guess(records: &[(usize, RecordFiles)]) -> Result<Vec<(FieldRequest, Vec<String>)>, String> {
        let [(number, first), others @ ..] = records else {
            return Ok(Vec::new());
        };
        let fields = Tar::guess_from(first);
        for (other_number, other) in others {
            let odd = |files: &RecordFiles, than: &RecordFiles| {
                let is_odd = |extension: &&str| {
                    let field = fields
                        .iter()
                        .find(|(_, from)| from.iter().any(|one| one == extension));
                    field.is_none_or(|(_, from)| {
                        let doubled = files.count(from) > 1 && !than.has(extension);
                        than.count(from) == 0 || doubled
                    })
                };
                files
                    .extensions()
                    .into_iter()
                    .find(is_odd)
                    .map(str::to_owned)
            };
            let (extension, with, without) = match (odd(first, other), odd(other, first)) {
                (Some(extension), _) => (extension, (number, first), (other_number, other)),
                (None, Some(extension)) => (extension, (other_number, other), (number, first)),
                (None, None) => continue,
            };
            let there = without.1.extensions();
            let rule = rule_of_dots([&extension[..]].into_iter());
            return Err(format!(
                "only some records have `{extension}`: record {} (`{}`) has it, record {} (`{}`) \
                 has {}{rule}; declare the fields to read with fields=",
                with.0,
                with.1.key,
                without.0,
                without.1.key,
                list_names(there.iter().copied()),
            ));
        }
        Ok(fields)
    }

    /// Fields and extensions of the files of a record.
    fn guess_from(files: &RecordFiles) -> Vec<(FieldRequest, Vec<String>)> {
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
        fields
    }

    /// Rejects shards of which no file has the extension of a field.
    fn reject_shards_without_a_field(&self, shards: &[(&str, &MemberNotes)]) -> Result<(), String> {
        for from in &self.from {
            let has = |notes: &MemberNotes| from.iter().any(|extension| notes.may_have(extension));
            let with = shards.iter().find(|(_, notes)| has(notes));
            let is_without = |notes: &MemberNotes| !notes.extensions().is_empty() && !has(notes);
            let without = shards.iter().find(|(_, notes)| is_without(notes));
            if let (Some((with, notes)), Some((without, others))) = (with, without) {
                let extension = from.iter().find(|extension| notes.may_have(extension));
                return Err(format!(
                    "only some shards have `{}`: {with} has it, {without} has {}; declare the fields \
                     to read with fields=",
                    extension.unwrap_or(&from[0]),
                    list_names(others.extensions().into_iter())
                ));
            }
        }
        Ok(())
    }

    /// Describes members that no record has; None for members that are read or not requested.
    fn unread(&self, shard: &str, note: &MemberNote) -> Option<LeftOut> {
        let is_read = |extension: &String| self.from.iter().any(|from| from.contains(extension));
        let (kind, fix) = match &note.class {
            MemberClass::Extension(extension) if self.are_guessed && !is_read(extension) => (
                "file with an extension that the first records do not have",
                "declare the fields to read with fields=",
            ),
            MemberClass::MoreExtensions if self.are_guessed => {
                ("file with one of many extensions", DOTS)
            }
            MemberClass::Spaced | MemberClass::Numbered if !self.reads_further_dots() => {
                ("file with several dots in the base name", DOTS)
            }
            MemberClass::HardLink(_) => ("hard link", "pack the files with --hard-dereference"),
            MemberClass::SymbolicLink(_) => ("symbolic link", "pack the files with --dereference"),
            MemberClass::NoExtension => ("file without an extension", ""),
            MemberClass::Hidden => ("hidden file", ""),
            MemberClass::Info => ("file below a name such as `__info__`", ""),
            MemberClass::Special => ("device or special member", ""),
            MemberClass::Trailing => ("piece of data after the end mark", ""),
            _ => return None,
        };
        let mut left_out = LeftOut::new(shard, kind).note(fix);
        left_out.count = note.count;
        left_out.names = note.names.clone();
        left_out.names.sort_unstable();
        Some(left_out)
    }

    /// Whether a requested extension has a further dot, so that such names are intended.
    fn reads_further_dots(&self) -> bool {
        self.from.iter().flatten().any(|from| has_further_dot(from))
    }

    /// Determines the field of a file whose kind is not fully specified.
    fn settle_field(
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

    fn index(&self, _number: usize, shard: &dyn store::Blob) -> io::Result<IndexedShard> {
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
        let mut scan = TarScan::new();
        while let Some(member) = members.next().map_err(of_shard)? {
            scan.add(&member).map_err(invalid)?;
        }
        if let Some(archive) = add_trailing(&mut members, &mut scan)? {
            return Err(invalid(format!(
                "at byte {archive}: another archive follows the end mark; unpack all of them with \
                 `tar --ignore-zeros -xf`, and pack the files again"
            )));
        }
        if let Some(starts) = scan.repeated_key() {
            reject_repeated(&mut members, starts)?;
        }
        Ok(scan.finish())
    }

    fn text_index(&self, text: &str, shard: &dyn store::Blob) -> Option<IndexedShard> {
        let mut members = Members::of(PieceReader::over(shard));
        let mut scan = TarScan::new();
        let mut end = 0_u64;
        for record in text_index::tar(text)? {
            let (begin, records) = (end, scan.records());
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
                        scan.add(&found).ok()?;
                    }
                }
                end = member
                    .offset
                    .checked_add(member.size)?
                    .checked_next_multiple_of(BLOCK)?;
                scan.add_file(member.name, begin, end).ok()?;
            }
            // The files of a line are one record, and those of the next line are another.
            let named = record
                .iter()
                .any(|member| key_and_extension(member.name).is_some());
            if scan.records() != records + usize::from(named) {
                return None;
            }
        }
        if scan.repeated_key().is_some() {
            return None;
        }
        members.seek(end);
        while let Some(member) = members.next().ok()? {
            if split(&member).is_some() {
                return None;
            }
            scan.add(&member).ok()?;
        }
        if add_trailing(&mut members, &mut scan).ok()?.is_some() {
            return None;
        }
        let shard_index = scan.finish();
        // The first and the last record are at their offsets, and no record follows.
        let ShardIndex::Plain(starts) = &shard_index.index else {
            return None;
        };
        let [first, second, ..] = starts[..] else {
            return None;
        };
        let [.., before, end] = starts[..] else {
            return None;
        };
        if !starts.is_sorted() || end > shard.len() {
            return None;
        }
        for (start, stop) in [(first, second), (before, end)] {
            files(&shard.read(start..stop).ok()?).ok()?;
        }
        Some(shard_index)
    }

    fn extra_bytes(&self) -> ExtraBytes {
        // Arrays are slices; a decimal number has a digit and a separator.
        let array = |from: &&Vec<String>| from.iter().all(|extension| extension.ends_with("npy"));
        let fields = self.fields.iter().zip(&self.from);
        let written = fields.filter(|(_, from)| !array(from));
        ExtraBytes::of(written.map(|(field, _)| field), 2)
    }

    fn is_settled(&self) -> bool {
        !self.fields.is_empty()
    }

    fn settle(&mut self, records: &[Bytes], shards: &[(&str, &MemberNotes)]) -> Result<(), Cause> {
        for (wanted, from) in self.wanted.iter().zip(&self.from) {
            let may_have =
                |extension: &String| shards.iter().any(|(_, notes)| notes.may_have(extension));
            if from[0] != KEY && !from.iter().any(may_have) {
                let there: BTreeSet<&str> = shards
                    .iter()
                    .flat_map(|(_, notes)| notes.extensions())
                    .collect();
                let rule = match rule_of_dots(there.iter().copied()) {
                    rule if rule.is_empty() => "; declare another one with fields=".to_owned(),
                    rule => rule,
                };
                return Err(cause(format!(
                    "field `{}`: no file has the extension `{}`; the extensions are {}{rule}",
                    wanted.name,
                    from.join("` or `"),
                    list_names(there.iter().copied()),
                )));
            }
        }
        if self.is_settled() {
            return Ok(());
        }
        let (mut good, mut problem) = (Vec::new(), None);
        for (number, record) in records.iter().enumerate() {
            match files(record) {
                Ok(files) => good.push((number, files)),
                Err(error) => problem = problem.or(Some(error)),
            }
        }
        if self.wanted.is_empty() {
            let guessed = Tar::guess(&good).map_err(cause)?;
            (self.wanted, self.from) = guessed.into_iter().unzip();
            self.are_guessed = true;
            self.reject_shards_without_a_field(shards).map_err(cause)?;
        }
        for (_, files) in &good {
            let all = self.wanted.iter().zip(&self.from);
            let fields = all.map(|(wanted, from)| Tar::settle_field(wanted, from, files));
            match fields.collect() {
                Ok(fields) => {
                    self.fields = fields;
                    return Ok(());
                }
                Err(error) => problem = problem.or(Some(error)),
            }
        }
        Err(cause(problem.unwrap_or_default()))
    }

    fn check(&self, notes: &MemberNotes) -> io::Result<()> {
        let is_guess = self.wanted.is_empty();
        let is_read = |extension: &String| match is_guess {
            true => notes.may_have(extension) || IMAGES.split(';').any(|image| image == extension),
            false => self.from.iter().any(|from| from.contains(extension)),
        };
        for note in notes.iter() {
            let problem = match &note.class {
                MemberClass::HardLink(extension) if is_read(extension) => {
                    "is a hard link, which has no content; pack the files again with \
                     --hard-dereference"
                }
                MemberClass::SymbolicLink(extension) if is_read(extension) => {
                    "is a symbolic link, which has no content; pack the files again with \
                     --dereference"
                }
                MemberClass::Spaced | MemberClass::Numbered if is_guess => {
                    return Err(invalid(format!(
                        "files whose names have a further dot, such as {}, become one record: \
                         {DOTS}, or declare their extensions with fields=",
                        name_members(note)
                    )));
                }
                _ => continue,
            };
            return Err(invalid(format!("{} {problem}", name_members(note))));
        }
        Ok(())
    }

    fn left_out(&self, _first: &str, shards: &[(&str, &MemberNotes)]) -> Vec<LeftOut> {
        let parts = shards
            .iter()
            .flat_map(|(shard, notes)| notes.iter().filter_map(|note| self.unread(shard, note)));
        LeftOut::over_files(parts)
    }

    fn parse(&self, bytes: Bytes) -> Result<Vec<Bytes>, Cause> {
        let files = files(&bytes).map_err(cause)?;
        let fields = self.fields.iter().zip(&self.from);
        let values = fields.map(|(field, from)| {
            let described =
                |problem: String| format!("`{}`, field `{}`: {problem}", files.key, field.name);
            let about = |problem: String| cause(described(problem));
            if from[0] == KEY {
                return plain(&field.kind, Bytes::from(files.key.clone())).map_err(about);
            }
            let incomplete = |problem| -> Cause { Arc::new(IncompleteRecord(described(problem))) };
            let (extension, content) = files.find(from).map_err(incomplete)?;
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
        let there = self.extensions();
        Err(format!(
            "it has no `{}`; it has {}{}",
            from.join("` or `"),
            list_names(there.iter().copied()),
            rule_of_dots(there.iter().copied())
        ))
    }

    fn extensions(&self) -> Vec<&str> {
        self.files.iter().map(|(one, _)| one.as_str()).collect()
    }

    fn has(&self, extension: &str) -> bool {
        self.files.iter().any(|(one, _)| one == extension)
    }

    /// Number of files with these extensions.
    fn count(&self, extensions: &[String]) -> usize {
        extensions
            .iter()
            .filter(|extension| self.has(extension))
            .count()
    }
}

/// Rule for names with several dots, if some extensions contradict it.
fn rule_of_dots<'a>(mut extensions: impl Iterator<Item = &'a str>) -> String {
    match extensions.any(has_further_dot) {
        true => format!(": {DOTS}"),
        false => String::new(),
    }
}

/// Collects the files of the record in these bytes.
fn files(bytes: &Bytes) -> Result<RecordFiles, String> {
    let mut found = RecordFiles {
        key: String::new(),
        files: Vec::new(),
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
        _ if is_image && words.iter().any(|word| names_encoded_masks(word)) => {
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

/// Names the first members of a class, and the number of the others.
fn name_members(note: &MemberNote) -> String {
    let names = note.names.join("`, `");
    match note.count.saturating_sub(note.names.len() as u64) {
        0 => format!("`{names}`"),
        more => format!("`{names}` and {more} more"),
    }
}

/// Counts data after the end mark, and returns the offset of another archive there.
fn add_trailing(
    members: &mut Members<PieceReader<'_>>,
    scan: &mut TarScan,
) -> io::Result<Option<u64>> {
    match members.trailing()? {
        Some(TrailingData::Archive(begin)) => return Ok(Some(begin)),
        Some(TrailingData::Other { begin, bytes }) => scan.add_trailing(begin, bytes),
        None => {}
    }
    Ok(None)
}

/// Rejects two records with one key, at these offsets. Equal hashes of different keys are accepted.
fn reject_repeated(members: &mut Members<PieceReader<'_>>, starts: (u64, u64)) -> io::Result<()> {
    let mut first_file = |start| {
        members.seek(start);
        while let Some(member) = members.next().map_err(of_shard)? {
            if let Some((key, _)) = split(&member) {
                return Ok((key.to_owned(), member.name.clone()));
            }
        }
        Ok::<_, io::Error>(Default::default())
    };
    let (key, one) = first_file(starts.0)?;
    let (same, other) = first_file(starts.1)?;
    let (begin, again) = starts;
    match (key == same, one == other) {
        (false, _) => Ok(()),
        (true, true) => Err(invalid(format!(
            "`{one}` occurs twice, at bytes {begin} and {again}; unpack the archive, which keeps \
             the last one, and pack the files again"
        ))),
        (true, false) => Err(invalid(format!(
            "the files of `{key}` are not next to each other: `{one}` is at byte {begin}, and \
             `{other}` at byte {again}; pack the files again in the order of their names, for \
             example with `tar --sort=name`"
        ))),
    }
}

/// Converts a problem to an error about the whole shard.
fn of_shard(problem: MemberError) -> io::Error {
    match problem {
        MemberError::Io(error) => error,
        MemberError::Bad { offset, what } => invalid(format!("at byte {offset}: {what}")),
    }
}
