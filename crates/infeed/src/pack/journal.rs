//! Which shards are finished: a file that only grows, a line a shard, and the list of bad records.
//!
//! A line is a checksum and a JSON object: which records the shard takes up to (one past its last
//! place in the packed order, bad ones included), its length, and what the totals need. It is
//! written, in the order of the shards, after the shard is on the disk under its name and the bad
//! records of its range are in the list. So whoever reads the journal knows where to go on, which
//! bytes are done, and how much of the list belongs to them; what lies behind, written or not, is
//! made again and comes out the same, since the cut between two shards depends on the records
//! alone. The last state of the journal goes into the manifest.
//!
//! Shards that other processes have written are noted beside them (`noted`); those that follow on
//! the journal's are taken into it when it is opened.
//!
//! In a bucket no file can grow. Every shard is noted there, and this keeps, in memory, what follows
//! on each other, and the list of bad records in a file without a name until it is put at the end.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use crc_fast::crc32_iscsi;

use super::entry::{BAD_LIST, Entry, JOURNAL, shard_name};
use super::noted::{self, Noted};
use super::out::Out;
use super::place::{Files, Place};
use crate::error::Error;

/// The journal of a folder or bucket, open for the shards that follow.
pub(super) struct Journal {
    place: Place,
    entries: Vec<Entry>,
    /// None of a bucket.
    file: Option<File>,
    list: Option<File>,
    listed_bytes: u64,
    /// Shards that are finished before one that precedes them, with their bad records.
    early: BTreeMap<usize, (Entry, String)>,
    /// Why nothing is noted any more: a line behind one that may be missing would hide the gap.
    failed: Option<Error>,
}

impl Journal {
    /// Takes up the journal of an earlier run as far as its shards are there, and removes what was
    /// not finished.
    ///
    /// # Errors
    ///
    /// [`Error::Write`]; [`Error::Open`] for a journal that is there and cannot be read.
    pub(super) fn open(out: &Out, extension: &str) -> Result<Journal, Error> {
        let place = out.place();
        let Found {
            entries,
            bytes,
            told,
            files,
        } = find(out, extension)?;
        if entries.len() < told {
            out.forget()?;
        }
        let listed_bytes = entries.last().map_or(0, |entry| entry.listed_bytes);
        let end = entries.last().map_or(0, |entry| entry.end);
        let noted = noted::read_all(place, &files, extension, entries.len())?;
        let noted = noted::following(noted, entries.len(), end);
        let (file, list) = match place {
            Place::Folder(folder) => {
                cut_list(folder, listed_bytes)?;
                let known = entries.iter().chain(noted.iter().map(|noted| &noted.entry));
                remove_others(folder, extension, known);
                let path = folder.join(JOURNAL);
                let lines: Vec<u8> = entries.iter().flat_map(line).collect();
                if bytes.is_none_or(|bytes| bytes != lines) {
                    out.write_durable(&path, &lines)?;
                }
                let file = File::options().append(true).open(&path);
                (Some(file.map_err(|error| Error::write(path, error))?), None)
            }
            Place::Bucket(_) => (None, Some(copied_list(place, listed_bytes)?)),
        };
        let mut journal = Journal {
            place: place.clone(),
            entries,
            file,
            list,
            listed_bytes,
            early: BTreeMap::new(),
            failed: None,
        };
        let first = journal.entries.len();
        for (nth, Noted { entry, bad }) in noted.into_iter().enumerate() {
            journal.note(first + nth, entry, bad)?;
        }
        if let Place::Folder(_) = place {
            // They say nothing that the journal does not. What stays is removed by the next run.
            let _ = place.remove(&noted::names(&files));
        }
        Ok(journal)
    }

    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// One past the last place that is done.
    pub(super) fn end(&self) -> u64 {
        self.entries.last().map_or(0, |entry| entry.end)
    }

