//! Applies one remedy: chooses the output path, updates the ledger, and prints the result.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use infeed::Pipeline;
use infeed_explain::{self as explain, AppliedRemedy, Case, Explanation, ledger, remedy};
use infeed_pack::BAD_LIST;
use infeed_source::store;

use super::options::Args;
use super::output::say;
use crate::error::CliError;
use crate::interrupt;
use crate::terminal::spinner;

/// An applied remedy.
pub(super) struct AppliedReport {
    pub(super) applied: AppliedRemedy,
    /// The new pipeline file, if the remedy changes the pipeline.
    pipeline: Option<PathBuf>,
}

impl AppliedReport {
    /// Returns the message about bad records, if there were any.
    pub(super) fn left_out(&self) -> Option<String> {
        let list = self.applied.out.as_ref()?.join(BAD_LIST);
        let bad = self.applied.bad;
        (bad > 0).then(|| format!("{bad} bad records; {} lists them", list.display()))
    }
}

/// Applies a remedy, adds the prediction and the measurement to the ledger at `path`, and writes
/// the new pipeline next to the new data.
///
/// # Errors
///
/// An unknown remedy, or the error of applying it.
pub(super) fn apply(
    case: &Case,
    explanation: &Explanation,
    wanted: &str,
    args: &Args,
    path: &Path,
) -> Result<AppliedReport, CliError> {
    let remedy = remedy(explanation, wanted).map_err(usage)?;
    let out = match &args.out {
        Some(out) => out.clone(),
        None => next_to(&args.path, &remedy.id),
    };
    let progress = spinner();
    let begun = Instant::now();
    let applied = explain::apply(case, explanation, remedy, &out, &|what, share| {
        say(&progress, what, share, begun);
        !interrupt::is_requested()
    });
    progress.finish_and_clear();
    let applied = applied.map_err(|error| CliError::of_run(&error, args.on_error))?;
    ledger::append(path, &applied.entry).map_err(|error| CliError::at(path, &error))?;
    let changed = applied.pipeline != *case.pipeline();
    let pipeline = changed.then(|| described_at(&out));
    if let Some(toml) = &pipeline {
        describe(&applied.pipeline, toml)?;
    }
    Ok(AppliedReport { applied, pipeline })
}

/// Converts the error of an unknown remedy.
pub(super) fn usage(error: infeed::Error) -> CliError {
    match error {
        infeed::Error::Config { problem, .. } => CliError::Usage(format!("--apply: {problem}")),
        other => CliError::from_error(&other),
    }
}

/// Returns a path next to the data: `photos-resize` for `photos`, `train-uint8` for `train.toml`.
/// For data in a bucket, it is in the current folder, because writing to a bucket needs an explicit
/// `--out`.
fn next_to(path: &Path, id: &str) -> PathBuf {
    if store::is_url(path) {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        return PathBuf::from(format!("{name}-{id}"));
    }
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let name = match path.is_dir() {
        true => path.file_name(),
        false => path.file_stem(),
    };
    let name = name.unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{name}-{id}"))
}

/// Returns the path of the pipeline file for a dataset: `photos-resize.toml` for `photos-resize`.
fn described_at(out: &Path) -> PathBuf {
    let name = out.file_name().unwrap_or_default().to_string_lossy();
    out.with_file_name(format!("{name}.toml"))
}

/// Writes a pipeline file. Does not overwrite a file with another pipeline.
fn describe(pipeline: &Pipeline, toml: &Path) -> Result<(), CliError> {
    let known = Pipeline::load(toml).is_ok_and(|there| there == *pipeline);
    if toml.exists() && !known {
        let problem = "exists and was not overwritten; move it, or set another --out";
        return Err(CliError::at(toml, &problem));
    }
    pipeline
        .save(toml)
        .map_err(|error| CliError::from_error(&error))
}

/// Formats the result.
pub(super) fn text(done: &AppliedReport, explanation: &Explanation) -> String {
    let AppliedReport { applied, pipeline } = done;
    let entry = &applied.entry;
    let name = explanation
        .remedies
        .iter()
        .find(|remedy| remedy.id == entry.remedy)
        .map_or(entry.remedy.as_str(), |remedy| &remedy.name);
    let mut out = String::new();
    let mut line = |text: String| {
        let _ = writeln!(out, "{text}");
    };
    line(String::new());
    line(format!("applied: {name}"));
    line(format!(
        "  predicted  {:.2}x  [{:.2} to {:.2}]",
        entry.predicted.mid, entry.predicted.low, entry.predicted.high
    ));
    line(format!(
        "  measured   {:.2}x  ({:.0} samples/s without, {:.0} with, in turn)",
        entry.measured, entry.rate_before, entry.rate_after
    ));
    line(format!(
        "  error      {:+.1} %, {}",
        100.0 * entry.error(),
        entry.outcome().text()
    ));
    if let Some(path) = &applied.out {
        line(format!("  data       {}", path.display()));
        if let Some(problem) = done.left_out() {
            line(format!("  left out   {problem}"));
        }
    }
    if let Some(path) = pipeline {
        line(format!("  pipeline   {}", path.display()));
    }
    if let Some(workers) = applied.workers {
        line(format!("  open with  workers={workers}"));
    }
    if let Some(readers) = applied.readers {
        line(format!("  open with  io_threads={readers}"));
    }
    if applied.is_cached {
        line("  open with  cache=\"auto\"".to_owned());
    }
    out
}
