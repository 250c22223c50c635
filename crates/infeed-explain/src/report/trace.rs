//! The timeline for Perfetto and other trace viewers.
//!
//! Source: "Trace Event Format", the JSON object form, which <https://ui.perfetto.dev> opens.

use serde_json::{Value, json};

use super::timeline::{TrackKind, tracks};
use crate::findings::Explanation;

/// Processes of the trace: the loader's threads, and the consumer's loop.
const LOADER: u32 = 1;
const CONSUMER: u32 = 2;

/// Returns the timeline as Chrome trace events: one track per thread, tracks for the training steps
/// and the consumer's waits, and a counter of ready batches.
pub fn trace(e: &Explanation) -> String {
    let mut events = vec![
        name_event("process_name", LOADER, 0, "infeed"),
        name_event("process_name", CONSUMER, 0, "training loop"),
        sort_event("process_sort_index", LOADER, 0, 0),
        sort_event("process_sort_index", CONSUMER, 0, 1),
    ];
    let mut end_us = 0;
    for (at, track) in tracks(&e.timeline).iter().enumerate() {
        let process = match track.kind {
            TrackKind::Reader | TrackKind::Worker => LOADER,
            TrackKind::Waits | TrackKind::Steps => CONSUMER,
        };
        // Viewers treat thread 0 as a thread without a name.
        let thread = at as u64 + 1;
        events.push(name_event("thread_name", process, thread, &track.name));
        events.push(sort_event("thread_sort_index", process, thread, thread));
        for span in &track.spans {
            end_us = end_us.max(span.start_us.saturating_add(span.length_us));
            events.push(json!({
                "name": span.what,
                "cat": if process == LOADER { "loader" } else { "consumer" },
                "ph": "X",
                "pid": process,
                "tid": thread,
                "ts": span.start_us,
                "dur": span.length_us,
                "args": span.batch.map_or_else(|| json!({}), |batch| json!({ "batch": batch })),
            }));
        }
    }
    // Points after the timeline would make viewers zoom out to the whole run.
    let within = |at_s: f64| at_s * 1e6 <= end_us as f64;
    for point in e.run.queue.iter().filter(|point| within(point.at_s)) {
        events.push(json!({
            "name": "batches ready",
            "ph": "C",
            "pid": CONSUMER,
            "tid": 0,
            "ts": point.at_s * 1e6,
            "args": { "ready": point.ready },
        }));
    }
    json!({
        "displayTimeUnit": "ms",
        "traceEvents": events,
        "otherData": {
            "infeed": e.infeed,
            "subject": e.subject.name,
            "machine": e.machine.cpu,
            "verdict": e.verdict.claim,
        },
    })
    .to_string()
}

fn name_event(what: &str, process: u32, thread: u64, name: &str) -> Value {
    json!({ "name": what, "ph": "M", "pid": process, "tid": thread, "args": { "name": name } })
}

fn sort_event(what: &str, process: u32, thread: u64, index: u64) -> Value {
    json!({
        "name": what,
        "ph": "M",
        "pid": process,
        "tid": thread,
        "args": { "sort_index": index },
    })
}
