//! The journal of finished shards, an append-only file with one line per shard, and the list of bad
//! records.
//!
//! A line has a checksum and a JSON object: one past the shard's last position in the packed order
//! (including bad records), its length, and the numbers for the totals. Lines are written in the
//! order of the shards, after the shard is on the disk under its name and the bad records of its
//! range are in the list. A reader of the journal therefore knows the next position, the complete
//! bytes, and the valid length of the list. Everything after that is made again with the same
//! result, because the end of a shard depends only on the records. The final state of the journal
//! goes into the manifest.
//!
//! Shards of other processes have notes next to them (`note`). When the journal opens, it takes in
//! the notes that directly follow its last shard.
//!
//! A bucket has no files that can grow, so every shard there has a note. The journal keeps
//! consecutive entries in memory and the list of bad records in an unnamed file, which is uploaded
//! at the end.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use super::entry::{
    BAD_LIST, Entry, JOURNAL, checked_line, read_checked_line, shard_name, shard_number,
};
use super::location::{Files, OutputLocation};
use super::note::{self, ShardNote};
use super::output_folder::OutputFolder;
use infeed_core::error::Error;
use infeed_raw::file;

/// The journal of a folder or bucket, open for more shards.
pub(super) struct Journal {
    location: OutputLocation,
    entries: Vec<Entry>,
    /// None for a bucket.
    file: Option<File>,
    list: Option<File>,
    listed_bytes: u64,
    /// Finished shards that wait for an earlier shard, with their bad records.
    early: BTreeMap<usize, (Entry, String)>,
    /// The error that stopped the journal. After a line that may be missing, another line would
    /// hide the gap.
    failed: Option<Error>,
}

impl Journal {
    /// Opens the journal of an earlier run up to its last existing shard, and removes unfinished
    /// files.
    ///
    /// # Errors
    ///
    /// [`Error::Write`], and [`Error::Open`] if a journal exists and cannot be read.
    pub(super) fn open(out: &OutputFolder, extension: &str) -> Result<Journal, Error> {
        let location = out.location();
        let PreviousRun {
            entries,
            bytes,
            listed,
            files,
        } = find(out, extension)?;
        if entries.len() < listed {
            out.forget()?;
        }
        let listed_bytes = entries.last().map_or(0, |entry| entry.listed_bytes);
        let end = entries.last().map_or(0, |entry| entry.end);
        let note = note::read_all(location, &files, extension, entries.len())?;
        let note = note::following(note, entries.len(), end);
        let (file, list) = match location {
            OutputLocation::Folder(folder) => {
                cut_list(folder, listed_bytes)?;
                let known = entries.iter().chain(note.iter().map(|note| &note.entry));
                remove_others(folder, extension, known);
                let path = folder.join(JOURNAL);
                let lines: Vec<u8> = entries.iter().flat_map(line).collect();
                if bytes.is_none_or(|bytes| bytes != lines) {
                    out.write_durable(&path, &lines)?;
                }
                let file = file::open_own(&path, File::options().append(true));
                (Some(file.map_err(|error| Error::write(path, error))?), None)
            }
            OutputLocation::Bucket(_) => (None, Some(copied_list(location, listed_bytes)?)),
        };
        let mut journal = Journal {
            location: location.clone(),
            entries,
            file,
            list,
            listed_bytes,
            early: BTreeMap::new(),
            failed: None,
        };
        let first = journal.entries.len();
        for (nth, ShardNote { entry, bad }) in note.into_iter().enumerate() {
            journal.note(first + nth, entry, bad)?;
        }
        if let OutputLocation::Folder(_) = location {
            // The journal has the content of the notes. The next run removes notes that stay.
            let _ = location.remove(&note::names(&files));
        }
        Ok(journal)
    }

    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns one past the last finished position.
    pub(super) fn end(&self) -> u64 {
        self.entries.last().map_or(0, |entry| entry.end)
    }

