//! Parquet files in the layout of Hugging Face. Images are `{bytes, path}`, and the metadata declares
//! it, so that `datasets` shows images and class names. Row groups have a limit in bytes.
//!
//! Source: the `Image` and `ClassLabel` features of the `datasets` package, and the key
//! `huggingface` of the file's metadata.

use std::collections::HashMap;
use std::io;

use arrow_array::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use serde_json::{Value, json};

use super::format::{FormatWriter, OutputFormat, PixelStorage};
use crate::columnar::{BatchLimits, BatchWriter, BatchedFile, ColumnConverters};
use crate::error::PackError;
use crate::shard_layout::{
    CountedFile, Extensions, PackedRecord, ShardColumn, ShardLayout, ShardWriter,
};
use infeed::pipeline::SourceSpec;
use infeed_core::error::Error;
use infeed_core::sample::FieldKind;

/// Metadata key of Hugging Face's features.
const KEY: &str = "huggingface";

/// Limits of a row group.
const LIMITS: BatchLimits = BatchLimits {
    least_records: 1,
    usual_records: 1000,
    least_bytes: 0,
    most_records: 1000,
    bytes: 32 << 20,
    most_bytes: 32 << 20,
};

/// The format in the table of output formats.
pub(super) static FORMAT: OutputFormat = OutputFormat {
    name: "parquet",
    summary: "in the layout of Hugging Face, images as {bytes, path}",
    pixels: PixelStorage::Encoded,
    writer: FormatWriter::Shards(|columns, classes, _| {
        Ok(Box::new(ParquetLayout::new(columns, classes)?))
    }),
    batch_file: None,
};

/// Parquet files.
struct ParquetLayout {
    columns: ColumnConverters,
    metadata: String,
}

impl ParquetLayout {
    /// # Errors
    ///
    /// As [`ColumnConverters::new`].
    fn new(columns: Vec<ShardColumn>, classes: Option<&[String]>) -> Result<ParquetLayout, Error> {
        let features = columns.iter().map(|column| {
            let feature = feature(column, classes);
            (column.name.clone(), feature)
        });
        let features: serde_json::Map<String, Value> = features.collect();
        let metadata = json!({ "info": { "features": features } }).to_string();
        let keys = HashMap::from([(KEY.to_owned(), metadata.clone())]);
        Ok(ParquetLayout {
            columns: ColumnConverters::new(columns, true, keys)?,
            metadata,
        })
    }
}

/// Returns the `datasets` feature of a field.
fn feature(column: &ShardColumn, classes: Option<&[String]>) -> Value {
    let value = |dtype: &str| json!({ "dtype": dtype, "_type": "Value" });
    match (&column.kind, &column.numbers) {
        (FieldKind::Image(_) | FieldKind::Mask(_), _) => json!({ "_type": "Image" }),
        (FieldKind::Text, _) => value("string"),
        (_, None) => value("binary"),
        (_, Some(_)) if column.is_label() && classes.is_some() => {
            json!({ "names": classes, "_type": "ClassLabel" })
        }
        (FieldKind::Ragged { .. }, Some((dtype, _))) => {
            json!({ "feature": value(element_type(dtype.name())), "_type": "Sequence" })
        }
        (_, Some((dtype, shape))) if shape.is_empty() => value(element_type(dtype.name())),
        (_, Some((dtype, shape))) => json!({
            "feature": value(element_type(dtype.name())),
            "length": shape.iter().product::<usize>(),
            "_type": "Sequence",
        }),
    }
}

/// Returns the type name of elements. Arrow has no bfloat16, so its bits become integers.
fn element_type(dtype: &'static str) -> &'static str {
    match dtype {
        "bfloat16" => "uint16",
        other => other,
    }
}

impl ShardLayout for ParquetLayout {
    fn extension(&self) -> &'static str {
        "parquet"
    }

    fn weight(&self, made: &PackedRecord) -> u64 {
        self.columns.weight(made)
    }

    fn check(&self, made: &PackedRecord) -> Result<(), PackError> {
        self.columns.check(made)
    }

    fn begin(&self, out: CountedFile) -> io::Result<Box<dyn ShardWriter>> {
        let properties = WriterProperties::builder()
            // Images are already compressed, and no reader searches them by statistics.
            .set_compression(Compression::UNCOMPRESSED)
            .set_dictionary_enabled(false)
            .set_statistics_enabled(EnabledStatistics::None)
            .set_max_row_group_row_count(Some(LIMITS.most_records))
            .set_key_value_metadata(Some(vec![KeyValue::new(
                KEY.to_owned(),
                self.metadata.clone(),
            )]))
            .build();
        let schema = self.columns.schema.clone();
        let writer = ArrowWriter::try_new(out, schema, Some(properties));
        let writer = writer.map_err(parquet_error)?;
        Ok(Box::new(BatchedFile::new(
            self.columns.clone(),
            LIMITS,
            writer,
        )))
    }

    fn source(&self, files: Vec<String>, _: &Extensions) -> SourceSpec {
        SourceSpec::Parquet {
            files,
            fields: self.columns.specs(),
            follow_links: true,
        }
    }
}

impl BatchWriter for ArrowWriter<CountedFile> {
    fn write(&mut self, batch: &RecordBatch) -> io::Result<()> {
        ArrowWriter::write(self, batch).map_err(parquet_error)?;
        // Ends the row group.
        self.flush().map_err(parquet_error)
    }

    fn finish(self) -> io::Result<CountedFile> {
        self.into_inner().map_err(parquet_error)
    }
}

/// Converts an error of the library to a write error. Returns an error of the disk unchanged.
fn parquet_error(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(other) => io::Error::other(other),
        },
        other => io::Error::other(other),
    }
}
