//! Applies a remedy to all records, next to the original data, and measures both in one run.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::case::Case;
use crate::feeders::applies;
use crate::findings::ledger::LedgerEntry;
use crate::findings::{Explanation, Remedy, now_s};
use crate::measure::progress::{MEASURING, Phases, Progress, REWRITING};
use crate::measure::storage::forget;
use crate::measure::survey::survey;
use crate::measure::trial::{LoaderReuse, interleave, ratio};
use crate::measure::variant::RecordSubset;
use crate::model::interval::Interval;
use crate::remedies::list::by_id;
use infeed::pipeline::Pipeline;
use infeed_core::compare::median;
use infeed_core::error::Error;

/// Minimum length of a turn. Long steps and slow storage get longer turns.
const SLICE: Duration = Duration::from_millis(1200);

/// Minimum number of batches in a turn.
const BATCHES: f64 = 12.0;

/// Result of applying a remedy.
#[derive(Clone, Debug)]
pub struct AppliedRemedy {
    /// The predicted and the measured gain.
    pub entry: LedgerEntry,
    /// Measured gain with its spread.
    pub measured: Interval,
    /// The pipeline with the remedy.
    pub pipeline: Pipeline,
    /// Worker threads to pass to `open`, if the remedy sets them.
    pub workers: Option<usize>,
    /// I/O threads to pass to `open`, if the remedy sets them.
    pub readers: Option<usize>,
    /// Whether to pass a cache to `open`.
    pub is_cached: bool,
    /// Path of the new dataset, if one was written.
    pub out: Option<PathBuf>,
    /// Number of bad records that the new dataset lacks. A list next to the dataset names them.
    pub bad: u64,
}

/// Finds a remedy by its id, or by its number in the table, which counts from 1.
///
/// # Errors
///
/// [`Error::Config`] if there is no such remedy. The message lists the remedies.
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

/// Applies `remedy` to all records and writes rewritten data to `out`. Then measures the pipeline
/// without and with the remedy in turn, under the conditions of the explanation.
///
/// # Errors
///
/// Returns the error of the packer, the source or a run, and [`Error::Config`] if `progress`
/// stopped the work.
pub fn apply(
    case: &Case,
    explanation: &Explanation,
    remedy: &Remedy,
    out: &Path,
    progress: Progress<'_>,
) -> Result<AppliedRemedy, Error> {
    applies(case, remedy)?;
    let records = survey(case)?.records;
    let Some(candidate) = by_id(case, records, &remedy.id) else {
        let problem = format!(
            "`{}` does not fit this pipeline; explain it again",
            remedy.id
        );
        return Err(Error::config("apply", problem));
    };
    let slowest = explanation.verdict.rate.min(remedy.rate.mid).max(1e-3);
    let turn = Duration::from_secs_f64((BATCHES * case.rows() as f64 / slowest).min(60.0));
    let turn = case.turn(SLICE).max(turn);
    let lengths = vec![
        (REWRITING, remedy.convert_s),
        (MEASURING, 2.0 * case.rounds() as f64 * turn.as_secs_f64()),
    ];
    let phases = Phases::new(progress, lengths);
    let writing =
        |done: u64, total: u64| phases.report(REWRITING, done as f64 / total.max(1) as f64);
    let prepared = case.prepare(&candidate, &RecordSubset::All, out, &writing)?;
    let original = case.variant(&RecordSubset::All)?;
    let pipeline = prepared.variant.pipeline.clone();
    let options = prepared.variant.options.clone();
    let bad = prepared.written.as_ref().map_or(0, |written| written.bad);
    let both = [original, prepared.variant];
    if !explanation.subject.fits_in_memory {
        // The prediction is for bytes from storage, and rewriting has left some of them in memory.
        for variant in &both {
            forget(&variant.source, 0..variant.source.len());
        }
    }
    let going = |share| phases.report(MEASURING, share);
    let mut rates = interleave(&both, LoaderReuse::Reopen, case.rounds(), turn, &going);
    let with = rates.pop().unwrap_or_else(|| Ok(Vec::new()))?;
    let without = rates.pop().unwrap_or_else(|| Ok(Vec::new()))?;
    if with.is_empty() || without.is_empty() {
        return Err(Error::config("apply", "stopped before both were measured"));
    }
    let measured = ratio(&with, &without);
    Ok(AppliedRemedy {
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
            rate_before: median(without),
            rate_after: median(with),
            left_out: bad,
        },
        measured,
        pipeline,
        workers: options.workers,
        readers: options.readers,
        is_cached: prepared.cached.is_some(),
        out: prepared.written.map(|_| out.to_owned()),
        bad,
    })
}
