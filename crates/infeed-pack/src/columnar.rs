//! Records as Arrow columns, for Arrow IPC and Parquet.
//!
//! Source: the columnar format and the canonical extension types of Apache Arrow.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use arrow_array::types::{
    Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, BinaryArray, BooleanArray, FixedSizeListArray, ListArray,
    PrimitiveArray, RecordBatch, StringArray, StructArray,
};
use arrow_buffer::{MutableBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::extension::{
    EXTENSION_TYPE_METADATA_KEY, EXTENSION_TYPE_NAME_KEY, ExtensionType as _, FixedShapeTensor,
};
use arrow_schema::{ArrowError, DataType, Field, Fields, Schema, SchemaRef};
use bytes::Bytes;

use super::error::PackError;
use super::shard_layout::{
    CountedFile, Extensions, FinishedShard, PackedRecord, ShardColumn, ShardWriter,
};
use infeed::pipeline::FieldSpec;
use infeed_core::error::Error;
use infeed_core::sample::{DType, FieldKind};

/// Maximum bytes of a column of variable-length values in one batch, because offsets have 32 bits.
const MAX_BYTES: u64 = i32::MAX as u64;

/// Converts fields to columns.
#[derive(Clone, Debug)]
pub(super) struct ColumnConverters {
    columns: Vec<ShardColumn>,
    pub(super) schema: SchemaRef,
    /// Whether images are `{bytes, path}`, as in Hugging Face datasets.
    with_paths: bool,
}

impl ColumnConverters {
    /// # Errors
    ///
    /// [`Error::Config`] for a tensor with more elements than a list can have.
    pub(super) fn new(
        columns: Vec<ShardColumn>,
        with_paths: bool,
        metadata: HashMap<String, String>,
    ) -> Result<ColumnConverters, Error> {
        let fields = columns.iter().map(|column| field(column, with_paths));
        let fields: Fields = fields.collect::<Result<Vec<_>, _>>()?.into();
        Ok(ColumnConverters {
            columns,
            schema: Arc::new(Schema::new_with_metadata(fields, metadata)),
            with_paths,
        })
    }

    /// Checks that a record fits the columns.
    pub(super) fn check(&self, made: &PackedRecord) -> Result<(), PackError> {
        for (column, product) in self.columns.iter().zip(&made.products) {
            let bytes = product.bytes.len() as u64;
            if bytes > MAX_BYTES {
                let limit = MAX_BYTES;
                return Err(PackError::TooLong { bytes, limit });
            }
            if column.kind == FieldKind::Text && std::str::from_utf8(&product.bytes).is_err() {
                let field = column.name.clone();
                return Err(PackError::NotText { field });
            }
        }
        Ok(())
    }

    /// Returns the bytes that a record takes: its values, and an offset per field.
    pub(super) fn weight(&self, made: &PackedRecord) -> u64 {
        made.bytes() + 4 * made.products.len() as u64
    }

    /// Returns the fields for the description of the source.
    pub(super) fn specs(&self) -> Vec<FieldSpec> {
        let columns = self.columns.iter();
        columns
            .map(|column| column.spec(column.name.clone()))
            .collect()
    }

    /// Builds a batch of records.
    fn batch(&self, records: &[PackedRecord]) -> Result<RecordBatch, ArrowError> {
        let arrays = self.columns.iter().enumerate().map(|(at, column)| {
            let values = records.iter().map(|made| &made.products[at].bytes);
            self.array(column, self.schema.field(at), values, records)
        });
        let arrays = arrays.collect::<Result<Vec<_>, _>>()?;
        RecordBatch::try_new(Arc::clone(&self.schema), arrays)
    }

    fn array<'a>(
        &self,
        column: &ShardColumn,
        field: &Field,
        values: impl Iterator<Item = &'a Bytes> + Clone,
        records: &[PackedRecord],
    ) -> Result<ArrayRef, ArrowError> {
        let Some((dtype, _)) = &column.numbers else {
            return Ok(match (&column.kind, field.data_type()) {
                (FieldKind::Text, _) => Arc::new(StringArray::from_iter_values(
                    values.map(|bytes| String::from_utf8_lossy(bytes)),
                )),
                (_, DataType::Struct(fields)) if self.with_paths => {
                    let bytes: ArrayRef = Arc::new(binary(values)?);
                    let paths = records.iter().map(|made| made.file.as_deref());
                    let paths: ArrayRef = Arc::new(paths.collect::<StringArray>());
                    let both = vec![bytes, paths];
                    Arc::new(StructArray::try_new(fields.clone(), both, None)?)
                }
                _ => Arc::new(binary(values)?),
            });
        };
        let elements = numbers(*dtype, concat_values(values.clone()));
        Ok(match field.data_type() {
            DataType::FixedSizeList(item, length) => Arc::new(FixedSizeListArray::try_new(
                Arc::clone(item),
                *length,
                elements,
                None,
            )?),
            DataType::List(item) => {
                let lengths = values.map(|bytes| bytes.len() / dtype.bytes());
                let offsets = OffsetBuffer::from_lengths(lengths);
                Arc::new(ListArray::try_new(
                    Arc::clone(item),
                    offsets,
                    elements,
                    None,
                )?)
            }
            _ => elements,
        })
    }
}

