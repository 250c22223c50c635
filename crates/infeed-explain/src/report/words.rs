//! Wording shared by the terminal and HTML reports.

use super::numbers;
use crate::findings::ledger::LedgerEntry;
use crate::findings::what_if::WhatIfReport;
use crate::findings::{Explanation, Remedy, Verdict};
use crate::model::crossover::Crossover;
use crate::model::crossover::sentences;
use crate::model::decoding::{DecodingRate, DecodingReport};
use crate::model::feeders::{FeederCount, FeederHost, Feeding};
use crate::model::interval::Interval;
use crate::model::limit::{Limit, Resource};
use crate::model::placement::{PlacementRate, PlacementReport};
use infeed_core::units::{figures, format_factor, format_percent, format_seconds};
use infeed_device::busy::Utilisation;

/// A share of the consumer's time.
#[derive(Clone, Copy, Debug)]
pub(super) struct StallPart {
    /// 0 to 1.
    pub(super) share: f64,
    /// Activity of the consumer.
    pub(super) what: &'static str,
    /// The usual term for it.
    pub(super) term: &'static str,
    /// Name of the colour of the stage that the consumer waited for.
    pub(super) colour: &'static str,
}

/// Describes the remedies that gain nothing, and those whose trials vary too much to answer.
pub(super) fn without_gain(e: &Explanation) -> (Vec<&str>, Vec<String>) {
    let (unclear, idle): (Vec<&Remedy>, Vec<&Remedy>) = e
        .remedies
        .iter()
        .filter(|remedy| !remedy.gains())
        .partition(|remedy| remedy.is_unclear());
    let unclear = unclear.iter().map(|remedy| {
        format!(
            "{}, {}: the machine is too busy to tell",
            remedy.id,
            numbers::factor_interval(remedy.gain)
        )
    });
    (
        idle.iter().map(|remedy| remedy.id.as_str()).collect(),
        unclear.collect(),
    )
}

/// Returns the consumer's time by activity, in the order data flows.
pub(super) fn stall(e: &Explanation) -> Vec<StallPart> {
    let part = |share, what, term, colour| StallPart {
        share,
        what,
        term,
        colour,
    };
    let mut parts = vec![
        part(e.stall.fetch, "waiting for storage", "fetch stall", "read"),
        part(e.stall.prep, "waiting for cores", "prep stall", "decode"),
        part(e.stall.copy, stall_of_copy(e), "copy stall", "write"),
        part(e.stall.compute, "computing", "compute", "step"),
    ];
    if e.stall.wire > 0.0 {
        let wire = part(
            e.stall.wire,
            "waiting for feeders' network",
            "wire stall",
            "python",
        );
        parts.insert(1, wire);
    }
    parts
}

/// Formats a number of feeders such as `2 (there, enough)`.
pub(super) fn count_name(feeding: &Feeding, count: &FeederCount) -> String {
    let there = feeding.hosts.iter().filter(|host| host.connected).count() as u32;
    let marks = [
        (count.feeders == there && there > 0, "there"),
        (Some(count.feeders) == feeding.enough, "enough"),
    ];
    let marks: Vec<&str> = marks
        .iter()
        .filter(|(is, _)| *is)
        .map(|(_, mark)| *mark)
        .collect();
    match marks.is_empty() {
        true => count.feeders.to_string(),
        false => format!("{} ({})", count.feeders, marks.join(", ")),
    }
}

/// Returns the host's address, such as `10.0.0.7:7077`, with a mark if it is not connected.
pub(super) fn of_host(host: &FeederHost) -> String {
    match host.connected {
        true => host.host.clone(),
        false => format!("{} (not connected)", host.host),
    }
}

/// Describes the wait between the host and the step.
fn stall_of_copy(e: &Explanation) -> &'static str {
    let device = |resource: &Resource| matches!(resource.limit, Limit::Device | Limit::Decoder);
    match e.resources.iter().any(device) {
        true => "waiting for the bus or the device",
        false => "waiting for the bus",
    }
}

