//! A stream as a thread that runs commands in order, none faster than its simulated time.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::races::VectorClock;

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A position in a stream: the commands before it, their end time, and whether they are done.
#[derive(Debug)]
pub(super) struct StreamMark {
    /// Nanoseconds since the device was created, on its own clock.
    pub(super) time_ns: u64,
    pub(super) clock: VectorClock,
    done: Mutex<bool>,
    changed: Condvar,
}

impl StreamMark {
    pub(super) fn new(time_ns: u64, clock: VectorClock) -> Arc<StreamMark> {
        Arc::new(StreamMark {
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

    /// Waits for at most `limit`. Returns whether the mark is reached.
    pub(super) fn wait_within(&self, limit: Duration) -> bool {
        let done = self
            .changed
            .wait_timeout_while(lock(&self.done), limit, |done| !*done);
        *done.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Effect of a command on bytes.
pub(super) type CommandWork = Box<dyn FnOnce() + Send>;

/// An entry of a stream's queue.
pub(super) enum StreamTask {
    /// Takes effect when its turn comes, and ends at its end time.
    Write {
        work: CommandWork,
        end_ns: u64,
    },
    /// Takes effect at its end time, the latest moment at which a real device may read.
    Read {
        work: CommandWork,
        end_ns: u64,
    },
    Mark(Arc<StreamMark>),
    Wait(Arc<StreamMark>),
}

/// The thread of a stream.
pub(super) struct StreamThread {
    tasks: Arc<TaskQueue>,
    thread: Option<JoinHandle<()>>,
}

struct TaskQueue {
    start: Instant,
    state: Mutex<QueuedTasks>,
    changed: Condvar,
}

#[derive(Default)]
struct QueuedTasks {
    tasks: VecDeque<StreamTask>,
    /// Whether the remaining tasks run without waiting for their times.
    is_ending: bool,
}

impl StreamThread {
    /// Starts a stream whose times count from `start`.
    pub(super) fn new(number: usize, start: Instant) -> io::Result<StreamThread> {
        let tasks = Arc::new(TaskQueue {
            start,
            state: Mutex::new(QueuedTasks::default()),
            changed: Condvar::new(),
        });
        let running = Arc::clone(&tasks);
        let thread = thread::Builder::new()
            .name(format!("infeed-sim-{number}"))
            .spawn(move || running.run())?;
        Ok(StreamThread {
            tasks,
            thread: Some(thread),
        })
    }

    pub(super) fn push(&self, task: StreamTask) {
        lock(&self.tasks.state).tasks.push_back(task);
        self.tasks.changed.notify_one();
    }

    /// Makes the thread run the remaining tasks immediately, and end.
    pub(super) fn end(&self) {
        lock(&self.tasks.state).is_ending = true;
        self.tasks.changed.notify_one();
    }

    /// Waits for the thread after [`end`](StreamThread::end).
    pub(super) fn join(mut self) {
        if let Some(thread) = self.thread.take() {
            // A panicking command is a bug of the simulation. The panic hook has reported it.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for StreamThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").finish_non_exhaustive()
    }
}

impl TaskQueue {
    fn run(&self) {
        while let Some(task) = self.next() {
            match task {
                StreamTask::Write { work, end_ns } => {
                    work();
                    self.until(end_ns);
                }
                StreamTask::Read { work, end_ns } => {
                    self.until(end_ns);
                    work();
                }
                StreamTask::Mark(mark) => mark.reach(),
                // The mark was enqueued before this wait, so its stream reaches it.
                StreamTask::Wait(mark) => mark.wait(),
            }
        }
    }

    fn next(&self) -> Option<StreamTask> {
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

    /// Waits for a time on the device's clock, which is the host's.
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
