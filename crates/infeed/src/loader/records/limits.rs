//! Limits on the memory of a record, and the error of a record that exceeds them.

use super::record_job::{RecordJob, WorkerScratch};
use crate::fields::failure::SampleError;
use crate::loader::rules::RecordLimits;
use crate::maker::SampleMaker;
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

    /// Runs `work` with a maker that may request memory once.
    pub(super) fn within_limits<T>(
        &self,
        worker: &mut WorkerScratch,
        limits: RecordLimits,
        work: impl FnOnce(SampleMaker<'_>) -> T,
    ) -> T {
        // The partner's row counts as scratch.
        let partner_bytes = match self.plan.mixes() {
            true => self.plan.spare_row_bytes(),
            false => 0,
        };
        let mut large = None;
        let mut admit = |needed: u64| {
            let needed = needed.saturating_add(partner_bytes);
            if needed <= self.kept_bytes.min(limits.scratch) {
                return Ok(());
            }
            let refused = |limit_bytes| SampleError::TooLarge {
                purpose: MemoryPurpose::Decoding,
                needed_bytes: needed,
                limit_bytes,
            };
            if needed > limits.scratch {
                return Err(refused(limits.scratch));
            }
            let granted = self.large.take(needed);
            large = Some(granted.map_err(|_| refused(self.large.limit_bytes()))?);
            Ok(())
        };
        let maker = SampleMaker::new(&self.plan, &mut worker.scratch);
        let result = work(maker.within(&mut admit));
        if large.is_some() {
            worker.scratch.shrink();
        }
        result
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
        Err(self.advised(Error::RecordTooLarge {
            record: self.source.id(record.index, None),
            purpose: MemoryPurpose::Row,
            needed_bytes,
            limit_bytes,
            advice: MemoryAdvice::default(),
        }))
    }

    /// Adds the fix to the error of a record that needs too much memory.
    pub(super) fn advised(&self, error: Error) -> Error {
        error.with_memory_advice(|purpose, bytes| self.advisor.advice(purpose, bytes))
    }
}
