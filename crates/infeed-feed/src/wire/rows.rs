//! Rows of a batch: a head that describes each row, and the columns.
//!
//! The head is a frame. A column is the concatenated bytes of its rows, followed by their CRC-32C.
//! The pipeline determines its length; if rows differ in size, the head does. The trainer reads
//! columns directly into rows of its slabs.

use super::bytes::{Put, Take};
use super::error::WireError;
use super::note::Note;
use infeed::loader::digest::DigestScope;
use infeed::loader::remote::RunDescription;
use infeed_core::batch::{ColumnKind, ColumnSpec};

/// Maximum length of a head in bytes.
pub const HEAD_BYTES: u32 = 32 << 20;

/// Maximum number of bad records per row: two records with all their substitutes.
const NOTES: u8 = 130;

const KEPT: u8 = 1;
const NOTED: u8 = 2;

/// Row format of one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnLayout {
    /// Rows of equal size, in a slab.
    Slab {
        /// Bytes of a row.
        row_bytes: usize,
    },
    /// Rows that differ in size. If they are padded, the head contains their axes.
    Own {
        /// Number of axes if rows are padded.
        rank: Option<usize>,
        /// Bytes of one element.
        element: usize,
    },
}

/// Format of the rows of a batch, known before they arrive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowsLayout {
    /// Columns of the batch.
    pub columns: Vec<ColumnLayout>,
    /// Whether the feeder hashed the rows.
    pub pixels: bool,
    /// Maximum bytes of a row outside slabs.
    pub row_bytes: u64,
}

/// Description of a batch's rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowsHead {
    /// Epoch of the batch.
    pub epoch: u64,
    /// Step of the batch.
    pub step: u64,
    /// Rows of the batch.
    pub rows: Vec<RowHead>,
}

/// Description of one row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowHead {
    /// `None` if the row is skipped.
    pub kept: Option<KeptRow>,
    /// Bad records met for this row.
    pub notes: Vec<Note>,
}

/// A row whose bytes follow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptRow {
    /// Number of its record.
    pub record: u64,
    /// Hash of epoch, position and record.
    pub ids: u64,
    /// Hash that also covers the row's bytes; `None` if they were not hashed.
    pub pixels: Option<u64>,
    /// Pixels of unknown class in the masks of its samples.
    pub unknown_pixels: u64,
    /// Shape and byte length in each column whose rows differ in size, in order.
    pub own: Vec<(Vec<u64>, u64)>,
}

impl RowsLayout {
    /// Returns the layout of a run's rows.
    pub fn of(run: &RunDescription, digested: DigestScope) -> RowsLayout {
        let column = |spec: &ColumnSpec| match &spec.kind {
            ColumnKind::Fixed { dtype, shape } => ColumnLayout::Slab {
                row_bytes: shape.iter().product::<usize>() * dtype.bytes(),
            },
            ColumnKind::Padded { dtype, rank } => ColumnLayout::Own {
                rank: Some(*rank),
                element: dtype.bytes(),
            },
            ColumnKind::Ragged { dtype, .. } => ColumnLayout::Own {
                rank: None,
                element: dtype.bytes(),
            },
            ColumnKind::Bytes | ColumnKind::Text => ColumnLayout::Own {
                rank: None,
                element: 1,
            },
        };
        RowsLayout {
            columns: run.columns.iter().map(column).collect(),
            pixels: digested == DigestScope::Pixels,
            row_bytes: run.rules.limits.row,
        }
    }

    fn own(&self) -> impl Iterator<Item = (Option<usize>, usize)> {
        self.columns.iter().filter_map(|column| match *column {
            ColumnLayout::Slab { .. } => None,
            ColumnLayout::Own { rank, element } => Some((rank, element)),
        })
    }
}

