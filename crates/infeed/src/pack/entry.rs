//! What is known of a finished shard, and of a record that was left out, as files tell it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::form::Extensions;
use crate::error::Error;

/// The journal.
pub(super) const JOURNAL: &str = "infeed-pack.journal";

/// The list of bad records: a JSON object a line.
pub const BAD_LIST: &str = "infeed-pack-bad.jsonl";

/// A finished shard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Entry {
    /// Name of its file.
    pub(super) file: String,
    /// One past its last place in the packed order.
    pub(super) end: u64,
    pub(super) records: u64,
    /// Length of its file.
    pub(super) bytes: u64,
    /// Bytes of its records in the original.
    pub(super) bytes_in: u64,
    /// Records of its range that were left out.
    pub(super) bad: u64,
    /// Length of the list of bad records with those of its range.
    pub(super) listed_bytes: u64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) extensions: Extensions,
}

impl Entry {
    /// Its first place in the packed order. None where its numbers contradict each other.
    pub(super) fn begin(&self) -> Option<u64> {
        let places = self.records.checked_add(self.bad)?;
        self.end.checked_sub(places)
    }
}

/// A bad record, as the list has it.
#[derive(Debug, Serialize)]
struct Bad<'a> {
    record: u64,
    name: &'a str,
    reason: String,
}

/// A line of the list of bad records.
pub(super) fn bad_line(error: &Error) -> String {
    let record = error.record();
    let bad = Bad {
        record: record.map_or(0, |record| record.index),
        name: record.map_or("", |record| &record.name),
        reason: error.chain(),
    };
    let mut line = serde_json::to_string(&bad).unwrap_or_default();
    line.push('\n');
    line
}

/// The numbers of the records that [`BAD_LIST`] in a folder names; none where there is no list.
///
/// # Errors
///
/// [`Error::Open`] for a list that cannot be read.
pub(crate) fn listed_bad(folder: &Path) -> Result<Vec<u64>, Error> {
    #[derive(Deserialize)]
    struct Line {
        record: u64,
    }
    let path = folder.join(BAD_LIST);
    let text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text.map_err(|error| Error::open(&path, error))?,
    };
    let number = |line: &str| serde_json::from_str::<Line>(line).map(|line| line.record);
    let numbers: Result<_, serde_json::Error> = text.lines().map(number).collect();
    numbers.map_err(|error| Error::open(path, error))
}

/// Name of a shard, or of its index.
pub(super) fn shard_name(number: usize, extension: &str) -> String {
    format!("shard-{number:06}.{extension}")
}

/// Where a file is until it is whole. `tag` tells apart writers of one file.
pub(super) fn part_of(folder: &Path, name: &str, tag: &str) -> PathBuf {
    folder.join(format!(".{name}{tag}.part"))
}

/// Writes a file that has its name once it is on the disk.
///
/// # Errors
///
/// [`Error::Write`].
pub(super) fn write_named(folder: &Path, name: &str, tag: &str, bytes: &[u8]) -> Result<(), Error> {
    let (path, part) = (folder.join(name), part_of(folder, name, tag));
    let write = || -> io::Result<()> {
        let mut file = File::create(&part)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&part, &path)
    };
    write().map_err(|error| {
        // What is left of it would only take room.
        let _ = fs::remove_file(&part);
        Error::write(&path, error)
    })
}

/// Makes names durable, where the system can.
pub(super) fn sync_folder(folder: &Path) {
    // Not every file system can; the files themselves are on the disk.
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
}
