//! Which shards are finished: a file that only grows, a line a shard, and the list of bad records.
//!
//! A line is a checksum and a JSON object: which records the shard takes up to (one past its last
//! place in the packed order, bad ones included), its length, and what the totals need. It is
//! written, in the order of the shards, after the shard is on the disk under its name and the bad
//! records of its range are in the list. So whoever reads the journal knows where to go on, which
//! bytes are done, and how much of the list belongs to them; what lies behind, written or not, is
//! made again and comes out the same, since the cut between two shards depends on the records
//! alone. The last state of the journal goes into the manifest.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crc_fast::crc32_iscsi;
use serde::{Deserialize, Serialize};

use super::form::Extensions;
use super::out::Out;
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

/// The journal of a folder, open for the shards that follow.
pub(super) struct Journal {
    folder: PathBuf,
    entries: Vec<Entry>,
    file: File,
    list: Option<File>,
    listed_bytes: u64,
    /// Shards that are finished before one that precedes them, with their bad records.
    early: BTreeMap<usize, (Entry, String)>,
}

impl Journal {
    /// Takes up the journal of an earlier run as far as its shards are there, and removes what was
    /// not finished.
    ///
    /// # Errors
    ///
    /// [`Error::Write`].
    pub(super) fn open(out: &Out, extension: &str) -> Result<Journal, Error> {
        let folder = out.path();
        let path = folder.join(JOURNAL);
        let told = match fs::read(&path) {
            Ok(bytes) => parse(&bytes),
            Err(_) => out.shards().to_vec(),
        };
        let is_there = |entry: &Entry| {
            fs::metadata(folder.join(&entry.file)).is_ok_and(|of| of.len() == entry.bytes)
        };
        let list = fs::metadata(folder.join(BAD_LIST)).map_or(0, |of| of.len());
        let mut entries = told.clone();
        let kept = entries
            .iter()
            .take_while(|entry| is_there(entry) && entry.listed_bytes <= list);
        entries.truncate(kept.count());
        if entries.len() < told.len() {
            out.forget()?;
        }
        let listed_bytes = entries.last().map_or(0, |entry| entry.listed_bytes);
        cut_list(folder, listed_bytes)?;
        remove_others(folder, extension, &entries);
        let lines: Vec<u8> = entries.iter().flat_map(line).collect();
        out.write(&path, "", &lines)?;
        let file = File::options().append(true).open(&path);
        Ok(Journal {
            folder: folder.to_owned(),
            entries,
            file: file.map_err(|error| Error::write(path, error))?,
            list: None,
            listed_bytes,
            early: BTreeMap::new(),
        })
    }

    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// One past the last place that is done.
    pub(super) fn end(&self) -> u64 {
        self.entries.last().map_or(0, |entry| entry.end)
    }

    /// Notes a shard that is on the disk, and the bad records of its range. It counts once all
    /// before it do.
    ///
    /// # Errors
    ///
    /// [`Error::Write`].
    pub(super) fn note(&mut self, number: usize, entry: Entry, bad: String) -> Result<(), Error> {
        self.early.insert(number, (entry, bad));
        let mut lines = Vec::new();
        let mut bad_lines = String::new();
        while let Some((mut entry, bad)) = self.early.remove(&self.entries.len()) {
            bad_lines.push_str(&bad);
            entry.listed_bytes = self.listed_bytes + bad_lines.len() as u64;
            lines.extend(line(&entry));
            self.entries.push(entry);
        }
        if lines.is_empty() {
            return Ok(());
        }
        self.list(&bad_lines)?;
        // The names of the shards, and of the list.
        sync_folder(&self.folder);
        let write = || -> io::Result<()> {
            (&self.file).write_all(&lines)?;
            self.file.sync_data()
        };
        write().map_err(|error| Error::write(self.folder.join(JOURNAL), error))
    }

