//! The numbers of the plots, as JSON inside the page.

use serde_json::{Value, json};

use super::figures::colour;
use crate::findings::ledger::LedgerEntry;
use crate::findings::{Explanation, QueuePoint, Remedy};
use crate::model::decoding::{DecodingRate, DecodingReport};
use crate::model::interval::Interval;
use crate::model::limit::Resource;
use crate::model::placement::{AllowedRate, PlacementRate, PlacementReport};
use crate::model::stages::StageCost;
use crate::report::numbers;
use crate::report::timeline::{MergedSpan, merge, tracks};
use crate::report::words::{StallPart, decoding_name, error, placement_name, stall};

/// Maximum number of spans in the plot. A longer timeline is truncated. Chromium 156 draws 6000
/// spans in 0.11 s and 20 000 in 0.36 s (median of 3, two shared cores). It draws again whenever
/// the user moves the visible window.
const DRAWN: usize = 6000;
/// Maximum gap between spans of one activity that are drawn as one, as a divisor of the timeline's
/// length: a tenth of a pixel on a wide screen.
const GAP: u64 = 20_000;
/// Maximum number of queue points in the plot, more than its width in pixels.
const POINTS: usize = 1500;

/// Returns the JSON of all plots for a script element. Without a `<`, no text in it can end the
/// element or begin a comment.
pub(super) fn json(e: &Explanation) -> String {
    let drawn = timeline_plot(e);
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
                "from_feeders": count.from_feeders,
                "rate": count.rate.mid,
                "limit": count.limit.name(),
                "arithmetic": count.arithmetic,
            }))
            .collect::<Vec<_>>(),
        "step_rate": step_rate(e),
        "busy": e.utilisation.iter().flat_map(|found| &found.samples)
            .map(|sample| json!({ "at": sample.at_s, "busy": sample.busy }))
            .collect::<Vec<_>>(),
        "queue": thin_out(&e.run.queue),
        "tracks": distinct(drawn.tracks),
        "whats": drawn.whats.iter()
            .map(|what| json!({ "name": what, "colour": colour(what) }))
            .collect::<Vec<_>>(),
        "spans": drawn.spans,
        "remedies": remedies(e),
        "ledger": e.ledger.iter().map(entry).collect::<Vec<_>>(),
    });
    // In JSON a `<` occurs only in strings, where the escape has the same meaning.
    value.to_string().replace('<', "\\u003c")
}

/// The part of the timeline that is drawn.
#[derive(Debug)]
pub(super) struct TimelinePlot {
    /// Names of the rows.
    pub(super) tracks: Vec<String>,
    /// Activities in the rows.
    pub(super) whats: Vec<String>,
    /// Per span: row, activity, start and end in microseconds, batch, number of merged spans,
    /// microseconds inside them.
    spans: Vec<Value>,
    /// Position of the cut in microseconds, if the timeline was truncated.
    pub(super) cut_us: Option<u64>,
}

/// Merges spans that are too short to see, and truncates a timeline that is too long.
pub(super) fn timeline_plot(e: &Explanation) -> TimelinePlot {
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
    let to_json = |(row, what, span): &(usize, usize, &MergedSpan)| {
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
    TimelinePlot {
        spans: spans.iter().map(to_json).collect(),
        tracks: tracks.into_iter().map(|track| track.name).collect(),
        whats,
        cut_us,
    }
}

fn part(part: &StallPart) -> Value {
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

/// Samples per second of the step, if the report covers feeders.
fn step_rate(e: &Explanation) -> Option<f64> {
    let step = e.subject.step_s.filter(|step| *step > 0.0)?;
    e.feeding.as_ref()?;
    Some(e.subject.batch_rows as f64 / step)
}

/// The rate that each resource allows in each placement.
fn placement(placement: &PlacementReport) -> Vec<Value> {
    let of = |candidate: &PlacementRate| bars(&placement_name(placement, candidate), candidate);
    placement.candidates.iter().flat_map(of).collect()
}

/// The rate that each resource allows with each share of the records decoded on the device.
fn decoding(decoding: &DecodingReport) -> Vec<Value> {
    let of = |of: &DecodingRate| bars(&decoding_name(decoding, of), &of.placement);
    decoding.candidates.iter().flat_map(of).collect()
}

fn bars(name: &str, candidate: &PlacementRate) -> Vec<Value> {
    let bar = |allowed: &AllowedRate| {
        json!({
            "candidate": name,
            "name": allowed.bound.placement_name(),
            "mid": allowed.rate.mid,
            "limit": allowed.bound == candidate.binding,
        })
    };
    candidate.allows.iter().map(bar).collect()
}

/// Thins out the queue of a long run. A merged point has the lowest ready count and the mean wait.
fn thin_out(queue: &[QueuePoint]) -> Vec<Value> {
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
    let to_json = |(at, remedy): (usize, &Remedy)| {
        json!({
            // The number also separates two remedies of one name.
            "name": format!("{}. {}", at + 1, remedy.title()),
            "low": remedy.gain.low, "mid": remedy.gain.mid, "high": remedy.gain.high,
            "idle": !remedy.gains(),
            "arithmetic": remedy.arithmetic,
        })
    };
    numbered.into_iter().map(to_json).collect()
}

fn entry(entry: &LedgerEntry) -> Value {
    json!({
        "name": format!("{} ({})", entry.remedy, numbers::moment(entry.made_at_s)),
        "low": entry.predicted.low, "mid": entry.predicted.mid, "high": entry.predicted.high,
        "measured": entry.measured,
        "error": error(entry),
    })
}

/// Makes names of rows distinct with invisible blanks, because rows of one name would overlap.
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
