//! Limit on calls of an object at the same time.

use std::sync::{Condvar, Mutex, PoisonError};

/// Turns of threads: a thread holds one while it calls the object.
#[derive(Debug)]
pub(super) struct Turns {
    free: Mutex<usize>,
    given_back: Condvar,
}

/// The right to call the object, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn<'a>(&'a Turns);

impl Turns {
    /// Creates turns for up to `limit` threads at a time, at least one.
    pub(super) fn new(limit: usize) -> Turns {
        Turns {
            free: Mutex::new(limit.max(1)),
            given_back: Condvar::new(),
        }
    }

    /// Waits for a turn. The caller must not hold the interpreter lock.
    pub(super) fn take(&self) -> Turn<'_> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free = self
            .given_back
            .wait_while(free, |free| *free == 0)
            .unwrap_or_else(PoisonError::into_inner);
        *free -= 1;
        Turn(self)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.given_back.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn as_many_threads_as_the_limit_have_a_turn_also_after_a_panic() {
        let (turns, now, most) = (Turns::new(2), AtomicUsize::new(0), AtomicUsize::new(0));
        let pair = Barrier::new(2);
        let call = |number: usize| {
            let _turn = turns.take();
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            pair.wait();
            now.fetch_sub(1, Ordering::SeqCst);
            assert_ne!(number, 0, "the call that panics");
        };
        let call = &call;
        let panics = thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|number| scope.spawn(move || call(number)))
                .collect();
            let ended = threads.into_iter().map(thread::ScopedJoinHandle::join);
            ended.filter(Result::is_err).count()
        });

        assert_eq!((panics, most.into_inner()), (1, 2));
    }
}
