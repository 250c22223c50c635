//! Locks of the ring. The model check of `tests/model.rs` compiles the ring a second time over
//! locks whose order it chooses; that is why no file of the ring names a lock but through here.

use std::time::Duration;

pub(super) use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::sync::{PoisonError, WaitTimeoutResult};

/// Locks. What a panicking thread left is whole: nothing in the ring panics half way.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a change.
pub(super) fn wait<'a, T>(changed: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    changed.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a change at most so long, and tells whether that time passed without one.
pub(super) fn wait_for<'a, T>(
    _mutex: &'a Mutex<T>,
    changed: &Condvar,
    guard: MutexGuard<'a, T>,
    limit: Duration,
) -> (MutexGuard<'a, T>, bool) {
    let (guard, result): (_, WaitTimeoutResult) = changed
        .wait_timeout(guard, limit)
        .unwrap_or_else(PoisonError::into_inner);
    (guard, result.timed_out())
}
