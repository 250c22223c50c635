//! The numbers behind the plots, as JSON inside the page.

use serde_json::{Value, json};

use super::colour;
use crate::explain::{
    Allowed, Decoding, DecodingWay, Explanation, Interval, LedgerEntry, Placing, QueuePoint,
    Remedy, Resource, StageCost, Way,
};
use crate::report::numbers;
use crate::report::timeline::{merge, tracks};
use crate::report::words::{Part, decoding_name, error, stall, way_name};

/// Spans that are drawn; a timeline with more is cut short. Of 6000, Chromium 156 makes and lays out
/// the plot in 0.11 s (median of 3, two shared cores), of 20 000 in 0.36 s, and it does so at every
/// move of the window.
const DRAWN: usize = 6000;
/// Spans that do the same are drawn as one across gaps of up to this share of the timeline: a tenth
/// of a pixel on a wide screen.
const GAP: u64 = 20_000;
/// Points of the queue that are drawn, more than a plot is pixels wide.
const POINTS: usize = 1500;

/// The JSON of all plots, fit to stand in a script element: without a `<`, nothing in it can end
/// the element or begin a comment.
pub(super) fn json(e: &Explanation) -> String {
    let drawn = drawn(e);
    let value = json!({
        "rate": e.run.samples_per_s,
        "stall": stall(e).iter().map(part).collect::<Vec<_>>(),
        "stages": e.run.stages.iter().filter(|s| s.samples > 0).map(stage).collect::<Vec<_>>(),
        "resources": e.resources.iter().map(|r| resource(e, r)).collect::<Vec<_>>(),
        "placement": e.placement.iter().flat_map(placement).collect::<Vec<_>>(),
        "decoding": e.decoding.iter().flat_map(decoding).collect::<Vec<_>>(),
        "feeders": e.feeding.iter().flat_map(|feeding| &feeding.counts)
            .map(|count| json!({
                "name": count.feeders.to_string(),
                "own": count.own,
                "fed": count.fed,
                "rate": count.rate.mid,
                "limit": count.limit.name(),
                "arithmetic": count.arithmetic,
            }))
            .collect::<Vec<_>>(),
        "fed_step": fed_step(e),
        "busy": e.utilisation.iter().flat_map(|found| &found.looks)
            .map(|look| json!({ "at": look.at_s, "busy": look.busy }))
            .collect::<Vec<_>>(),
        "queue": thinned(&e.run.queue),
        "tracks": distinct(drawn.tracks),
        "whats": drawn.whats.iter()
            .map(|what| json!({ "name": what, "colour": colour(what) }))
            .collect::<Vec<_>>(),
        "spans": drawn.spans,
        "remedies": remedies(e),
        "ledger": e.ledger.iter().map(entry).collect::<Vec<_>>(),
    });
    // In JSON a `<` stands only inside strings, where the escape means the same.
    value.to_string().replace('<', "\\u003c")
}

/// What of the timeline is drawn.
#[derive(Debug)]
pub(super) struct Drawn {
    /// Names of the rows.
    pub(super) tracks: Vec<String>,
    /// What is done in them.
    pub(super) whats: Vec<String>,
    /// Row, what, start and end in microseconds, batch, spans drawn as one, microseconds in them.
    spans: Vec<Value>,
    /// Where it was cut, if it was.
    pub(super) cut_us: Option<u64>,
}

/// The timeline with what is too short to be seen drawn together, and cut where it is too long.
pub(super) fn drawn(e: &Explanation) -> Drawn {
    let end_us = e
        .timeline
        .iter()
        .map(|s| s.start_us.saturating_add(s.length_us));
    let gap_us = end_us.max().unwrap_or(0) / GAP;
    let tracks = tracks(&e.timeline);
    let rows: Vec<_> = tracks.iter().map(|t| merge(&t.spans, gap_us)).collect();
    let mut whats: Vec<String> = Vec::new();
    let mut spans = Vec::new();
    for (row, spans_of_row) in rows.iter().enumerate() {
        for span in spans_of_row {
            let known = whats.iter().position(|what| *what == span.what);
            let what = known.unwrap_or_else(|| {
                whats.push(span.what.clone());
                whats.len() - 1
            });
            spans.push((row, what, span));
        }
    }
    spans.sort_by_key(|(row, _, span)| (span.start_us, *row));
    let cut_us = spans.get(DRAWN).map(|(_, _, span)| span.start_us);
    spans.truncate(DRAWN);
    let told = |(row, what, span): &(usize, usize, &crate::report::timeline::Merged)| {
        json!([
            row,
            what,
            span.start_us,
            span.end_us,
            span.batch,
            span.count,
            span.busy_us
        ])
    };
    Drawn {
        spans: spans.iter().map(told).collect(),
        tracks: tracks.into_iter().map(|track| track.name).collect(),
        whats,
        cut_us,
    }
}