    fn list(&mut self, lines: &str) -> Result<(), Error> {
        if lines.is_empty() {
            return Ok(());
        }
        let path = self.folder.join(BAD_LIST);
        let mut write = || -> io::Result<()> {
            let file = match self.list.take() {
                Some(file) => file,
                None => File::options().create(true).append(true).open(&path)?,
            };
            let file = self.list.insert(file);
            file.write_all(lines.as_bytes())?;
            file.sync_data()
        };
        write().map_err(|error| Error::write(&path, error))?;
        self.listed_bytes += lines.len() as u64;
        Ok(())
    }

    /// Adds bad records behind the last shard to the list.
    pub(super) fn finish(&mut self, bad: &str) -> Result<(), Error> {
        self.list(bad)
    }
}

/// A line of the journal.
fn line(entry: &Entry) -> Vec<u8> {
    let text = serde_json::to_string(entry).unwrap_or_default();
    format!("{:08x} {text}\n", crc32_iscsi(text.as_bytes())).into_bytes()
}

/// The lines up to the first that is not whole.
fn parse(bytes: &[u8]) -> Vec<Entry> {
    let whole = |line: &[u8]| -> Option<Entry> {
        let line = std::str::from_utf8(line).ok()?.strip_suffix('\n')?;
        let (crc, text) = line.split_once(' ')?;
        let crc = u32::from_str_radix(crc, 16).ok()?;
        (crc == crc32_iscsi(text.as_bytes())).then(|| serde_json::from_str(text).ok())?
    };
    bytes
        .split_inclusive(|&byte| byte == b'\n')
        .map_while(whole)
        .collect()
}

/// Shortens the list of bad records to a length.
fn cut_list(folder: &Path, length: u64) -> Result<(), Error> {
    let path = folder.join(BAD_LIST);
    let cut = match length {
        0 => fs::remove_file(&path),
        length => File::options()
            .write(true)
            .open(&path)
            .and_then(|file| file.set_len(length)),
    };
    match cut {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::write(path, error)),
        _ => Ok(()),
    }
}

/// Name of a shard, or of its index.
pub(super) fn shard_name(number: usize, extension: &str) -> String {
    format!("shard-{number:06}.{extension}")
}

/// Removes shards that the journal does not know, and parts of such.
fn remove_others(folder: &Path, extension: &str, known: &[Entry]) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    let stem = |name: &str| {
        name.split_once('.')
            .map_or(name, |(stem, _)| stem)
            .to_owned()
    };
    let known: std::collections::HashSet<String> =
        known.iter().map(|entry| stem(&entry.file)).collect();
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let part = name
            .strip_prefix('.')
            .and_then(|name| name.strip_suffix(".part"));
        let whole = part.unwrap_or(&name);
        let number = whole.strip_prefix("shard-");
        let is_ours = number.is_some_and(|rest| {
            [extension, "idx"].iter().any(|ext| {
                rest.strip_suffix(ext)
                    .and_then(|rest| rest.strip_suffix('.'))
                    .is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
            })
        });
        if is_ours && (part.is_some() || !known.contains(&stem(&name))) {
            // What stays only takes room, and is replaced or told when its name is needed.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Makes names durable, where the system can.
pub(super) fn sync_folder(folder: &Path) {
    // Not every file system can; the files themselves are on the disk.
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: usize) -> Entry {
        Entry {
            file: shard_name(number, "tar"),
            end: 10 * (number as u64 + 1),
            records: 9,
            bytes: 3,
            bytes_in: 5,
            bad: 1,
            listed_bytes: 0,
            extensions: Extensions::new(),
        }
    }

    #[test]
    fn a_journal_that_was_cut_or_changed_counts_up_to_that_line() {
        let whole: Vec<u8> = (0..3).flat_map(|number| line(&entry(number))).collect();
        let length = line(&entry(0)).len();
        assert_eq!(parse(&whole), [entry(0), entry(1), entry(2)]);

        for cut in 0..whole.len() {
            assert_eq!(parse(&whole[..cut]).len(), cut / length, "{cut}");
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            assert!(parse(&changed).len() <= at / length, "{at}");
        }
    }
}
