//! What the forms for people say in the same words.

use super::numbers;
use crate::explain::{Explanation, LedgerEntry, Verdict};

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
pub(super) fn stall(e: &Explanation) -> [Part; 4] {
    let part = |share, what, term, colour| Part {
        share,
        what,
        term,
        colour,
    };
    [
        part(e.stall.fetch, "waiting for storage", "fetch stall", "read"),
        part(e.stall.prep, "waiting for cores", "prep stall", "decode"),
        part(e.stall.copy, "waiting for the bus", "copy stall", "write"),
        part(e.stall.compute, "computing", "compute", "step"),
    ]
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
