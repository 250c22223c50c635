//! Durations of calls, counted in buckets an eighth of an octave wide.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Buckets per octave: a value is known to 1/16.
const PER_OCTAVE: u32 = 8;
/// Shorter calls are counted in the first bucket: 2^6 = 64 ns.
const FIRST_OCTAVE: u32 = 6;
/// Up to 2^40 ns, 18 minutes.
const OCTAVES: u32 = 34;
const BUCKETS: usize = (PER_OCTAVE * OCTAVES) as usize;

/// Counts that one thread writes and any thread reads.
#[derive(Debug)]
pub(super) struct Histogram {
    counts: [AtomicU64; BUCKETS],
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram {
            counts: [const { AtomicU64::new(0) }; BUCKETS],
        }
    }
}

fn bucket(ns: u64) -> usize {
    let ns = ns.max(1 << FIRST_OCTAVE);
    let octave = ns.ilog2();
    let within = (ns >> (octave - PER_OCTAVE.ilog2())) as u32 % PER_OCTAVE;
    (((octave - FIRST_OCTAVE) * PER_OCTAVE + within) as usize).min(BUCKETS - 1)
}

/// Middle of a bucket.
fn value_ns(bucket: usize) -> f64 {
    let (octave, within) = (bucket as u32 / PER_OCTAVE, bucket as u32 % PER_OCTAVE);
    let lower = 1.0 + f64::from(within) / f64::from(PER_OCTAVE);
    let half = 0.5 / f64::from(PER_OCTAVE);
    (lower + half) * 2f64.powi((octave + FIRST_OCTAVE) as i32)
}

impl Histogram {
    /// Counts a call.
    pub(super) fn add(&self, ns: u64) {
        // Relaxed: see `ThreadCounters::add_to`.
        self.counts[bucket(ns)].fetch_add(1, Ordering::Relaxed);
    }
}

/// Sum of the histograms of several threads.
#[derive(Clone, Debug)]
pub struct Calls {
    counts: [u64; BUCKETS],
}

impl Default for Calls {
    fn default() -> Calls {
        Calls {
            counts: [0; BUCKETS],
        }
    }
}

impl Calls {
    pub(super) fn add(&mut self, histogram: &Histogram) {
        for (sum, count) in self.counts.iter_mut().zip(&histogram.counts) {
            *sum += count.load(Ordering::Relaxed);
        }
    }

    /// Duration that a share `q` of the calls did not exceed, within 7 %; zero without calls.
    pub fn quantile(&self, q: f64) -> Duration {
        let total: u64 = self.counts.iter().sum();
        let rank = ((total as f64 * q).ceil() as u64).max(1);
        let mut seen = 0;
        for (at, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Duration::from_nanos(value_ns(at) as u64);
            }
        }
        Duration::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_within_seven_percent_of_the_value() {
        let histogram = Histogram::default();
        for us in 1..=1000 {
            histogram.add(us * 1000);
        }
        let mut calls = Calls::default();
        calls.add(&histogram);

        for (q, us) in [(0.5, 500.0), (0.99, 990.0), (1.0, 1000.0)] {
            let found = calls.quantile(q).as_secs_f64() * 1e6;
            assert!((found / us - 1.0_f64).abs() < 0.07, "{q}: {found} for {us}");
        }
    }

    #[test]
    fn the_shortest_and_the_longest_calls_have_a_bucket() {
        for ns in [0, 1, 63, 64, 1 << 39, u64::MAX] {
            assert!(bucket(ns) < BUCKETS);
        }
        assert_eq!(Calls::default().quantile(0.99), Duration::ZERO);
    }
}
