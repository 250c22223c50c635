//! Shards that other processes have written. Only a note next to a shard states that it is
//! complete.
//!
//! A note is a line with a checksum and a JSON object, as in the journal, and contains the
//! bad-record lines of its range. It is written after the shard exists under its name. When the
//! journal opens, it takes in consecutive notes. In a bucket, no file can grow, so notes are the
//! only record of shards until the manifest exists.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::entry::{Entry, checked_line, read_checked_line, shard_name};
use super::location::{Files, OutputLocation};
use infeed_core::error::Error;

/// Extension of a note.
pub(super) const EXTENSION: &str = "noted";

/// Maximum size of a note in bytes: one with a bad record at every position of a large shard.
const MAX_BYTES: u64 = 1 << 30;

/// A complete shard.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ShardNote {
    pub(super) entry: Entry,
    /// Lines for the list of bad records.
    pub(super) bad: String,
}

/// Writes the note of a shard that exists under its name.
///
/// # Errors
///
/// [`Error::Write`].
pub(super) fn write(
    location: &OutputLocation,
    number: usize,
    tag: &str,
    note: &ShardNote,
) -> Result<(), Error> {
    // The name of the shard must be durable before its note.
    location.sync();
    let line = checked_line(note);
    location.write(&shard_name(number, EXTENSION), tag, &line.into())
}

/// Returns the existing shards with a valid note, by number, from `first` on.
///
/// # Errors
///
/// [`Error::Open`].
pub(super) fn read_all(
    location: &OutputLocation,
    files: &Files,
    extension: &str,
    first: usize,
) -> Result<BTreeMap<usize, ShardNote>, Error> {
    let numbers = numbers(files).into_iter().filter(|&number| number >= first);
    let numbers: Vec<usize> = numbers.collect();
    let names: Vec<String> = numbers.iter().map(|&n| shard_name(n, EXTENSION)).collect();
    let mut all = BTreeMap::new();
    let mut numbers = numbers.into_iter();
    location.read_each(&names, MAX_BYTES, |_, bytes| {
        let (Some(number), Some(bytes)) = (numbers.next(), bytes) else {
            return;
        };
        let fits = |note: &ShardNote| {
            let entry = &note.entry;
            entry.file == shard_name(number, extension)
                && entry.records > 0
                && entry.begin().is_some()
                && files.length(&entry.file) == Some(entry.bytes)
        };
        if let Some(note) = read_checked_line(&bytes).filter(fits) {
            all.insert(number, note);
        }
    })?;
    Ok(all)
}

/// Returns the consecutive shards from a number and a position on.
pub(super) fn following(
    mut all: BTreeMap<usize, ShardNote>,
    number: usize,
    mut begin: u64,
) -> Vec<ShardNote> {
    let follows = |number| {
        let note: ShardNote = all.remove(&number)?;
        (note.entry.begin() == Some(begin)).then(|| begin = note.entry.end)?;
        Some(note)
    };
    (number..).map_while(follows).collect()
}

/// Returns the numbers of all notes, valid or not, in ascending order.
fn numbers(files: &Files) -> Vec<usize> {
    let number = |name: &str| {
        let (digits, extension) = name.strip_prefix("shard-")?.split_once('.')?;
        let number = digits.parse().ok()?;
        (extension == EXTENSION && name == shard_name(number, EXTENSION)).then_some(number)
    };
    let mut numbers: Vec<usize> = files.names().filter_map(number).collect();
    numbers.sort_unstable();
    numbers
}

/// Returns the names of all notes.
pub(super) fn names(files: &Files) -> Vec<String> {
    let numbers = numbers(files).into_iter();
    numbers.map(|n| shard_name(n, EXTENSION)).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::shard_layout::Extensions;

    fn note(number: usize) -> ShardNote {
        ShardNote {
            entry: Entry {
                file: shard_name(number, "tar"),
                end: 10 * (number as u64 + 1),
                records: 9,
                bytes: 3,
                bytes_in: 5,
                bad: 1,
                listed_bytes: 0,
                extensions: Extensions::new(),
            },
            bad: "{\"record\": 3}\n".to_owned(),
        }
    }

    /// Creates a folder with shards 0 to 3, each with a note.
    fn folder() -> (tempfile::TempDir, OutputLocation) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let location = OutputLocation::of(folder.path()).expect("a folder");
        for number in 0..4 {
            let name = shard_name(number, "tar");
            fs::write(folder.path().join(name), "abc").expect("writes");
            write(&location, number, ".a", &note(number)).expect("writes");
        }
        (folder, location)
    }

    /// Returns the consecutive shards from a number and a position on.
    fn read_following(
        location: &OutputLocation,
        extension: &str,
        number: usize,
        begin: u64,
    ) -> Vec<ShardNote> {
        let files = location.files().expect("readable");
        let all = read_all(location, &files, extension, number).expect("readable");
        following(all, number, begin)
    }

    #[test]
    fn notes_count_up_to_the_first_incomplete_shard() {
        let (folder, location) = folder();
        let path = folder.path();
        assert_eq!(
            read_following(&location, "tar", 0, 0),
            [0, 1, 2, 3].map(note)
        );
        assert_eq!(read_following(&location, "tar", 2, 20), [2, 3].map(note));
        assert!(
            read_following(&location, "tar", 2, 10).is_empty(),
            "there is a gap"
        );
        assert!(
            read_following(&location, "arrow", 0, 0).is_empty(),
            "another format"
        );

        fs::write(path.join(shard_name(2, "tar")), "ab").expect("cut");
        assert_eq!(read_following(&location, "tar", 0, 0).len(), 2);
        fs::remove_file(path.join(shard_name(1, EXTENSION))).expect("removes");
        assert_eq!(read_following(&location, "tar", 0, 0).len(), 1);

        let notes = names(&location.files().expect("readable"));
        assert_eq!(notes, [0, 2, 3].map(|n| shard_name(n, EXTENSION)));
        location.remove(&notes).expect("removes");
        assert!(names(&location.files().expect("readable")).is_empty());
        assert!(path.join(shard_name(3, "tar")).exists());
    }

    #[test]
    fn a_truncated_or_changed_note_does_not_count() {
        let (folder, location) = folder();
        let path = folder.path().join(shard_name(0, EXTENSION));
        let whole = fs::read(&path).expect("a note");
        let files = location.files().expect("readable");
        let read = |bytes: &[u8]| {
            fs::write(&path, bytes).expect("writes");
            let mut all = read_all(&location, &files, "tar", 0).expect("readable");
            all.remove(&0)
        };

        assert_eq!(read(&whole), Some(note(0)));
        for cut in 0..whole.len() {
            assert_eq!(read(&whole[..cut]), None, "{cut}");
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            assert_eq!(read(&changed), None, "{at}");
        }
    }
}
