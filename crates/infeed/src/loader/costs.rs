//! Expected time to make the sample of each record, so that workers begin slow ones early.
//!
//! A record is expected to take as long as last time, or, before its first use, as long as its
//! stored bytes suggest. The order in which workers make samples changes no batch.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

/// A record is expensive if it is expected to take this many times the mean.
const TIMES_THE_MEAN: u64 = 8;

/// Most records whose times are kept, one byte each. Larger datasets rely on stored bytes.
const KEPT: u64 = 1 << 24;

/// Samples over which means are smoothed.
const SMOOTHED: u64 = 64;

/// Measured times of records, of all workers.
#[derive(Debug)]
pub(super) struct RecordCosts {
    /// Binary logarithm of the last time in nanoseconds; 0 before the first use.
    last: Vec<AtomicU8>,
    mean_ns: AtomicU64,
    mean_bytes: AtomicU64,
}

impl RecordCosts {
    pub(super) fn new(records: u64) -> RecordCosts {
        let kept = if records <= KEPT { records } else { 0 };
        RecordCosts {
            last: (0..kept).map(|_| AtomicU8::new(0)).collect(),
            mean_ns: AtomicU64::new(0),
            mean_bytes: AtomicU64::new(0),
        }
    }

    /// Notes the time that the sample of a record took.
    pub(super) fn add_time(&self, record: u64, bytes: u64, took: Duration) {
        let ns = (took.as_nanos() as u64).max(2);
        if let Some(last) = self.last.get(record as usize) {
            last.store(ns.ilog2() as u8, Ordering::Relaxed);
        }
        // An update that another thread overwrites is not missed.
        for (mean, value) in [(&self.mean_ns, ns), (&self.mean_bytes, bytes)] {
            let old = mean.load(Ordering::Relaxed);
            let new = match old {
                0 => value,
                _ => old - old / SMOOTHED + value / SMOOTHED,
            };
            mean.store(new, Ordering::Relaxed);
        }
    }

    /// Whether the sample of a record with this number of stored bytes is expected to take much
    /// longer than others.
    pub(super) fn is_expensive(&self, record: u64, bytes: u64) -> bool {
        let mean = self.mean_ns.load(Ordering::Relaxed);
        let last = self.last.get(record as usize);
        let expected = match last.map_or(0, |last| last.load(Ordering::Relaxed)) {
            0 => {
                let usual = self.mean_bytes.load(Ordering::Relaxed).max(1);
                mean.saturating_mul(bytes / usual)
            }
            log2 => 1 << log2.min(63),
        };
        mean > 0 && expected >= mean.saturating_mul(TIMES_THE_MEAN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_record_is_expensive_by_its_bytes_and_then_by_its_last_time() {
        let costs = RecordCosts::new(100);
        assert!(!costs.is_expensive(0, u64::MAX), "nothing is known");
        (0..50).for_each(|record| costs.add_time(record, 1000, MS));

        assert!(!costs.is_expensive(60, 7_000) && costs.is_expensive(60, 8_000));
        costs.add_time(60, 8_000, MS);
        assert!(!costs.is_expensive(60, 8_000), "it was not slow");
        costs.add_time(61, 1000, 20 * MS);
        assert!(costs.is_expensive(61, 1000), "it was slow");
    }

    #[test]
    fn a_large_dataset_is_judged_by_bytes_only() {
        let costs = RecordCosts::new(KEPT + 1);
        (0..50).for_each(|record| costs.add_time(record, 1000, MS));
        costs.add_time(7, 1000, 20 * MS);

        assert!(!costs.is_expensive(7, 1000));
        assert!(costs.is_expensive(u64::MAX, 100_000));
    }
}
