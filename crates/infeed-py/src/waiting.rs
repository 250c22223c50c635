//! Waits during which Ctrl-C works.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use infeed::Error;
use infeed_core::stop::Stop;
use pyo3::prelude::*;

use crate::log;

/// Longest wait between two checks for signals.
pub(crate) const SIGNAL_INTERVAL: Duration = Duration::from_millis(100);

/// Runs `work` on a separate thread, and waits for the result.
///
/// The engine waits for its threads without a limit, and one of them may be inside a Python function
/// that never returns. If a signal handler raises an exception, this requests the stop of `work` and
/// returns the exception. Listing, and reads of buckets, stop; other work goes on, and its thread drops
/// the result.
///
/// # Errors
///
/// The exception of a signal handler or of a handler of log messages.
pub(crate) fn wait_for<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> PyResult<Result<T, Error>> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let stop = Stop::default();
    let observed = stop.clone();
    let body = move || {
        observed.watch_here();
        // The receiver is gone if a signal ended the wait.
        let _ = sender.send(work());
    };
    let thread = thread::Builder::new().name("infeed-wait".to_owned());
    if let Err(source) = thread.spawn(body) {
        return Ok(Err(Error::Thread {
            source: Arc::new(source),
        }));
    }
    let receiver = &mut Some(receiver);
    let done = poll(py, None, |slice| {
        let done = receiver.as_mut()?.recv_timeout(slice);
        match done {
            Ok(done) => Some(done),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Err(Error::Panicked {
                text: "infeed-wait: no result".to_owned(),
            })),
        }
    });
    if done.is_err() {
        stop.request();
    }
    // A result may have come since. Its drop may join threads that wait for the interpreter.
    let receiver = receiver.take();
    py.detach(move || drop(receiver));
    Ok(done?.expect("a wait without a limit ends with a result"))
}

/// Runs `work` on this thread, without the interpreter. Ctrl-C ends a list or a read of a bucket in
/// it.
///
/// # Errors
///
/// The exception of a signal handler or of a handler of log messages.
pub(crate) fn detach<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> PyResult<T> {
    let raised: Arc<Mutex<Option<PyErr>>> = Arc::default();
    let stop = Stop::with_check({
        let raised = Arc::clone(&raised);
        move || {
            let checked = Python::attach(|py| {
                py.check_signals()?;
                log::hand_over(py)
            });
            let is_raised = checked.is_err();
            if let Err(error) = checked {
                let mut raised = raised.lock().unwrap_or_else(PoisonError::into_inner);
                raised.get_or_insert(error);
            }
            is_raised
        }
    });
    let result = py.detach(|| stop.during(work));
    let raised = raised.lock().unwrap_or_else(PoisonError::into_inner).take();
    raised.map_or(Ok(result), Err)
}

/// Calls `wait` with slices of time until it returns a result, for at most `timeout`. Checks for
/// signals between the calls. Returns None if the time is over.
fn poll<T: Send>(
    py: Python<'_>,
    timeout: Option<Duration>,
    mut wait: impl FnMut(Duration) -> Option<T> + Send,
) -> PyResult<Option<T>> {
    let begun = Instant::now();
    loop {
        let left = timeout.map_or(SIGNAL_INTERVAL, |limit| {
            limit.saturating_sub(begun.elapsed())
        });
        let done = py.detach(|| wait(left.min(SIGNAL_INTERVAL)));
        if done.is_some() || left.is_zero() {
            return Ok(done);
        }
        py.check_signals()?;
        // Warnings about a long wait help only during the wait.
        log::hand_over(py)?;
    }
}

/// Closing of a loader, which runs on a separate thread and outlives a wait that was given up.
#[derive(Debug, Default)]
pub(crate) struct Closing(Mutex<Option<Arc<ClosingState>>>);

#[derive(Debug, Default)]
struct ClosingState {
    has_ended: Mutex<bool>,
    changed: Condvar,
}

/// Marks the closing as ended when dropped, so also after a panic.
struct ClosingGuard(Arc<ClosingState>);

impl Drop for ClosingGuard {
    fn drop(&mut self) {
        *self
            .0
            .has_ended
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = true;
        self.0.changed.notify_all();
    }
}

impl Closing {
    /// Runs `close` once, on a separate thread, and waits for its end for at most `timeout`. Later
    /// calls wait for the first one's thread. Returns whether it has ended.
    ///
    /// # Errors
    ///
    /// The exception of a signal handler. The closing goes on.
    pub(crate) fn run(
        &self,
        py: Python<'_>,
        timeout: Option<Duration>,
        close: impl FnOnce() + Send + 'static,
    ) -> PyResult<bool> {
        let state = {
            let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(slot.get_or_insert_with(|| {
                let state = Arc::<ClosingState>::default();
                let ends = ClosingGuard(Arc::clone(&state));
                let body = move || {
                    let _ends = ends;
                    close();
                };
                let thread = thread::Builder::new().name("infeed-close".to_owned());
                // Without a thread, the closure is dropped: then dropping the loader closes it.
                let _ = thread.spawn(body);
                state
            }))
        };
        let ended = poll(py, timeout, |slice| {
            let has_ended = state
                .has_ended
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let waited = state
                .changed
                .wait_timeout_while(has_ended, slice, |ended| !*ended);
            waited
                .unwrap_or_else(PoisonError::into_inner)
                .0
                .then_some(())
        })?;
        Ok(ended.is_some())
    }
}