    /// Notes a shard that is there, and the bad records of its range. It counts once all
    /// before it do.
    ///
    /// # Errors
    ///
    /// [`Error::Write`], and that same one for every shard after it.
    pub(super) fn note(&mut self, number: usize, entry: Entry, bad: String) -> Result<(), Error> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        self.early.insert(number, (entry, bad));
        self.note_ready()
            .inspect_err(|error| self.failed = Some(error.clone()))
    }

    /// Notes the shards before which none is missing; they are among the entries once their lines
    /// are on the disk.
    fn note_ready(&mut self) -> Result<(), Error> {
        let mut ready = Vec::new();
        let mut bad_lines = String::new();
        while let Some((mut entry, bad)) = self.early.remove(&(self.entries.len() + ready.len())) {
            bad_lines.push_str(&bad);
            entry.listed_bytes = self.listed_bytes + bad_lines.len() as u64;
            ready.push(entry);
        }
        if ready.is_empty() {
            return Ok(());
        }
        self.list(&bad_lines)?;
        if let Some(mut file) = self.file.as_ref() {
            // The names of the shards, and of the list.
            self.place.sync();
            let lines: Vec<u8> = ready.iter().flat_map(line).collect();
            let mut write = || -> io::Result<()> {
                file.write_all(&lines)?;
                file.sync_data()
            };
            write().map_err(|error| Error::write(self.place.path().join(JOURNAL), error))?;
        }
        self.entries.append(&mut ready);
        Ok(())
    }

    fn list(&mut self, lines: &str) -> Result<(), Error> {
        if lines.is_empty() {
            return Ok(());
        }
        let path = self.place.path().join(BAD_LIST);
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

    /// Adds bad records behind the last shard to the list, which is there then.
    pub(super) fn finish(&mut self, bad: &str) -> Result<(), Error> {
        self.list(bad)?;
        match (&self.place, &self.list) {
            (Place::Bucket(_), Some(list)) => self.place.write_file(BAD_LIST, list),
            _ => Ok(()),
        }
    }
}

/// What an earlier run left.
pub(super) struct Found {
    /// The shards that are there, up to the first that is not.
    pub(super) entries: Vec<Entry>,
    /// The journal; None where there is none.
    bytes: Option<Vec<u8>>,
    /// How many shards it told of, or else the manifest.
    told: usize,
    /// What lies there.
    pub(super) files: Files,
}

