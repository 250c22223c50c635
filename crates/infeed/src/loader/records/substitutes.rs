//! Rows that need another record: substitutes for bad records, and partners for mixing.

use std::sync::Arc;

use super::record_job::{
    ATTEMPTS, Partners, ReadFrom, RecordJob, RecordRead, WorkerScratch, position,
};
use crate::fields::scratch::Position;
use crate::loader::assemble::FilledRow;
use crate::loader::budget::ROOM;
use crate::loader::failed::sample_error;
use crate::loader::fetched::{BadRecord, ReadPurpose, RecordRole, RowAttempts};
use crate::loader::rules::{OnError, RecordLimits};
use crate::maker::SampleRecord;
use infeed_codec::transform::Mixing;
use infeed_core::batch::BatchRow;
use infeed_core::counters::Stage;
use infeed_core::error::Error;
use infeed_core::exec::{FillOutcome, Sequence};
use infeed_core::order::partition::RowPosition;

impl RecordJob {
    /// Returns the partners of a position's sample. After the end of the order, they are near the
    /// repeated record.
    pub(super) fn partners(&self, row_position: RowPosition) -> Partners {
        let Some(taken_from) = row_position.taken_from else {
            return Partners::None;
        };
        let beyond = row_position.position - taken_from;
        let near = || {
            let near = self.order.near(row_position.epoch, taken_from);
            near.start + beyond..near.end + beyond
        };
        let at = position(row_position);
        let mixing = self.plan.mixing(at, near).map(Partners::Mixing);
        let joined = || self.plan.join(at, near).map(Partners::Joined);
        let mut partners = mixing.or_else(joined).unwrap_or(Partners::None);
        for partner in partners.positions_mut() {
            *partner -= beyond;
        }
        partners
    }

    /// Handles a row with a bad record; `at` is the position of that record.
    pub(super) fn instead(
        &self,
        sequence: Sequence,
        role: RecordRole,
        at: Position,
        error: Error,
        mut tried: RowAttempts,
    ) -> FillOutcome<RecordJob> {
        if let Some(outcome) = self.note_bad(sequence, at, &error, &mut tried) {
            return outcome;
        }
        self.request_substitute(sequence, role, at, error, tried)
    }

    /// Requests the next substitute of the record at `at`, whose error is the last one.
    pub(super) fn request_substitute(
        &self,
        sequence: Sequence,
        role: RecordRole,
        at: Position,
        error: Error,
        mut tried: RowAttempts,
    ) -> FillOutcome<RecordJob> {
        let attempt = match role {
            RecordRole::Own => &mut tried.own,
            RecordRole::Partner(_) => &mut tried.partner,
        };
        *attempt += 1;
        if u32::from(*attempt) > ATTEMPTS {
            return FillOutcome::Failed(error);
        }
        let substitute = self
            .order
            .substitute(at.epoch, at.position, u32::from(*attempt));
        self.again(sequence, role, substitute, tried)
    }

    /// Adds a bad record to those of its row. Returns the outcome of the row unless the record can
    /// have a substitute.
    pub(super) fn note_bad(
        &self,
        sequence: Sequence,
        at: Position,
        error: &Error,
        tried: &mut RowAttempts,
    ) -> Option<FillOutcome<RecordJob>> {
        let rules = self.schedule.rules(sequence);
        if !error.is_bad_record() || rules.on_error == OnError::Stop {
            return Some(FillOutcome::Failed(error.clone()));
        }
        let Some(record) = error.record().cloned() else {
            return Some(FillOutcome::Failed(error.clone()));
        };
        tried.bad.push(BadRecord {
            record,
            epoch: at.epoch,
            position: self.row_position(sequence).position,
            reason: error.clone(),
        });
        (rules.on_error == OnError::Skip).then(|| {
            let bad = std::mem::take(&mut tried.bad);
            FillOutcome::Done(FilledRow::without_record(None, bad, &rules))
        })
    }

    /// Requests one more record for a row. Releases its other record, so that no row holds bytes
    /// while it waits for bytes.
    pub(super) fn again(
        &self,
        sequence: Sequence,
        role: RecordRole,
        record: u64,
        tried: RowAttempts,
    ) -> FillOutcome<RecordJob> {
        let reads = self.source.plan(&[record], self.fetched_bytes / ROOM);
        let Some(read) = reads.into_iter().find(|read| !read.records.is_empty()) else {
            return FillOutcome::Failed(Error::Panicked {
                text: format!(
                    "the source planned no read of {}",
                    self.source.id(record, None)
                ),
            });
        };
        let want = ReadPurpose {
            sequence,
            role,
            together: 1,
        };
        FillOutcome::Again(RecordRead {
            from: ReadFrom::Source(read),
            wants: Arc::new([want]),
            tried,
        })
    }

    /// Makes the partner's sample, at the partner's position, and mixes it into a row.
    pub(super) fn mix(
        &self,
        of: SampleRecord<'_>,
        mixing: &Mixing,
        row: &mut BatchRow,
        worker: &mut WorkerScratch,
        limits: RecordLimits,
    ) -> Result<(), Error> {
        let mut partner = std::mem::take(&mut worker.partner);
        worker.scratch.fields.counted = 0;
        let made = self.sample(of, &mut partner, worker, limits);
        let scratch = &mut worker.scratch.fields;
        scratch.counted = 1;
        let mixed = made.and_then(|()| {
            scratch.meter.start();
            let mixed = self.plan.mix(mixing, &mut partner, row);
            scratch.lap(Stage::Write);
            mixed.map_err(|failure| sample_error(&*self.source, of.record.index, failure))
        });
        // Release a row larger than the kept scratch, like large scratch.
        worker.partner = match self.plan.spare_row_bytes() <= self.kept_bytes {
            true => partner,
            false => self.plan.spare_row(),
        };
        mixed
    }
}
