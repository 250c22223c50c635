//! Traits of shard formats. A [`ShardLayout`] begins shards, a [`ShardWriter`] receives the records
//! of one. The bytes of a shard depend only on its records.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufWriter, Write};

use super::error::PackError;
use super::product::Product;
use infeed::pipeline::{FieldSpec, SourceSpec};
use infeed_core::sample::{DType, FieldKind};

/// Size of the write buffer. Longer pieces are written without a copy.
const BUFFER_BYTES: usize = 64 << 10;

/// A record that is ready to be written.
pub(super) struct PackedRecord {
    /// Its number in the source.
    pub(super) record: u64,
    /// Name of its first file without folders, if it has one.
    pub(super) file: Option<String>,
    /// The output of each field, in order.
    pub(super) products: Vec<Product>,
    /// Bytes of the original.
    pub(super) bytes_in: u64,
}

impl PackedRecord {
    /// Returns the bytes in memory.
    pub(super) fn bytes(&self) -> u64 {
        self.products.iter().map(|p| p.bytes.len() as u64).sum()
    }
}

/// A field in a shard.
#[derive(Clone, Debug)]
pub(super) struct ShardColumn {
    pub(super) name: String,
    pub(super) kind: FieldKind,
    /// Element type and shape of data that is not encoded.
    pub(super) numbers: Option<(DType, Vec<usize>)>,
}

/// The layout of records in shards of one format.
pub(super) trait ShardLayout: Send + Sync {
    /// Extension of the files.
    fn extension(&self) -> &'static str;

    /// Estimates the bytes of a record in a shard, to decide where shards end.
    fn weight(&self, made: &PackedRecord) -> u64;

    /// Maximum number of records in a shard.
    fn most_records(&self) -> u64 {
        u64::MAX
    }

    /// Checks that the format can hold a record.
    ///
    /// # Errors
    ///
    /// The reason why it cannot.
    fn check(&self, _made: &PackedRecord) -> Result<(), PackError> {
        Ok(())
    }

    /// Begins a shard.
    ///
    /// # Errors
    ///
    /// Returns the error of the disk.
    fn begin(&self, out: CountedFile) -> io::Result<Box<dyn ShardWriter>>;

    /// Describes a source that reads the files.
    fn source(&self, files: Vec<String>, extensions: &Extensions) -> SourceSpec;
}

/// A shard that is being written.
pub(super) trait ShardWriter: Send {
    /// Adds a record.
    ///
    /// # Errors
    ///
    /// Returns the error of the disk.
    fn add(&mut self, made: PackedRecord) -> io::Result<()>;

    /// Writes the rest of the file.
    ///
    /// # Errors
    ///
    /// Returns the error of the disk.
    fn finish(self: Box<Self>) -> io::Result<FinishedShard>;
}

/// File extensions of the members of each field.
pub(super) type Extensions = BTreeMap<String, BTreeSet<String>>;

/// A shard with all its bytes written.
pub(super) struct FinishedShard {
    pub(super) out: CountedFile,
    /// Text of the index file, if the format has one.
    pub(super) index: Option<String>,
    pub(super) extensions: Extensions,
}

/// A file that is written sequentially, with a byte count.
pub(super) struct CountedFile {
    file: BufWriter<File>,
    written: u64,
}

impl CountedFile {
    pub(super) fn new(file: File) -> CountedFile {
        CountedFile {
            file: BufWriter::with_capacity(BUFFER_BYTES, file),
            written: 0,
        }
    }

    /// Bytes written so far.
    pub(super) fn written_bytes(&self) -> u64 {
        self.written
    }

    /// Flushes the buffer to the operating system and returns the file.
    pub(super) fn into_file(self) -> io::Result<File> {
        self.file
            .into_inner()
            .map_err(io::IntoInnerError::into_error)
    }
}

impl Write for CountedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.written += written as u64;
        Ok(written)
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl ShardColumn {
    /// Returns whether the column is an integer named `label`.
    pub(super) fn is_label(&self) -> bool {
        let is_scalar = matches!(&self.kind, FieldKind::Tensor { dtype, shape }
            if shape.is_empty() && dtype.is_integer());
        is_scalar && self.name == "label"
    }

    /// Returns the field for the description of the source. `from` is its name in the format.
    pub(super) fn spec(&self, from: String) -> FieldSpec {
        let kind = match self.kind {
            FieldKind::Image(_) => "image",
            FieldKind::Mask(_) => "mask",
            FieldKind::Tensor { .. } => "tensor",
            FieldKind::Bytes => "bytes",
            FieldKind::Text => "text",
            FieldKind::Ragged { .. } => "ragged",
        };
        let (dtype, shape) = match &self.numbers {
            Some((dtype, shape)) => (Some(*dtype), shape.clone()),
            None => (None, Vec::new()),
        };
        FieldSpec {
            from: (from != self.name).then_some(from),
            name: self.name.clone(),
            kind: Some(kind.to_owned()),
            dtype,
            shape,
        }
    }
}
