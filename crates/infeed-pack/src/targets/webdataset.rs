//! WebDataset tar shards. The files of one record are consecutive and share a name. The part after
//! the first dot identifies the field.
//!
//! Times, owners and modes are constant, so the bytes of a shard follow from its records.
//!
//! Sources: POSIX.1-2024, pax (ustar interchange format, extended headers); the `webdataset`
//! package for the names; the `wds2idx` tool of NVIDIA DALI, version 1.2, for the index.

use std::fmt::Write as _;
use std::io::{self, Write};

use super::format::{FormatWriter, OutputFormat, PixelStorage};
use crate::shard_layout::{
    CountedFile, Extensions, FinishedShard, PackedRecord, ShardColumn, ShardLayout, ShardWriter,
};
use crate::{PackError, npy};
use infeed::pipeline::SourceSpec;
use infeed_codec::decode::Format;
use infeed_core::error::Error;
use infeed_core::sample::FieldKind;

const BLOCK: u64 = 512;

/// Minimum number of digits in a name, so that names sort like their records.
const DIGITS: usize = 9;

/// Limit of a size in a ustar header: one more than the largest.
const USTAR_BYTES: u64 = 8 << 30;

/// Naming of a member.
#[derive(Clone, Debug)]
struct Member {
    column: ShardColumn,
    /// The part after the first dot, or its beginning if an image's format follows.
    extension: String,
    /// Whether the format of an image is added.
    by_format: bool,
}

/// The format in the table of output formats.
pub(super) static FORMAT: OutputFormat = OutputFormat {
    name: "webdataset",
    summary: "tar shards, one member per image or number; for any sequential reader",
    pixels: PixelStorage::Encoded,
    writer: FormatWriter::Shards(|columns, _, _| Ok(Box::new(WebDatasetLayout::new(columns)?))),
    batch_file: None,
};

/// WebDataset shards.
struct WebDatasetLayout {
    members: Vec<Member>,
}

impl WebDatasetLayout {
    /// # Errors
    ///
    /// [`Error::Config`] for a field whose name cannot be part of an extension.
    fn new(columns: Vec<ShardColumn>) -> Result<WebDatasetLayout, Error> {
        let member = |column: ShardColumn| {
            let name = &column.name;
            if name.contains(['/', ';', '\0']) || name.contains(char::is_whitespace) {
                let problem = format!(
                    "field `{name}` cannot be part of a file name in a tar; rename it, without \
                     spaces, slashes and semicolons"
                );
                return Err(Error::config("source", problem));
            }
            let encoded = column.numbers.is_none();
            let own = |plain: &str, extension: &str| match name == plain {
                true => extension.to_owned(),
                false => format!("{name}.{extension}"),
            };
            let (extension, by_format) = match &column.kind {
                FieldKind::Image(_) if encoded && name == "image" => (String::new(), true),
                FieldKind::Image(_) | FieldKind::Mask(_) if encoded => (format!("{name}."), true),
                FieldKind::Text => (own("text", "txt"), false),
                FieldKind::Bytes => (format!("{name}.bin"), false),
                _ if column.is_label() => ("cls".to_owned(), false),
                _ => (format!("{name}.npy"), false),
            };
            Ok(Member {
                column,
                extension,
                by_format,
            })
        };
        let members = columns.into_iter().map(member);
        let members: Vec<Member> = members.collect::<Result<_, _>>()?;
        // Readers convert extensions to lower case, so two that differ only in case would collide.
        // An image may have the extension of any format.
        let mut known: Vec<String> = members.iter().flat_map(Member::extensions).collect();
        known.sort_unstable();
        if let Some(pair) = known.windows(2).find(|pair| pair[0] == pair[1]) {
            let problem = format!(
                "two fields would become files that end in `.{}`; rename one",
                pair[0]
            );
            return Err(Error::config("source", problem));
        }
        Ok(WebDatasetLayout { members })
    }
}

/// Extensions of images by format. The last is for unknown formats.
const FORMATS: [&str; 9] = [
    "jpg", "png", "webp", "bmp", "gif", "tiff", "pnm", "ifl", UNKNOWN,
];

/// Extension of an unknown format.
const UNKNOWN: &str = "img";

