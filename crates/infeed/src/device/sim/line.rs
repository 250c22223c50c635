//! A stream as a thread that runs commands one after another, none faster than its time.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::races::Clocks;

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A place in a stream: what is before it, when that ends, and whether it has.
#[derive(Debug)]
pub(super) struct Mark {
    /// In nanoseconds since the device was made, on its own clock.
    pub(super) time_ns: u64,
    pub(super) clock: Clocks,
    done: Mutex<bool>,
    changed: Condvar,
}

impl Mark {
    pub(super) fn new(time_ns: u64, clock: Clocks) -> Arc<Mark> {
        Arc::new(Mark {
            time_ns,
            clock,
            done: Mutex::new(false),
            changed: Condvar::new(),
        })
    }

    pub(super) fn reach(&self) {
        *lock(&self.done) = true;
        self.changed.notify_all();
    }

    pub(super) fn is_reached(&self) -> bool {
        *lock(&self.done)
    }

    pub(super) fn wait(&self) {
        let mut done = lock(&self.done);
        while !*done {
            done = self
                .changed
                .wait(done)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether it is reached within so long.
    pub(super) fn wait_within(&self, limit: Duration) -> bool {
        let done = self
            .changed
            .wait_timeout_while(lock(&self.done), limit, |done| !*done);
        *done.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// What a command does to bytes.
pub(super) type Work = Box<dyn FnOnce() + Send>;

/// What a stream holds.
pub(super) enum Task {
    /// Done as soon as it is its turn; over at its end.
    Write {
        work: Work,
        end_ns: u64,
    },
    /// Done at its end, as late as it may read.
    Read {
        work: Work,
        end_ns: u64,
    },
    Mark(Arc<Mark>),
    Wait(Arc<Mark>),
}

/// The thread of a stream.
pub(super) struct Line {
    tasks: Arc<Tasks>,
    thread: Option<JoinHandle<()>>,
}

struct Tasks {
    start: Instant,
    state: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    tasks: VecDeque<Task>,
    /// What is left is done without keeping to its time.
    is_ending: bool,
}

impl Line {
    /// Starts a stream whose times count from `start`.
    pub(super) fn new(number: usize, start: Instant) -> io::Result<Line> {
        let tasks = Arc::new(Tasks {
            start,
            state: Mutex::new(Waiting::default()),
            changed: Condvar::new(),
        });
        let running = Arc::clone(&tasks);
        let thread = thread::Builder::new()
            .name(format!("infeed-sim-{number}"))
            .spawn(move || running.run())?;
        Ok(Line {
            tasks,
            thread: Some(thread),
        })
    }

    pub(super) fn push(&self, task: Task) {
        lock(&self.tasks.state).tasks.push_back(task);
        self.tasks.changed.notify_one();
    }

    /// Lets the thread hurry through what is left, and end.
    pub(super) fn end(&self) {
        lock(&self.tasks.state).is_ending = true;
        self.tasks.changed.notify_one();
    }

    /// Waits for the thread, which was told to end.
    pub(super) fn join(mut self) {
        if let Some(thread) = self.thread.take() {
            // A command that panicked is a defect of the simulation, and was told by the hook.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").finish_non_exhaustive()
    }
}

impl Tasks {
    fn run(&self) {
        while let Some(task) = self.next() {
            match task {
                Task::Write { work, end_ns } => {
                    work();
                    self.until(end_ns);
                }
                Task::Read { work, end_ns } => {
                    self.until(end_ns);
                    work();
                }
                Task::Mark(mark) => mark.reach(),
                // It was recorded before this was enqueued, so its stream comes to it.
                Task::Wait(mark) => mark.wait(),
            }
        }
    }

    fn next(&self) -> Option<Task> {
        let mut state = lock(&self.state);
        loop {
            if let Some(task) = state.tasks.pop_front() {
                return Some(task);
            }
            if state.is_ending {
                return None;
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits for a time on the device's clock, which is that of the host.
    fn until(&self, end_ns: u64) {
        let mut state = lock(&self.state);
        while !state.is_ending {
            let left = Duration::from_nanos(end_ns).saturating_sub(self.start.elapsed());
            if left.is_zero() {
                break;
            }
            let (guard, _) = self
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner);
            state = guard;
        }
    }
}
