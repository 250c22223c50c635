//! What the formats of shards have in common: a [`Form`] begins shards, a [`Shard`] takes the
//! records of one. The bytes of a shard depend on its records alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufWriter, Write};

use super::PackError;
use super::fields::{FieldWork, Work};
use super::make::{Product, Shape};
use crate::pipeline::{FieldSpec, SourceSpec};
use crate::sample::{DType, Depth, FieldKind};

/// Bytes that are gathered before they are written; what is longer is written from where it lies.
const BUFFER_BYTES: usize = 64 << 10;

/// A record that is ready to be written.
pub(super) struct Made {
    /// Its number in the source.
    pub(super) record: u64,
    /// The name of its first file, without folders, where it has one.
    pub(super) file: Option<String>,
    /// What is written of each field, in order.
    pub(super) products: Vec<Product>,
    /// Bytes of the original.
    pub(super) bytes_in: u64,
}

impl Made {
    /// Bytes that wait in memory.
    pub(super) fn bytes(&self) -> u64 {
        self.products.iter().map(|p| p.bytes.len() as u64).sum()
    }
}

/// A field as shards hold it.
#[derive(Clone, Debug)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) kind: FieldKind,
    /// Element type and shape of what is not encoded.
    pub(super) numbers: Option<(DType, Vec<usize>)>,
}

/// What the records of a dataset become in one format of shards.
pub(super) trait Form: Send + Sync {
    /// Extension of the files.
    fn extension(&self) -> &'static str;

    /// Bytes that a record takes in a shard; close enough to cut shards by.
    fn weight(&self, made: &Made) -> u64;

    /// Records of a shard at most.
    fn most_records(&self) -> u64 {
        u64::MAX
    }

    /// Whether the format can hold a record.
    ///
    /// # Errors
    ///
    /// Why it cannot.
    fn check(&self, _made: &Made) -> Result<(), PackError> {
        Ok(())
    }

    /// Begins a shard.
    ///
    /// # Errors
    ///
    /// What the disk said.
    fn begin(&self, out: Sink) -> io::Result<Box<dyn Shard>>;

    /// The source that reads the files.
    fn source(&self, files: Vec<String>, extensions: &Extensions) -> SourceSpec;
}

/// A shard that is being written.
pub(super) trait Shard: Send {
    /// Adds a record.
    ///
    /// # Errors
    ///
    /// What the disk said.
    fn add(&mut self, made: Made) -> io::Result<()>;

    /// Writes what is left.
    ///
    /// # Errors
    ///
    /// What the disk said.
    fn finish(self: Box<Self>) -> io::Result<Finished>;
}

/// Extensions that the members of a field have, by field.
pub(super) type Extensions = BTreeMap<String, BTreeSet<String>>;

/// A shard whose bytes are all written.
pub(super) struct Finished {
    pub(super) out: Sink,
    /// Text that tells where its records lie, for a file beside it.
    pub(super) index: Option<String>,
    pub(super) extensions: Extensions,
}

/// A file that is written front to back and counted.
pub(super) struct Sink {
    file: BufWriter<File>,
    written: u64,
}

impl Sink {
    pub(super) fn new(file: File) -> Sink {
        Sink {
            file: BufWriter::with_capacity(BUFFER_BYTES, file),
            written: 0,
        }
    }

    /// Bytes written so far.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// The file, all bytes handed to the operating system.
    pub(super) fn into_file(self) -> io::Result<File> {
        self.file
            .into_inner()
            .map_err(io::IntoInnerError::into_error)
    }
}

impl Write for Sink {
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

/// The fields as shards hold them. `shapes` are those of the pixels of one record, all records
/// having the same.
pub(super) fn columns(fields: &[FieldWork], shapes: &[Option<Shape>]) -> Vec<Column> {
    let column = |(field, shape): (&FieldWork, &Option<Shape>)| {
        let numbers = match (&field.kind, shape) {
            (_, Some(shape)) => Some((depth_dtype(shape.depth), shape.axes())),
            (FieldKind::Tensor { dtype, shape }, None) => Some((*dtype, shape.clone())),
            (FieldKind::Ragged { dtype }, None) => Some((*dtype, Vec::new())),
            _ => None,
        };
        Column {
            name: field.name.clone(),
            kind: field.kind.clone(),
            numbers,
        }
    };
    fields.iter().zip(shapes).map(column).collect()
}

/// The element type of samples.
pub(super) fn depth_dtype(depth: Depth) -> DType {
    match depth {
        Depth::U8 => DType::UInt8,
        Depth::U16 => DType::UInt16,
    }
}

impl Column {
    /// Whether it is a whole number called `label`.
    pub(super) fn is_label(&self) -> bool {
        let is_scalar = matches!(&self.kind, FieldKind::Tensor { dtype, shape }
            if shape.is_empty() && is_integer(*dtype));
        is_scalar && self.name == "label"
    }

    /// What a reader is told of it; `from` is what the format calls it.
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

/// Whether elements are whole numbers.
pub(super) fn is_integer(dtype: DType) -> bool {
    !matches!(
        dtype,
        DType::Bool | DType::Float16 | DType::BFloat16 | DType::Float32 | DType::Float64
    )
}

/// Whether records of a field are written as pixels that are not encoded.
pub(super) fn is_pixels(field: &FieldWork) -> bool {
    matches!(field.work, Work::Pixels { .. })
}
