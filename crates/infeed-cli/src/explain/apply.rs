//! One remedy applied: where it is written, what is kept of it, what the user is told.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use infeed::Pipeline;
use infeed::explain::{self, Applied, Case, Explanation, ledger, remedy};
use infeed::pack::BAD_LIST;
use infeed::store;

use super::{Args, at, say, told};
use crate::error::CliError;
use crate::interrupt;
use crate::terminal::spinner;

/// A remedy that was applied.
pub(super) struct Done {
    pub(super) applied: Applied,
    /// The file that describes the pipeline with it, where that is another one.
    pipeline: Option<PathBuf>,
}

impl Done {
    /// What is told of bad records, where there were any.
    pub(super) fn left_out(&self) -> Option<String> {
        let list = self.applied.out.as_ref()?.join(BAD_LIST);
        let bad = self.applied.bad;
        (bad > 0).then(|| format!("{bad} bad records; {} names them", list.display()))
    }
}

/// Applies a remedy, keeps the prediction and its outcome in the ledger at `path`, and writes the
/// new pipeline beside the new data.
///
/// # Errors
///
/// A remedy that there is not, or what applying it met.
pub(super) fn apply(
    case: &Case,
    explanation: &Explanation,
    wanted: &str,
    args: &Args,
    path: &Path,
) -> Result<Done, CliError> {
    let remedy = remedy(explanation, wanted).map_err(|error| match error {
        infeed::Error::Config { problem, .. } => CliError::Usage(format!("--apply: {problem}")),
        other => told(other),
    })?;
    let out = match &args.out {
        Some(out) => out.clone(),
        None => beside(&args.path, &remedy.id),
    };
    let progress = spinner();
    let applied = explain::apply(case, explanation, remedy, &out, &|what, share| {
        say(&progress, what, share);
        !interrupt::asked()
    });
    progress.finish_and_clear();
    let applied = applied.map_err(told)?;
    ledger::append(path, &applied.entry).map_err(|error| at(path, &error))?;
    let changed = applied.pipeline != *case.pipeline();
    let pipeline = changed.then(|| described_at(&out));
    if let Some(toml) = &pipeline {
        describe(&applied.pipeline, toml)?;
    }
    Ok(Done { applied, pipeline })
}

/// A name beside the data: `photos-resize` for `photos`, `train-uint8` for `train.toml`. What lies
/// in a bucket gets one in the current folder: to write to a bucket is asked for by name.
fn beside(path: &Path, id: &str) -> PathBuf {
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

/// Where the pipeline over a dataset is described: `photos-resize.toml` for `photos-resize`.
fn described_at(out: &Path) -> PathBuf {
    let name = out.file_name().unwrap_or_default().to_string_lossy();
    out.with_file_name(format!("{name}.toml"))
}

/// Writes a pipeline, but over no file that holds another one.
fn describe(pipeline: &Pipeline, toml: &Path) -> Result<(), CliError> {
    let known = Pipeline::load(toml).is_ok_and(|there| there == *pipeline);
    if toml.exists() && !known {
        let problem = "is in the way and was left as it is; move it, or name another --out";
        return Err(at(toml, &problem));
    }
    pipeline.save(toml).map_err(told)
}

/// What came of it.
pub(super) fn text(done: &Done, explanation: &Explanation) -> String {
    let Done { applied, pipeline } = done;
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
        "  error      {:+.1} %, {} the interval",
        100.0 * entry.error(),
        if entry.predicted.holds(entry.measured) {
            "within"
        } else {
            "outside"
        }
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
    out
}
