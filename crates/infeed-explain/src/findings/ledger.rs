//! The ledger of predicted and measured gains: a file that the user keeps, one JSON object per
//! line.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::interval::{Interval, PredictionOutcome};
use crate::model::limit::Limit;
use infeed_core::compare::median;
use infeed_raw::file;

/// A prediction and its measured result.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct LedgerEntry {
    /// Seconds since 1970, UTC.
    pub made_at_s: u64,
    /// Name of the dataset or pipeline.
    pub subject: String,
    /// Id of the remedy, such as `resize`.
    pub remedy: String,
    /// Version of infeed.
    pub infeed: String,
    /// Processor and number of cores.
    pub machine: String,
    /// The limit before the remedy.
    pub limit: Limit,
    /// Predicted gain.
    pub predicted: Interval,
    /// Measured gain.
    pub measured: f64,
    /// Samples per second without the remedy, measured in the same run.
    pub rate_before: f64,
    /// Samples per second with the remedy.
    pub rate_after: f64,
    /// Number of bad records that the rewritten data lacks.
    #[serde(default, skip_serializing_if = "is_none")]
    pub left_out: u64,
}

fn is_none(count: &u64) -> bool {
    *count == 0
}

impl LedgerEntry {
    /// Compares the predicted with the measured gain.
    pub fn outcome(&self) -> PredictionOutcome {
        self.predicted.outcome(self.measured)
    }

    /// Returns the relative error of the prediction. 0.1 means 10 % too high.
    pub fn error(&self) -> f64 {
        self.predicted.mid / self.measured - 1.0
    }
}

/// Appends an entry. Creates the file and its folder if they do not exist.
///
/// # Errors
///
/// Returns the error of the file system.
pub fn append(path: &Path, entry: &LedgerEntry) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut line = serde_json::to_string(entry)?;
    line.push('\n');
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    // A single write keeps the lines of two processes apart.
    file.write_all(line.as_bytes())
}

/// Returns all entries, oldest first. Empty without a file. Skips lines that do not parse.
///
/// # Errors
///
/// Returns the error of the file system.
pub fn read(path: &Path) -> io::Result<Vec<LedgerEntry>> {
    let text = match file::read_text(path, u64::MAX) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let entries = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    Ok(entries.collect())
}

/// Accuracy of the predictions.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize)]
pub struct Accuracy {
    /// Number of checked predictions.
    pub checked: usize,
    /// Median of the absolute relative error.
    pub median_error: f64,
    /// Largest absolute relative error.
    pub worst_error: f64,
    /// Share of predictions whose interval contained the measured gain, and was not too wide.
    pub held: f64,
    /// Share of predictions whose interval contained the measured gain, and was too wide to count:
    /// its upper end is more than twice the lower one.
    pub too_wide: f64,
    /// Median half-width of the intervals, relative to their middle.
    pub half_width: f64,
}

/// Sums up the entries. None if there are none.
pub fn accuracy(entries: &[LedgerEntry]) -> Option<Accuracy> {
    if entries.is_empty() {
        return None;
    }
    let errors: Vec<f64> = entries.iter().map(|entry| entry.error().abs()).collect();
    let widths: Vec<f64> = entries
        .iter()
        .map(|entry| (entry.predicted.high - entry.predicted.low) / 2.0 / entry.predicted.mid)
        .collect();
    let share = |outcome: PredictionOutcome| {
        let such = entries.iter().filter(|entry| entry.outcome() == outcome);
        such.count() as f64 / entries.len() as f64
    };
    Some(Accuracy {
        checked: entries.len(),
        median_error: median(errors.iter().copied()),
        worst_error: errors.iter().copied().fold(0.0, f64::max),
        held: share(PredictionOutcome::Held),
        too_wide: share(PredictionOutcome::TooWide),
        half_width: median(widths),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(predicted: f64, measured: f64) -> LedgerEntry {
        LedgerEntry {
            made_at_s: 1,
            subject: "photos".to_owned(),
            remedy: "resize".to_owned(),
            infeed: "0.1.0".to_owned(),
            machine: "two cores".to_owned(),
            limit: Limit::Decode,
            predicted: Interval {
                low: predicted * 0.9,
                mid: predicted,
                high: predicted * 1.1,
            },
            measured,
            rate_before: 100.0,
            left_out: 0,
            rate_after: 100.0 * measured,
        }
    }

    #[test]
    fn entries_are_read_back_in_order_and_foreign_lines_are_skipped() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("deep/ledger.jsonl");

        append(&path, &entry(2.0, 1.9)).expect("writes");
        fs::write(
            &path,
            format!(
                "{}not a ledger\n",
                fs::read_to_string(&path).expect("is there")
            ),
        )
        .expect("writes");
        append(&path, &entry(3.0, 3.0)).expect("writes");

        let entries = read(&path).expect("reads");
        let measured: Vec<f64> = entries.iter().map(|entry| entry.measured).collect();
        assert_eq!(measured, [1.9, 3.0]);
        assert!(
            read(&folder.path().join("none"))
                .expect("no file")
                .is_empty()
        );
    }

    #[test]
    fn accuracy_is_the_median_error_and_the_share_of_intervals_that_held() {
        let entries = [entry(2.0, 2.0), entry(2.0, 1.9), entry(3.0, 2.0)];

        let accuracy = accuracy(&entries).expect("three entries");

        assert!(
            (accuracy.median_error - 0.0526).abs() < 1e-3,
            "{accuracy:?}"
        );
        assert!((accuracy.worst_error - 0.5).abs() < 1e-9);
        assert!((accuracy.held - 2.0 / 3.0).abs() < 1e-9);
        assert_eq!(accuracy.too_wide, 0.0);
        assert!((accuracy.half_width - 0.1).abs() < 1e-9);
        assert_eq!(super::accuracy(&[]), None);
    }

    #[test]
    fn an_interval_that_contains_almost_any_result_does_not_count_as_held() {
        let mut wide = entry(1.5, 1.2);
        (wide.predicted.low, wide.predicted.high) = (0.28, 2.96);

        let accuracy = accuracy(&[wide, entry(2.0, 2.0)]).expect("two entries");

        assert_eq!((accuracy.held, accuracy.too_wide), (0.5, 0.5));
    }
}
