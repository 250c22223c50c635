//! One remedy applied: where it is written, what is kept of it, what the user is told.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use infeed::explain::{self, Applied, Case, Explanation, ledger, remedy};

use super::{Args, at, say, told};
use crate::error::CliError;
use crate::interrupt;
use crate::terminal::spinner;

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
) -> Result<Applied, CliError> {
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
    let toml = out.with_extension("toml");
    applied.pipeline.save(&toml).map_err(told)?;
    Ok(applied)
}

/// A name beside the data: `photos-resize` for `photos`.
fn beside(path: &Path, id: &str) -> PathBuf {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{stem}-{id}"))
}

/// What came of it.
pub(super) fn text(applied: &Applied, explanation: &Explanation) -> String {
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
        line(format!(
            "  pipeline   {}",
            path.with_extension("toml").display()
        ));
    }
    if let Some(workers) = applied.workers {
        line(format!("  open with  workers={workers}"));
    }
    if let Some(readers) = applied.readers {
        line(format!("  open with  io_threads={readers}"));
    }
    out
}
