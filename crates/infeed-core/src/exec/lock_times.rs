//! How long threads hold the executor's mutexes. Measured with the feature `lock-times` only; the
//! example `lock_times` of the crate `infeed` prints the figures.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::totals::nanos;

/// The state of an executor.
pub(super) static STATE: LockTimes = LockTimes::new("state");
/// The bytes of fetched records.
pub(super) static BUDGET: LockTimes = LockTimes::new("budget");
/// The cores that executors share.
pub(super) static CORES: LockTimes = LockTimes::new("cores");

/// A longer hold was interrupted: its thread lost its core.
const INTERRUPTED: Duration = Duration::from_micros(50);

/// Number and time of the holds of all mutexes of a kind.
#[derive(Debug)]
pub(super) struct LockTimes {
    name: &'static str,
    holds: AtomicU64,
    held_ns: AtomicU64,
    interrupted: AtomicU64,
}

/// Totals of the holds of all mutexes of a kind since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HoldTotals {
    /// Kind of mutex.
    pub name: &'static str,
    /// Holds that nothing interrupted.
    pub holds: u64,
    /// Their time in nanoseconds. Each hold contains one reading of the clock.
    pub held_ns: u64,
    /// Holds of more than 50 us: the thread lost its core.
    pub interrupted: u64,
}

/// A hold that is measured until it is dropped.
#[derive(Debug)]
pub(super) struct Hold(Option<(&'static LockTimes, Instant)>);

impl LockTimes {
    const fn new(name: &'static str) -> LockTimes {
        LockTimes {
            name,
            holds: AtomicU64::new(0),
            held_ns: AtomicU64::new(0),
            interrupted: AtomicU64::new(0),
        }
    }

    pub(super) fn begin(&'static self) -> Hold {
        Hold(cfg!(feature = "lock-times").then(|| (self, Instant::now())))
    }

    fn add(&self, held: Duration) {
        if held > INTERRUPTED {
            self.interrupted.fetch_add(1, Ordering::Relaxed);
        } else {
            self.holds.fetch_add(1, Ordering::Relaxed);
            self.held_ns.fetch_add(nanos(held), Ordering::Relaxed);
        }
    }

    fn totals(&self) -> HoldTotals {
        HoldTotals {
            name: self.name,
            holds: self.holds.load(Ordering::Relaxed),
            held_ns: self.held_ns.load(Ordering::Relaxed),
            interrupted: self.interrupted.load(Ordering::Relaxed),
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some((times, begun)) = self.0 {
            times.add(begun.elapsed());
        }
    }
}

/// Returns the totals of each kind of mutex. All are 0 without the feature `lock-times`.
pub fn hold_totals() -> [HoldTotals; 3] {
    [&STATE, &BUDGET, &CORES].map(LockTimes::totals)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupted_holds_are_counted_apart() {
        let times = LockTimes::new("test");

        for held_us in [3, 50, 51] {
            times.add(Duration::from_micros(held_us));
        }

        let expected = HoldTotals {
            name: "test",
            holds: 2,
            held_ns: 53_000,
            interrupted: 1,
        };
        assert_eq!(times.totals(), expected);
    }
}
