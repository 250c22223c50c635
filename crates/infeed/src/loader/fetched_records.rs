//! Fetched records waiting for a worker: one or several per row.

use std::sync::Arc;

use super::rules::{BatchRules, OnError};
use crate::fields::pixels::prepared_record::PixelState;
use crate::fields::scratch::Position;
use infeed_core::error::Error;
use infeed_core::exec::budget::Permit;
use infeed_core::exec::{JoinedReads, Sequence};
use infeed_core::sample::{Record, RecordId};

/// A record that was skipped or substituted.
#[derive(Clone, Debug)]
pub struct BadRecord {
    /// The record.
    pub record: RecordId,
    /// Epoch of the occurrence.
    pub epoch: u64,
    /// Position in the epoch of the row that the record should have filled.
    pub position: u64,
    /// The error.
    pub reason: Error,
}

impl BadRecord {
    /// Notes the error of the record at a position. `None` if the error has to stop the run.
    pub(super) fn new(error: &Error, at: Position, rules: &BatchRules) -> Option<BadRecord> {
        if !error.is_bad_record() || rules.on_error == OnError::Stop {
            return None;
        }
        Some(BadRecord {
            record: error.record()?.clone(),
            epoch: at.epoch,
            position: at.position,
            reason: error.clone(),
        })
    }
}

/// Role of a record in its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordRole {
    /// The row is its sample.
    Own,
    /// The row's sample has a part of it. Partners have numbers from 0.
    Partner(u8),
}

/// Row and role of a record in a read.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadPurpose {
    pub(super) sequence: Sequence,
    pub(super) role: RecordRole,
    /// Records that the row needs together.
    pub(super) together: u8,
}

/// Progress of a row with bad records.
#[derive(Clone, Debug, Default)]
pub(super) struct RowAttempts {
    /// Number of substitutes requested for the row's own record.
    pub(super) substitutes: u16,
    /// Record of the sample in the row.
    pub(super) written: Option<u64>,
    /// Bad records of this row.
    pub(super) bad: Vec<BadRecord>,
    /// Pixels of unknown class in the masks of its samples.
    pub(super) unknown_pixels: u32,
}

impl RowAttempts {
    /// Adds pixels of unknown class.
    pub(super) fn add_unknown(&mut self, pixels: u64) {
        let pixels = u32::try_from(pixels).unwrap_or(u32::MAX);
        self.unknown_pixels = self.unknown_pixels.saturating_add(pixels);
    }
}

/// A record or its error, and the memory reservation shared by all records of the read.
pub(super) struct FetchedContent {
    /// `None` for a record that the folder of the cache lost: it is read from the source.
    pub(super) found: Option<Result<Record, Error>>,
    pub(super) state: PixelState,
    pub(super) _permit: Option<Arc<Permit>>,
}

/// Fetched records of a row, waiting for a worker.
pub(crate) struct FetchedRecords {
    pub(super) own: Option<FetchedContent>,
    /// Partners with their numbers.
    pub(super) partners: Vec<(u8, FetchedContent)>,
    pub(super) tried: RowAttempts,
    /// Records that the row needs together; 0 if nothing is read for it.
    together: u8,
}

/// Fetched records of a sequence number, waiting for a worker.
pub(crate) enum FetchedRows {
    /// Those of one row.
    One(FetchedRecords),
    /// Numbers of the records of a run of rows, which the worker copies from memory. Rows after them
    /// are padding.
    Run(Vec<u64>),
}

impl ReadPurpose {
    /// Creates the purpose of a row that needs no read.
    pub(super) fn padding(sequence: Sequence) -> ReadPurpose {
        ReadPurpose {
            sequence,
            role: RecordRole::Own,
            together: 1,
        }
    }
}

impl FetchedRecords {
    /// Creates a row without a read: padding, or an error.
    pub(super) fn without_reading(failed: Option<Error>) -> FetchedRecords {
        FetchedRecords {
            own: failed.map(|error| FetchedContent {
                found: Some(Err(error)),
                state: PixelState::Stored,
                _permit: None,
            }),
            partners: Vec::new(),
            tried: RowAttempts::default(),
            together: 0,
        }
    }

    /// Creates a row from one record.
    pub(super) fn new(
        want: ReadPurpose,
        content: FetchedContent,
        tried: RowAttempts,
    ) -> FetchedRecords {
        let (own, partners) = match want.role {
            RecordRole::Own => (Some(content), Vec::new()),
            RecordRole::Partner(number) => (None, vec![(number, content)]),
        };
        FetchedRecords {
            own,
            partners,
            tried,
            together: want.together,
        }
    }

    /// Adds the records of another read for the same row.
    fn add(&mut self, other: FetchedRecords) {
        self.own = self.own.take().or(other.own);
        self.partners.extend(other.partners);
    }

    fn is_whole(&self) -> bool {
        let found = usize::from(self.own.is_some()) + self.partners.len();
        found >= usize::from(self.together)
    }
}

impl FetchedRows {
    /// Joins the records of several reads for one row.
    pub(super) fn join(
        waiting: Option<Box<FetchedRows>>,
        mut received: Box<FetchedRows>,
    ) -> JoinedReads<Box<FetchedRows>> {
        if let (FetchedRows::One(whole), Some(before)) = (&mut *received, waiting)
            && let FetchedRows::One(before) = *before
        {
            whole.add(before);
        }
        match &*received {
            FetchedRows::One(found) if !found.is_whole() => JoinedReads::Part(received),
            _ => JoinedReads::Whole(received),
        }
    }
}
