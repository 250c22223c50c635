//! Shards that other processes have written: a note beside each, and nothing else, says that it is
//! whole.
//!
//! A note is a checksum and a JSON object on one line, as in the journal, with the lines of the bad
//! records of its range. It is written after the shard is there under its name. Whoever opens the
//! journal takes those notes into it that follow on each other. In a bucket, where no file can grow,
//! notes are all that is known of shards until the manifest is there.

use std::collections::BTreeMap;

use crc_fast::crc32_iscsi;
use serde::{Deserialize, Serialize};

use super::entry::{Entry, shard_name};
use super::place::{Files, Place};
use crate::error::Error;

/// Extension of a note.
pub(super) const EXTENSION: &str = "noted";

/// Longest note that is read, in bytes: one with a bad record in every place of a large shard.
const MOST_BYTES: u64 = 1 << 30;

/// A shard that is whole.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Noted {
    pub(super) entry: Entry,
    /// Lines for the list of bad records.
    pub(super) bad: String,
}

/// Notes a shard that is there under its name.
///
/// # Errors
///
/// [`Error::Write`].
pub(super) fn write(place: &Place, number: usize, tag: &str, noted: &Noted) -> Result<(), Error> {
    // The name of the shard before the note of it.
    place.sync();
    let text = serde_json::to_string(noted).unwrap_or_default();
    let line = format!("{:08x} {text}\n", crc32_iscsi(text.as_bytes()));
    place.write(&shard_name(number, EXTENSION), tag, &line.into())
}

/// The shards that were noted and are there, by their numbers, from one on.
///
/// # Errors
///
/// [`Error::Open`].
pub(super) fn read_all(
    place: &Place,
    files: &Files,
    extension: &str,
    first: usize,
) -> Result<BTreeMap<usize, Noted>, Error> {
    let numbers = numbers(files).into_iter().filter(|&number| number >= first);
    let numbers: Vec<usize> = numbers.collect();
    let names: Vec<String> = numbers.iter().map(|&n| shard_name(n, EXTENSION)).collect();
    let mut all = BTreeMap::new();
    let mut numbers = numbers.into_iter();
    place.read_each(&names, MOST_BYTES, |_, bytes| {
        let (Some(number), Some(bytes)) = (numbers.next(), bytes) else {
            return;
        };
        let fits = |noted: &Noted| {
            let entry = &noted.entry;
            entry.file == shard_name(number, extension)
                && entry.records > 0
                && entry.begin().is_some()
                && files.length(&entry.file) == Some(entry.bytes)
        };
        if let Some(noted) = parse(&bytes).filter(fits) {
            all.insert(number, noted);
        }
    })?;
    Ok(all)
}

/// Those of them that follow on each other, from a number and a place on.
pub(super) fn following(
    mut all: BTreeMap<usize, Noted>,
    number: usize,
    mut begin: u64,
) -> Vec<Noted> {
    let follows = |number| {
        let noted: Noted = all.remove(&number)?;
        (noted.entry.begin() == Some(begin)).then(|| begin = noted.entry.end)?;
        Some(noted)
    };
    (number..).map_while(follows).collect()
}

/// The numbers of the notes that are there, whatever is in them, ascending.
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

/// The names of all notes that are there.
pub(super) fn names(files: &Files) -> Vec<String> {
    let numbers = numbers(files).into_iter();
    numbers.map(|n| shard_name(n, EXTENSION)).collect()
}

fn parse(bytes: &[u8]) -> Option<Noted> {
    let line = std::str::from_utf8(bytes).ok()?.strip_suffix('\n')?;
    let (crc, text) = line.split_once(' ')?;
    let crc = u32::from_str_radix(crc, 16).ok()?;
    (crc == crc32_iscsi(text.as_bytes())).then(|| serde_json::from_str(text).ok())?
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::pack::form::Extensions;

    fn noted(number: usize) -> Noted {
        Noted {
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

    /// A folder with shards 0 to 3, each of them noted.
    fn folder() -> (tempfile::TempDir, Place) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let place = Place::of(folder.path()).expect("a folder");
        for number in 0..4 {
            let name = shard_name(number, "tar");
            fs::write(folder.path().join(name), "abc").expect("writes");
            write(&place, number, ".a", &noted(number)).expect("writes");
        }
        (folder, place)
    }

    /// Those that follow from a number and a place on.
    fn found(place: &Place, extension: &str, number: usize, begin: u64) -> Vec<Noted> {
        let files = place.files().expect("readable");
        let all = read_all(place, &files, extension, number).expect("readable");
        following(all, number, begin)
    }

    #[test]
    fn notes_are_taken_up_to_the_first_shard_that_is_not_whole() {
        let (folder, place) = folder();
        let path = folder.path();
        assert_eq!(found(&place, "tar", 0, 0), [0, 1, 2, 3].map(noted));
        assert_eq!(found(&place, "tar", 2, 20), [2, 3].map(noted));
        assert!(found(&place, "tar", 2, 10).is_empty(), "there is a gap");
        assert!(found(&place, "arrow", 0, 0).is_empty(), "another form");

        fs::write(path.join(shard_name(2, "tar")), "ab").expect("cut");
        assert_eq!(found(&place, "tar", 0, 0).len(), 2);
        fs::remove_file(path.join(shard_name(1, EXTENSION))).expect("removes");
        assert_eq!(found(&place, "tar", 0, 0).len(), 1);

        let notes = names(&place.files().expect("readable"));
        assert_eq!(notes, [0, 2, 3].map(|n| shard_name(n, EXTENSION)));
        place.remove(&notes).expect("removes");
        assert!(names(&place.files().expect("readable")).is_empty());
        assert!(path.join(shard_name(3, "tar")).exists());
    }

    #[test]
    fn a_note_that_was_cut_or_changed_is_none() {
        let (folder, place) = folder();
        let path = folder.path().join(shard_name(0, EXTENSION));
        let whole = fs::read(&path).expect("a note");
        let files = place.files().expect("readable");
        let read = |bytes: &[u8]| {
            fs::write(&path, bytes).expect("writes");
            let mut all = read_all(&place, &files, "tar", 0).expect("readable");
            all.remove(&0)
        };

        assert_eq!(read(&whole), Some(noted(0)));
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
