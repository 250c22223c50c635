//! Filling of rows from fetched records.

use super::record_job::{RecordJob, WorkerScratch, position};
use crate::loader::assemble::FilledRows;
use crate::loader::fetched_records::{FetchedContent, FetchedRecords};
use crate::maker::SampleRecord;
use infeed_core::batch::BatchRow;
use infeed_core::exec::{FillOutcome, Sequence};

impl RecordJob {
    /// Fills a row from its fetched records.
    pub(super) fn fill_row(
        &self,
        sequence: Sequence,
        fetched: FetchedRecords,
        row: &mut BatchRow,
        worker: &mut WorkerScratch<'_>,
    ) -> FillOutcome<RecordJob> {
        let row_position = self.row_position(sequence);
        let in_flight = row_position.epoch * self.partition().steps() + row_position.step;
        let rules = self.schedule.rules(sequence);
        worker.maker.scratch.counters.work_for(in_flight);
        (worker.at, worker.limits) = ((in_flight, sequence), rules.limits);
        worker.maker.limit(rules.limits.scratch);
        if row_position.taken_from.is_none() && fetched.own.is_none() {
            let blank = Some(row.blank());
            return FillOutcome::Done(FilledRows::without_record(blank, Vec::new(), &rules));
        }
        let at = position(row_position);
        if let Some(drawn) = self.partners(row_position) {
            return self.fill_joined((sequence, at), &drawn, fetched, row, worker);
        }
        let FetchedRecords { own, mut tried, .. } = fetched;
        if let Some(FetchedContent { found, state, .. }) = own {
            let Some(found) = found else {
                let position = row_position.taken_from.unwrap_or_default();
                let record = self.order.epoch(at.epoch).get(position);
                return self.again(sequence, record, tried);
            };
            let made = found.and_then(|record| {
                let of = SampleRecord {
                    record: &record,
                    state,
                    at,
                };
                self.sample(of, row, worker)?;
                self.within_row_limit(&record, row, rules.limits)?;
                Ok(record.index)
            });
            match made {
                Ok(index) => {
                    tried.written = Some(index);
                    tried.add_unknown(worker.maker.scratch.unknown_pixels);
                }
                Err(error) => return self.instead(sequence, at, error, tried),
            }
        }
        FillOutcome::Done(self.finish_row(tried, at, row, worker, &rules))
    }
}
