//! Time during which feeders send bytes: per feeder, and in total with overlaps counted once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use infeed_raw::machine::thread_cpu_time;

/// Time during which at least one [`Working`] guard exists.
#[derive(Debug, Default)]
pub(super) struct Busy(Mutex<BusyState>);

#[derive(Debug, Default)]
struct BusyState {
    /// Number of guards.
    count: usize,
    /// Start of the current period, if there are guards.
    since: Option<Instant>,
    /// Sum of earlier periods.
    total: Duration,
}

/// Guard that counts time until it is dropped.
pub(super) struct Working<'a> {
    all: &'a Busy,
    own: &'a AtomicU64,
    begun: Instant,
}

impl Busy {
    /// Begins to count. The guard's own duration is added to `own`, in nanoseconds.
    pub(super) fn begin<'a>(&'a self, own: &'a AtomicU64) -> Working<'a> {
        let begun = Instant::now();
        let mut state = self.lock();
        state.count += 1;
        state.since.get_or_insert(begun);
        drop(state);
        Working {
            all: self,
            own,
            begun,
        }
    }

    /// Returns the time so far.
    pub(super) fn total(&self) -> Duration {
        let state = self.lock();
        state.total + state.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    fn lock(&self) -> MutexGuard<'_, BusyState> {
        // The state is consistent after every statement.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        add_time(self.own, self.begun.elapsed());
        let mut state = self.all.lock();
        state.count = state.count.saturating_sub(1);
        if state.count == 0
            && let Some(since) = state.since.take()
        {
            state.total += since.elapsed();
        }
    }
}

/// Splits the CPU time of a thread into laps.
pub(super) struct CpuLaps(Duration);

impl CpuLaps {
    /// Begins on the calling thread, which must also call [`CpuLaps::lap`].
    pub(super) fn begin() -> CpuLaps {
        CpuLaps(thread_cpu_time())
    }

    /// Adds the thread's CPU time since the last lap to `counter`, in nanoseconds.
    pub(super) fn lap(&mut self, counter: &AtomicU64) {
        let now = thread_cpu_time();
        add_time(counter, now.saturating_sub(self.0));
        self.0 = now;
    }
}

fn add_time(counter: &AtomicU64, time: Duration) {
    let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    counter.fetch_add(ns, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_time_counts_once_in_total_and_fully_per_feeder() {
        let busy = Busy::default();
        let own = [AtomicU64::new(0), AtomicU64::new(0)];
        let begun = Instant::now();

        let first = busy.begin(&own[0]);
        let second = busy.begin(&own[1]);
        std::thread::sleep(Duration::from_millis(20));
        drop(first);
        assert!(
            busy.total() >= Duration::from_millis(20),
            "one guard is left"
        );
        drop(second);
        let (all, elapsed) = (busy.total(), begun.elapsed());

        let of = |at: usize| Duration::from_nanos(own[at].load(Ordering::Relaxed));
        assert!(
            all <= elapsed && all >= of(0).max(of(1)),
            "{all:?} of {elapsed:?}"
        );
        assert!(of(0) >= Duration::from_millis(20) && of(1) >= Duration::from_millis(20));
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(busy.total(), all, "no guard is left");
    }
}
