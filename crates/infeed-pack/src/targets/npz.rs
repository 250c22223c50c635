//! Batches as compressed NumPy files. A `.npz` file holds the rows of one batch, one array per
//! field.
//!
//! Sources: the NumPy format specification (`numpy.savez_compressed`); PKWARE's APPNOTE.TXT 6.3,
//! 4.3 (local and central headers); RFC 1951 (deflate).

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::DeflateEncoder;

use super::format::{FormatWriter, OutputFormat, PixelStorage};
use crate::shard_layout::{
    CountedFile, Extensions, FinishedShard, PackedRecord, ShardColumn, ShardLayout, ShardWriter,
};
use crate::{PackError, npy};
use infeed::pipeline::SourceSpec;
use infeed_core::error::Error;

/// Compression level, the same as NumPy's.
const LEVEL: u32 = 6;

/// Maximum bytes of one array and of one file, because sizes in a zip without extensions have 32
/// bits.
const MAX_BYTES: u64 = u32::MAX as u64 / 2;

/// The format in the table of output formats.
pub(super) static FORMAT: OutputFormat = OutputFormat {
    name: "npz",
    summary: "one compressed NumPy file per batch, all images decoded to one size",
    pixels: PixelStorage::Decoded,
    writer: FormatWriter::Shards(|columns, _, rows| Ok(Box::new(NpzLayout::new(columns, rows)?))),
    batch_file: Some("an npz file"),
};

/// `.npz` files.
struct NpzLayout {
    columns: Vec<ShardColumn>,
    rows: u64,
}

impl NpzLayout {
    /// # Errors
    ///
    /// [`Error::Config`] for a field that does not fit an array, for a batch without rows, and for
    /// a batch over 2 GiB.
    fn new(columns: Vec<ShardColumn>, rows: u64) -> Result<NpzLayout, Error> {
        let mut bytes = 0_u64;
        for column in &columns {
            let Some((dtype, shape)) = &column.numbers else {
                let problem = format!("field `{}` is not an array", column.name);
                return Err(Error::config("source", problem));
            };
            let row = shape.iter().fold(dtype.bytes() as u64, |bytes, &axis| {
                bytes.saturating_mul(axis as u64)
            });
            bytes = bytes.saturating_add(row);
        }
        if rows == 0 || bytes.saturating_mul(rows) > MAX_BYTES {
            let problem = format!(
                "a file of {rows} rows of {bytes} bytes each; a batch has at least 1 row and at \
                 most 2 GiB"
            );
            return Err(Error::config("rows", problem));
        }
        Ok(NpzLayout { columns, rows })
    }
}

impl ShardLayout for NpzLayout {
    fn extension(&self) -> &'static str {
        "npz"
    }

    fn weight(&self, _: &PackedRecord) -> u64 {
        // A file is one batch, whatever its size.
        0
    }

    fn most_records(&self) -> u64 {
        self.rows
    }

    fn check(&self, _: &PackedRecord) -> Result<(), PackError> {
        Ok(())
    }

    fn begin(&self, out: CountedFile) -> io::Result<Box<dyn ShardWriter>> {
        Ok(Box::new(NpzRows {
            columns: self.columns.clone(),
            out,
            rows: Vec::new(),
        }))
    }

    fn source(&self, files: Vec<String>, _: &Extensions) -> SourceSpec {
        let columns = self.columns.iter();
        SourceSpec::Npz {
            files,
            fields: columns
                .map(|column| column.spec(column.name.clone()))
                .collect(),
            follow_links: true,
        }
    }
}

/// The rows of one file.
struct NpzRows {
    columns: Vec<ShardColumn>,
    out: CountedFile,
    rows: Vec<PackedRecord>,
}

