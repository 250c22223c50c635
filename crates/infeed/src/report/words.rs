//! What the forms for people say in the same words.

use super::numbers;
use crate::device::busy::Utilisation;
use crate::explain::{
    Bound, Decoding, DecodingWay, Explanation, FedHost, FeederCount, Feeding, LedgerEntry, Limit,
    Placing, Verdict, Way,
};

/// A share of the consumer's time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// 0 to 1.
    pub(super) share: f64,
    /// What the consumer did.
    pub(super) what: &'static str,
    /// What the field calls it.
    pub(super) term: &'static str,
    /// The colour of the stage it waited for, by name.
    pub(super) colour: &'static str,
}

/// Where the consumer's time went, in the order data flows.
pub(super) fn stall(e: &Explanation) -> Vec<Part> {
    let part = |share, what, term, colour| Part {
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

/// `2 (there, enough)`.
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

/// `10.0.0.7:7077`, and that it is not there.
pub(super) fn of_host(host: &FedHost) -> String {
    match host.connected {
        true => host.host.clone(),
        false => format!("{} (not connected)", host.host),
    }
}

/// What a loop waits for between the host and its step.
fn stall_of_copy(e: &Explanation) -> &'static str {
    let device = |resource: &crate::explain::Resource| {
        matches!(resource.limit, Limit::Device | Limit::Decoder)
    };
    match e.resources.iter().any(device) {
        true => "waiting for the bus or the device",
        false => "waiting for the bus",
    }
}

/// `device (best, now)`.
pub(super) fn way_name(placing: &Placing, way: &Way) -> String {
    let is_now = placing.now == way.split && !placing.decodes;
    marked(way.split.name(), placing.chosen == way.split, is_now)
}

/// `5/16 (best, now)`.
pub(super) fn decoding_name(decoding: &Decoding, way: &DecodingWay) -> String {
    let is_best = decoding.share == way.share;
    marked(&way.name(), is_best, decoding.now == way.share)
}

/// A name, and in brackets whether it is the best and what runs now.
fn marked(name: &str, is_best: bool, is_now: bool) -> String {
    let marks: Vec<&str> = [(is_best, "best"), (is_now, "now")]
        .iter()
        .filter_map(|(is, mark)| is.then_some(*mark))
        .collect();
    match marks.is_empty() {
        true => name.to_owned(),
        false => format!("{name} ({})", marks.join(", ")),
    }
}

/// What a resource allows in a way; `none` where it is no limit.
pub(super) fn when_limited(way: &Way, bound: Bound) -> String {
    let allowed = way.allowed(bound).map(|rate| numbers::figures(rate.mid));
    allowed.unwrap_or_else(|| "none".to_owned())
}

/// What those see who watch `nvidia-smi`, in words.
pub(super) fn busy(utilisation: &Utilisation) -> String {
    format!(
        "nvidia-smi would have shown the card busy {} of the time: that is how long any kernel ran, \
         however small",
        numbers::percent(utilisation.busy)
    )
}

/// What lies behind the limit, in words; None where nothing does.
pub(super) fn behind(verdict: &Verdict) -> Option<String> {
    let (limit, rate) = (verdict.next_limit?, verdict.next_rate?);
    let allows = format!("{} at {}", limit.name(), numbers::rate(rate));
    Some(match verdict.tie {
        true => format!(
            "{allows}, too close to {} to tell which of the two limits; a remedy for one alone \
             gains little",
            verdict.limit.name()
        ),
        false => format!("{allows}, {} as much", numbers::factor(rate / verdict.rate)),
    })
}

/// How far a prediction was off: `+4 %` for one that was too high.
pub(super) fn error(entry: &LedgerEntry) -> String {
    match entry.error() {
        error if error.is_finite() => format!("{:+.0} %", error * 100.0).replace("-0 ", "+0 "),
        _ => "unknown".to_owned(),
    }
}
