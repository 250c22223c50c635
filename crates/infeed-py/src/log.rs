//! Log messages of the engine, passed to Python's `logging`.
//!
//! Threads of the engine must not wait for the interpreter, so they put messages into a short
//! queue. The next call from Python passes the messages to the `infeed` logger.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use infeed_core::log::{self, Level};
use pyo3::prelude::*;

/// Capacity of the queue in messages. A new message replaces the oldest one when the queue is full.
const CAPACITY: usize = 256;

static QUEUE: Mutex<VecDeque<Message>> = Mutex::new(VecDeque::new());

struct Message {
    level: u8,
    logger: String,
    text: String,
}

/// Starts to collect messages. A subscriber of `tracing` that the application has set stays in place.
pub(crate) fn collect() {
    log::send_to(Some(put));
}

/// Passes the collected messages to Python's loggers.
///
/// # Errors
///
/// The exception of a handler, or of Ctrl-C. Later messages stay in the queue. The caller must not
/// hold a batch, which the error would lose, nor an engine outside its Python class: its drop would
/// join threads that wait for the interpreter.
pub(crate) fn hand_over(py: Python<'_>) -> PyResult<()> {
    let count = lock().len();
    if count == 0 {
        return Ok(());
    }
    let get_logger = py.import("logging")?.getattr("getLogger")?;
    for _ in 0..count {
        let Some(message) = lock().pop_front() else {
            break;
        };
        let logger = get_logger.call1((message.logger,))?;
        logger.call_method1("log", (message.level, "%s", message.text))?;
    }
    Ok(())
}

fn lock() -> std::sync::MutexGuard<'static, VecDeque<Message>> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Puts a message into the queue.
fn put(level: Level, target: &str, text: &str) {
    let message = Message {
        level: number(level),
        logger: target.replace("::", "."),
        text: text.to_owned(),
    };
    let mut queue = lock();
    if queue.len() == CAPACITY {
        queue.pop_front();
    }
    queue.push_back(message);
}

/// Returns the number of a level in Python's `logging`.
fn number(level: Level) -> u8 {
    match level {
        Level::ERROR => 40,
        Level::WARN => 30,
        Level::INFO => 20,
        _ => 10,
    }
}
