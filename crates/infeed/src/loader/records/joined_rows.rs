//! Rows of several records.
//!
//! The next good record of the same row takes the place of a bad one, so a row needs no other
//! read. If all are bad, the substitute of the row's own record takes every place.

use super::record_job::{RecordJob, WorkerScratch};
use crate::fields::failure::PartFailure;
use crate::fields::pixels::prepared_record::PixelState;
use crate::fields::scratch::Position;
use crate::loader::failure::sample_error;
use crate::loader::fetched_records::FetchedRecords;
use crate::maker::SampleRecord;
use crate::plan::join::JoinDraw;
use infeed_core::batch::BatchRow;
use infeed_core::error::Error;
use infeed_core::exec::{FillOutcome, Sequence};
use infeed_core::sample::Record;

/// Records of a row that are not bad, the row's own first.
type GoodRecords = Vec<Option<(Record, PixelState)>>;

impl RecordJob {
    /// Fills the row of several records.
    pub(super) fn fill_joined(
        &self,
        (sequence, at): (Sequence, Position),
        drawn: &JoinDraw,
        fetched: FetchedRecords,
        row: &mut BatchRow,
        worker: &mut WorkerScratch<'_>,
    ) -> FillOutcome<RecordJob> {
        let FetchedRecords {
            own,
            mut partners,
            mut tried,
            ..
        } = fetched;
        let rules = self.schedule.rules(sequence);
        // Reads arrive in any order; bad records are listed in the order of the partners.
        partners.sort_by_key(|(number, _)| *number);
        let partners = partners
            .into_iter()
            .map(|(number, content)| (1 + usize::from(number), content));
        let mut good = GoodRecords::new();
        good.resize_with(1 + drawn.partners().len(), || None);
        // Released when the row is filled.
        let mut permits = Vec::with_capacity(good.len());
        let mut failed = None;
        for (part, content) in own.into_iter().map(|own| (0, own)).chain(partners) {
            permits.push(content._permit);
            match content.found {
                Some(Ok(record)) => good[part] = Some((record, content.state)),
                Some(Err(error)) => {
                    if let Some(outcome) = self.note_bad(sequence, &error, &mut tried) {
                        return outcome;
                    }
                    failed = Some(error);
                }
                None => {
                    let text = "the folder of the cache lost a record that needs more memory than \
                                was reserved for it; start the run again"
                        .to_owned();
                    return FillOutcome::Failed(Error::Panicked { text });
                }
            }
        }
        self.use_cache(&mut good, worker);
        while let Some(parts) = parts(&good, at, drawn) {
            match self.make_joined(&parts, drawn, row, worker) {
                Ok(()) => {
                    tried.written = Some(parts[0].record.index);
                    tried.add_unknown(worker.maker.scratch.unknown_pixels);
                    return FillOutcome::Done(self.finish_row(tried, at, row, worker, &rules));
                }
                Err((part, error)) => {
                    if let Some(outcome) = self.note_bad(sequence, &error, &mut tried) {
                        return outcome;
                    }
                    let from = good_from(&good, part).unwrap_or(part);
                    good[from] = None;
                    failed = Some(*error);
                }
            }
        }
        let error = failed.unwrap_or_else(|| Error::Panicked {
            text: "a row of several records has none".to_owned(),
        });
        self.request_substitute(sequence, at, error, tried)
    }

    /// Replaces records by their cached copies, and adds records to the cache.
    fn use_cache(&self, good: &mut GoodRecords, worker: &mut WorkerScratch<'_>) {
        let Some(cache) = &self.cache else {
            return;
        };
        for (record, state) in good.iter_mut().flatten() {
            match state {
                PixelState::Prepared | PixelState::Computed => cache.count(true),
                PixelState::Stored => {
                    if let Some(cached) = self.get_or_decode(cache, record, worker) {
                        (*record, *state) = (cached, PixelState::Prepared);
                    }
                }
            }
        }
    }

    /// Makes the sample of several records. An error has the number of the bad record.
    fn make_joined(
        &self,
        parts: &[SampleRecord<'_>],
        drawn: &JoinDraw,
        row: &mut BatchRow,
        worker: &mut WorkerScratch<'_>,
    ) -> Result<(), (usize, Box<Error>)> {
        let begun = std::time::Instant::now();
        let result = worker.maker.make(parts, Some(drawn), row);
        let each = begun.elapsed() / parts.len().max(1) as u32;
        for SampleRecord { record, .. } in parts {
            self.costs.add_time(record.index, record.bytes(), each);
            self.losses.check(&*self.source, worker.at, record);
        }
        self.add_warnings(worker);
        result.map_err(|PartFailure { part, failure }| {
            let record = parts[part].record.index;
            let error = self.add_advice(sample_error(&*self.source, record, failure));
            (part, Box::new(error))
        })?;
        self.within_row_limit(parts[0].record, row, worker.limits)
            .map_err(|error| (0, Box::new(error)))
    }
}

/// Returns the number of the record of a part: its own, or that of the next good one.
fn good_from(good: &GoodRecords, part: usize) -> Option<usize> {
    let count = good.len();
    let mut from = (part..part + count).map(|at| at % count);
    from.find(|at| good[*at].is_some())
}

/// Returns the records of the parts. None if no record is good.
fn parts<'a>(
    good: &'a GoodRecords,
    own: Position,
    drawn: &JoinDraw,
) -> Option<Vec<SampleRecord<'a>>> {
    let part = |part: usize| {
        let (record, state) = good[good_from(good, part)?].as_ref()?;
        let partner = part.checked_sub(1).map(|number| drawn.partners()[number]);
        Some(SampleRecord {
            record,
            state: *state,
            at: Position {
                position: partner.unwrap_or(own.position),
                ..own
            },
        })
    };
    (0..good.len()).map(part).collect()
}
