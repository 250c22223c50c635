//! Applies a remedy to all records, beside the original, and measures both in one run.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::case::Case;
use super::feeders::applies;
use super::findings::{Explanation, LedgerEntry, Remedy};
use super::interval::Interval;
use super::now_s;
use super::prepare::Among;
use super::remedies::by_id;
use super::survey::survey;
use super::trial::{interleave, median, ratio};
use crate::error::Error;
use crate::pipeline::Pipeline;

/// Turns of each side; the median of their ratios counts.
const ROUNDS: usize = 5;

/// Length of a turn, at least; long steps and slow storage get longer ones.
const SLICE: Duration = Duration::from_millis(1200);

/// Batches that a turn holds at least.
const BATCHES: f64 = 12.0;

/// What applying a remedy led to.
#[derive(Clone, Debug)]
pub struct Applied {
    /// Predicted against measured.
    pub entry: LedgerEntry,
    /// Spread of the measured gain.
    pub measured: Interval,
    /// The pipeline with the remedy.
    pub pipeline: Pipeline,
    /// Arguments of `open` that belong to it: workers and I/O threads.
    pub workers: Option<usize>,
    /// As `workers`.
    pub readers: Option<usize>,
    /// Where the new dataset lies, if one was written.
    pub out: Option<PathBuf>,
    /// Bad records that are not in it; a list beside it names them.
    pub bad: u64,
}

/// Finds a remedy of an explanation by its number in the table, from 1, or by its id.
///
/// # Errors
///
/// [`Error::Config`] naming those there are.
pub fn remedy<'a>(explanation: &'a Explanation, wanted: &str) -> Result<&'a Remedy, Error> {
    let remedies = &explanation.remedies;
    let by_number = wanted
        .parse::<usize>()
        .ok()
        .and_then(|number| remedies.get(number.checked_sub(1)?));
    let by_id = || remedies.iter().find(|remedy| remedy.id == wanted);
    by_number.or_else(by_id).ok_or_else(|| {
        let ids: Vec<&str> = remedies.iter().map(|remedy| remedy.id.as_str()).collect();
        let known = match ids.len() {
            0 => "none was found for this pipeline".to_owned(),
            count => format!("1 to {count}, or one of {}", ids.join(", ")),
        };
        Error::config("apply", format!("no remedy `{wanted}`; {known}"))
    })
}

/// Applies `remedy` to all records, writing to `out` what it rewrites, and measures the pipeline
/// without and with it in turn, under the same conditions as it was explained.
///
/// # Errors
///
/// What the packer, the source or a run says; [`Error::Config`] if `progress` stopped it.
pub fn apply(
    case: &Case,
    explanation: &Explanation,
    remedy: &Remedy,
    out: &Path,
    progress: super::Progress<'_>,
) -> Result<Applied, Error> {
    applies(case, remedy)?;
    let records = survey(case)?.records;
    let Some(candidate) = by_id(case, records, &remedy.id) else {
        let problem = format!(
            "`{}` does not fit this pipeline; explain it again",
            remedy.id
        );
        return Err(Error::config("apply", problem));
    };
    let writing = |done: u64, total: u64| {
        progress("writing the new dataset", done as f64 / total.max(1) as f64)
    };
    let prepared = case.prepare(&candidate, &Among::All, out, &writing)?;
    let original = case.variant(&Among::All)?;
    let pipeline = prepared.variant.pipeline.clone();
    let options = prepared.variant.options.clone();
    let slowest = explanation.verdict.rate.min(remedy.rate.low).max(1e-3);
    let turn = Duration::from_secs_f64((BATCHES * case.rows() as f64 / slowest).min(60.0));
    let bad = prepared.written.as_ref().map_or(0, |written| written.bad);
    let both = [original, prepared.variant];
    let going = |share| progress("measuring without and with it, in turn", share);
    let mut rates = interleave(&both, ROUNDS, case.turn(SLICE).max(turn), &going);
    let with = rates.pop().unwrap_or_else(|| Ok(Vec::new()))?;
    let without = rates.pop().unwrap_or_else(|| Ok(Vec::new()))?;
    if with.is_empty() || without.is_empty() {
        return Err(Error::config("apply", "stopped before both were measured"));
    }
    let measured = ratio(&with, &without);
    Ok(Applied {
        entry: LedgerEntry {
            made_at_s: now_s(),
            subject: case.name.clone(),
            remedy: remedy.id.clone(),
            infeed: explanation.infeed.clone(),
            machine: format!(
                "{}, {} cores{}",
                explanation.machine.cpu,
                explanation.machine.cores,
                explanation
                    .machine
                    .profile
                    .as_ref()
                    .map_or(String::new(), |name| format!(", on {name}")),
            ),
            limit: explanation.verdict.limit,
            predicted: remedy.gain,
            measured: measured.mid,
            rate_before: median(&without),
            rate_after: median(&with),
            left_out: bad,
        },
        measured,
        pipeline,
        workers: options.workers,
        readers: options.readers,
        out: prepared.written.map(|_| out.to_owned()),
        bad,
    })
}
