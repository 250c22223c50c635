//! Results of filled rows and finished batches: the batch, and the facts that its delivery counts.

use super::digest::Digest;
use super::fetched::{BadRecord, RowAttempts};
use super::schedule::BatchRules;
use crate::plan::sample::Position;
use infeed_core::batch::{Batch, BatchRow, RowDone};

/// Result of a row.
#[derive(Debug)]
pub struct FilledRow {
    /// `None` if the row is skipped.
    pub row: Option<RowDone>,
    /// Bad records met for the row.
    pub bad: Vec<BadRecord>,
    /// Digest of the row.
    pub digest: Digest,
    /// Pixels of unknown class in the masks of the row's samples. Another process may report any
    /// number.
    pub unknown_pixels: u64,
}

/// A batch and the bad records met while making it.
#[derive(Debug)]
pub(crate) struct FinishedBatch {
    pub(super) batch: Batch,
    /// Index of its batch layout.
    pub(super) form: usize,
    pub(super) bad: Vec<BadRecord>,
    /// Digest of its rows.
    pub(super) digest: Digest,
    /// Pixels of unknown class in its rows.
    pub(super) unknown_pixels: u64,
}

/// Facts that the loader counts when it delivers a batch.
#[derive(Debug)]
pub(super) struct BatchFacts {
    pub(super) epoch: u64,
    pub(super) step: u64,
    pub(super) form: usize,
    pub(super) rows: usize,
    /// Rows with a record.
    pub(super) samples: usize,
    pub(super) bad: Vec<BadRecord>,
    pub(super) digest: Digest,
    /// Pixels of unknown class in its rows.
    pub(super) unknown_pixels: u64,
}

impl FilledRow {
    /// Creates the result of a row after all its attempts; `at` is its position.
    pub(super) fn new(
        tried: RowAttempts,
        at: Position,
        row: &mut BatchRow,
        rules: &BatchRules,
    ) -> FilledRow {
        let unknown_pixels = u64::from(tried.unknown_pixels);
        let Some(record) = tried.written else {
            return FilledRow {
                unknown_pixels,
                ..FilledRow::without_record(None, tried.bad, rules)
            };
        };
        FilledRow {
            digest: Digest::of_row(rules.digested, at.epoch, at.position, record, row),
            row: Some(row.finish(record)),
            bad: tried.bad,
            unknown_pixels,
        }
    }

    /// Creates the result of a row of padding, or of a skipped row (`None`).
    pub(super) fn without_record(
        row: Option<RowDone>,
        bad: Vec<BadRecord>,
        rules: &BatchRules,
    ) -> FilledRow {
        FilledRow {
            row,
            bad,
            digest: Digest::empty(rules.digested),
            unknown_pixels: 0,
        }
    }
}

impl FinishedBatch {
    /// Splits off the facts that are counted at delivery.
    pub(super) fn split(self) -> (Batch, BatchFacts) {
        let FinishedBatch {
            batch,
            form,
            bad,
            digest,
            unknown_pixels,
        } = self;
        let facts = BatchFacts {
            epoch: batch.epoch,
            step: batch.step,
            form,
            rows: batch.rows(),
            samples: batch.samples(),
            bad,
            digest,
            unknown_pixels,
        };
        (batch, facts)
    }
}
