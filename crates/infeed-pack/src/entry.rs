//! Entries for finished shards and bad records, as files store them.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::shard_layout::Extensions;
use infeed_core::error::Error;
use infeed_raw::file;

/// File name of the journal.
pub(super) const JOURNAL: &str = "infeed-pack.journal";

/// File name of the list of bad records, one JSON object per line.
pub const BAD_LIST: &str = "infeed-pack-bad.jsonl";

/// A finished shard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Entry {
    /// Name of its file.
    pub(super) file: String,
    /// One past its last position in the packed order.
    pub(super) end: u64,
    pub(super) records: u64,
    /// Length of its file in bytes.
    pub(super) bytes: u64,
    /// Bytes of its records in the original data.
    pub(super) bytes_in: u64,
    /// Number of bad records in its range, which were left out.
    pub(super) bad: u64,
    /// Length of the list of bad records up to and including its range, in bytes.
    pub(super) listed_bytes: u64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) extensions: Extensions,
}

impl Entry {
    /// Returns its first position in the packed order. None if its numbers are inconsistent.
    pub(super) fn begin(&self) -> Option<u64> {
        let places = self.records.checked_add(self.bad)?;
        self.end.checked_sub(places)
    }
}

/// A bad record, as in the list.
#[derive(Debug, Serialize)]
struct BadLine<'a> {
    record: u64,
    name: &'a str,
    reason: String,
}

/// Returns the line of a bad record in the list.
pub(super) fn bad_line(error: &Error) -> String {
    let record = error.record();
    let bad = BadLine {
        record: record.map_or(0, |record| record.index),
        name: record.map_or("", |record| &record.name),
        reason: error.chain(),
    };
    let mut line = serde_json::to_string(&bad).unwrap_or_default();
    line.push('\n');
    line
}

/// Returns the record numbers in the [`BAD_LIST`] of a folder. Empty without a list.
///
/// # Errors
///
/// [`Error::Open`] if the list cannot be read.
pub fn listed_bad(folder: &Path) -> Result<Vec<u64>, Error> {
    #[derive(Deserialize)]
    struct Line {
        record: u64,
    }
    let path = folder.join(BAD_LIST);
    let text = match file::read_text(&path, u64::MAX) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text.map_err(|error| Error::open(&path, error))?,
    };
    let number = |line: &str| serde_json::from_str::<Line>(line).map(|line| line.record);
    let numbers: Result<_, serde_json::Error> = text.lines().map(number).collect();
    numbers.map_err(|error| Error::open(path, error))
}

/// Returns the name of a shard, or of its index.
pub(super) fn shard_name(number: usize, extension: &str) -> String {
    format!("shard-{number:06}.{extension}")
}

/// Returns the number in the name of a shard without its extension. `None` for other names.
pub(super) fn shard_number(stem: &str) -> Option<usize> {
    let number = stem.strip_prefix("shard-")?.parse().ok()?;
    (shard_name(number, "") == format!("{stem}.")).then_some(number)
}
