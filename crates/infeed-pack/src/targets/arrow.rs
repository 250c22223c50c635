//! Arrow IPC files. They are not compressed and aligned to 64 bytes, so that readers can map them
//! without a copy. Pixels and tensors are `arrow.fixed_shape_tensor`, encoded images are binary.

use std::collections::HashMap;
use std::io;

use arrow_array::RecordBatch;
use arrow_ipc::MetadataVersion;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions};

use super::format::{FormatWriter, OutputFormat, PixelStorage};
use crate::columnar::{BatchLimits, BatchWriter, BatchedFile, ColumnConverters, io_error};
use crate::error::PackError;
use crate::shard_layout::{
    CountedFile, Extensions, PackedRecord, ShardColumn, ShardLayout, ShardWriter,
};
use infeed::pipeline::SourceSpec;
use infeed_core::error::Error;

const ALIGNMENT: usize = 64;

/// A batch has 64 to 256 records, fewer if they are very large, and more if they are small. Readers
/// look a record up in its batch, so small batches of small records would be slow to read.
const LIMITS: BatchLimits = BatchLimits {
    least_records: 64,
    usual_records: 256,
    least_bytes: 1 << 20,
    most_records: 1 << 14,
    bytes: 16 << 20,
    most_bytes: 64 << 20,
};

/// The format in the table of output formats.
pub(super) static FORMAT: OutputFormat = OutputFormat {
    name: "arrow",
    summary: "Arrow IPC, mapped and read without a copy; also raw pixels (--encode raw)",
    pixels: PixelStorage::Any,
    writer: FormatWriter::Shards(|columns, _, _| Ok(Box::new(ArrowLayout::new(columns)?))),
    batch_file: None,
};

/// Arrow IPC files.
struct ArrowLayout {
    columns: ColumnConverters,
}

impl ArrowLayout {
    /// # Errors
    ///
    /// As [`ColumnConverters::new`].
    fn new(columns: Vec<ShardColumn>) -> Result<ArrowLayout, Error> {
        let columns = ColumnConverters::new(columns, false, HashMap::new())?;
        Ok(ArrowLayout { columns })
    }
}

impl ShardLayout for ArrowLayout {
    fn extension(&self) -> &'static str {
        "arrow"
    }

    fn weight(&self, made: &PackedRecord) -> u64 {
        self.columns.weight(made)
    }

    fn check(&self, made: &PackedRecord) -> Result<(), PackError> {
        self.columns.check(made)
    }

    fn begin(&self, out: CountedFile) -> io::Result<Box<dyn ShardWriter>> {
        let options = IpcWriteOptions::try_new(ALIGNMENT, false, MetadataVersion::V5);
        let writer = options.and_then(|options| {
            FileWriter::try_new_with_options(out, &self.columns.schema, options)
        });
        let writer = writer.map_err(io_error)?;
        Ok(Box::new(BatchedFile::new(
            self.columns.clone(),
            LIMITS,
            writer,
        )))
    }

    fn source(&self, files: Vec<String>, _: &Extensions) -> SourceSpec {
        SourceSpec::Arrow {
            files,
            fields: self.columns.specs(),
            follow_links: true,
        }
    }
}

impl BatchWriter for FileWriter<CountedFile> {
    fn write(&mut self, batch: &RecordBatch) -> io::Result<()> {
        FileWriter::write(self, batch).map_err(io_error)
    }

    fn finish(mut self) -> io::Result<CountedFile> {
        FileWriter::finish(&mut self).map_err(io_error)?;
        self.into_inner().map_err(io_error)
    }
}