impl RowsHead {
    /// Encodes the body of the frame.
    pub fn encode(&self, layout: &RowsLayout) -> Vec<u8> {
        let mut put = Put::default();
        put.u64(self.epoch).u64(self.step);
        put.u32(self.rows.len() as u32);
        for row in &self.rows {
            let notes = row.notes.len().min(NOTES.into());
            let mut flags = 0;
            flags |= if row.kept.is_some() { KEPT } else { 0 };
            flags |= if notes > 0 { NOTED } else { 0 };
            put.u8(flags);
            if let Some(kept) = &row.kept {
                put.u64(kept.record).u64(kept.ids);
                if layout.pixels {
                    put.u64(kept.pixels.unwrap_or(0));
                }
                put.u64(kept.unknown_pixels);
                for ((rank, _), (shape, bytes)) in layout.own().zip(&kept.own) {
                    if rank.is_some() {
                        put.u8(shape.len() as u8);
                        for &length in shape {
                            put.u64(length);
                        }
                    }
                    put.u64(*bytes);
                }
            }
            if notes > 0 {
                put.u8(notes as u8);
                for note in &row.notes[..notes] {
                    note.encode(&mut put);
                }
            }
        }
        put.finish()
    }

    /// Decodes the body of a frame, for a batch of `rows` rows.
    ///
    /// # Errors
    ///
    /// If the body does not fit such a batch, or a row exceeds its limit.
    pub fn decode(bytes: &[u8], layout: &RowsLayout, rows: usize) -> Result<RowsHead, WireError> {
        let mut take = Take::new(bytes, "rows");
        let (epoch, step) = (take.u64()?, take.u64()?);
        let count = take.u32()? as usize;
        if count != rows {
            let what = format!("{count} rows instead of {rows}");
            return Err(WireError::malformed(what));
        }
        // A row takes at least one byte, so the capacity is at most the number of received bytes.
        let mut all = Vec::with_capacity(rows.min(bytes.len()));
        for _ in 0..rows {
            all.push(row(&mut take, layout)?);
        }
        take.end()?;
        Ok(RowsHead {
            epoch,
            step,
            rows: all,
        })
    }

    /// Reads only epoch and step from the beginning of a body.
    ///
    /// # Errors
    ///
    /// If the body is too short.
    pub fn name(bytes: &[u8]) -> Result<(u64, u64), WireError> {
        let mut take = Take::new(bytes, "rows");
        Ok((take.u64()?, take.u64()?))
    }
}

fn row(take: &mut Take<'_>, layout: &RowsLayout) -> Result<RowHead, WireError> {
    let flags = take.u8()?;
    if flags & !(KEPT | NOTED) != 0 {
        return Err(WireError::malformed("a row with unknown flags"));
    }
    let mut found = RowHead::default();
    if flags & KEPT != 0 {
        let mut kept = KeptRow {
            record: take.u64()?,
            ids: take.u64()?,
            pixels: None,
            unknown_pixels: 0,
            own: Vec::new(),
        };
        if layout.pixels {
            kept.pixels = Some(take.u64()?);
        }
        kept.unknown_pixels = take.u64()?;
        let mut left = layout.row_bytes;
        for (rank, element) in layout.own() {
            let own = cell(take, rank, element)?;
            left = left.checked_sub(own.1).ok_or_else(|| {
                let limit = layout.row_bytes;
                WireError::malformed(format!("a row over the limit of {limit} bytes"))
            })?;
            kept.own.push(own);
        }
        found.kept = Some(kept);
    }
    if flags & NOTED != 0 {
        let count = take.u8()?;
        if count > NOTES {
            let what = format!("a row with {count} bad records");
            return Err(WireError::malformed(what));
        }
        for _ in 0..count {
            found.notes.push(Note::decode(take)?);
        }
    }
    Ok(found)
}

