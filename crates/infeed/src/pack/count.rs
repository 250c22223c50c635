//! How far a run is, and how many records were left out.

use std::sync::Arc;

use super::entry::Entry;
use crate::error::Error;

/// How far a run is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Records that are done, bad ones included.
    pub done: u64,
    /// Records there are.
    pub total: u64,
    /// Of those done, how many were complete before this run.
    pub reused: u64,
    /// Of those done, how many are bad and were left out.
    pub bad: u64,
    /// Bytes of the original records that are done.
    pub bytes_in: u64,
    /// Bytes that hold them now.
    pub bytes_out: u64,
}

/// Sums over all records.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub(super) done: u64,
    pub(super) reused: u64,
    pub(super) bad: u64,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
}

/// The sums so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    pub(super) totals: Totals,
}

impl Counted {
    /// Those of shards that an earlier run finished, up to a place.
    pub(super) fn taken_up(entries: &[Entry], end: u64) -> Counted {
        let sum = |of: fn(&Entry) -> u64| entries.iter().map(of).sum();
        Counted {
            totals: Totals {
                done: end,
                reused: sum(|entry| entry.records),
                bad: sum(|entry| entry.bad),
                bytes_in: sum(|entry| entry.bytes_in),
                bytes_out: sum(|entry| entry.bytes),
            },
        }
    }

    /// A record that was written.
    pub(super) fn one(&mut self, bytes_in: u64, bytes_out: u64) {
        self.totals.done += 1;
        self.totals.bytes_in += bytes_in;
        self.totals.bytes_out += bytes_out;
    }

    /// A record that is left out.
    ///
    /// # Errors
    ///
    /// If it is one too many: its own where none may be bad, else [`Error::TooManyBad`].
    pub(super) fn bad(&mut self, error: &Error, max_bad: Option<u64>) -> Result<(), Error> {
        self.totals.done += 1;
        self.totals.bad += 1;
        let bad = self.totals.bad;
        match (max_bad, error.record()) {
            (Some(0), _) => Err(error.clone()),
            (Some(limit), Some(record)) if bad > limit => Err(Error::TooManyBad {
                bad,
                limit,
                record: record.clone(),
                source: Arc::new(error.clone()),
            }),
            _ => Ok(()),
        }
    }

    pub(super) fn progress(&self, total: u64) -> Progress {
        let totals = &self.totals;
        Progress {
            done: totals.done,
            total,
            reused: totals.reused,
            bad: totals.bad,
            bytes_in: totals.bytes_in,
            bytes_out: totals.bytes_out,
        }
    }
}
