//! The cores of this process, shared by all open executors.
//!
//! A training loader and a validation loader each have as many workers as suit them alone. While
//! both are open, a worker takes a permit for a core before it fills a row. Together they run no
//! more threads than the larger loader alone.

use std::sync::Condvar;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::lock::{Lock, LockGuard};
use super::lock_times;

static CORES: Lock<CoreShares> = Lock::new(CoreShares::NONE, &lock_times::CORES);
static FREED: Condvar = Condvar::new();
/// Number of open executors. Workers of a single one need no permits and do not lock `CORES`.
static OPEN: AtomicUsize = AtomicUsize::new(0);

struct CoreShares {
    /// Open executors: number, and workers that may work.
    executors: Vec<(u64, usize)>,
    next: u64,
    busy: usize,
    waiting: usize,
}

/// An executor's entry in the list. Dropping it removes the entry.
#[derive(Debug)]
pub(super) struct Registration {
    number: u64,
}

/// The right to run on a core. Dropping it frees the core.
#[derive(Debug)]
pub(super) struct CorePermit {
    counted: bool,
}

impl CoreShares {
    const NONE: CoreShares = CoreShares {
        executors: Vec::new(),
        next: 0,
        busy: 0,
        waiting: 0,
    };

    /// Returns the working threads of the largest executor.
    fn limit(&self) -> usize {
        let workers = self.executors.iter().map(|(_, workers)| *workers);
        workers.max().unwrap_or(1)
    }
}

impl Registration {
    pub(super) fn new(workers: usize) -> Registration {
        let mut cores = lock();
        let number = cores.next;
        cores.next += 1;
        cores.executors.push((number, workers));
        OPEN.store(cores.executors.len(), Ordering::Relaxed);
        Registration { number }
    }

    /// Sets the number of workers of the executor that may work.
    pub(super) fn set(&self, workers: usize) {
        let mut cores = lock();
        for (number, now) in &mut cores.executors {
            if *number == self.number {
                *now = workers;
            }
        }
        if cores.waiting > 0 {
            FREED.notify_all();
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut cores = lock();
        cores.executors.retain(|(number, _)| *number != self.number);
        OPEN.store(cores.executors.len(), Ordering::Relaxed);
        // The limit changes, and a single remaining executor has none.
        FREED.notify_all();
    }
}

impl CorePermit {
    /// Waits for a core. Returns immediately while only one executor is open.
    pub(super) fn acquire() -> CorePermit {
        if OPEN.load(Ordering::Relaxed) < 2 {
            return CorePermit { counted: false };
        }
        let mut cores = lock();
        loop {
            let limit = cores.limit();
            if cores.executors.len() < 2 {
                return CorePermit { counted: false };
            }
            if cores.busy < limit {
                cores.busy += 1;
                return CorePermit { counted: true };
            }
            cores.waiting += 1;
            cores = cores.wait(&FREED);
            cores.waiting -= 1;
        }
    }
}

impl Drop for CorePermit {
    fn drop(&mut self) {
        if self.counted {
            let mut cores = lock();
            cores.busy -= 1;
            if cores.waiting > 0 {
                FREED.notify_one();
            }
        }
    }
}

fn lock() -> LockGuard<'static, CoreShares> {
    CORES.lock()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    #[test]
    fn two_executors_together_run_no_more_threads_than_the_larger_one() {
        let _train = Registration::new(2);
        let _validate = Registration::new(1);
        let running = AtomicUsize::new(0);
        let most = AtomicUsize::new(0);

        thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let core = CorePermit::acquire();
                        let now = running.fetch_add(1, Ordering::SeqCst) + 1;
                        most.fetch_max(now, Ordering::SeqCst);
                        thread::yield_now();
                        running.fetch_sub(1, Ordering::SeqCst);
                        drop(core);
                    }
                });
            }
        });

        // Other tests may have open executors at the same time.
        let limit = lock().limit();
        assert!((1..=limit).contains(&most.load(Ordering::SeqCst)));
    }
}