impl Member {
    fn extension(&self, bytes: &[u8]) -> String {
        if !self.by_format {
            return self.extension.clone();
        }
        let format = Format::of(bytes).map_or(UNKNOWN, Format::extension);
        format!("{}{format}", self.extension)
    }

    /// Returns the possible extensions of its files in lower case.
    fn extensions(&self) -> Vec<String> {
        let own = self.extension.to_lowercase();
        match self.by_format {
            false => vec![own],
            true => FORMATS
                .iter()
                .map(|format| format!("{own}{format}"))
                .collect(),
        }
    }

    /// Returns the bytes before a field's content in its member, or instead of it.
    fn head(&self, bytes: &[u8]) -> FieldHeader {
        let Some((dtype, shape)) = &self.column.numbers else {
            return FieldHeader::Before(Vec::new());
        };
        if self.column.is_label() {
            let number = dtype.integer(bytes).unwrap_or(i64::MAX);
            return FieldHeader::Instead(number.to_string().into_bytes());
        }
        let axes: Vec<u64> = match self.column.kind {
            FieldKind::Ragged { .. } => vec![(bytes.len() / dtype.bytes()) as u64],
            _ => shape.iter().map(|&axis| axis as u64).collect(),
        };
        FieldHeader::Before(npy::header(*dtype, &axes))
    }
}

enum FieldHeader {
    Before(Vec<u8>),
    Instead(Vec<u8>),
}

impl ShardLayout for WebDatasetLayout {
    fn extension(&self) -> &'static str {
        "tar"
    }

    fn weight(&self, made: &PackedRecord) -> u64 {
        // A header, and the start of a `.npy` file.
        let member = |bytes: u64| BLOCK + bytes.next_multiple_of(BLOCK);
        let sizes = made.products.iter().map(|p| member(p.bytes.len() as u64));
        sizes.sum()
    }

    fn check(&self, made: &PackedRecord) -> Result<(), PackError> {
        for (member, product) in self.members.iter().zip(&made.products) {
            let column = &member.column;
            if let (true, Some((dtype, _))) = (column.is_label(), &column.numbers)
                && dtype.integer(&product.bytes).is_none()
            {
                let field = column.name.clone();
                return Err(PackError::WideNumber { field });
            }
        }
        Ok(())
    }

    fn begin(&self, out: CountedFile) -> io::Result<Box<dyn ShardWriter>> {
        Ok(Box::new(TarFile {
            members: self.members.clone(),
            out,
            records: 0,
            index: String::new(),
            extensions: Extensions::new(),
        }))
    }

    fn source(&self, files: Vec<String>, extensions: &Extensions) -> SourceSpec {
        let spec = |member: &Member| {
            let found = extensions.get(&member.column.name);
            let found: Vec<&str> = found.into_iter().flatten().map(String::as_str).collect();
            member.column.spec(found.join(";"))
        };
        SourceSpec::WebDataset {
            shards: files,
            fields: self.members.iter().map(spec).collect(),
            follow_links: true,
        }
    }
}

/// One tar file.
struct TarFile {
    members: Vec<Member>,
    out: CountedFile,
    records: u64,
    /// Lines of the index except the first.
    index: String,
    extensions: Extensions,
}

impl TarFile {
    /// Writes a member. Returns the byte offset of its content.
    fn member(&mut self, name: &str, parts: &[&[u8]]) -> io::Result<u64> {
        let size: u64 = parts.iter().map(|part| part.len() as u64).sum();
        let mut long = Vec::new();
        if name.len() > 100 || !name.is_ascii() {
            long.push(("path", name.to_owned()));
        }
        if size >= USTAR_BYTES {
            long.push(("size", size.to_string()));
        }
        if !long.is_empty() {
            let records: String = long.iter().map(|(key, value)| pax(key, value)).collect();
            let header = header("pax", records.len() as u64, tar::EntryType::XHeader);
            self.out.write_all(header.as_bytes())?;
            self.out.write_all(records.as_bytes())?;
            self.pad(records.len() as u64)?;
        }
        let short: String = name.chars().filter(char::is_ascii).take(100).collect();
        let ustar_size = size.min(USTAR_BYTES - 1);
        let header = header(&short, ustar_size, tar::EntryType::Regular);
        self.out.write_all(header.as_bytes())?;
        let begin = self.out.written_bytes();
        for part in parts {
            self.out.write_all(part)?;
        }
        self.pad(size)?;
        Ok(begin)
    }