    /// Adds an existing shard and the bad records of its range. It counts once all earlier shards
    /// do.
    ///
    /// # Errors
    ///
    /// [`Error::Write`], and the same error for every later shard.
    pub(super) fn note(&mut self, number: usize, entry: Entry, bad: String) -> Result<(), Error> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        self.early.insert(number, (entry, bad));
        self.note_ready()
            .inspect_err(|error| self.failed = Some(error.clone()))
    }

    /// Writes the lines of shards without a gap before them. They become entries when their lines
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
            // Makes the names of the shards and of the list durable first.
            self.location.sync();
            let lines: Vec<u8> = ready.iter().flat_map(line).collect();
            let mut write = || -> io::Result<()> {
                file.write_all(&lines)?;
                file.sync_data()
            };
            write().map_err(|error| Error::write(self.location.path().join(JOURNAL), error))?;
        }
        self.entries.append(&mut ready);
        Ok(())
    }

    fn list(&mut self, lines: &str) -> Result<(), Error> {
        if lines.is_empty() {
            return Ok(());
        }
        let path = self.location.path().join(BAD_LIST);
        let mut write = || -> io::Result<()> {
            let file = match self.list.take() {
                Some(file) => file,
                None => file::open_own(&path, File::options().create(true).append(true))?,
            };
            let file = self.list.insert(file);
            file.write_all(lines.as_bytes())?;
            file.sync_data()
        };
        write().map_err(|error| Error::write(&path, error))?;
        self.listed_bytes += lines.len() as u64;
        Ok(())
    }

    /// Appends bad records after the last shard to the list. Creates the list if necessary.
    pub(super) fn finish(&mut self, bad: &str) -> Result<(), Error> {
        self.list(bad)?;
        match (&self.location, &self.list) {
            (OutputLocation::Bucket(_), Some(list)) => self.location.write_file(BAD_LIST, list),
            _ => Ok(()),
        }
    }
}

/// The state that an earlier run left.
pub(super) struct PreviousRun {
    /// The existing shards, up to the first that is missing.
    pub(super) entries: Vec<Entry>,
    /// Content of the journal. None without a journal.
    bytes: Option<Vec<u8>>,
    /// Number of shards in the journal, or else in the manifest.
    listed: usize,
    /// The existing files.
    pub(super) files: Files,
}

/// Finds the shards of an earlier run without changes.
///
/// # Errors
///
/// [`Error::Open`] if a journal exists and cannot be read.
pub(super) fn find(out: &OutputFolder, extension: &str) -> Result<PreviousRun, Error> {
    let path = out.path().join(JOURNAL);
    let bytes = match out.location() {
        OutputLocation::Folder(_) => match file::read(&path, u64::MAX) {
            Ok(bytes) => Some(bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(Error::open(path, error)),
        },
        OutputLocation::Bucket(_) => None,
    };
    let mut entries = match &bytes {
        Some(bytes) => parse(bytes),
        None => out.shards().to_vec(),
    };
    let listed = entries.len();
    let files = out.location().files()?;
    let list = files.length(BAD_LIST).unwrap_or(0);
    entries.truncate(unbroken(&entries, extension));
    let kept = entries.iter().take_while(|entry| {
        files.length(&entry.file) == Some(entry.bytes) && entry.listed_bytes <= list
    });
    entries.truncate(kept.count());
    Ok(PreviousRun {
        entries,
        bytes,
        listed,
        files,
    })
}

/// Returns a line of the journal.
fn line(entry: &Entry) -> Vec<u8> {
    checked_line(entry).into_bytes()
}

/// Parses the lines up to the first invalid one.
fn parse(bytes: &[u8]) -> Vec<Entry> {
    bytes
        .split_inclusive(|&byte| byte == b'\n')
        .map_while(read_checked_line)
        .collect()
}

/// Returns the number of consecutive entries: each is the next shard and begins where the previous
/// one ends. Entries after a gap do not count.
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

/// Copies the list of bad records of a bucket up to `length` into an unnamed file.
fn copied_list(location: &OutputLocation, length: u64) -> Result<File, Error> {
    let list = match length {
        0 => None,
        _ => location.read(BAD_LIST, u64::MAX)?,
    };
    let list = list.unwrap_or_default();
    let kept = list.get(..length as usize).unwrap_or(&list);
    let copy = || -> io::Result<File> {
        let mut file = tempfile::tempfile()?;
        file.write_all(kept)?;
        Ok(file)
    };
    copy().map_err(|error| Error::write(location.path().join(BAD_LIST), error))
}

/// Truncates the list of bad records to a length.
fn cut_list(folder: &Path, length: u64) -> Result<(), Error> {
    let path = folder.join(BAD_LIST);
    let cut = match length {
        0 => fs::remove_file(&path),
        length => {
            file::open_own(&path, File::options().write(true)).and_then(|file| file.set_len(length))
        }
    };
    match cut {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::write(path, error)),
        _ => Ok(()),
    }
}

