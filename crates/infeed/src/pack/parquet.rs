//! Parquet files as Hugging Face writes them: images are `{bytes, path}`, and the metadata says so,
//! so that `datasets` shows images and class names. Row groups are bounded in bytes.
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

use super::PackError;
use super::columnar::{BatchLimits, BatchWriter, Batched, Columns};
use super::form::{Column, Extensions, Form, Made, Shard, Sink};
use crate::error::Error;
use crate::pipeline::SourceSpec;
use crate::sample::FieldKind;

/// Where Hugging Face keeps the features.
const KEY: &str = "huggingface";

/// A row group.
const LIMITS: BatchLimits = BatchLimits {
    least_records: 1,
    most_records: 1000,
    bytes: 32 << 20,
    most_bytes: 32 << 20,
};

/// Parquet files.
pub(super) struct ParquetForm {
    columns: Columns,
    metadata: String,
}

impl ParquetForm {
    /// # Errors
    ///
    /// As [`Columns::new`].
    pub(super) fn new(
        columns: Vec<Column>,
        classes: Option<&[String]>,
    ) -> Result<ParquetForm, Error> {
        let features = columns.iter().map(|column| {
            let feature = feature(column, classes);
            (column.name.clone(), feature)
        });
        let features: serde_json::Map<String, Value> = features.collect();
        let metadata = json!({ "info": { "features": features } }).to_string();
        let keys = HashMap::from([(KEY.to_owned(), metadata.clone())]);
        Ok(ParquetForm {
            columns: Columns::new(columns, true, keys)?,
            metadata,
        })
    }
}

/// What `datasets` calls a field.
fn feature(column: &Column, classes: Option<&[String]>) -> Value {
    let value = |dtype: &str| json!({ "dtype": dtype, "_type": "Value" });
    match (&column.kind, &column.numbers) {
        (FieldKind::Image(_) | FieldKind::Mask(_), _) => json!({ "_type": "Image" }),
        (FieldKind::Text, _) => value("string"),
        (_, None) => value("binary"),
        (_, Some(_)) if column.is_label() && classes.is_some() => {
            json!({ "names": classes, "_type": "ClassLabel" })
        }
        (FieldKind::Ragged { .. }, Some((dtype, _))) => {
            json!({ "feature": value(told(dtype.name())), "_type": "Sequence" })
        }
        (_, Some((dtype, shape))) if shape.is_empty() => value(told(dtype.name())),
        (_, Some((dtype, shape))) => json!({
            "feature": value(told(dtype.name())),
            "length": shape.iter().product::<usize>(),
            "_type": "Sequence",
        }),
    }
}

/// The bits of bfloat16, which Arrow lacks, are whole numbers.
fn told(dtype: &'static str) -> &'static str {
    match dtype {
        "bfloat16" => "uint16",
        other => other,
    }
}

impl Form for ParquetForm {
    fn extension(&self) -> &'static str {
        "parquet"
    }

    fn weight(&self, made: &Made) -> u64 {
        self.columns.weight(made)
    }

    fn check(&self, made: &Made) -> Result<(), PackError> {
        self.columns.check(made)
    }

    fn begin(&self, out: Sink) -> io::Result<Box<dyn Shard>> {
        let properties = WriterProperties::builder()
            // Images are compressed already, and nobody looks for the least of them.
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
        Ok(Box::new(Batched::new(self.columns.clone(), LIMITS, writer)))
    }

    fn source(&self, files: Vec<String>, _: &Extensions) -> SourceSpec {
        SourceSpec::Parquet {
            files,
            fields: self.columns.specs(),
        }
    }
}

impl BatchWriter for ArrowWriter<Sink> {
    fn write(&mut self, batch: &RecordBatch) -> io::Result<()> {
        ArrowWriter::write(self, batch).map_err(parquet_error)?;
        // A row group.
        self.flush().map_err(parquet_error)
    }

    fn finish(self) -> io::Result<Sink> {
        self.into_inner().map_err(parquet_error)
    }
}

/// What the library said, as an error of writing; what the disk said as it said it.
fn parquet_error(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(other) => io::Error::other(other),
        },
        other => io::Error::other(other),
    }
}
