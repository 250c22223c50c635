//! Log messages of the engine, passed to one function of the process.

use std::fmt::{self, Write as _};
use std::sync::{Once, PoisonError, RwLock};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

pub use tracing::Level;

use crate::printable::printable;

/// A function that takes messages: level, module path such as `infeed::loader`, and text. Any
/// thread of the engine calls it, so it must not block for long.
pub type LogSink = fn(Level, &str, &str);

static SINK: RwLock<Option<LogSink>> = RwLock::new(None);

/// Passes messages of the engine to `sink` from now on, and returns the previous one. Has no effect
/// if the application has set its own subscriber of `tracing`.
pub fn send_to(sink: Option<LogSink>) -> Option<LogSink> {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // An error means that the application has its own subscriber.
        let _ = tracing::subscriber::set_global_default(Collector);
    });
    let mut current = SINK.write().unwrap_or_else(PoisonError::into_inner);
    std::mem::replace(&mut *current, sink)
}

struct Collector;

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
            && *metadata.level() <= Level::DEBUG
            && metadata.target().starts_with("infeed")
    }

    fn event(&self, event: &Event<'_>) {
        let sink = *SINK.read().unwrap_or_else(PoisonError::into_inner);
        let Some(sink) = sink else { return };
        let mut text = Text(String::new());
        event.record(&mut text);
        let metadata = event.metadata();
        sink(*metadata.level(), metadata.target(), &printable(&text.0));
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
