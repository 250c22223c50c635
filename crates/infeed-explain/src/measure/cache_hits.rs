//! The share of reads that memory answers from one epoch to the next.

use crate::case::Case;
use crate::model::interval::Interval;

/// Share of memory that a dataset may take and still stay in memory between epochs.
pub(crate) const STAYS: f64 = 0.5;

/// Returns the storage rate if memory keeps a part of the data. None if memory keeps all of it.
pub(crate) fn with_cache(case: &Case, cold: Interval, bytes: f64) -> Option<Interval> {
    let missed = 1.0 - hit_share(kept_bytes(case), bytes, case.pipeline.shuffle.is_some());
    (missed > 0.0).then(|| cold.map(|rate| rate / missed))
}

/// Bytes of the data that stay between epochs: local files in the page cache, bucket objects in the
/// cache of this process.
pub(crate) fn kept_bytes(case: &Case) -> f64 {
    match case.throttle() {
        // The simulated storage of a profile has no cache.
        Some(_) => 0.0,
        None if case.is_far() => case.cache_bytes() as f64,
        None => STAYS * infeed_raw::machine::memory_limit_bytes() as f64,
    }
}

/// Returns the share of reads that a least-recently-used cache answers over epochs.
///
/// If every epoch reads the records in the same order, each record is the one that was read longest
/// ago when its turn comes. A cache that does not hold all of them has dropped it by then and
/// answers nothing.
pub(crate) fn hit_share(cache_bytes: f64, bytes: f64, is_shuffled: bool) -> f64 {
    match is_shuffled {
        true => shuffled_hits(cache_bytes, bytes),
        false => f64::from(u8::from(cache_bytes >= bytes)),
    }
}

/// Returns the share of reads that a least-recently-used cache answers, if every epoch reads all
/// records in another random order.
///
/// A record is read at a share `x` before the end of an epoch and again at `y` of the next epoch.
/// It is still cached if the different records in between, `x + y - xy` of all, fit the cache's
/// share `f`. For independent uniform `x` and `y` that is `P((1 - x)(1 - y) >= c) = 1 - c + c ln c`
/// with `c = 1 - f`: half of the data in memory answers 15 % of the reads.
fn shuffled_hits(cache_bytes: f64, bytes: f64) -> f64 {
    let c = 1.0 - (cache_bytes / bytes.max(1.0)).min(1.0);
    if c <= 0.0 {
        return 1.0;
    }
    1.0 - c + c * c.ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use infeed_core::order::Order;

    /// Simulates epochs of 400 records through a least-recently-used cache. Returns the share of
    /// reads that the cache answers after the first epoch.
    fn simulate_hits(kept: u64, seed: Option<u64>) -> f64 {
        let len = 400_u64;
        let order = Order::new(len, seed);
        let mut last = vec![None; len as usize];
        let (mut found, mut read, mut clock) = (0_u64, 0_u64, 0_u64);
        for epoch in 0..12 {
            let order = order.epoch(epoch);
            for position in 0..len {
                let record = order.get(position) as usize;
                if let Some(before) = last[record] {
                    let between = last.iter().flatten().filter(|at| **at > before).count() as u64;
                    read += 1;
                    found += u64::from(between < kept);
                }
                last[record] = Some(clock);
                clock += 1;
            }
        }
        found as f64 / read as f64
    }

    #[test]
    fn a_cache_answers_the_predicted_share_of_shuffled_reads() {
        assert_eq!(shuffled_hits(200.0, 100.0), 1.0, "all of it fits");
        assert!(shuffled_hits(0.0, 100.0).abs() < 1e-9, "nothing fits");
        // 1 - 0.5 + 0.5 ln 0.5
        assert!((shuffled_hits(1.0, 2.0) - 0.153_426).abs() < 1e-6);

        for kept in [40, 100, 200, 300, 360] {
            let predicted = shuffled_hits(kept as f64, 400.0);
            let share = simulate_hits(kept, Some(7));
            assert!(
                (share - predicted).abs() < 0.02,
                "{kept}: {share} {predicted}"
            );
        }
    }

    #[test]
    fn a_cache_answers_no_read_of_a_larger_dataset_in_file_order() {
        assert_eq!(hit_share(399.0, 400.0, false), 0.0);
        assert_eq!(simulate_hits(399, None), 0.0);
        assert_eq!(hit_share(400.0, 400.0, false), 1.0);
        assert_eq!(simulate_hits(400, None), 1.0);
    }
}
