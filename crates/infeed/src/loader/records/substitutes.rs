//! Partners of the records of rows, and substitutes for bad records.

use std::sync::Arc;

use super::record_job::{ATTEMPTS, ReadFrom, RecordJob, RecordRead, position};
use crate::fields::scratch::Position;
use crate::loader::assemble::FilledRows;
use crate::loader::budget::ROOM;
use crate::loader::fetched_records::{BadRecord, ReadPurpose, RecordRole, RowAttempts};
use crate::loader::rules::OnError;
use crate::plan::join::JoinDraw;
use infeed_core::error::Error;
use infeed_core::exec::{FillOutcome, Sequence};
use infeed_core::order::partition::RowPosition;

impl RecordJob {
    /// Returns the partners of a position's sample, if it has any. After the end of the order, they
    /// are near the repeated record.
    pub(super) fn partners(&self, row_position: RowPosition) -> Option<JoinDraw> {
        let taken_from = row_position.taken_from?;
        let beyond = row_position.position - taken_from;
        let near = || {
            let near = self.order.near(row_position.epoch, taken_from);
            near.start + beyond..near.end + beyond
        };
        let mut drawn = self.plan.join(position(row_position), near)?;
        for partner in drawn.partners_mut() {
            *partner -= beyond;
        }
        Some(drawn)
    }

    /// Handles a row with a bad record; `at` is the position of that record.
    pub(super) fn instead(
        &self,
        sequence: Sequence,
        at: Position,
        error: Error,
        mut tried: RowAttempts,
    ) -> FillOutcome<RecordJob> {
        if let Some(outcome) = self.note_bad(sequence, &error, &mut tried) {
            return outcome;
        }
        self.request_substitute(sequence, at, error, tried)
    }

    /// Requests the next substitute of the record at `at`, whose error is the last one.
    pub(super) fn request_substitute(
        &self,
        sequence: Sequence,
        at: Position,
        error: Error,
        mut tried: RowAttempts,
    ) -> FillOutcome<RecordJob> {
        tried.substitutes += 1;
        let attempt = u32::from(tried.substitutes);
        if attempt > ATTEMPTS {
            return FillOutcome::Failed(error);
        }
        let substitute = self.order.substitute(at.epoch, at.position, attempt);
        self.again(sequence, substitute, tried)
    }

    /// Adds a bad record to those of its row. Returns the outcome of the row unless the record can
    /// have a substitute.
    pub(super) fn note_bad(
        &self,
        sequence: Sequence,
        error: &Error,
        tried: &mut RowAttempts,
    ) -> Option<FillOutcome<RecordJob>> {
        let rules = self.schedule.rules(sequence);
        // A partner has another position than its row.
        let row = position(self.row_position(sequence));
        let Some(bad) = BadRecord::new(error, row, &rules) else {
            return Some(FillOutcome::Failed(error.clone()));
        };
        tried.bad.push(bad);
        (rules.on_error == OnError::Skip).then(|| {
            let bad = std::mem::take(&mut tried.bad);
            FillOutcome::Done(FilledRows::without_record(None, bad, &rules))
        })
    }

    /// Requests a record for a row that has none. No row holds bytes while it waits for bytes.
    pub(super) fn again(
        &self,
        sequence: Sequence,
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
            role: RecordRole::Own,
            together: 1,
        };
        FillOutcome::Again(RecordRead {
            from: ReadFrom::Source(read),
            wants: Arc::new([want]),
            tried,
        })
    }
}
