//! The worker processes of one function. Each call takes a free process. If the process ends during
//! the call, the pool starts another one and repeats the call once.

use std::process::ExitStatus;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use infeed::function::{CallCost, DrawKey, FunctionFailure, RunningFunction, ValueSink};
use infeed_core::batch::Column;
use infeed_core::stop::Stop;

#[cfg(not(unix))]
use super::no_worker_process::NoWorkerProcess as WorkerProcess;
use super::worker_failure::{LaunchCommand, WorkerFailure};
#[cfg(unix)]
use super::worker_process::WorkerProcess;

/// Interval at which a thread that waits for a free process checks whether the loader closes.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The worker processes of one function.
#[derive(Debug)]
pub(super) struct ProcessPool {
    launch: LaunchCommand,
    state: Mutex<PoolState>,
    freed: Condvar,
}

#[derive(Debug)]
struct PoolState {
    free: Vec<WorkerProcess>,
    /// Number of processes that may be started to replace those that ended.
    missing: usize,
}

/// A process ended during a call, and so did its replacement.
#[derive(Debug, thiserror::Error)]
#[error(
    "the worker process ended during the call ({}), and its replacement too ({})",
    status(.0), status(.1)
)]
struct CrashedTwice(Option<ExitStatus>, Option<ExitStatus>);

/// A process ended before it loaded the function.
#[derive(Debug, thiserror::Error)]
#[error("the worker process ended ({}) before it loaded the function", status(.0))]
struct EndedAtStart(Option<ExitStatus>);

fn status(status: &Option<ExitStatus>) -> String {
    status.map_or("unknown status".to_owned(), |status| status.to_string())
}

impl ProcessPool {
    /// Starts `count` processes, and waits until all have loaded the function.
    pub(super) fn start(
        launch: LaunchCommand,
        count: usize,
    ) -> Result<ProcessPool, FunctionFailure> {
        let begun = (0..count).map(|_| WorkerProcess::start(&launch));
        let begun: Result<Vec<WorkerProcess>, _> = begun.collect();
        let mut free = begun.map_err(|error| FunctionFailure::Process(Arc::new(error)))?;
        free.iter_mut().try_for_each(ready)?;
        Ok(ProcessPool {
            launch,
            state: Mutex::new(PoolState { free, missing: 0 }),
            freed: Condvar::new(),
        })
    }

    /// Returns a free process, or a new one in place of a process that ended.
    fn take(&self) -> Result<WorkerProcess, FunctionFailure> {
        let mut state = self.lock();
        loop {
            while let Some(mut process) = state.free.pop() {
                // The system or a user ended the idle process.
                if !process.is_over() {
                    return Ok(process);
                }
                state.missing += 1;
            }
            if state.missing > 0 {
                state.missing -= 1;
                drop(state);
                return self.another();
            }
            if Stop::here().is_some_and(|stop| stop.is_requested()) {
                return Err(FunctionFailure::Closed);
            }
            let woken = self.freed.wait_timeout(state, POLL_INTERVAL);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Starts a process in place of one that ended.
    fn another(&self) -> Result<WorkerProcess, FunctionFailure> {
        let started = WorkerProcess::start(&self.launch)
            .map_err(|error| FunctionFailure::Process(Arc::new(error)));
        let started = started.and_then(|mut process| ready(&mut process).map(|()| process));
        if started.is_err() {
            self.note_missing();
        }
        started
    }

    fn give_back(&self, process: WorkerProcess) {
        self.lock().free.push(process);
        self.freed.notify_one();
    }

    fn note_missing(&self) {
        self.lock().missing += 1;
        self.freed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        // No code panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls the function once in a process, and returns the process to the pool unless it ended.
    fn attempt(
        &self,
        mut process: WorkerProcess,
        inputs: &[Column],
        draw: DrawKey,
        sink: &mut dyn ValueSink,
    ) -> Result<Result<Duration, FunctionFailure>, Option<ExitStatus>> {
        match process.call(inputs, draw, sink) {
            Err(WorkerFailure::Ended(status)) => Err(status),
            Err(WorkerFailure::Failed(FunctionFailure::Closed)) => {
                self.note_missing();
                Ok(Err(FunctionFailure::Closed))
            }
            Err(WorkerFailure::Failed(failed)) => {
                self.give_back(process);
                Ok(Err(failed))
            }
            Ok(elsewhere) => {
                self.give_back(process);
                Ok(Ok(elsewhere))
            }
        }
    }
}

/// Waits until a process has loaded the function.
fn ready(process: &mut WorkerProcess) -> Result<(), FunctionFailure> {
    process.ready().map_err(|end| match end {
        WorkerFailure::Failed(failed) => failed,
        WorkerFailure::Ended(status) => FunctionFailure::Raised(Arc::new(EndedAtStart(status))),
    })
}

impl RunningFunction for ProcessPool {
    fn call(
        &self,
        inputs: &[Column],
        draw: DrawKey,
        sink: &mut dyn ValueSink,
    ) -> Result<CallCost, FunctionFailure> {
        let requested_at = Instant::now();
        let process = self.take()?;
        let waited = requested_at.elapsed();
        let made = match self.attempt(process, inputs, draw, sink) {
            Ok(made) => made,
            Err(first) => {
                tracing::warn!(
                    "a worker process of a function ended ({}); another process repeats the call",
                    status(&first)
                );
                let process = self.another()?;
                self.attempt(process, inputs, draw, sink)
                    .unwrap_or_else(|second| {
                        self.note_missing();
                        Err(FunctionFailure::Raised(Arc::new(CrashedTwice(
                            first, second,
                        ))))
                    })
            }
        };
        Ok(CallCost {
            waited,
            elsewhere: made?,
        })
    }
}
