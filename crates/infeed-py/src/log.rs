//! Log messages of the engine, passed to Python's `logging`.
//!
//! Threads of the engine must not wait for the interpreter, so they put messages into a short
//! queue. The next call from Python passes the messages to the `infeed` logger.

use std::collections::VecDeque;
use std::fmt::{self, Write};
use std::sync::{Mutex, Once, PoisonError};

use infeed::printable::printable;
use pyo3::prelude::*;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Capacity of the queue in messages. A new message replaces the oldest one when the queue is full.
const CAPACITY: usize = 256;

static QUEUE: Mutex<VecDeque<Message>> = Mutex::new(VecDeque::new());

struct Message {
    level: u8,
    logger: String,
    text: String,
}

/// Starts to collect messages, once per process. A subscriber that the application has set stays in
/// place.
pub(crate) fn collect() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // An error means that the application has its own subscriber.
        let _ = tracing::subscriber::set_global_default(Collector);
    });
}

/// Passes the collected messages to Python's loggers.
pub(crate) fn hand_over(py: Python<'_>) -> PyResult<()> {
    let messages = std::mem::take(&mut *lock());
    if messages.is_empty() {
        return Ok(());
    }
    let get_logger = py.import("logging")?.getattr("getLogger")?;
    for message in messages {
        let logger = get_logger.call1((message.logger,))?;
        logger.call_method1("log", (message.level, "%s", message.text))?;
    }
    Ok(())
}

fn lock() -> std::sync::MutexGuard<'static, VecDeque<Message>> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Collector;

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
            && *metadata.level() <= Level::DEBUG
            && metadata.target().starts_with("infeed")
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        let message = Message {
            level: level(*event.metadata().level()),
            logger: event.metadata().target().replace("::", "."),
            text: printable(&text.0).into_owned(),
        };
        let mut queue = lock();
        if queue.len() == CAPACITY {
            queue.pop_front();
        }
        queue.push_back(message);
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        // Spans are never enabled. The trait requires a number.
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}
    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}
    fn enter(&self, _span: &Id) {}
    fn exit(&self, _span: &Id) {}
}

/// Returns the number of a level in Python's `logging`.
fn level(level: Level) -> u8 {
    match level {
        Level::ERROR => 40,
        Level::WARN => 30,
        Level::INFO => 20,
        _ => 10,
    }
}

/// The message, followed by the other fields as `name=value`.
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a String cannot fail.
        let _ = if field.name() == "message" {
            write!(self.0, "{value:?}")
        } else {
            write!(self.0, " {}={value:?}", field.name())
        };
    }
}