/// Returns the bytes of all values, one after another.
fn concat_values<'a>(values: impl Iterator<Item = &'a Bytes> + Clone) -> MutableBuffer {
    let count = values.clone().map(Bytes::len).sum();
    let mut all = MutableBuffer::with_capacity(count);
    values.for_each(|bytes| all.extend_from_slice(bytes));
    all
}

/// Builds an array of values of any length.
fn binary<'a>(values: impl Iterator<Item = &'a Bytes> + Clone) -> Result<BinaryArray, ArrowError> {
    let offsets = OffsetBuffer::from_lengths(values.clone().map(Bytes::len));
    BinaryArray::try_new(offsets, concat_values(values).into(), None)
}

fn field(column: &ShardColumn, with_paths: bool) -> Result<Field, Error> {
    let name = &column.name;
    let Some((dtype, shape)) = &column.numbers else {
        let is_visual = matches!(column.kind, FieldKind::Image(_) | FieldKind::Mask(_));
        let kind = match column.kind {
            FieldKind::Text => DataType::Utf8,
            _ if is_visual && with_paths => DataType::Struct(Fields::from(vec![
                Field::new("bytes", DataType::Binary, true),
                Field::new("path", DataType::Utf8, true),
            ])),
            _ => DataType::Binary,
        };
        return Ok(Field::new(name, kind, with_paths));
    };
    let element = element_type(*dtype);
    if let FieldKind::Ragged { .. } = column.kind {
        let list = DataType::new_list(element, true);
        return Ok(Field::new(name, list, with_paths));
    }
    if shape.is_empty() {
        return Ok(Field::new(name, element, with_paths));
    }
    let product = shape
        .iter()
        .try_fold(1_usize, |n, &axis| n.checked_mul(axis));
    let length = product
        .and_then(|n| i32::try_from(n).ok())
        .filter(|&n| n > 0);
    let Some(length) = length else {
        let problem = format!("field `{name}` of shape {shape:?} cannot be an Arrow column");
        return Err(Error::config("source", problem));
    };
    let list = DataType::new_fixed_size_list(element, length, with_paths);
    let field = Field::new(name, list, with_paths);
    if with_paths {
        return Ok(field);
    }
    // Written by hand, because the library writes nulls for absent values and pyarrow rejects them.
    let tensor = [
        (EXTENSION_TYPE_NAME_KEY, FixedShapeTensor::NAME.to_owned()),
        (
            EXTENSION_TYPE_METADATA_KEY,
            serde_json::json!({ "shape": shape }).to_string(),
        ),
    ];
    let tensor = tensor.map(|(key, value)| (key.to_owned(), value));
    Ok(field.with_metadata(HashMap::from(tensor)))
}

/// Returns the Arrow element type. Arrow has no bfloat16, so its bits become uint16.
fn element_type(dtype: DType) -> DataType {
    match dtype {
        DType::Bool => DataType::Boolean,
        DType::UInt8 => DataType::UInt8,
        DType::UInt16 | DType::BFloat16 => DataType::UInt16,
        DType::UInt32 => DataType::UInt32,
        DType::UInt64 => DataType::UInt64,
        DType::Int8 => DataType::Int8,
        DType::Int16 => DataType::Int16,
        DType::Int32 => DataType::Int32,
        DType::Int64 => DataType::Int64,
        DType::Float16 => DataType::Float16,
        DType::Float32 => DataType::Float32,
        DType::Float64 => DataType::Float64,
    }
}

/// Builds an array without nulls from little-endian numbers.
fn numbers(dtype: DType, bytes: MutableBuffer) -> ArrayRef {
    match dtype {
        DType::Bool => Arc::new(BooleanArray::from_iter(
            bytes.as_slice().iter().map(|&byte| Some(byte != 0)),
        )),
        DType::UInt8 => primitive::<UInt8Type>(bytes),
        DType::UInt16 | DType::BFloat16 => primitive::<UInt16Type>(bytes),
        DType::UInt32 => primitive::<UInt32Type>(bytes),
        DType::UInt64 => primitive::<UInt64Type>(bytes),
        DType::Int8 => primitive::<Int8Type>(bytes),
        DType::Int16 => primitive::<Int16Type>(bytes),
        DType::Int32 => primitive::<Int32Type>(bytes),
        DType::Int64 => primitive::<Int64Type>(bytes),
        DType::Float16 => primitive::<Float16Type>(bytes),
        DType::Float32 => primitive::<Float32Type>(bytes),
        DType::Float64 => primitive::<Float64Type>(bytes),
    }
}

