//! Rows of one record, or of a record and its partner for mixing.

use super::record_job::{Partners, RecordJob, WorkerScratch, position};
use crate::fields::scratch::Position;
use crate::loader::assemble::FilledRow;
use crate::loader::fetched::{FetchedContent, FetchedRecords, RecordRole};
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
        worker: &mut WorkerScratch,
    ) -> FillOutcome<RecordJob> {
        let row_position = self.row_position(sequence);
        let in_flight = row_position.epoch * self.partition().steps() + row_position.step;
        let rules = self.schedule.rules(sequence);
        worker.scratch.fields.counters.work_for(in_flight);
        worker.at = (in_flight, sequence);
        if row_position.taken_from.is_none() && fetched.own.is_none() {
            let blank = Some(row.blank());
            return FillOutcome::Done(FilledRow::without_record(blank, Vec::new(), &rules));
        }
        let at = position(row_position);
        let mixing = match self.partners(row_position) {
            Partners::None => None,
            Partners::Mixing(mixing) => Some(mixing),
            Partners::Joined(drawn) => {
                return self.fill_joined((sequence, at), &drawn, fetched, row, worker);
            }
        };
        let FetchedRecords {
            own,
            mut partners,
            mut tried,
            ..
        } = fetched;
        if let Some(content) = own {
            let FetchedContent { found, state, .. } = content;
            let Some(found) = found else {
                let position = row_position.taken_from.unwrap_or_default();
                let record = self.order.epoch(at.epoch).get(position);
                return self.again(sequence, RecordRole::Own, record, tried);
            };
            let made = found.and_then(|record| {
                let of = SampleRecord {
                    record: &record,
                    state,
                    at,
                };
                self.sample(of, row, worker, rules.limits)?;
                self.within_row_limit(&record, row, rules.limits)?;
                Ok(record.index)
            });
            match made {
                Ok(index) => {
                    tried.written = Some(index);
                    tried.add_unknown(worker.scratch.fields.unknown_pixels);
                }
                Err(error) => return self.instead(sequence, RecordRole::Own, at, error, tried),
            }
        }
        if let Some(mixing) = mixing {
            let partner = Position {
                epoch: at.epoch,
                position: mixing.partner,
            };
            // Released when the row's own record was bad, or lost by the cache.
            let Some((found, state)) = partners
                .pop()
                .and_then(|(_, content)| Some((content.found?, content.state)))
            else {
                let record = self.order.epoch(at.epoch).get(mixing.partner);
                return self.again(sequence, RecordRole::Partner(0), record, tried);
            };
            let made = found.and_then(|record| {
                let of = SampleRecord {
                    record: &record,
                    state,
                    at: partner,
                };
                self.mix(of, &mixing, row, worker, rules.limits)
            });
            if let Err(error) = made {
                return self.instead(sequence, RecordRole::Partner(0), partner, error, tried);
            }
            tried.add_unknown(worker.scratch.fields.unknown_pixels);
        }
        FillOutcome::Done(self.finished(tried, at, row, worker, &rules))
    }
}