    fn pad(&mut self, size: u64) -> io::Result<()> {
        let rest = size.next_multiple_of(BLOCK) - size;
        self.out.write_all(&[0; BLOCK as usize][..rest as usize])
    }
}

/// Returns a ustar header: readable by everyone, owner 0, date 1970.
fn header(name: &str, size: u64, kind: tar::EntryType) -> tar::Header {
    let mut header = tar::Header::new_ustar();
    // The field has 100 bytes. A name that uses all of them has no final zero.
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(size);
    header.set_mtime(0);
    header.set_entry_type(kind);
    header.set_cksum();
    header
}

/// Returns a record of an extended header, which begins with its own length.
fn pax(key: &str, value: &str) -> String {
    let rest = format!(" {key}={value}\n");
    let mut length = rest.len() + 1;
    while length != rest.len() + length.to_string().len() {
        length = rest.len() + length.to_string().len();
    }
    format!("{length}{rest}")
}

impl ShardWriter for TarFile {
    fn add(&mut self, made: PackedRecord) -> io::Result<()> {
        let members = std::mem::take(&mut self.members);
        for (at, (member, product)) in members.iter().zip(&made.products).enumerate() {
            let bytes: &[u8] = &product.bytes;
            let extension = member.extension(bytes);
            let name = format!("{:0DIGITS$}.{extension}", made.record);
            let (begin, size) = match member.head(bytes) {
                FieldHeader::Instead(head) => (self.member(&name, &[&head])?, head.len()),
                FieldHeader::Before(head) => {
                    let begin = self.member(&name, &[&head, bytes])?;
                    (begin, head.len() + bytes.len())
                }
            };
            let space = if at == 0 { "" } else { " " };
            // Writing to a String cannot fail.
            let _ = write!(self.index, "{space}{extension} {begin} {size} {name}");
            let known = self.extensions.entry(member.column.name.clone());
            known.or_default().insert(extension);
        }
        self.index.push('\n');
        self.members = members;
        self.records += 1;
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> io::Result<FinishedShard> {
        self.out.write_all(&[0; 2 * BLOCK as usize])?;
        Ok(FinishedShard {
            out: self.out,
            index: Some(format!("v1.2 {}\n{}", self.records, self.index)),
            extensions: self.extensions,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_an_extended_record_counts_its_own_digits() {
        assert_eq!(pax("path", "a"), "9 path=a\n");
        assert_eq!(pax("path", "ab"), "11 path=ab\n");
        for length in 80..110 {
            let record = pax("path", &"x".repeat(length));
            let (declared, _) = record.split_once(' ').expect("a length");
            assert_eq!(declared.parse(), Ok(record.len()), "{record}");
        }
    }

    #[test]
    fn long_names_are_read_back_by_other_libraries() {
        let long = format!("{}ü.npy", "n".repeat(120));
        let mut tar = TarFile {
            members: Vec::new(),
            out: CountedFile::new(tempfile::tempfile().expect("a temporary file")),
            records: 0,
            index: String::new(),
            extensions: Extensions::new(),
        };
        tar.member(&long, &[b"ab", b"c"]).expect("writes");
        tar.member("short.txt", &[b"d"]).expect("writes");
        let done = Box::new(tar).finish().expect("ends");
        let mut file = done.out.into_file().expect("written");
        io::Seek::rewind(&mut file).expect("seeks");

        let mut archive = tar::Archive::new(file);

        let mut names = Vec::new();
        for entry in archive.entries().expect("a tar") {
            let mut entry = entry.expect("a member");
            let mut text = String::new();
            io::Read::read_to_string(&mut entry, &mut text).expect("content");
            names.push((entry.path().expect("Unicode").display().to_string(), text));
        }
        let expected = [(long.as_str(), "abc"), ("short.txt", "d")];
        assert_eq!(names, expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
    }
}
