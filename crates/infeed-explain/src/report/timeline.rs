//! The tracks of a timeline: the activity of each thread, in the order data flows.

use std::collections::BTreeMap;

use crate::findings::Span;

/// Name of the consumer's thread in spans.
pub(super) const CONSUMER: &str = "consumer";

/// Kind of a track. The order is the order in which data flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TrackKind {
    /// A reader thread.
    Reader,
    /// Any other thread of the loader.
    Worker,
    /// The consumer's waits for a batch.
    Waits,
    /// The consumer's steps.
    Steps,
}

/// One row of a timeline.
#[derive(Debug)]
pub(super) struct Track<'a> {
    pub(super) kind: TrackKind,
    pub(super) name: String,
    /// Ordered by start.
    pub(super) spans: Vec<&'a Span>,
}

/// Returns the tracks of a timeline: I/O threads, workers, the consumer's waits, its steps.
pub(super) fn tracks(spans: &[Span]) -> Vec<Track<'_>> {
    let mut by_name: BTreeMap<(bool, bool, &str), Vec<&Span>> = BTreeMap::new();
    for span in spans {
        let consumer = span.thread == CONSUMER;
        let waits = consumer && span.what == "wait";
        let key = (consumer, waits, span.thread.as_str());
        by_name.entry(key).or_default().push(span);
    }
    let mut tracks: Vec<Track<'_>> = by_name
        .into_iter()
        .map(|((consumer, waits, name), mut spans)| {
            spans.sort_by_key(|span| (span.start_us, span.length_us));
            let (kind, name) = match (consumer, waits) {
                (true, true) => (TrackKind::Waits, "waiting for a batch"),
                (true, false) => (TrackKind::Steps, "training step"),
                // The activity identifies a reader, because names of threads may change.
                _ if spans.iter().all(|span| span.what == "read") => (TrackKind::Reader, name),
                _ => (TrackKind::Worker, name),
            };
            let name = name.to_owned();
            Track { kind, name, spans }
        })
        .collect();
    tracks.sort_by(|a, b| {
        let by_number = |name: &str| number(name).map_or((0, 0), |n| (1, n));
        let key = |track: &Track<'_>| (track.kind, by_number(&track.name), track.name.clone());
        key(a).cmp(&key(b))
    });
    tracks
}

/// Returns the number at the end of a thread's name, so that thread 10 comes after thread 9.
fn number(name: &str) -> Option<u64> {
    let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    name[name.len() - digits..].parse().ok()
}

/// Merges spans of one track that are too short to see: neighbours with the same activity, the same
/// batch, and less than `gap_us` between them.
pub(super) fn merge(spans: &[&Span], gap_us: u64) -> Vec<MergedSpan> {
    let mut merged: Vec<MergedSpan> = Vec::new();
    for span in spans {
        let end_us = span.start_us.saturating_add(span.length_us);
        if let Some(last) = merged.last_mut() {
            let gap = span.start_us.saturating_sub(last.end_us);
            if last.what == span.what && last.batch == span.batch && gap < gap_us {
                last.end_us = last.end_us.max(end_us);
                last.count += 1;
                last.busy_us += span.length_us;
                continue;
            }
        }
        merged.push(MergedSpan {
            what: span.what.clone(),
            batch: span.batch,
            start_us: span.start_us,
            end_us,
            count: 1,
            busy_us: span.length_us,
        });
    }
    merged
}

/// Overlap of loading and computing in a timeline, in microseconds.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Overlap {
    /// Time from the first span to the last.
    pub(super) shown_us: u64,
    /// Time inside training steps.
    pub(super) step_us: u64,
    /// Time inside training steps while a thread of the loader worked.
    pub(super) both_us: u64,
}

/// Computes the part of the steps' time in which the loader worked.
pub(super) fn overlap(spans: &[Span]) -> Overlap {
    let end = |span: &Span| span.start_us.saturating_add(span.length_us);
    let (consumer, loader): (Vec<&Span>, Vec<&Span>) =
        spans.iter().partition(|span| span.thread == CONSUMER);
    // Edges of spans in order of time, with the change in open spans of each kind.
    let mut edges: Vec<(u64, i64, i64)> = Vec::new();
    for span in consumer.iter().filter(|span| span.what != "wait") {
        edges.extend([(span.start_us, 1, 0), (end(span), -1, 0)]);
    }
    for span in loader {
        edges.extend([(span.start_us, 0, 1), (end(span), 0, -1)]);
    }
    edges.sort_unstable();
    let first = spans.iter().map(|span| span.start_us).min().unwrap_or(0);
    let last = spans.iter().map(end).max().unwrap_or(0);
    let mut overlap = Overlap {
        shown_us: last - first,
        ..Overlap::default()
    };
    let (mut steps, mut works, mut before) = (0, 0, first);
    for (at_us, step, work) in edges {
        let passed = at_us - before;
        overlap.step_us += if steps > 0 { passed } else { 0 };
        overlap.both_us += if steps > 0 && works > 0 { passed } else { 0 };
        (steps, works, before) = (steps + step, works + work, at_us);
    }
    overlap
}

/// One or several spans drawn as one.
#[derive(Debug, PartialEq)]
pub(super) struct MergedSpan {
    pub(super) what: String,
    pub(super) batch: Option<u64>,
    pub(super) start_us: u64,
    pub(super) end_us: u64,
    /// Number of merged spans.
    pub(super) count: u64,
    /// Time inside them, without gaps.
    pub(super) busy_us: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(thread: &str, what: &str, start_us: u64, length_us: u64) -> Span {
        Span {
            thread: thread.to_owned(),
            what: what.to_owned(),
            start_us,
            length_us,
            batch: Some(0),
        }
    }

    #[test]
    fn tracks_follow_the_data_flow_and_threads_their_numbers() {
        let spans = [
            span(CONSUMER, "step", 9, 1),
            span(CONSUMER, "wait", 0, 9),
            span("work-0", "decode", 3, 1),
            span("read-10", "read", 0, 1),
            span("read-9", "read", 0, 1),
        ];

        let tracks = tracks(&spans);

        let names: Vec<&str> = tracks.iter().map(|track| track.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "read-9",
                "read-10",
                "work-0",
                "waiting for a batch",
                "training step"
            ]
        );
    }

    #[test]
    fn overlap_is_the_time_that_steps_and_the_loader_share() {
        let spans = [
            span("w0", "decode", 0, 10),
            span(CONSUMER, "wait", 0, 10),
            span(CONSUMER, "step", 10, 10),
            span("w0", "decode", 12, 4),
            span("w1", "decode", 14, 4),
        ];

        assert_eq!(
            overlap(&spans),
            Overlap {
                shown_us: 20,
                step_us: 10,
                both_us: 6
            }
        );
        assert_eq!(overlap(&[]), Overlap::default());
    }

    #[test]
    fn only_neighbours_of_the_same_activity_are_merged() {
        let spans = [
            span("w", "decode", 0, 10),
            span("w", "decode", 12, 10),
            span("w", "write", 22, 10),
            span("w", "write", 90, 10),
        ];
        let spans: Vec<&Span> = spans.iter().collect();

        let merged = merge(&spans, 5);

        assert_eq!(merged.len(), 3);
        assert_eq!(
            (merged[0].start_us, merged[0].end_us, merged[0].busy_us),
            (0, 22, 20)
        );
        assert_eq!(merged[0].count, 2);
    }
}
