//! Locks of the ring. `tests/model.rs` compiles the ring a second time with locks whose order a
//! model checker chooses, so files of the ring use locks only through this module.

use std::time::Duration;

pub(super) use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::sync::{PoisonError, WaitTimeoutResult};

/// Locks a mutex. After a panic the data is still consistent, because nothing in the ring panics in
/// the middle of a change.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a change.
pub(super) fn wait<'a, T>(changed: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    changed.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a change for at most `limit`. Returns whether the limit passed without one.
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
