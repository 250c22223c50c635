//! What was delivered, as a number that can be compared: a sum over rows of hashes.
//!
//! A row's hash covers epoch, position and record, and if asked the bytes that were delivered. It
//! is bound to its place, so a sum is enough: it does not depend on the order in which rows were
//! made, parts of a batch that ranks delivered can be added up, and so can steps.
//!
//! Source: Clarke, Devadas, van Dijk, Gassend, Suh, "Incremental Multiset Hash Functions and Their
//! Application to Memory Integrity Checking" (ASIACRYPT 2003) for sums of hashes; XXH3 for bytes.
//! No secret is in it: it tells runs apart that nobody made alike on purpose.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use twox_hash::XxHash3_64;

use crate::batch::{BatchRow, Cell};
use crate::error::Error;
use crate::random::hash;

/// Keep the hashes of records and of bytes apart from each other and from other uses.
const IDS: u64 = 0x6469_6765_7374_0001;
const PIXELS: u64 = 0x6469_6765_7374_0002;

/// What a digest covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Digested {
    /// Which record stood at which position of which epoch: a hash a row.
    #[default]
    Ids,
    /// The bytes of every row as well. Workers hash them, and the time counts as writing's.
    Pixels,
}

/// A sum over rows: 16 hexadecimal digits, and after a hyphen 16 more if bytes were hashed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest {
    /// Over records.
    pub ids: u64,
    /// Over records and their bytes; None if those were not hashed.
    pub pixels: Option<u64>,
}

impl Digest {
    /// The digest of no row.
    pub fn empty(of: Digested) -> Digest {
        Digest {
            ids: 0,
            pixels: (of == Digested::Pixels).then_some(0),
        }
    }

    /// The digest of one row. Its cells are looked at only if bytes are covered.
    pub(super) fn of_row(
        of: Digested,
        epoch: u64,
        position: u64,
        record: u64,
        row: &BatchRow,
    ) -> Digest {
        let pixels = || {
            let bytes = row.cells.iter().fold(PIXELS, |state, cell| match cell {
                Cell::Slab(row) => hash(&[state, XxHash3_64::oneshot(row.bytes())]),
                Cell::Own { shape, bytes } => {
                    let shape = shape.iter().map(|&length| length as u64);
                    let mut parts = vec![state, XxHash3_64::oneshot(bytes)];
                    parts.extend(shape);
                    hash(&parts)
                }
            });
            hash(&[PIXELS, epoch, position, record, bytes])
        };
        Digest {
            ids: hash(&[IDS, epoch, position, record]),
            pixels: (of == Digested::Pixels).then(pixels),
        }
    }

    /// Both together: of ranks, of steps. Bytes are covered if they are in both.
    #[must_use]
    pub fn plus(self, other: Digest) -> Digest {
        let pixels = self.pixels.zip(other.pixels);
        Digest {
            ids: self.ids.wrapping_add(other.ids),
            pixels: pixels.map(|(one, other)| one.wrapping_add(other)),
        }
    }

    /// What is left when bytes do not count.
    #[must_use]
    pub fn without_pixels(self) -> Digest {
        Digest {
            pixels: None,
            ..self
        }
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.ids)?;
        match self.pixels {
            Some(pixels) => write!(f, "-{pixels:016x}"),
            None => Ok(()),
        }
    }
}

impl FromStr for Digest {
    type Err = Error;

    fn from_str(text: &str) -> Result<Digest, Error> {
        let number = |text: &str| {
            let digits = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
            digits.then(|| u64::from_str_radix(text, 16).ok()).flatten()
        };
        let read = match text.split_once('-') {
            None => number(text).map(|ids| Digest { ids, pixels: None }),
            Some((ids, pixels)) => number(ids).zip(number(pixels)).map(|(ids, pixels)| Digest {
                ids,
                pixels: Some(pixels),
            }),
        };
        read.ok_or_else(|| {
            let problem = format!("{text:?} is none; give what digest() returned");
            Error::config("digest", problem)
        })
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Digest, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(shape: &[usize], bytes: &[u8]) -> BatchRow {
        BatchRow {
            cells: vec![Cell::Own {
                shape: shape.to_vec(),
                bytes: bytes.to_vec(),
            }],
            ..BatchRow::default()
        }
    }

    #[test]
    fn every_part_of_a_row_counts_and_the_order_of_adding_does_not() {
        let of = |epoch, position, record, row: &BatchRow| {
            Digest::of_row(Digested::Pixels, epoch, position, record, row)
        };
        let plain = of(1, 2, 3, &row(&[2], b"ab"));

        for other in [
            of(2, 2, 3, &row(&[2], b"ab")),
            of(1, 3, 3, &row(&[2], b"ab")),
            of(1, 2, 4, &row(&[2], b"ab")),
        ] {
            assert!(plain.ids != other.ids && plain.pixels != other.pixels);
        }
        for other in [
            of(1, 2, 3, &row(&[2], b"ac")),
            of(1, 2, 3, &row(&[2, 1], b"ab")),
        ] {
            assert_eq!(plain.ids, other.ids);
            assert_ne!(plain.pixels, other.pixels);
        }
        let (a, b) = (of(0, 0, 7, &row(&[1], b"a")), of(0, 1, 8, &row(&[1], b"b")));
        assert_eq!(a.plus(b), b.plus(a));
        let traded = of(0, 0, 8, &row(&[1], b"b")).plus(of(0, 1, 7, &row(&[1], b"a")));
        assert_ne!(a.plus(b), traded, "records that traded places");
        assert_ne!(a.plus(a), Digest::empty(Digested::Pixels), "a row twice");
    }

    #[test]
    fn a_digest_survives_being_written_and_others_are_refused() {
        for digest in [
            Digest {
                ids: 0x12,
                pixels: None,
            },
            Digest {
                ids: u64::MAX,
                pixels: Some(0),
            },
        ] {
            assert_eq!(
                digest.to_string().parse::<Digest>().expect("its own"),
                digest
            );
        }
        for wrong in ["", "12", "+00000000000000f", "0123456789abcdef-", "ids"] {
            let error = wrong.parse::<Digest>().expect_err("no digest").to_string();
            assert!(error.contains("what digest() returned"), "{error}");
        }
    }

    #[test]
    fn the_digest_of_a_row_never_changes() {
        let digest = Digest::of_row(Digested::Pixels, 1, 2, 3, &row(&[2], b"ab"));

        // Digests are compared between versions and machines.
        assert_eq!(digest.to_string(), "59defdbbc85760a9-e6769f3d99f125f1");
    }
}
