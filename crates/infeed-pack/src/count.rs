//! Progress of a run, and the number of records that were left out.

use std::sync::Arc;

use super::entry::Entry;
use infeed_core::error::Error;

/// Progress of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PackProgress {
    /// Number of finished records, including bad ones.
    pub done: u64,
    /// Number of records to pack.
    pub total: u64,
    /// Finished records that were complete before this run.
    pub reused: u64,
    /// Finished records that are bad and were left out.
    pub bad: u64,
    /// Bytes of the finished records in the original data.
    pub bytes_in: u64,
    /// Bytes of the finished records in the packed dataset.
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
pub(super) struct RunningTotals {
    pub(super) totals: Totals,
}

impl RunningTotals {
    /// Returns the sums of the shards that an earlier run finished, up to position `end`.
    pub(super) fn taken_up(entries: &[Entry], end: u64) -> RunningTotals {
        let sum = |of: fn(&Entry) -> u64| entries.iter().map(of).sum();
        RunningTotals {
            totals: Totals {
                done: end,
                reused: sum(|entry| entry.records),
                bad: sum(|entry| entry.bad),
                bytes_in: sum(|entry| entry.bytes_in),
                bytes_out: sum(|entry| entry.bytes),
            },
        }
    }

    /// Counts a written record.
    pub(super) fn one(&mut self, bytes_in: u64, bytes_out: u64) {
        self.totals.done += 1;
        self.totals.bytes_in += bytes_in;
        self.totals.bytes_out += bytes_out;
    }

    /// Counts a record that is left out.
    ///
    /// # Errors
    ///
    /// If there are more than `max_bad` bad records: the record's own error if `max_bad` is 0, else
    /// [`Error::TooManyBad`].
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

    pub(super) fn progress(&self, total: u64) -> PackProgress {
        let totals = &self.totals;
        PackProgress {
            done: totals.done,
            total,
            reused: totals.reused,
            bad: totals.bad,
            bytes_in: totals.bytes_in,
            bytes_out: totals.bytes_out,
        }
    }
}
