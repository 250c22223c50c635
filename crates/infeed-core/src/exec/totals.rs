//! Times and counts of an executor's threads.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// Time that threads spent blocked, in nanoseconds, summed over the threads of a kind.
#[derive(Debug, Default)]
pub struct WaitTimes {
    /// Workers waited for a fetched record: reading is the limit.
    pub starved_ns: AtomicU64,
    /// Workers had fetched records but no batch that may be open: the consumer is the limit.
    pub blocked_ns: AtomicU64,
    /// I/O threads had nothing to read: they are far enough ahead.
    pub readers_idle_ns: AtomicU64,
}

/// Work of the workers, summed over all of them.
#[derive(Debug, Default)]
pub struct WorkerTotals {
    /// Rows filled or failed.
    pub rows: AtomicU64,
    /// Time inside [`Job::fill`](super::Job::fill) and [`Job::close`](super::Job::close), in nanoseconds.
    pub busy_ns: AtomicU64,
}

/// Returns a time in nanoseconds.
pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
