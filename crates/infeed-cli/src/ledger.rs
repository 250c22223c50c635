//! `infeed ledger`: prints predictions and their results.

use std::path::PathBuf;

use clap::Parser;
use infeed_explain::ledger::{self, Accuracy};
use infeed_explain::{Interval, LedgerEntry, PredictionOutcome};
use schemars::JsonSchema;
use serde::Serialize;

use crate::error::{CliError, CommandResult};
use crate::json::put_json;

/// Width of the columns of names.
const DATA: usize = 20;
const REMEDY: usize = 16;

#[derive(Parser)]
#[command(after_help = "Examples:
  infeed explain photos --apply 1    apply a remedy and add a line to the ledger
  infeed ledger                      all lines, and the accuracy of the predictions")]
pub(crate) struct Args {
    /// Ledger file [default: in the user's data folder]
    path: Option<PathBuf>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// Result of `infeed ledger`.
#[derive(JsonSchema, Serialize)]
pub(crate) struct LedgerJson {
    /// Checked predictions, oldest first.
    entries: Vec<LedgerEntry>,
    /// Accuracy of all entries. Null without an entry.
    accuracy: Option<Accuracy>,
}

/// Returns the default path of the ledger.
///
/// # Errors
///
/// If there is no home folder.
pub(crate) fn default_path() -> Result<PathBuf, CliError> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let data = variable("XDG_DATA_HOME")
        .filter(|path| path.is_absolute())
        .or_else(|| Some(variable("HOME")?.join(".local/share")));
    data.map(|path| path.join("infeed/ledger.jsonl"))
        .ok_or_else(|| {
            CliError::Usage(
                "there is no home folder for the ledger; set a file with --ledger".to_owned(),
            )
        })
}

pub(crate) fn run(args: &Args) -> CommandResult {
    let path = match &args.path {
        Some(path) => path.clone(),
        None => default_path()?,
    };
    let entries = ledger::read(&path)
        .map_err(|error| CliError::Failed(format!("{}: {error}", path.display())))?;
    let accuracy = ledger::accuracy(&entries);
    if args.json {
        return put_json(&LedgerJson { entries, accuracy });
    }
    if entries.is_empty() {
        putln!(
            "{} has no entries; `infeed explain DATA --apply 1` adds one",
            path.display()
        )?;
        return Ok(());
    }
    putln!(
        "{:<DATA$} {:<REMEDY$} {:>19} {:>9} {:>9}",
        "data",
        "remedy",
        "predicted",
        "measured",
        "error"
    )?;
    for entry in &entries {
        let Interval { low, mid, high } = entry.predicted;
        let mark = match entry.outcome() {
            PredictionOutcome::Held => "",
            PredictionOutcome::TooWide => " ~",
            PredictionOutcome::Missed => " *",
        };
        putln!(
            "{:<DATA$} {:<REMEDY$} {:>19} {:>8.2}x {:>+7.1} %{mark}",
            tail(&entry.subject, DATA),
            tail(&entry.remedy, REMEDY),
            format!("{mid:.2}x ({low:.2}-{high:.2})"),
            entry.measured,
            100.0 * entry.error(),
        )?;
    }
    if let Some(accuracy) = accuracy {
        putln!(
            "\n{} checked: median error {:.1} %, worst {:.1} %\n{:.0} % of the results are in their \
             interval; half-width {:.1} %",
            accuracy.checked,
            100.0 * accuracy.median_error,
            100.0 * accuracy.worst_error,
            100.0 * accuracy.held,
            100.0 * accuracy.half_width,
        )?;
        if accuracy.held + accuracy.too_wide < 1.0 {
            putln!("* outside its interval")?;
        }
        if accuracy.too_wide > 0.0 {
            putln!("~ in an interval that is too wide to count: more than twice from end to end")?;
        }
    }
    Ok(())
}

/// Returns the last `length` characters, which distinguish paths best.
fn tail(text: &str, length: usize) -> String {
    let count = text.chars().count();
    if count <= length {
        return text.to_owned();
    }
    let end: String = text.chars().skip(count - length + 1).collect();
    format!("…{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_paths_keep_their_end() {
        assert_eq!(tail("photos", 28), "photos");
        assert_eq!(tail("/data/imagenet/train", 6), "…train");
    }
}
