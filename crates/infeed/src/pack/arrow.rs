//! Arrow IPC files: not compressed and aligned to 64 bytes, so that they can be mapped and read
//! without a copy. Pixels and tensors are `arrow.fixed_shape_tensor`, encoded images binary.

use std::collections::HashMap;
use std::io;

use arrow_ipc::MetadataVersion;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions};

use super::PackError;
use super::columnar::{BatchLimits, Columns, Waiting, io_error};
use super::form::{Column, Extensions, Finished, Form, Made, Shard, Sink};
use crate::error::Error;
use crate::pipeline::SourceSpec;

const ALIGNMENT: usize = 64;

/// A batch has 64 to 256 records, fewer if they are very large.
const LIMITS: BatchLimits = BatchLimits {
    least_records: 64,
    most_records: 256,
    bytes: 16 << 20,
    most_bytes: 64 << 20,
};

/// Arrow IPC files.
pub(super) struct ArrowForm {
    columns: Columns,
}

impl ArrowForm {
    /// # Errors
    ///
    /// As [`Columns::new`].
    pub(super) fn new(columns: Vec<Column>) -> Result<ArrowForm, Error> {
        let columns = Columns::new(columns, false, HashMap::new())?;
        Ok(ArrowForm { columns })
    }
}

impl Form for ArrowForm {
    fn extension(&self) -> &'static str {
        "arrow"
    }

    fn weight(&self, made: &Made) -> u64 {
        // An offset a field.
        made.bytes() + 4 * made.products.len() as u64
    }

    fn check(&self, made: &Made) -> Result<(), PackError> {
        self.columns.check(made)
    }

    fn begin(&self, out: Sink) -> io::Result<Box<dyn Shard>> {
        let options = IpcWriteOptions::try_new(ALIGNMENT, false, MetadataVersion::V5);
        let writer = options.and_then(|options| {
            FileWriter::try_new_with_options(out, &self.columns.schema, options)
        });
        Ok(Box::new(ArrowShard {
            columns: self.columns.clone(),
            writer: writer.map_err(io_error)?,
            waiting: Waiting::default(),
        }))
    }

    fn source(&self, files: Vec<String>, _: &Extensions) -> SourceSpec {
        let columns = self.columns.columns.iter();
        SourceSpec::Arrow {
            files,
            fields: columns
                .map(|column| column.spec(column.name.clone()))
                .collect(),
        }
    }
}

struct ArrowShard {
    columns: Columns,
    writer: FileWriter<Sink>,
    waiting: Waiting,
}

impl ArrowShard {
    fn write(&mut self, records: &[Made]) -> io::Result<()> {
        let batch = self.columns.batch(records).map_err(io_error)?;
        self.writer.write(&batch).map_err(io_error)
    }
}

impl Shard for ArrowShard {
    fn add(&mut self, made: Made) -> io::Result<()> {
        match self.waiting.add(made, &LIMITS) {
            Some(full) => self.write(&full),
            None => Ok(()),
        }
    }

    fn finish(mut self: Box<Self>) -> io::Result<Finished> {
        if !self.waiting.is_empty() {
            let last = self.waiting.take();
            self.write(&last)?;
        }
        self.writer.finish().map_err(io_error)?;
        Ok(Finished {
            out: self.writer.into_inner().map_err(io_error)?,
            index: None,
            extensions: Extensions::new(),
        })
    }
}
