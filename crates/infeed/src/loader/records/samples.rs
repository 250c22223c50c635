//! Samples of records, within the memory limits of workers.

use std::sync::atomic::Ordering;

use super::record_job::{RecordJob, WorkerScratch};
use crate::fields::pixels::prepared_record::PixelState;
use crate::fields::scratch::Position;
use crate::loader::assemble::FilledRows;
use crate::loader::failure::sample_error;
use crate::loader::fetched_records::RowAttempts;
use crate::loader::rules::BatchRules;
use crate::maker::SampleRecord;
use infeed_core::batch::{BatchRow, RowCell};
use infeed_core::counters::Stage;
use infeed_core::error::Error;
use infeed_core::order::partition::Tail;

impl RecordJob {
    /// Makes the sample of a record within the memory limits of workers. Adds the record to the
    /// cache, if there is one.
    pub(super) fn sample(
        &self,
        of: SampleRecord<'_>,
        row: &mut BatchRow,
        worker: &mut WorkerScratch<'_>,
    ) -> Result<(), Error> {
        let begun = std::time::Instant::now();
        let record = of.record;
        let cached = match (&self.cache, of.state) {
            (None, _) => None,
            (Some(cache), PixelState::Stored) => self.get_or_decode(cache, record, worker),
            (Some(cache), _) => {
                cache.count(true);
                None
            }
        };
        let from = match &cached {
            Some(cached) => SampleRecord {
                record: cached,
                state: self.plan.cached_state(),
                at: of.at,
            },
            None => of,
        };
        worker.maker.keep = self.buffer_to_keep(record.index, from.state, worker);
        let result = worker.maker.make(&[from], None, row);
        if let Some(bytes) = worker.maker.keep.take() {
            self.keep(record.index, result.is_ok(), bytes, worker);
        }
        self.costs
            .add_time(record.index, record.bytes(), begun.elapsed());
        self.losses.check(&*self.source, worker.at, record);
        self.add_warnings(worker);
        result.map_err(|failed| {
            let error = sample_error(&*self.source, record.index, failed.failure);
            self.add_advice(error)
        })
    }

    /// Counts the decoder warnings of a sample, and notes its losses.
    pub(super) fn add_warnings(&self, worker: &mut WorkerScratch<'_>) {
        let warnings = std::mem::take(&mut worker.maker.scratch.warnings);
        if warnings > 0 {
            self.warnings.fetch_add(warnings, Ordering::Relaxed);
        }
        let losses = worker.maker.scratch.losses.drain(..);
        losses.for_each(|loss| self.losses.note(&*self.source, worker.at, loss));
    }

    /// Completes a row: sets the mark of a valid row if there is a sample in it.
    pub(super) fn finish_row(
        &self,
        tried: RowAttempts,
        at: Position,
        row: &mut BatchRow,
        worker: &mut WorkerScratch<'_>,
        rules: &BatchRules,
    ) -> FilledRows {
        if tried.written.is_some()
            && self.partition().tail() == Tail::Pad
            && let Some(RowCell::Slab(valid)) = row.cells.last_mut()
        {
            valid.bytes_mut().fill(1);
        }
        if !rules.hashes_rows() {
            return FilledRows::new(tried, at, row, rules);
        }
        let scratch = &mut worker.maker.scratch;
        scratch.meter.start();
        let filled = FilledRows::new(tried, at, row, rules);
        scratch.lap(Stage::Write);
        scratch.meter.settle(&scratch.counters);
        filled
    }
}