/// Looks for the shards of an earlier run, and changes nothing.
///
/// # Errors
///
/// [`Error::Open`] for a journal that is there and cannot be read.
pub(super) fn find(out: &Out, extension: &str) -> Result<Found, Error> {
    let path = out.path().join(JOURNAL);
    let bytes = match out.place() {
        Place::Folder(_) => match fs::read(&path) {
            Ok(bytes) => Some(bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(Error::open(path, error)),
        },
        Place::Bucket(_) => None,
    };
    let mut entries = match &bytes {
        Some(bytes) => parse(bytes),
        None => out.shards().to_vec(),
    };
    let told = entries.len();
    let files = out.place().files()?;
    let list = files.length(BAD_LIST).unwrap_or(0);
    entries.truncate(unbroken(&entries, extension));
    let kept = entries.iter().take_while(|entry| {
        files.length(&entry.file) == Some(entry.bytes) && entry.listed_bytes <= list
    });
    entries.truncate(kept.count());
    Ok(Found {
        entries,
        bytes,
        told,
        files,
    })
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

/// How many entries follow on each other: each is the next shard, and begins where the one before
/// it ends. What stands behind a gap is no beginning of the dataset.
fn unbroken(entries: &[Entry], extension: &str) -> usize {
    let (mut end, mut listed_bytes) = (0_u64, 0);
    let follows = |(number, entry): (usize, &Entry)| {
        let range = entry.records.checked_add(entry.bad);
        let next = range.and_then(|range| end.checked_add(range));
        let fits = entry.file == shard_name(number, extension)
            && entry.records > 0
            && next == Some(entry.end)
            && entry.listed_bytes >= listed_bytes;
        (end, listed_bytes) = (entry.end, entry.listed_bytes);
        fits
    };
    let broken = entries
        .iter()
        .enumerate()
        .map(follows)
        .position(|fits| !fits);
    broken.unwrap_or(entries.len())
}

/// The list of bad records of a bucket up to a length, in a file without a name.
fn copied_list(place: &Place, length: u64) -> Result<File, Error> {
    let list = match length {
        0 => None,
        _ => place.read(BAD_LIST, u64::MAX)?,
    };
    let list = list.unwrap_or_default();
    let kept = list.get(..length as usize).unwrap_or(&list);
    let copy = || -> io::Result<File> {
        let mut file = tempfile::tempfile()?;
        file.write_all(kept)?;
        Ok(file)
    };
    copy().map_err(|error| Error::write(place.path().join(BAD_LIST), error))
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

/// Removes shards that the journal does not know, and parts of such.
fn remove_others<'a>(folder: &Path, extension: &str, known: impl Iterator<Item = &'a Entry>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    let stem = |name: &str| {
        name.split_once('.')
            .map_or(name, |(stem, _)| stem)
            .to_owned()
    };
    let known: std::collections::HashSet<String> = known.map(|entry| stem(&entry.file)).collect();
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let part = name
            .strip_prefix('.')
            .and_then(|name| name.strip_suffix(".part"));
        let whole = part.unwrap_or(&name);
        let number = whole.strip_prefix("shard-");
        let is_ours = number.is_some_and(|rest| {
            let mut parts = rest.split('.');
            let digits = parts.next().unwrap_or_default();
            let ext = parts.next().unwrap_or_default();
            // Of a part only, a word that tells its writer from others.
            let writers = parts.count();
            digits.bytes().all(|byte| byte.is_ascii_digit())
                && [extension, "idx", noted::EXTENSION].contains(&ext)
                && writers <= usize::from(part.is_some())
        });
        if is_ours && (part.is_some() || !known.contains(&stem(&name))) {
            // What stays only takes room, and is replaced or told when its name is needed.
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack::form::Extensions;

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

    /// A journal of a folder whose file takes no line.
    fn refusing(folder: &Path) -> Journal {
        let path = folder.join(JOURNAL);
        fs::write(&path, "").expect("writes");
        Journal {
            place: Place::Folder(folder.to_owned()),
            entries: Vec::new(),
            file: Some(File::open(path).expect("for reading alone")),
            list: None,
            listed_bytes: 0,
            early: BTreeMap::new(),
            failed: None,
        }
    }

    #[test]
    fn after_a_shard_that_could_not_be_noted_none_is() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut journal = refusing(folder.path());
        let path = folder.path().join(JOURNAL);

        let first = journal.note(0, entry(0), String::new());
        journal.file = Some(File::options().append(true).open(&path).expect("opens"));
        let second = journal.note(1, entry(1), String::new());

        let told = |noted: Result<(), Error>| noted.expect_err("no gap").chain();
        assert_eq!(told(first), told(second));
        assert!(journal.entries().is_empty());
        assert_eq!(fs::read(path).expect("a journal"), b"");
    }

    #[test]
    fn a_list_of_bad_records_that_cannot_be_written_keeps_their_shard_out_of_the_journal() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut journal = refusing(folder.path());
        let path = folder.path().join(JOURNAL);
        journal.file = Some(File::options().append(true).open(&path).expect("opens"));
        fs::create_dir(folder.path().join(BAD_LIST)).expect("in the way");

        let first = journal.note(0, entry(0), "{}\n".to_owned());
        fs::remove_dir(folder.path().join(BAD_LIST)).expect("out of the way");
        let second = journal.note(1, entry(1), String::new());

        assert!(first.is_err() && second.is_err());
        assert_eq!(fs::read(path).expect("a journal"), b"");
    }

    #[test]
    fn entries_count_up_to_the_first_that_does_not_follow() {
        let all: Vec<Entry> = (0..3).map(entry).collect();
        assert_eq!(unbroken(&all, "tar"), 3);
        assert_eq!(unbroken(&all, "arrow"), 0, "of another form");
        for change in [
            |entry: &mut Entry| entry.file = shard_name(7, "tar"),
            |entry: &mut Entry| entry.end = 10,
            |entry: &mut Entry| entry.end = u64::MAX,
            |entry: &mut Entry| entry.records = u64::MAX,
            |entry: &mut Entry| entry.bad = 0,
        ] {
            let mut changed = all.clone();
            change(&mut changed[1]);
            assert_eq!(unbroken(&changed, "tar"), 1, "{:?}", changed[1]);
        }
        let gap = [entry(0), entry(2)];
        assert_eq!(unbroken(&gap, "tar"), 1);
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
