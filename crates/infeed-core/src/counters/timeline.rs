//! Records the work of all threads for the first seconds of a run.

use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum number of spans: 16 threads with samples of 0.2 ms for 1.5 seconds.
const KEPT: usize = 120_000;

/// Span of work of one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimelineSpan {
    /// Name of the thread.
    pub thread: String,
    /// Name of the stage; for the consumer, `wait` or `step`.
    pub what: &'static str,
    /// Time since the timeline began.
    pub start: Duration,
    /// Duration.
    pub length: Duration,
    /// Number of the batch, counted across epochs, if known.
    pub batch: Option<u64>,
}

/// Spans of all threads for a limited time.
#[derive(Debug)]
pub struct Timeline {
    begun: Instant,
    length: Duration,
    spans: Mutex<Vec<TimelineSpan>>,
}

impl Timeline {
    /// Creates a timeline that begins now; spans that start after `length` are dropped.
    pub fn new(length: Duration) -> Timeline {
        Timeline {
            begun: Instant::now(),
            length,
            spans: Mutex::default(),
        }
    }

    /// Records a span of the calling thread.
    pub fn record(&self, what: &'static str, start: Instant, end: Instant, batch: Option<u64>) {
        self.record_as(
            thread::current().name().unwrap_or("thread"),
            what,
            start,
            end,
            batch,
        );
    }

    /// Records a span with another thread name.
    pub fn record_as(
        &self,
        thread: &str,
        what: &'static str,
        start: Instant,
        end: Instant,
        batch: Option<u64>,
    ) {
        let start = start.saturating_duration_since(self.begun);
        if start > self.length {
            return;
        }
        let length = end
            .saturating_duration_since(self.begun)
            .saturating_sub(start);
        let mut spans = self.spans.lock().unwrap_or_else(PoisonError::into_inner);
        if spans.len() < KEPT {
            spans.push(TimelineSpan {
                thread: thread.to_owned(),
                what,
                start,
                length,
                batch,
            });
        }
    }

    /// Returns the spans so far, sorted by start.
    pub fn spans(&self) -> Vec<TimelineSpan> {
        let mut spans = self
            .spans
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        spans.sort_by_key(|span| span.start);
        spans
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_that_start_after_the_end_are_not_kept() {
        let timeline = Timeline::new(Duration::from_secs(1));
        let at = |ms| timeline.begun + Duration::from_millis(ms);

        timeline.record_as("b", "decode", at(900), at(1900), Some(3));
        timeline.record_as("a", "read", at(100), at(200), None);
        timeline.record_as("a", "read", at(1100), at(1200), None);

        let spans = timeline.spans();
        assert_eq!(spans.len(), 2);
        assert_eq!(
            (spans[0].what, spans[0].start),
            ("read", Duration::from_millis(100))
        );
        assert_eq!(spans[1].length, Duration::from_secs(1));
    }
}
