//! Shards that other processes have written: a note beside each, and nothing else, says that it is
//! whole.
//!
//! A note is a checksum and a JSON object on one line, as in the journal, with the lines of the bad
//! records of its range. It is written after the shard is on the disk under its name. Whoever opens
//! the journal takes those notes into it that follow on each other.

use std::fs;
use std::path::Path;

use crc_fast::crc32_iscsi;
use serde::{Deserialize, Serialize};

use super::entry::{Entry, shard_name, sync_folder, write_named};
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

/// Notes a shard that is on the disk under its name.
///
/// # Errors
///
/// [`Error::Write`].
pub(super) fn write(folder: &Path, number: usize, tag: &str, noted: &Noted) -> Result<(), Error> {
    // The name of the shard before the note of it.
    sync_folder(folder);
    let text = serde_json::to_string(noted).unwrap_or_default();
    let line = format!("{:08x} {text}\n", crc32_iscsi(text.as_bytes()));
    write_named(folder, &shard_name(number, EXTENSION), tag, line.as_bytes())
}

/// A shard that was noted, and is there.
pub(super) fn read(folder: &Path, extension: &str, number: usize) -> Option<Noted> {
    let path = folder.join(shard_name(number, EXTENSION));
    if fs::metadata(&path).ok()?.len() > MOST_BYTES {
        return None;
    }
    let noted = parse(&fs::read(path).ok()?)?;
    let entry = &noted.entry;
    let fits = entry.file == shard_name(number, extension)
        && entry.records > 0
        && entry.begin().is_some()
        && entry.is_in(folder);
    fits.then_some(noted)
}

/// The shards noted in a folder that follow on each other, from a number and a place on.
pub(super) fn following(
    folder: &Path,
    extension: &str,
    number: usize,
    mut begin: u64,
) -> Vec<Noted> {
    let follows = |number| {
        let noted = read(folder, extension, number)?;
        (noted.entry.begin() == Some(begin)).then(|| begin = noted.entry.end)?;
        Some(noted)
    };
    (number..).map_while(follows).collect()
}

/// The numbers of the notes in a folder, whatever is in them, ascending.
pub(super) fn numbers(folder: &Path) -> Vec<usize> {
    let names = fs::read_dir(folder).into_iter().flatten().flatten();
    let number = |name: String| {
        let (digits, extension) = name.strip_prefix("shard-")?.split_once('.')?;
        let number = digits.parse().ok()?;
        (extension == EXTENSION && name == shard_name(number, EXTENSION)).then_some(number)
    };
    let mut numbers: Vec<usize> = names
        .filter_map(|entry| number(entry.file_name().to_string_lossy().into_owned()))
        .collect();
    numbers.sort_unstable();
    numbers
}

/// Removes all notes.
pub(super) fn remove_all(folder: &Path) {
    for number in numbers(folder) {
        // What stays is removed by the next run.
        let _ = fs::remove_file(folder.join(shard_name(number, EXTENSION)));
    }
}

fn parse(bytes: &[u8]) -> Option<Noted> {
    let line = std::str::from_utf8(bytes).ok()?.strip_suffix('\n')?;
    let (crc, text) = line.split_once(' ')?;
    let crc = u32::from_str_radix(crc, 16).ok()?;
    (crc == crc32_iscsi(text.as_bytes())).then(|| serde_json::from_str(text).ok())?
}

#[cfg(test)]
mod tests {
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
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for number in 0..4 {
            let name = shard_name(number, "tar");
            fs::write(folder.path().join(name), "abc").expect("writes");
            write(folder.path(), number, ".a", &noted(number)).expect("writes");
        }
        folder
    }

    #[test]
    fn notes_are_taken_up_to_the_first_shard_that_is_not_whole() {
        let folder = folder();
        let path = folder.path();
        assert_eq!(numbers(path), [0, 1, 2, 3]);
        assert_eq!(following(path, "tar", 0, 0), [0, 1, 2, 3].map(noted));
        assert_eq!(following(path, "tar", 2, 20), [2, 3].map(noted));
        assert!(following(path, "tar", 2, 10).is_empty(), "there is a gap");
        assert!(following(path, "arrow", 0, 0).is_empty(), "another form");

        fs::write(path.join(shard_name(2, "tar")), "ab").expect("cut");
        assert_eq!(following(path, "tar", 0, 0).len(), 2);
        fs::remove_file(path.join(shard_name(1, EXTENSION))).expect("removes");
        assert_eq!(following(path, "tar", 0, 0).len(), 1);
        remove_all(path);
        assert!(numbers(path).is_empty());
        assert!(path.join(shard_name(3, "tar")).exists());
    }

    #[test]
    fn a_note_that_was_cut_or_changed_is_none() {
        let folder = folder();
        let path = folder.path().join(shard_name(0, EXTENSION));
        let whole = fs::read(&path).expect("a note");
        let read = |bytes: &[u8]| {
            fs::write(&path, bytes).expect("writes");
            read(folder.path(), "tar", 0)
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