/// Formats a placement such as `device (best, now)`.
pub(super) fn placement_name(placement: &PlacementReport, candidate: &PlacementRate) -> String {
    let is_now = placement.now == candidate.split && !placement.decodes;
    with_marks(
        candidate.split.name(),
        placement.chosen == candidate.split,
        is_now,
    )
}

/// Formats a decode share such as `5/16 (best, now)`.
pub(super) fn decoding_name(decoding: &DecodingReport, candidate: &DecodingRate) -> String {
    let is_best = decoding.share == candidate.share;
    with_marks(&candidate.name(), is_best, decoding.now == candidate.share)
}

/// Adds marks in brackets for the best and the present choice.
fn with_marks(name: &str, is_best: bool, is_now: bool) -> String {
    let marks: Vec<&str> = [(is_best, "best"), (is_now, "now")]
        .iter()
        .filter_map(|(is, mark)| is.then_some(*mark))
        .collect();
    match marks.is_empty() {
        true => name.to_owned(),
        false => format!("{name} ({})", marks.join(", ")),
    }
}

/// Formats the rate that a resource allows in a placement, or `none` if it is no limit.
pub(super) fn allowed_rate(candidate: &PlacementRate, bound: Limit) -> String {
    let allowed = candidate.rate_of(bound).map(|rate| figures(rate.mid));
    allowed.unwrap_or_else(|| "none".to_owned())
}

/// Describes the utilisation that `nvidia-smi` reports.
pub(super) fn busy(utilisation: &Utilisation) -> String {
    format!(
        "nvidia-smi would report {} GPU utilisation: the share of time in which any kernel ran, \
         however small",
        format_percent(utilisation.busy)
    )
}

/// Describes the second limit. None if there is none.
pub(super) fn behind(verdict: &Verdict) -> Option<String> {
    let (limit, rate) = (verdict.next_limit?, verdict.next_rate?);
    let allows = format!("{} at {}", limit.name(), numbers::rate(rate));
    Some(match verdict.tie {
        true => format!(
            "{allows}, too close to {} to decide which of the two limits; a remedy for one alone \
             gains little",
            verdict.limit.name()
        ),
        false => format!("{allows}, {} as much", format_factor(rate / verdict.rate)),
    })
}

/// Formats the error of a prediction, such as `+4 %` for one that was too high.
pub(super) fn error(entry: &LedgerEntry) -> String {
    match entry.error() {
        error if error.is_finite() => format!("{:+.0} %", error * 100.0).replace("-0 ", "+0 "),
        _ => "unknown".to_owned(),
    }
}

/// Describes the step times at which the limit changes.
pub(super) fn step_times(crossovers: &[Crossover]) -> Vec<String> {
    sentences(crossovers)
}

/// Formats a rate such as `312 samples/s (300 to 325)`.
fn rate_interval(rate: Interval) -> String {
    match rate.high.is_finite() && rate.low < rate.high {
        true => format!(
            "{} ({} to {})",
            numbers::rate(rate.mid),
            figures(rate.low),
            figures(rate.high),
        ),
        false => numbers::rate(rate.mid),
    }
}

/// Returns the rates of a what-if question, now and then, with their labels.
pub(super) fn predicted_rates(report: &WhatIfReport) -> [(&'static str, String); 2] {
    let limited = |limit: Option<Limit>| {
        let limit = limit.map(|limit| format!(", limited by {}", limit.subject()));
        limit.unwrap_or_default()
    };
    let now = format!(
        "{}{}",
        numbers::rate(report.rate_now.mid),
        limited(report.limit_now)
    );
    let then = format!(
        "{}{}; {} of now; a batch of {} every {}",
        rate_interval(report.rate),
        limited(report.limit),
        numbers::factor_interval(report.gain),
        report.batch_rows,
        format_seconds(report.step_time.mid),
    );
    [("now", now), ("then", then)]
}