fn part(part: &Part) -> Value {
    json!({ "name": part.what, "share": part.share, "colour": part.colour })
}

fn stage(stage: &StageCost) -> Value {
    let n = stage.samples as f64;
    json!({
        "name": stage.name,
        "colour": colour(&stage.name),
        "cpu": stage.cpu_s / n,
        "wall": stage.wall_s / n,
        "p99": stage.p99_s,
    })
}

fn resource(e: &Explanation, resource: &Resource) -> Value {
    let Interval { low, mid, high } = resource.rate;
    json!({
        "name": resource.limit.name(),
        "low": low, "mid": mid, "high": high,
        "limit": resource.limit == e.verdict.limit,
        "arithmetic": resource.arithmetic,
    })
}

/// Samples a second that the step takes, where feeders are told of.
fn fed_step(e: &Explanation) -> Option<f64> {
    let step = e.subject.step_s.filter(|step| *step > 0.0)?;
    e.feeding.as_ref()?;
    Some(e.subject.batch_rows as f64 / step)
}

/// What each resource allows in each way.
fn placement(placing: &Placing) -> Vec<Value> {
    let of = |way: &Way| bars(&way_name(placing, way), way);
    placing.ways.iter().flat_map(of).collect()
}

/// What each resource allows with each share of the records left to the device's decoder.
fn decoding(decoding: &Decoding) -> Vec<Value> {
    let of = |of: &DecodingWay| bars(&decoding_name(decoding, of), &of.way);
    decoding.ways.iter().flat_map(of).collect()
}

fn bars(name: &str, way: &Way) -> Vec<Value> {
    let bar = |allowed: &Allowed| {
        json!({
            "way": name,
            "name": allowed.bound.name(),
            "mid": allowed.rate.mid,
            "limit": allowed.bound == way.binding,
        })
    };
    way.allows.iter().map(bar).collect()
}

/// Points of the queue, of a long run only as many as can be seen: of those that are drawn as one
/// the least ready and the mean of the waiting.
fn thinned(queue: &[QueuePoint]) -> Vec<Value> {
    let together = queue.len().div_ceil(POINTS).max(1);
    let point = |points: &[QueuePoint]| {
        let ready = points.iter().map(|point| point.ready).min();
        let waiting: f64 = points.iter().map(|point| point.waiting).sum();
        json!({
            "at": points.last().map(|point| point.at_s),
            "ready": ready,
            "waiting": waiting / points.len() as f64,
        })
    };
    queue.chunks(together).map(point).collect()
}

fn remedies(e: &Explanation) -> Vec<Value> {
    let mut numbered: Vec<(usize, &Remedy)> = e.remedies.iter().enumerate().collect();
    numbered.sort_by_key(|(_, remedy)| !remedy.gains());
    let told = |(at, remedy): (usize, &Remedy)| {
        json!({
            // The number also keeps two remedies of one name apart.
            "name": format!("{}. {}", at + 1, remedy.name),
            "low": remedy.gain.low, "mid": remedy.gain.mid, "high": remedy.gain.high,
            "idle": !remedy.gains(),
            "arithmetic": remedy.arithmetic,
        })
    };
    numbered.into_iter().map(told).collect()
}

fn entry(entry: &LedgerEntry) -> Value {
    json!({
        "name": format!("{} ({})", entry.remedy, numbers::moment(entry.made_at_s)),
        "low": entry.predicted.low, "mid": entry.predicted.mid, "high": entry.predicted.high,
        "measured": entry.measured,
        "error": error(entry),
    })
}

/// Names of rows, with blanks that cannot be seen behind one that was there before: rows of one
/// name would be drawn over each other.
fn distinct(names: Vec<String>) -> Vec<String> {
    let mut seen: Vec<String> = Vec::new();
    for mut name in names {
        while seen.contains(&name) {
            name.push('\u{200b}');
        }
        seen.push(name);
    }
    seen
}