fn primitive<T: ArrowPrimitiveType>(bytes: MutableBuffer) -> ArrayRef {
    let length = bytes.len() / size_of::<T::Native>();
    let values = ScalarBuffer::<T::Native>::new(bytes.into(), 0, length);
    Arc::new(PrimitiveArray::<T>::new(values, None)) as Arc<dyn Array>
}

/// Writes the batches of one file.
pub(super) trait BatchWriter: Send {
    /// Writes one batch.
    ///
    /// # Errors
    ///
    /// Returns the error of the disk.
    fn write(&mut self, batch: &RecordBatch) -> io::Result<()>;

    /// Writes the end of the file.
    ///
    /// # Errors
    ///
    /// Returns the error of the disk.
    fn finish(self) -> io::Result<CountedFile>;
}

/// A file that is written batch by batch.
pub(super) struct BatchedFile<W> {
    columns: ColumnConverters,
    limits: BatchLimits,
    writer: W,
    waiting: PendingBatch,
}

impl<W: BatchWriter> BatchedFile<W> {
    pub(super) fn new(columns: ColumnConverters, limits: BatchLimits, writer: W) -> BatchedFile<W> {
        BatchedFile {
            columns,
            limits,
            writer,
            waiting: PendingBatch::default(),
        }
    }

    fn write(&mut self, records: &[PackedRecord]) -> io::Result<()> {
        let batch = self.columns.batch(records).map_err(io_error)?;
        self.writer.write(&batch)
    }
}

impl<W: BatchWriter> ShardWriter for BatchedFile<W> {
    fn add(&mut self, made: PackedRecord) -> io::Result<()> {
        match self.waiting.add(made, &self.limits) {
            Some(full) => self.write(&full),
            None => Ok(()),
        }
    }

    fn finish(mut self: Box<Self>) -> io::Result<FinishedShard> {
        let last = self.waiting.take();
        if !last.is_empty() {
            self.write(&last)?;
        }
        Ok(FinishedShard {
            out: self.writer.finish()?,
            index: None,
            extensions: Extensions::new(),
        })
    }
}

/// Records that wait for a full batch.
#[derive(Default)]
struct PendingBatch {
    records: Vec<PackedRecord>,
    bytes: u64,
}

/// Conditions for writing a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchLimits {
    /// Minimum number of records, unless they have `most_bytes`.
    pub(super) least_records: usize,
    /// Number of records at which a batch is written if it has `least_bytes`.
    pub(super) usual_records: usize,
    pub(super) least_bytes: u64,
    pub(super) most_records: usize,
    /// Bytes at which a batch is written if it has `least_records`.
    pub(super) bytes: u64,
    pub(super) most_bytes: u64,
}

impl PendingBatch {
    /// Adds a record. Returns the previous batch if it is full or would become too large.
    fn add(&mut self, made: PackedRecord, limits: &BatchLimits) -> Option<Vec<PackedRecord>> {
        let (count, bytes) = (self.records.len(), self.bytes.saturating_add(made.bytes()));
        let full = count >= limits.most_records
            || (count >= limits.usual_records && self.bytes >= limits.least_bytes)
            || (count >= limits.least_records && bytes > limits.bytes)
            || (count > 0 && bytes > limits.most_bytes);
        let before = full.then(|| self.take());
        self.bytes += made.bytes();
        self.records.push(made);
        before
    }

    /// Returns all waiting records.
    fn take(&mut self) -> Vec<PackedRecord> {
        self.bytes = 0;
        std::mem::take(&mut self.records)
    }
}

/// Converts an Arrow error to a write error.
pub(super) fn io_error(error: ArrowError) -> std::io::Error {
    match error {
        ArrowError::IoError(_, error) => error,
        other => std::io::Error::other(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::product::Product;

    /// Number of records in each batch that is written while `count` records are added.
    fn batch_sizes(limits: &BatchLimits, record_bytes: usize, count: usize) -> Vec<usize> {
        let mut waiting = PendingBatch::default();
        let record = |number| PackedRecord {
            record: number as u64,
            file: None,
            products: vec![Product {
                bytes: vec![0; record_bytes].into(),
                shape: None,
            }],
            bytes_in: record_bytes as u64,
        };
        let added = (0..count).map(record);
        added
            .filter_map(|record| waiting.add(record, limits))
            .map(|batch| batch.len())
            .collect()
    }

    #[test]
    fn batches_of_small_records_have_more_of_them() {
        let limits = BatchLimits {
            least_records: 4,
            usual_records: 16,
            least_bytes: 1000,
            most_records: 100,
            bytes: 4000,
            most_bytes: 8000,
        };

        assert_eq!(batch_sizes(&limits, 1, 250), [100, 100]);
        assert_eq!(batch_sizes(&limits, 20, 101), [50, 50]);
        assert_eq!(batch_sizes(&limits, 100, 33), [16, 16]);
        assert_eq!(batch_sizes(&limits, 800, 11), [5, 5]);
        assert_eq!(batch_sizes(&limits, 3000, 5), [2, 2]);
    }
}
