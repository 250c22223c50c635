//! Text form of the hashes of some records' contents: single records and groups of records. Records
//! that one side could not read never cause a rejection.

use std::fmt::Write;

/// Maximum number of entries in a text.
const MAX_HASHES: usize = 64;

/// Marks records that could not be read.
const UNKNOWN: &str = "-";

/// Hash of a record, or of a group of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentHash {
    /// Number of the record; for a group, the lowest number.
    pub first: u64,
    /// The same number; for a group, the highest number.
    pub last: u64,
    /// Hash of the contents; `None` if some of them could not be read.
    pub hash: Option<u64>,
}

/// Formats all hashes as a text.
pub fn text(hashes: &[ContentHash]) -> String {
    let mut text = String::new();
    for ContentHash { first, last, hash } in hashes.iter().take(MAX_HASHES) {
        // Writing to memory does not fail.
        let _ = match first == last {
            true => write!(text, "{first}:"),
            false => write!(text, "{first}..{last}:"),
        };
        let _ = match hash {
            Some(hash) => write!(text, "{hash:016x} "),
            None => write!(text, "{UNKNOWN} "),
        };
    }
    text.truncate(text.trim_end().len());
    text
}

/// Parses a text; `None` if it has another format.
fn parse(text: &str) -> Option<Vec<ContentHash>> {
    let parse_entry = |word: &str| {
        let (records, hash) = word.split_once(':')?;
        let (first, last) = records.split_once("..").unwrap_or((records, records));
        let hash = match hash {
            UNKNOWN => None,
            hash => Some(u64::from_str_radix(hash, 16).ok()?),
        };
        Some(ContentHash {
            first: first.parse().ok()?,
            last: last.parse().ok()?,
            hash,
        })
    };
    let words = text.split_ascii_whitespace();
    words.take(MAX_HASHES).map(parse_entry).collect()
}

/// Returns the first hash that differs at the feeder, as texts of the trainer's and the feeder's
/// value.
pub(super) fn difference(trainer: &str, feeder: &str) -> Option<(String, String)> {
    let (Some(theirs), Some(own)) = (parse(trainer), parse(feeder)) else {
        return Some((trainer.to_owned(), feeder.to_owned()));
    };
    own.into_iter().find_map(|entry| {
        let same = |other: &&ContentHash| (other.first, other.last) == (entry.first, entry.last);
        let other = theirs.iter().find(same)?;
        let (other, hash) = (other.hash?, entry.hash?);
        let records = match entry.first == entry.last {
            true => format!("record {}", entry.first),
            false => format!("a sample of records {} to {}", entry.first, entry.last),
        };
        (other != hash).then(|| (format!("{records} is {other:016x}"), format!("{hash:016x}")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(record: u64, hash: impl Into<Option<u64>>) -> ContentHash {
        ContentHash {
            first: record,
            last: record,
            hash: hash.into(),
        }
    }

    #[test]
    fn the_first_record_that_differs_is_named_with_both_values() {
        let trainer = text(&[entry(0, 1), entry(7, 2), entry(9, 3)]);
        let feeder = text(&[entry(0, 1), entry(7, 0xfe), entry(9, 4)]);

        assert_eq!(trainer.split(' ').count(), 3);
        assert_eq!(difference(&trainer, &trainer), None);
        let (theirs, own) = difference(&trainer, &feeder).expect("they differ");
        assert_eq!(theirs, "record 7 is 0000000000000002");
        assert_eq!(own, "00000000000000fe");
    }

    #[test]
    fn a_group_that_differs_is_named_by_its_lowest_and_highest_record() {
        let group = |hash| ContentHash {
            last: 900,
            ..entry(3, hash)
        };

        let (trainer, feeder) = (
            text(&[entry(3, 1), group(2)]),
            text(&[entry(3, 1), group(5)]),
        );

        assert_eq!(difference(&trainer, &trainer), None);
        let (theirs, own) = difference(&trainer, &feeder).expect("they differ");
        assert_eq!(theirs, "a sample of records 3 to 900 is 0000000000000002");
        assert_eq!(own, "0000000000000005");
    }

    #[test]
    fn records_that_one_side_did_not_read_are_ignored() {
        let trainer = text(&[entry(0, 1), entry(7, None), entry(9, 3)]);
        let feeder = text(&[entry(0, None), entry(7, 2), entry(8, 5)]);

        assert_eq!(difference(&trainer, &feeder), None);
        assert_eq!(difference(&trainer, ""), None, "nothing was looked at");
    }

    #[test]
    fn an_invalid_text_differs_from_a_valid_one() {
        for invalid in [
            "unknown",
            "7",
            "7:zz",
            "x:-",
            ":",
            "7..:0",
            "7:123456789abcdef01",
        ] {
            assert!(difference(invalid, "7:02").is_some(), "{invalid}");
        }
    }
}