/// Reads shape and byte length of a row in a column whose rows differ in size.
fn cell(
    take: &mut Take<'_>,
    rank: Option<usize>,
    element: usize,
) -> Result<(Vec<u64>, u64), WireError> {
    let mut shape = Vec::new();
    if let Some(rank) = rank {
        let axes = usize::from(take.u8()?);
        // A padding row has no shape.
        if axes != rank && axes != 0 {
            let what = format!("a row with {axes} axes instead of {rank}");
            return Err(WireError::malformed(what));
        }
        for _ in 0..axes {
            shape.push(take.u64()?);
        }
    }
    let bytes = take.u64()?;
    let fits = match (rank, shape.is_empty()) {
        (Some(1..), true) => bytes == 0,
        (Some(_), _) => {
            let product = shape.iter().try_fold(element as u64, |product, &length| {
                product.checked_mul(length)
            });
            product == Some(bytes)
        }
        (None, _) => bytes.is_multiple_of(element.max(1) as u64),
    };
    match fits {
        true => Ok((shape, bytes)),
        false => Err(WireError::malformed(format!(
            "a row of {bytes} bytes with shape {shape:?}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::note::Reason;

    fn layout() -> RowsLayout {
        RowsLayout {
            columns: vec![
                ColumnLayout::Slab { row_bytes: 12 },
                ColumnLayout::Own {
                    rank: Some(2),
                    element: 4,
                },
                ColumnLayout::Own {
                    rank: None,
                    element: 2,
                },
            ],
            pixels: true,
            row_bytes: 100,
        }
    }

    fn head() -> RowsHead {
        let kept = |record, shape: Vec<u64>, bytes, list| KeptRow {
            record,
            ids: record.wrapping_mul(3),
            pixels: Some(record.wrapping_mul(5)),
            unknown_pixels: record.wrapping_mul(7),
            own: vec![(shape, bytes), (Vec::new(), list)],
        };
        let note = Note {
            record: 9,
            field: Some(1),
            reason: Reason::Decode {
                field: "image".to_owned(),
                cause: "it is cut".to_owned(),
            },
        };
        RowsHead {
            epoch: 3,
            step: 4,
            rows: vec![
                RowHead {
                    kept: Some(kept(7, vec![3, 5], 60, 8)),
                    notes: vec![note.clone()],
                },
                RowHead {
                    kept: None,
                    notes: vec![note],
                },
                RowHead {
                    kept: Some(kept(u64::MAX, vec![], 0, 0)),
                    notes: Vec::new(),
                },
            ],
        }
    }

    #[test]
    fn a_head_round_trips_only_for_a_batch_of_equal_size() {
        let bytes = head().encode(&layout());

        assert_eq!(
            RowsHead::decode(&bytes, &layout(), 3).expect("whole"),
            head()
        );
        assert_eq!(RowsHead::name(&bytes).expect("whole"), (3, 4));
        assert!(RowsHead::decode(&bytes, &layout(), 4).is_err());
        assert!(RowsHead::decode(&bytes[..bytes.len() - 1], &layout(), 3).is_err());
    }

    #[test]
    fn rows_over_their_limit_or_unlike_their_shape_are_rejected() {
        let refused = |change: &dyn Fn(&mut KeptRow)| {
            let mut head = head();
            change(head.rows[0].kept.as_mut().expect("it is kept"));
            let bytes = head.encode(&layout());
            let error = RowsHead::decode(&bytes, &layout(), 3).expect_err("wrong");
            error.to_string()
        };

        let large = refused(&|row| row.own[0] = (vec![6, 5], 120));
        assert!(large.contains("over the limit of 100 bytes"), "{large}");
        let unlike = refused(&|row| row.own[0].1 = 56);
        assert!(unlike.contains("[3, 5]"), "{unlike}");
        let overflow = refused(&|row| row.own[0] = (vec![u64::MAX, 2], 60));
        assert!(overflow.contains("with shape"), "{overflow}");
        let axes = refused(&|row| row.own[0] = (vec![15], 60));
        assert!(axes.contains("1 axes"), "{axes}");
        let odd = refused(&|row| row.own[1].1 = 7);
        assert!(odd.contains("7 bytes"), "{odd}");
    }

    #[test]
    fn no_bytes_make_the_parser_panic() {
        let whole = head().encode(&layout());
        for bit in 0..whole.len() * 8 {
            let mut changed = whole.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let _ = RowsHead::decode(&changed, &layout(), 3);
        }
        let mut state = 1;
        for len in 0..300 {
            let random: Vec<u8> = (0..len)
                .map(|_| {
                    state = infeed_core::random::mix(state);
                    state as u8
                })
                .collect();
            let _ = RowsHead::decode(&random, &layout(), 1);
        }
    }
}
