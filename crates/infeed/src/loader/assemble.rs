//! Batches around their rows: rows to fill, in the current layout, their results, and the finished
//! batch with the facts that its delivery counts.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::batch_functions::Finisher;
use super::digest::{CellHash, Digest, DigestScope};
use super::fetched_records::{BadRecord, RowAttempts};
use super::rules::BatchRules;
use crate::fields::scratch::Position;
use crate::plan::SamplePlan;
use infeed_core::batch::{Array, Batch, BatchRow, Batcher, InFlightBatch, RowDone};
use infeed_core::counters::{Calls, Stage, StageStats};
use infeed_core::error::Error;

/// Opens and finishes the batches of a job.
#[derive(Debug)]
pub(super) struct BatchAssembler {
    batcher: Batcher,
    /// Index of the layout of batches that begin from now on.
    layout: AtomicUsize,
    /// Rows that are filled together.
    run: usize,
    finisher: Finisher,
    digested: DigestScope,
}

/// A batch being filled, with its layout, epoch and step.
pub(crate) struct OpenBatch {
    in_flight: InFlightBatch,
    layout: usize,
    pub(super) epoch: u64,
    pub(super) step: u64,
}

impl BatchAssembler {
    pub(super) fn new(
        batcher: Batcher,
        finisher: Finisher,
        digested: DigestScope,
    ) -> BatchAssembler {
        BatchAssembler {
            batcher,
            layout: AtomicUsize::new(0),
            run: 1,
            finisher,
            digested,
        }
    }

    /// Opens batches in runs of `run` rows from now on.
    pub(super) fn in_runs(self, run: usize) -> BatchAssembler {
        BatchAssembler { run, ..self }
    }

    /// Sets the layout of batches that begin from now on. It changes no bit that the consumer
    /// receives, so order and state do not contain it.
    pub(super) fn set_layout(&self, layout: usize) {
        // Relaxed: a batch that begins just after the call may still use the previous layout.
        self.layout.store(layout, Ordering::Relaxed);
    }

    pub(super) fn batcher(&self) -> &Batcher {
        &self.batcher
    }

    /// Number of finished batches that are not dropped.
    pub(super) fn live(&self) -> usize {
        self.batcher.live().max(self.finisher.live())
    }

    pub(super) fn add_counts(&self, stage: Stage, sum: &mut StageStats, calls: &mut Calls) {
        self.finisher.add_counts(stage, sum, calls);
    }

    /// Opens a batch of `rows` rows. Returns its rows, or its runs of rows.
    pub(super) fn open(
        &self,
        (epoch, step): (u64, u64),
        rows: usize,
    ) -> Result<(OpenBatch, Vec<BatchRow>), Error> {
        let bytes = self.batcher.slab_bytes();
        let layout = self.layout.load(Ordering::Relaxed);
        let (in_flight, rows) = self
            .batcher
            .begin_as(layout, rows, self.run)
            .map_err(|_| Error::OutOfMemory { bytes })?;
        let open = OpenBatch {
            in_flight,
            layout,
            epoch,
            step,
        };
        Ok((open, rows))
    }

    /// Finishes a batch and calls the functions on it; `position` is the position of its first row.
    pub(super) fn finish(
        &self,
        plan: &SamplePlan,
        open: OpenBatch,
        rows: Vec<Result<FilledRows, Error>>,
        position: u64,
    ) -> Result<FinishedBatch, Error> {
        let OpenBatch {
            in_flight,
            layout,
            epoch,
            step,
        } = open;
        let mut bad = Vec::new();
        let mut digest = Digest::empty(self.digested);
        let mut unknown_pixels = 0;
        let mut done = Vec::with_capacity(rows.len() * self.run);
        for filled in rows {
            // Report the first failure in row order, independent of timing.
            let filled = filled?;
            bad.extend(filled.bad);
            digest = digest.plus(filled.digest);
            // Saturates, because another process may report any number.
            unknown_pixels = filled.unknown_pixels.saturating_add(unknown_pixels);
            done.extend(filled.rows);
        }
        let bytes = self.batcher.slab_bytes();
        let batch = self.batcher.finish(in_flight, done, epoch, step);
        let batch = batch.map_err(|_| Error::OutOfMemory { bytes })?;
        Ok(FinishedBatch {
            batch: self.finisher.run(plan, batch, position)?,
            layout,
            bad,
            digest,
            unknown_pixels,
        })
    }
}

impl OpenBatch {
    /// Returns the slab of each column with `rows` rows; `None` for columns whose rows differ in
    /// size.
    pub(super) fn into_slabs(self, rows: usize) -> Vec<Option<Array>> {
        self.in_flight.into_arrays(rows)
    }
}

/// Result of a row, or of a run of rows that are filled together.
#[derive(Debug)]
pub struct FilledRows {
    /// The rows; `None` for a skipped row.
    pub rows: Vec<Option<RowDone>>,
    /// Bad records met for the rows.
    pub bad: Vec<BadRecord>,
    /// Digest of the rows.
    pub digest: Digest,
    /// Pixels of unknown class in the masks of the rows' samples. Another process may report any
    /// number.
    pub unknown_pixels: u64,
}

/// A batch and the bad records met while making it.
#[derive(Debug)]
pub(crate) struct FinishedBatch {
    pub(super) batch: Batch,
    /// Index of its batch layout.
    pub(super) layout: usize,
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
    pub(super) layout: usize,
    pub(super) rows: usize,
    /// Rows with a record.
    pub(super) samples: usize,
    pub(super) bad: Vec<BadRecord>,
    pub(super) digest: Digest,
    /// Pixels of unknown class in its rows.
    pub(super) unknown_pixels: u64,
}

impl FilledRows {
    /// Creates the result of a row after all its attempts; `at` is its position.
    pub(super) fn new(
        tried: RowAttempts,
        at: Position,
        row: &mut BatchRow,
        rules: &BatchRules,
    ) -> FilledRows {
        let unknown_pixels = u64::from(tried.unknown_pixels);
        let Some(record) = tried.written else {
            return FilledRows {
                unknown_pixels,
                ..FilledRows::without_record(None, tried.bad, rules)
            };
        };
        FilledRows {
            digest: Digest::of_row(rules.digested, at, record, || CellHash::of(row)),
            rows: vec![Some(row.finish(record))],
            bad: tried.bad,
            unknown_pixels,
        }
    }

    /// Creates the result of a row of padding, or of a skipped row (`None`).
    pub(super) fn without_record(
        row: Option<RowDone>,
        bad: Vec<BadRecord>,
        rules: &BatchRules,
    ) -> FilledRows {
        FilledRows {
            rows: vec![row],
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
            layout,
            bad,
            digest,
            unknown_pixels,
        } = self;
        let facts = BatchFacts {
            epoch: batch.epoch,
            step: batch.step,
            layout,
            rows: batch.rows(),
            samples: batch.samples(),
            bad,
            digest,
            unknown_pixels,
        };
        (batch, facts)
    }
}
