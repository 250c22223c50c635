//! What some records of the data were found to hold, as each side tells it: records that one of them
//! could not read are not held against the other.

use std::fmt::Write;

/// Most records that a text may tell of.
const MOST: usize = 64;

/// Stands for what could not be read.
const UNKNOWN: &str = "-";

/// A record that was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Its number.
    pub record: u64,
    /// A hash of what it holds; None if it could not be read.
    pub held: Option<u64>,
}

/// All of them as a text.
pub fn text(looks: &[Look]) -> String {
    let mut text = String::new();
    for Look { record, held } in looks.iter().take(MOST) {
        // Writing to memory does not fail.
        let _ = match held {
            Some(held) => write!(text, "{record}:{held:016x} "),
            None => write!(text, "{record}:{UNKNOWN} "),
        };
    }
    text.truncate(text.trim_end().len());
    text
}

/// From a text; None if it is none.
fn looks(text: &str) -> Option<Vec<Look>> {
    let look = |word: &str| {
        let (record, held) = word.split_once(':')?;
        let held = match held {
            UNKNOWN => None,
            held => Some(u64::from_str_radix(held, 16).ok()?),
        };
        let record = record.parse().ok()?;
        Some(Look { record, held })
    };
    let words = text.split_ascii_whitespace();
    words.take(MOST).map(look).collect()
}

/// The first record that holds something else at the feeder, and what it holds on either side.
pub(super) fn difference(trainer: &str, feeder: &str) -> Option<(String, String)> {
    let (Some(theirs), Some(own)) = (looks(trainer), looks(feeder)) else {
        return Some((trainer.to_owned(), feeder.to_owned()));
    };
    own.into_iter().find_map(|look| {
        let said = theirs.iter().find(|said| said.record == look.record)?;
        let (said, held) = (said.held?, look.held?);
        let record = look.record;
        let differs = || {
            (
                format!("record {record} is {said:016x}"),
                format!("{held:016x}"),
            )
        };
        (said != held).then(differs)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(record: u64, held: impl Into<Option<u64>>) -> Look {
        let held = held.into();
        Look { record, held }
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
    fn a_record_that_one_side_did_not_read_is_held_against_nobody() {
        let trainer = text(&[look(0, 1), look(7, None), look(9, 3)]);
        let feeder = text(&[look(0, None), look(7, 2), look(8, 5)]);

        assert_eq!(difference(&trainer, &feeder), None);
        assert_eq!(difference(&trainer, ""), None, "nothing was looked at");
    }

    #[test]
    fn what_tells_of_no_records_differs_from_what_does() {
        for said in ["unknown", "7", "7:zz", "x:-", ":", "7:123456789abcdef01"] {
            assert!(difference(said, "7:02").is_some(), "{said}");
        }
    }
}
