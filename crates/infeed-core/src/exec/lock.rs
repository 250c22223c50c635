//! The executor's mutexes, and the time for which threads hold them.
//!
//! Job code runs outside these mutexes and its panics are caught, so what they guard is consistent
//! even if a thread panicked.

use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::lock_times::{Hold, LockTimes};

/// A mutex whose holding times are counted with the feature `lock-times`.
#[derive(Debug)]
pub(super) struct Lock<T> {
    mutex: Mutex<T>,
    times: &'static LockTimes,
}

/// Access to the value of a [`Lock`].
pub(super) struct LockGuard<'a, T> {
    // Dropped first, so that the measured time ends before the mutex is free.
    hold: Hold,
    guard: MutexGuard<'a, T>,
    times: &'static LockTimes,
}

impl<T> Lock<T> {
    /// Creates a mutex. All mutexes of one kind share `times`.
    pub(super) const fn new(value: T, times: &'static LockTimes) -> Lock<T> {
        Lock {
            mutex: Mutex::new(value),
            times,
        }
    }

    pub(super) fn lock(&self) -> LockGuard<'_, T> {
        let guard = self.mutex.lock().unwrap_or_else(PoisonError::into_inner);
        LockGuard::new(guard, self.times)
    }
}

impl<'a, T> LockGuard<'a, T> {
    fn new(guard: MutexGuard<'a, T>, times: &'static LockTimes) -> Self {
        LockGuard {
            hold: times.begin(),
            guard,
            times,
        }
    }

    /// Frees the mutex, waits for a wake-up, and locks the mutex again.
    pub(super) fn wait(self, wake_up: &Condvar) -> Self {
        drop(self.hold);
        let guard = wake_up.wait(self.guard);
        LockGuard::new(guard.unwrap_or_else(PoisonError::into_inner), self.times)
    }

    /// As [`LockGuard::wait`], but waits at most `timeout`.
    pub(super) fn wait_timeout(self, wake_up: &Condvar, timeout: Duration) -> Self {
        drop(self.hold);
        let woken = wake_up.wait_timeout(self.guard, timeout);
        LockGuard::new(woken.unwrap_or_else(PoisonError::into_inner).0, self.times)
    }
}

impl<T> Deref for LockGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for LockGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}
