//! Text form of the hashes of some records' contents: single records and groups of records. Records
//! that one side could not read never cause a rejection.

use std::fmt::Write;

/// Maximum number of entries in a text.
const MAX_LOOKS: usize = 64;

/// Marks records that could not be read.
const UNKNOWN: &str = "-";

/// Hash of a record, or of a group of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Number of the record; for a group, the lowest number.
    pub first: u64,
    /// The same number; for a group, the highest number.
    pub last: u64,
    /// Hash of the contents; `None` if some of them could not be read.
    pub held: Option<u64>,
}

/// Formats all hashes as a text.
pub fn text(looks: &[Look]) -> String {
    let mut text = String::new();
    for Look { first, last, held } in looks.iter().take(MAX_LOOKS) {
        // Writing to memory does not fail.
        let _ = match first == last {
            true => write!(text, "{first}:"),
            false => write!(text, "{first}..{last}:"),
        };
        let _ = match held {
            Some(held) => write!(text, "{held:016x} "),
            None => write!(text, "{UNKNOWN} "),
        };
    }
    text.truncate(text.trim_end().len());
    text
}

/// Parses a text; `None` if it has another format.
fn looks(text: &str) -> Option<Vec<Look>> {
    let look = |word: &str| {
        let (records, held) = word.split_once(':')?;
        let (first, last) = records.split_once("..").unwrap_or((records, records));
        let held = match held {
            UNKNOWN => None,
            held => Some(u64::from_str_radix(held, 16).ok()?),
        };
        Some(Look {
            first: first.parse().ok()?,
            last: last.parse().ok()?,
            held,
        })
    };
    let words = text.split_ascii_whitespace();
    words.take(MAX_LOOKS).map(look).collect()
}

/// Returns the first hash that differs at the feeder, as texts of the trainer's and the feeder's
/// value.
pub(super) fn difference(trainer: &str, feeder: &str) -> Option<(String, String)> {
    let (Some(theirs), Some(own)) = (looks(trainer), looks(feeder)) else {
        return Some((trainer.to_owned(), feeder.to_owned()));
    };
    own.into_iter().find_map(|look| {
        let same = |other: &&Look| (other.first, other.last) == (look.first, look.last);
        let other = theirs.iter().find(same)?;
        let (other, held) = (other.held?, look.held?);
        let records = match look.first == look.last {
            true => format!("record {}", look.first),
            false => format!("a sample of records {} to {}", look.first, look.last),
        };
        (other != held).then(|| (format!("{records} is {other:016x}"), format!("{held:016x}")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(record: u64, held: impl Into<Option<u64>>) -> Look {
        Look {
            first: record,
            last: record,
            held: held.into(),
        }
    }

    #[test]
    fn the_first_record_that_differs_is_named_with_both_values() {
        let trainer = text(&[look(0, 1), look(7, 2), look(9, 3)]);
        let feeder = text(&[look(0, 1), look(7, 0xfe), look(9, 4)]);

        assert_eq!(trainer.split(' ').count(), 3);
        assert_eq!(difference(&trainer, &trainer), None);
        let (said, own) = difference(&trainer, &feeder).expect("they differ");
        assert_eq!(said, "record 7 is 0000000000000002");
        assert_eq!(own, "00000000000000fe");
    }

    #[test]
    fn a_group_that_differs_is_named_by_its_lowest_and_highest_record() {
        let group = |held| Look {
            last: 900,
            ..look(3, held)
        };

        let (trainer, feeder) = (text(&[look(3, 1), group(2)]), text(&[look(3, 1), group(5)]));

        assert_eq!(difference(&trainer, &trainer), None);
        let (said, own) = difference(&trainer, &feeder).expect("they differ");
        assert_eq!(said, "a sample of records 3 to 900 is 0000000000000002");
        assert_eq!(own, "0000000000000005");
    }

    #[test]
    fn records_that_one_side_did_not_read_are_ignored() {
        let trainer = text(&[look(0, 1), look(7, None), look(9, 3)]);
        let feeder = text(&[look(0, None), look(7, 2), look(8, 5)]);

        assert_eq!(difference(&trainer, &feeder), None);
        assert_eq!(difference(&trainer, ""), None, "nothing was looked at");
    }

    #[test]
    fn an_invalid_text_differs_from_a_valid_one() {
        for said in [
            "unknown",
            "7",
            "7:zz",
            "x:-",
            ":",
            "7..:0",
            "7:123456789abcdef01",
        ] {
            assert!(difference(said, "7:02").is_some(), "{said}");
        }
    }
}
