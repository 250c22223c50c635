//! The cores of this process, shared by all open conveyors.
//!
//! A training and a validation loader each have as many workers as there are cores. While both
//! are busy, a worker needs a core before it starts on a row, so that together they run no more
//! threads than the larger one alone.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

static CORES: Mutex<Cores> = Mutex::new(Cores {
    conveyors: Vec::new(),
    busy: 0,
    waiting: 0,
});
static FREED: Condvar = Condvar::new();

struct Cores {
    /// Workers of each open conveyor.
    conveyors: Vec<usize>,
    busy: usize,
    waiting: usize,
}

/// A conveyor's entry in the list, removed when dropped.
#[derive(Debug)]
pub(super) struct Registration {
    workers: usize,
}

/// The right to run on a core; given back when dropped.
#[derive(Debug)]
pub(super) struct Core {
    counted: bool,
}

impl Registration {
    pub(super) fn new(workers: usize) -> Registration {
        lock().conveyors.push(workers);
        Registration { workers }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut cores = lock();
        if let Some(at) = cores.conveyors.iter().position(|&n| n == self.workers) {
            cores.conveyors.swap_remove(at);
        }
        // What was the smaller conveyor may be the only one now.
        FREED.notify_all();
    }
}

impl Core {
    /// Waits for a core. Free of cost to speak of while one conveyor is open.
    pub(super) fn acquire() -> Core {
        let mut cores = lock();
        loop {
            let limit = cores.conveyors.iter().copied().max().unwrap_or(1);
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

        let limit = lock()
            .conveyors
            .iter()
            .copied()
            .max()
            .expect("two are registered");
        assert!((1..=limit).contains(&most.load(Ordering::SeqCst)));
    }
}
