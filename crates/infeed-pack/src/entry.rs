//! Entries for finished shards and bad records, as files store them. A line of the journal or of a
//! note has a checksum and a JSON object.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use crc_fast::crc32_iscsi;
use serde::de::DeserializeOwned;
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

/// Returns a value as a line with its checksum.
pub(super) fn checked_line(value: &impl Serialize) -> String {
    let text = serde_json::to_string(value).unwrap_or_default();
    format!("{:08x} {text}\n", crc32_iscsi(text.as_bytes()))
}

/// Reads a line of [`checked_line`]. None for any other or incomplete line.
pub(super) fn read_checked_line<T: DeserializeOwned>(line: &[u8]) -> Option<T> {
    let line = std::str::from_utf8(line).ok()?.strip_suffix('\n')?;
    let (crc, text) = line.split_once(' ')?;
    let crc = u32::from_str_radix(crc, 16).ok()?;
    (crc == crc32_iscsi(text.as_bytes())).then(|| serde_json::from_str(text).ok())?
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
