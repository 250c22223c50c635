//! Digests of delivered rows, for comparing runs: sums of row hashes.
//!
//! The hash of a row covers epoch, position and record, and on request the delivered bytes. Because
//! it includes the position, a plain sum suffices: the order in which rows were made does not
//! matter, and digests of ranks or steps can be added.
//!
//! Source: Clarke, Devadas, van Dijk, Gassend, Suh, "Incremental Multiset Hash Functions and Their
//! Application to Memory Integrity Checking" (ASIACRYPT 2003) for sums of hashes; XXH3 for bytes.
//! The hash has no key. It detects accidental differences, not deliberate collisions.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use twox_hash::XxHash3_64;

use crate::fields::scratch::Position;
use infeed_core::batch::{BatchRow, RowCell};
use infeed_core::error::Error;
use infeed_core::random::hash;

/// Separate the hashes of records and of bytes from each other and from other uses.
const IDS: u64 = 0x6469_6765_7374_0001;
const PIXELS: u64 = 0x6469_6765_7374_0002;

/// Content of a digest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DigestScope {
    /// Record at each position of each epoch: one hash per row.
    #[default]
    Ids,
    /// Also the bytes of every row. Workers hash them; the time counts as writing.
    Pixels,
}

/// Sum over rows. Its text is 16 hexadecimal digits, then a hyphen and 16 more if bytes were
/// hashed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest {
    /// Sum over records.
    pub ids: u64,
    /// Sum over records and their bytes; `None` if bytes were not hashed.
    pub pixels: Option<u64>,
}

/// Hash of the cells of a row, in column order.
pub(super) struct CellHash(u64);

impl CellHash {
    /// Returns the hash of a row.
    pub(super) fn of(row: &BatchRow) -> CellHash {
        row.cells
            .iter()
            .fold(CellHash(PIXELS), |sum, cell| match cell {
                RowCell::Slab(row) => sum.add(row.bytes()),
                RowCell::Own { shape, bytes } => {
                    let shape = shape.iter().map(|&length| length as u64);
                    let mut parts = vec![sum.0, XxHash3_64::oneshot(bytes)];
                    parts.extend(shape);
                    CellHash(hash(&parts))
                }
            })
    }

    /// Returns the hash of a row of a run, whose cells are all in slabs.
    pub(super) fn of_run(run: &BatchRow, row: usize, rows: usize) -> CellHash {
        let cells = run.cells.iter().filter_map(|cell| match cell {
            RowCell::Slab(run) => Some(run.bytes()),
            RowCell::Own { .. } => None,
        });
        cells.fold(CellHash(PIXELS), |sum, cell| {
            let size = cell.len() / rows;
            sum.add(&cell[row * size..(row + 1) * size])
        })
    }

    fn add(self, slab: &[u8]) -> CellHash {
        CellHash(hash(&[self.0, XxHash3_64::oneshot(slab)]))
    }
}

impl Digest {
    /// Returns the digest of no rows.
    pub fn empty(of: DigestScope) -> Digest {
        Digest {
            ids: 0,
            pixels: (of == DigestScope::Pixels).then_some(0),
        }
    }

    /// Returns the digest of one row: the record at a position. Calls `cells` for the hash of its
    /// cells only if the digest covers bytes.
    pub(super) fn of_row(
        of: DigestScope,
        at: Position,
        record: u64,
        cells: impl FnOnce() -> CellHash,
    ) -> Digest {
        let Position { epoch, position } = at;
        let pixels = || hash(&[PIXELS, epoch, position, record, cells().0]);
        Digest {
            ids: hash(&[IDS, epoch, position, record]),
            pixels: (of == DigestScope::Pixels).then(pixels),
        }
    }

    /// Adds two digests, of ranks or steps. The sum covers bytes if both do.
    #[must_use]
    pub fn plus(self, other: Digest) -> Digest {
        let pixels = self.pixels.zip(other.pixels);
        Digest {
            ids: self.ids.wrapping_add(other.ids),
            pixels: pixels.map(|(one, other)| one.wrapping_add(other)),
        }
    }

    /// Returns the digest without the sum over bytes.
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
            let problem = format!("{text:?} is not a digest; pass the result of digest()");
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
            cells: vec![RowCell::Own {
                shape: shape.to_vec(),
                bytes: bytes.to_vec(),
            }],
            ..BatchRow::default()
        }
    }

    #[test]
    fn every_part_of_a_row_counts_and_the_order_of_rows_does_not() {
        let of = |epoch, position, record, row: &BatchRow| {
            let at = Position { epoch, position };
            Digest::of_row(DigestScope::Pixels, at, record, || CellHash::of(row))
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
        assert_ne!(a.plus(a), Digest::empty(DigestScope::Pixels), "a row twice");
    }

    #[test]
    fn digests_round_trip_through_text_and_invalid_text_is_rejected() {
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
            assert!(error.contains("the result of digest()"), "{error}");
        }
    }

    #[test]
    fn the_digest_of_a_row_never_changes() {
        let (epoch, position) = (1, 2);
        let at = Position { epoch, position };
        let cells = || CellHash::of(&row(&[2], b"ab"));
        let digest = Digest::of_row(DigestScope::Pixels, at, 3, cells);

        // Digests are compared between versions and machines.
        assert_eq!(digest.to_string(), "59defdbbc85760a9-e6769f3d99f125f1");
    }
}