impl ShardWriter for NpzRows {
    fn add(&mut self, made: PackedRecord) -> io::Result<()> {
        self.rows.push(made);
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> io::Result<FinishedShard> {
        let mut entries = Vec::with_capacity(self.columns.len());
        for (at, column) in self.columns.iter().enumerate() {
            let Some((dtype, shape)) = &column.numbers else {
                continue;
            };
            let axes = shape.iter().map(|&axis| axis as u64);
            let axes: Vec<u64> = std::iter::once(self.rows.len() as u64)
                .chain(axes)
                .collect();
            let header = npy::header(*dtype, &axes);
            let parts = self.rows.iter().map(|made| &made.products[at].bytes[..]);
            let parts = std::iter::once(&header[..]).chain(parts);
            let name = format!("{}.npy", column.name);
            entries.push(ZipEntry::write(&mut self.out, name, parts)?);
        }
        let begin = self.out.written_bytes();
        for entry in &entries {
            entry.central(&mut self.out)?;
        }
        end(&mut self.out, entries.len() as u16, begin)?;
        Ok(FinishedShard {
            out: self.out,
            index: None,
            extensions: Extensions::new(),
        })
    }
}

/// A compressed member of a zip.
struct ZipEntry {
    name: String,
    begin: u32,
    crc: u32,
    compressed: u32,
    length: u32,
}

impl ZipEntry {
    fn write<'a>(
        out: &mut CountedFile,
        name: String,
        parts: impl Iterator<Item = &'a [u8]>,
    ) -> io::Result<ZipEntry> {
        let mut crc = crc32fast::Hasher::new();
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::new(LEVEL));
        let mut length = 0_u64;
        for part in parts {
            crc.update(part);
            encoder.write_all(part)?;
            length += part.len() as u64;
        }
        let bytes = encoder.finish()?;
        let small = |bytes: u64| {
            u32::try_from(bytes).map_err(|_| io::Error::other("a batch over 4 GiB in a zip"))
        };
        let entry = ZipEntry {
            begin: small(out.written_bytes())?,
            crc: crc.finalize(),
            compressed: small(bytes.len() as u64)?,
            length: small(length)?,
            name,
        };
        out.write_all(b"PK\x03\x04")?;
        out.write_all(&entry.common())?;
        out.write_all(&0_u16.to_le_bytes())?;
        out.write_all(entry.name.as_bytes())?;
        out.write_all(&bytes)?;
        Ok(entry)
    }

    /// Returns the common part of both headers: version 2.0, names in UTF-8, deflate, the earliest
    /// date of the format, checksum, sizes, and the length of the name.
    fn common(&self) -> Vec<u8> {
        const UTF8: u16 = 1 << 11;
        const DEFLATE: u16 = 8;
        const JANUARY_1980: u16 = 1 << 5 | 1;
        let mut bytes = Vec::new();
        for half in [20, UTF8, DEFLATE, 0, JANUARY_1980] {
            bytes.extend(half.to_le_bytes());
        }
        for word in [self.crc, self.compressed, self.length] {
            bytes.extend(word.to_le_bytes());
        }
        // Field names cannot be that long in any format.
        bytes.extend((self.name.len() as u16).to_le_bytes());
        bytes
    }

    fn central(&self, out: &mut CountedFile) -> io::Result<()> {
        out.write_all(b"PK\x01\x02")?;
        // Made by version 2.0.
        out.write_all(&20_u16.to_le_bytes())?;
        out.write_all(&self.common())?;
        // No extra field, comment, disk or attributes.
        out.write_all(&[0; 12])?;
        out.write_all(&self.begin.to_le_bytes())?;
        out.write_all(self.name.as_bytes())
    }
}

/// Writes the end of a zip whose central directory begins at `begin`.
fn end(out: &mut CountedFile, entries: u16, begin: u64) -> io::Result<()> {
    let size = out.written_bytes() - begin;
    out.write_all(b"PK\x05\x06\0\0\0\0")?;
    out.write_all(&entries.to_le_bytes())?;
    out.write_all(&entries.to_le_bytes())?;
    // Both are below 4 GiB, like the members.
    out.write_all(&(size as u32).to_le_bytes())?;
    out.write_all(&(begin as u32).to_le_bytes())?;
    out.write_all(&0_u16.to_le_bytes())
}
