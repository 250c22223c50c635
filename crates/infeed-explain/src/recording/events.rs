//! The events of a loop, counted by kind.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum number of kinds of events.
const MAX_KINDS: usize = 32;

/// Maximum number of examples of one kind, and of their characters.
const EXAMPLES: usize = 3;
const EXAMPLE_CHARS: usize = 300;

/// Events of one kind.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct RecordedEvent {
    /// The kind, such as `bad records (decode)`.
    pub kind: String,
    /// Number of events.
    pub count: u64,
    /// Time of the first one in seconds since the recording began.
    pub first_s: f64,
    /// Time of the last one in seconds since the recording began.
    pub last_s: f64,
    /// Messages of the first ones, with paths and names of records. Empty unless the user allowed
    /// them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<String>,
}

/// Events by kind, in the order of their first occurrence.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RecordedEvents(Vec<RecordedEvent>);

impl RecordedEvents {
    /// Returns the events, by kind.
    pub fn kinds(&self) -> &[RecordedEvent] {
        &self.0
    }

    /// Counts `count` events. Events of further kinds count as `other` if there are too many kinds.
    pub(super) fn add(&mut self, at_s: f64, kind: &str, count: u64) {
        self.add_with(at_s, kind, count, None);
    }

    /// As [`RecordedEvents::add`], with an example.
    pub(super) fn add_with(&mut self, at_s: f64, kind: &str, count: u64, example: Option<String>) {
        if count == 0 {
            return;
        }
        let is_known = self.0.iter().any(|event| event.kind == kind);
        let kind = match is_known || self.0.len() + 1 < MAX_KINDS {
            true => kind,
            false => "other",
        };
        let at = self.0.iter().position(|event| event.kind == kind);
        let at = at.unwrap_or_else(|| {
            self.0.push(RecordedEvent {
                kind: kind.to_owned(),
                count: 0,
                first_s: at_s,
                last_s: at_s,
                examples: Vec::new(),
            });
            self.0.len() - 1
        });
        let event = &mut self.0[at];
        event.count = event.count.saturating_add(count);
        event.last_s = at_s;
        if let Some(example) = example.filter(|_| event.examples.len() < EXAMPLES) {
            event
                .examples
                .push(example.chars().take(EXAMPLE_CHARS).collect());
        }
    }

    /// Removes all examples.
    pub(super) fn without_examples(&mut self) {
        self.0.iter_mut().for_each(|event| event.examples.clear());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_kinds_and_examples_is_limited() {
        let mut events = RecordedEvents::default();

        for number in 0..100 {
            let example = Some("x".repeat(1000));
            events.add_with(number as f64, "bad records (decode)", 1, example);
            events.add(number as f64, &format!("kind {number}"), 2);
        }

        assert_eq!(events.kinds().len(), MAX_KINDS);
        let bad = &events.kinds()[0];
        assert_eq!((bad.count, bad.first_s, bad.last_s), (100, 0.0, 99.0));
        assert_eq!(bad.examples.len(), EXAMPLES);
        assert_eq!(bad.examples[0].len(), EXAMPLE_CHARS);
        let counted: u64 = events.kinds().iter().map(|event| event.count).sum();
        assert_eq!(counted, 300);
    }
}
