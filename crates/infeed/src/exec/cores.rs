//! The cores of this process, shared by all open conveyors.
//!
//! A training and a validation loader each have as many workers as suit them alone. While both
//! are busy, a worker needs a core before it starts on a row, so that together they run no more
//! threads than the larger one alone.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

static CORES: Mutex<Cores> = Mutex::new(Cores {
    conveyors: Vec::new(),
    next: 0,
    busy: 0,
    waiting: 0,
});
static FREED: Condvar = Condvar::new();

struct Cores {
    /// Each open conveyor by its number, and how many workers it lets work.
    conveyors: Vec<(u64, usize)>,
    next: u64,
    busy: usize,
    waiting: usize,
}

/// A conveyor's entry in the list, removed when dropped.
#[derive(Debug)]
pub(super) struct Registration {
    number: u64,
}

/// The right to run on a core; given back when dropped.
#[derive(Debug)]
pub(super) struct Core {
    counted: bool,
}

impl Cores {
    /// Workers that the largest conveyor lets work.
    fn limit(&self) -> usize {
        let workers = self.conveyors.iter().map(|(_, workers)| *workers);
        workers.max().unwrap_or(1)
    }
}

impl Registration {
    pub(super) fn new(workers: usize) -> Registration {
        let mut cores = lock();
        let number = cores.next;
        cores.next += 1;
        cores.conveyors.push((number, workers));
        Registration { number }
    }

    /// Says how many workers the conveyor lets work from now on.
    pub(super) fn set(&self, workers: usize) {
        let mut cores = lock();
        for (number, now) in &mut cores.conveyors {
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
        cores.conveyors.retain(|(number, _)| *number != self.number);
        // What was the smaller conveyor may be the only one now.
        FREED.notify_all();
    }
}

impl Core {
    /// Waits for a core. Free of cost to speak of while one conveyor is open.
    pub(super) fn acquire() -> Core {
        let mut cores = lock();
        loop {
            let limit = cores.limit();
            if cores.conveyors.len() < 2 {
                return Core { counted: false };
            }
            if cores.busy < limit {
                cores.busy += 1;
                return Core { counted: true };
            }
            cores.waiting += 1;
            cores = FREED.wait(cores).unwrap_or_else(PoisonError::into_inner);
            cores.waiting -= 1;
        }
    }
}

impl Drop for Core {
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

fn lock() -> MutexGuard<'static, Cores> {
    CORES.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    #[test]
    fn two_conveyors_together_run_no_more_threads_than_the_larger_one() {
        let _train = Registration::new(2);
        let _validate = Registration::new(1);
        let running = AtomicUsize::new(0);
        let most = AtomicUsize::new(0);

        thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let core = Core::acquire();
                        let now = running.fetch_add(1, Ordering::SeqCst) + 1;
                        most.fetch_max(now, Ordering::SeqCst);
                        thread::yield_now();
                        running.fetch_sub(1, Ordering::SeqCst);
                        drop(core);
                    }
                });
            }
        });

        // Other tests may have conveyors of their own meanwhile.
        let limit = lock().limit();
        assert!((1..=limit).contains(&most.load(Ordering::SeqCst)));
    }
}