/// Removes shards that the journal does not list, and their partial files.
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
        let mut parts = whole.split('.');
        let number = shard_number(parts.next().unwrap_or_default());
        let ext = parts.next().unwrap_or_default();
        // Only a partial file has another word, which identifies its writer.
        let writers = parts.count();
        let is_ours = number.is_some()
            && [extension, "idx", note::EXTENSION].contains(&ext)
            && writers <= usize::from(part.is_some())
            && entry.file_type().is_ok_and(|kind| kind.is_file());
        if is_ours && (part.is_some() || !known.contains(&stem(&name))) {
            // A file that cannot be removed only takes space. A later write to its name replaces it
            // or fails.
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard_layout::Extensions;

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

    /// Returns a journal of a folder whose file accepts no line.
    fn refusing(folder: &Path) -> Journal {
        let path = folder.join(JOURNAL);
        fs::write(&path, "").expect("writes");
        Journal {
            location: OutputLocation::Folder(folder.to_owned()),
            entries: Vec::new(),
            file: Some(File::open(path).expect("for reading alone")),
            list: None,
            listed_bytes: 0,
            early: BTreeMap::new(),
            failed: None,
        }
    }

    #[test]
    fn after_a_failed_line_no_further_shard_is_added() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut journal = refusing(folder.path());
        let path = folder.path().join(JOURNAL);

        let first = journal.note(0, entry(0), String::new());
        journal.file = Some(File::options().append(true).open(&path).expect("opens"));
        let second = journal.note(1, entry(1), String::new());

        let message = |note: Result<(), Error>| note.expect_err("no gap").chain();
        assert_eq!(message(first), message(second));
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
    fn only_shards_that_no_journal_lists_are_removed() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let left = [
            "shard-000000.tar",
            "shard-000000.idx",
            "shard-7.tar",
            "shard-.tar",
            "shard-0000001.tar",
            "shard-000001.txt",
            "shard-000001.tar.bak",
            "shard-000001-old.tar",
            "shard-000001.tar.part",
            ".notes.part",
            "notes.txt",
        ];
        let removed = [
            "shard-000001.tar",
            "shard-000001.idx",
            "shard-000002.noted",
            "shard-1000000.tar",
            ".shard-000000.tar.part",
            ".shard-000001.tar.w1.part",
        ];
        for name in left.iter().chain(&removed) {
            fs::write(folder.path().join(name), "bytes").expect("writes");
        }

        remove_others(folder.path(), "tar", [entry(0)].iter());

        for name in left {
            assert!(folder.path().join(name).exists(), "{name}");
        }
        for name in removed {
            assert!(!folder.path().join(name).exists(), "{name}");
        }
    }

    #[test]
    fn entries_count_up_to_the_first_gap() {
        let all: Vec<Entry> = (0..3).map(entry).collect();
        assert_eq!(unbroken(&all, "tar"), 3);
        assert_eq!(unbroken(&all, "arrow"), 0, "of another format");
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
