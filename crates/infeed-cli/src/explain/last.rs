//! The remedies of the last report of each dataset, so that `--apply 1` means the number that the
//! user has seen. A new run may rank the remedies differently.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};

/// Age in seconds above which a report is not the one just printed.
const MAX_AGE_S: u64 = 24 * 3600;

/// Maximum number of reports in the file. The oldest one is dropped.
const MAX_REPORTS: usize = 64;

/// Reports are in a file next to the ledger.
fn file(ledger: &Path) -> PathBuf {
    ledger.with_file_name("last-reports.json")
}

/// Returns the id of the remedy with this number in the last report of the data at `path`. None if
/// `wanted` is no number, or no recent report has it.
pub(super) fn id_of(ledger: &Path, path: &Path, wanted: &str) -> Option<String> {
    let at = wanted.parse::<usize>().ok()?.checked_sub(1)?;
    let reports = read(ledger);
    let report = reports.get(&key(path))?;
    let age = now_s().checked_sub(report["at_s"].as_u64()?)?;
    let id = report["remedies"].get(at)?.as_str()?;
    (age <= MAX_AGE_S).then(|| id.to_owned())
}

/// Keeps the ids of a report's remedies in their order. Ignores errors, because without the file a
/// number refers to the report of the same run.
pub(super) fn keep<'a>(ledger: &Path, path: &Path, ids: impl Iterator<Item = &'a str>) {
    let mut reports = read(ledger);
    let ids: Vec<&str> = ids.collect();
    reports.insert(key(path), json!({ "at_s": now_s(), "remedies": ids }));
    let age = |report: &Value| report["at_s"].as_u64().unwrap_or(0);
    while reports.len() > MAX_REPORTS {
        let oldest = reports.iter().min_by_key(|(_, report)| age(report));
        let Some(oldest) = oldest.map(|(path, _)| path.clone()) else {
            break;
        };
        reports.remove(&oldest);
    }
    let file = file(ledger);
    if let Some(folder) = file.parent() {
        let _ = fs::create_dir_all(folder);
    }
    let text = Value::Object(reports).to_string();
    let _ = infeed_raw::file::create(file).and_then(|mut file| file.write_all(text.as_bytes()));
}

fn read(ledger: &Path) -> Map<String, Value> {
    let text = infeed_raw::file::read_text(file(ledger), u64::MAX).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// A URL stays as it is. Other paths become absolute.
fn key(path: &Path) -> String {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    path.display().to_string()
}

fn now_s() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |time| time.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_the_remedy_of_the_last_report_of_the_same_data() {
        let dir = tempfile::tempdir().unwrap();
        let ledger = dir.path().join("ledger.jsonl");
        let photos = Path::new("photos");

        assert_eq!(id_of(&ledger, photos, "1"), None);
        keep(&ledger, photos, ["png-up", "shards"].into_iter());

        assert_eq!(id_of(&ledger, photos, "2").as_deref(), Some("shards"));
        for wanted in ["0", "3", "shards"] {
            assert_eq!(id_of(&ledger, photos, wanted), None, "{wanted}");
        }
        assert_eq!(id_of(&ledger, Path::new("other"), "1"), None);
    }

    #[test]
    fn the_file_has_a_limited_number_of_reports() {
        let dir = tempfile::tempdir().unwrap();
        let ledger = dir.path().join("ledger.jsonl");

        for number in 0..MAX_REPORTS + 3 {
            keep(&ledger, Path::new(&number.to_string()), ["a"].into_iter());
        }

        assert_eq!(read(&ledger).len(), MAX_REPORTS);
    }
}
