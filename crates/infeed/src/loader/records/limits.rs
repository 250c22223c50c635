//! Limits on the memory of a record, and the error of a record that exceeds them.

use super::record_job::RecordJob;
use crate::loader::rules::RecordLimits;
use infeed_core::batch::{BatchRow, RowCell};
use infeed_core::error::{Error, MemoryAdvice, MemoryPurpose};
use infeed_core::sample::Record;

impl RecordJob {
    /// Returns the size limits of records on this machine. `again` limits reads of substitutes.
    pub(in crate::loader) fn limits(&self, again: u64) -> RecordLimits {
        RecordLimits {
            read: self.fetched_bytes,
            again,
            scratch: self.kept_bytes.max(self.large.limit_bytes()),
            row: self.row_bytes,
        }
    }

    /// Checks the size of a row outside slabs. A limit per row bounds the total of all rows.
    pub(super) fn within_row_limit(
        &self,
        record: &Record,
        row: &BatchRow,
        limits: RecordLimits,
    ) -> Result<(), Error> {
        let own = row.cells.iter().map(|cell| match cell {
            RowCell::Own { bytes, .. } => bytes.len() as u64,
            RowCell::Slab(_) => 0,
        });
        let needed_bytes = own.sum();
        let limit_bytes = self.row_bytes.min(limits.row);
        if needed_bytes <= limit_bytes {
            return Ok(());
        }
        Err(self.add_advice(Error::RecordTooLarge {
            record: self.source.id(record.index, None),
            purpose: MemoryPurpose::Row,
            needed_bytes,
            limit_bytes,
            advice: MemoryAdvice::default(),
        }))
    }

    /// Adds the fix to the error of a record that needs too much memory.
    pub(super) fn add_advice(&self, error: Error) -> Error {
        error.with_memory_advice(|purpose, bytes| self.advisor.advice(purpose, bytes))
    }
}
