//! Maps positions to steps and rows, for one rank of many.
//!
//! Global batch *t* of an epoch has the positions `t * global .. (t + 1) * global`. Each rank takes
//! a contiguous part of it. Workers and timing have no effect. [`Tail`] defines the content of an
//! incomplete last batch: except with `Keep`, every rank has as many rows in it as in any other
//! batch. Batches may also have different sizes, which are the same in every epoch.

use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Treatment of an incomplete last batch of an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tail {
    /// The batch is shorter. Rejected with several ranks, since they would have different numbers
    /// of rows.
    #[default]
    Keep,
    /// The batch is left out.
    Drop,
    /// The batch is filled with rows of zeros, for which nothing is read; the field `valid` of
    /// every batch marks the rows that hold a record.
    Pad,
    /// The batch is filled with the epoch's first records, which occur again. Their random draws
    /// belong to the positions that they fill, beyond the end, and therefore differ.
    Wrap,
}

impl Tail {
    /// Name in descriptions and messages.
    pub fn name(self) -> &'static str {
        match self {
            Tail::Keep => "keep",
            Tail::Drop => "drop",
            Tail::Pad => "pad",
            Tail::Wrap => "wrap",
        }
    }
}

/// Division of an epoch into steps, and of a step among ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    len: u64,
    /// Rows of the largest global batch.
    global: u64,
    rank: u64,
    world_size: u64,
    tail: Tail,
    /// One past the last position of each batch, if batches differ in size. It exceeds `len` if the
    /// last one is filled.
    ends: Option<Arc<[u64]>>,
}

/// Reason why an epoch cannot be divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum PartitionError {
    #[error("a batch needs at least one row")]
    EmptyBatch,
    #[error("rank {rank} is not below the world size {world_size}")]
    Rank { rank: u64, world_size: u64 },
    #[error(
        "a global batch of {global} cannot be divided evenly among {world_size} ranks; use \
         .batch(per_rank=n)"
    )]
    Indivisible { global: u64, world_size: u64 },
    #[error(
        "{len} records do not fill one batch of {global}; lower the batch size or omit drop_last"
    )]
    TooFew { len: u64, global: u64 },
    #[error("the source has no records")]
    NoRecords,
    #[error(
        "{len} records in batches of {global} exceed the limit of 2^64 positions; lower the batch \
         size"
    )]
    TooMany { len: u64, global: u64 },
    #[error(
        "the last batch of {len} records in batches of {global} is uneven among {world_size} ranks; \
         use drop_last=True, or fill it up with tail=\"pad\" or tail=\"wrap\""
    )]
    UnevenTail {
        len: u64,
        global: u64,
        world_size: u64,
    },
}

/// A row of a rank's batch, located in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowPosition {
    /// Epoch, from 0.
    pub epoch: u64,
    /// Step in the epoch, from 0.
    pub step: u64,
    /// Row in this rank's batch.
    pub row: usize,
    /// Position in the epoch, the same for every world size. In a filled last batch it exceeds the
    /// last one of the order. Random draws and substitutes belong to it.
    pub position: u64,
    /// Position of the order whose record fills the row. None: no record fills it.
    pub taken_from: Option<u64>,
}

/// Checks a division of `len` records, the last `rest` of which are in batches of `global` rows.
fn check(
    (len, rest): (u64, u64),
    global: u64,
    (rank, world_size): (u64, u64),
    tail: Tail,
) -> Result<(), PartitionError> {
    if global == 0 {
        return Err(PartitionError::EmptyBatch);
    }
    if rank >= world_size {
        return Err(PartitionError::Rank { rank, world_size });
    }
    if !global.is_multiple_of(world_size) {
        return Err(PartitionError::Indivisible { global, world_size });
    }
    if len == 0 {
        return Err(PartitionError::NoRecords);
    }
    if tail == Tail::Drop && len == rest && len < global {
        return Err(PartitionError::TooFew { len, global });
    }
    if tail == Tail::Keep && world_size > 1 && !rest.is_multiple_of(global) {
        return Err(PartitionError::UnevenTail {
            len,
            global,
            world_size,
        });
    }
    if len.checked_add(global).is_none() {
        return Err(PartitionError::TooMany { len, global });
    }
    Ok(())
}

impl Partition {
    /// Divides `len` records into batches of `global` rows among `world_size` ranks.
    ///
    /// # Errors
    ///
    /// If a step would be uneven among ranks, or there would be no step.
    pub fn new(
        len: u64,
        global: u64,
        rank: u64,
        world_size: u64,
        tail: Tail,
    ) -> Result<Partition, PartitionError> {
        check((len, len), global, (rank, world_size), tail)?;
        Ok(Partition {
            len,
            global,
            rank,
            world_size,
            tail,
            ends: None,
        })
    }

    /// Divides `len` records into batches that end at these positions. The records after them are an
    /// incomplete last batch of at most `last` rows.
    ///
    /// # Errors
    ///
    /// As [`Partition::new`].
    pub fn of_sizes(
        len: u64,
        ends: Arc<[u64]>,
        last: u64,
        (rank, world_size): (u64, u64),
        tail: Tail,
    ) -> Result<Partition, PartitionError> {
        let full = ends.last().copied().unwrap_or(0);
        check((len, len - full), last, (rank, world_size), tail)?;
        let ends: Arc<[u64]> = match (len - full, tail) {
            (0, _) | (_, Tail::Drop) => ends,
            (_, Tail::Keep) => ends.iter().copied().chain([len]).collect(),
            (_, Tail::Pad | Tail::Wrap) => ends.iter().copied().chain([full + last]).collect(),
        };
        let mut partition = Partition {
            len,
            global: last,
            rank,
            world_size,
            tail,
            ends: Some(ends),
        };
        let spans = (0..partition.steps()).map(|step| partition.span(step));
        let sizes: Vec<u64> = spans.map(|span| span.end - span.start).collect();
        // A last batch that is kept has any size, but only with one rank.
        if let Some(&global) = sizes.iter().find(|size| !size.is_multiple_of(world_size)) {
            return Err(PartitionError::Indivisible { global, world_size });
        }
        partition.global = sizes.into_iter().max().unwrap_or(last);
        Ok(partition)
    }

    /// Returns the same division for another rank.
    ///
    /// # Errors
    ///
    /// If there is no such rank.
    pub fn of_rank(&self, rank: u64) -> Result<Partition, PartitionError> {
        let world_size = self.world_size;
        match rank < world_size {
            true => Ok(Partition {
                rank,
                ..self.clone()
            }),
            false => Err(PartitionError::Rank { rank, world_size }),
        }
    }

    /// Returns the positions of a global batch. They exceed those of the epoch if the batch is
    /// filled.
    fn span(&self, step: u64) -> Range<u64> {
        let Some(ends) = &self.ends else {
            let begin = step * self.global;
            let end = begin + self.global;
            return match self.tail {
                Tail::Keep => begin..end.min(self.len),
                Tail::Drop | Tail::Pad | Tail::Wrap => begin..end,
            };
        };
        let step = step as usize;
        let begin = step.checked_sub(1).map_or(0, |before| ends[before]);
        begin..ends[step]
    }

    /// Rows of the largest global batch.
    pub fn global(&self) -> u64 {
        self.global
    }

    /// Whether all batches, except a last one, have the same number of rows.
    pub fn has_equal_batches(&self) -> bool {
        self.ends.is_none()
    }

    /// Returns the position of the first row of a global batch.
    pub fn begin(&self, step: u64) -> u64 {
        match &self.ends {
            None => step * self.global,
            Some(_) => self.span(step).start,
        }
    }

    /// Returns the step whose global batch has this position.
    pub fn step_at(&self, position: u64) -> u64 {
        match &self.ends {
            None => position / self.global,
            Some(ends) => ends.partition_point(|&end| end <= position) as u64,
        }
    }

    /// Returns the rows of a batch of this rank that are not `fitting`, if there is such a batch.
    pub fn rows_unless(&self, fitting: impl Fn(u64) -> bool) -> Option<u64> {
        let steps = match self.ends {
            // Only the last batch can differ.
            None => [0, self.steps().saturating_sub(1)].to_vec(),
            Some(_) => (0..self.steps()).collect(),
        };
        let mut rows = steps.into_iter().map(|step| self.rows_at(step));
        rows.find(|&rows| !fitting(rows))
    }

    /// Steps of an epoch, the same on every rank.
    pub fn steps(&self) -> u64 {
        if let Some(ends) = &self.ends {
            return ends.len() as u64;
        }
        match self.tail {
            Tail::Drop => self.len / self.global,
            Tail::Keep | Tail::Pad | Tail::Wrap => self.len.div_ceil(self.global),
        }
    }

    /// Rows of this rank's largest batch.
    pub fn rows(&self) -> u64 {
        self.global / self.world_size
    }

    /// Rows of this rank's batch at a step.
    pub fn rows_at(&self, step: u64) -> u64 {
        let span = self.span(step);
        // A short last batch exists only with a single rank.
        (span.end - span.start) / self.world_size
    }

    /// Rows this rank sees in an epoch.
    pub fn rows_per_epoch(&self) -> u64 {
        if let Some(ends) = &self.ends {
            return ends.last().copied().unwrap_or(0) / self.world_size;
        }
        match self.tail {
            // A short last batch exists only with a single rank.
            Tail::Keep => self.len / self.global * self.rows() + self.len % self.global,
            Tail::Drop | Tail::Pad | Tail::Wrap => self.steps() * self.rows(),
        }
    }

    /// Treatment of the last batch.
    pub fn tail(&self) -> Tail {
        self.tail
    }

    /// Whether the last batch of any rank holds no record.
    pub fn leaves_a_rank_empty(&self) -> bool {
        let last = self.span(self.steps().saturating_sub(1));
        let (records, size) = (self.len.min(last.end) - last.start, last.end - last.start);
        self.tail == Tail::Pad && records <= size - size / self.world_size
    }

    /// Locates the row with sequence number `sequence` of this rank, counted across epochs.
    pub fn row_position(&self, sequence: u64) -> RowPosition {
        let epoch = sequence / self.rows_per_epoch();
        let within = sequence % self.rows_per_epoch();
        let (step, row, position) = match &self.ends {
            None => {
                let (step, row) = (within / self.rows(), within % self.rows());
                let position = step * self.global + self.rank * self.rows() + row;
                (step, row, position)
            }
            Some(ends) => {
                let step = ends.partition_point(|end| end / self.world_size <= within) as u64;
                let begin = self.begin(step);
                let row = within - begin / self.world_size;
                (step, row, begin + self.rank * self.rows_at(step) + row)
            }
        };
        RowPosition {
            epoch,
            step,
            row: row as usize,
            position,
            taken_from: self.taken_from(position),
        }
    }

    /// Returns the position of the order whose record fills the row at a position; `None` if the row
    /// is padding. Padding follows all records of a batch.
    pub fn taken_from(&self, position: u64) -> Option<u64> {
        match self.tail {
            Tail::Pad if position >= self.len => None,
            Tail::Wrap => Some(position % self.len),
            Tail::Keep | Tail::Drop | Tail::Pad => Some(position),
        }
    }

    /// Sequence number of the first row of a step.
    pub fn sequence(&self, epoch: u64, step: u64) -> u64 {
        let rows = match &self.ends {
            None => step * self.rows(),
            Some(_) => self.begin(step) / self.world_size,
        };
        epoch * self.rows_per_epoch() + rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_together_see_every_position_of_the_global_batch_once() {
        for world_size in [1, 2, 4] {
            let mut seen: Vec<u64> = Vec::new();
            for rank in 0..world_size {
                let part = Partition::new(26, 8, rank, world_size, Tail::Drop).expect("divides");
                assert_eq!(part.steps(), 3);
                seen.extend(
                    (0..part.rows_per_epoch()).map(|sequence| part.row_position(sequence).position),
                );
            }
            seen.sort_unstable();
            assert_eq!(seen, (0..24).collect::<Vec<_>>(), "world size {world_size}");
        }
    }

    #[test]
    fn sequence_numbers_continue_across_epochs_with_a_short_last_batch() {
        let part = Partition::new(7, 3, 0, 1, Tail::Keep).expect("one rank");

        let row_positions: Vec<_> = (0..14)
            .map(|sequence| part.row_position(sequence))
            .collect();

        assert_eq!(part.steps(), 3);
        assert_eq!(part.rows_at(2), 1);
        assert_eq!(
            (
                row_positions[6].epoch,
                row_positions[6].step,
                row_positions[6].row
            ),
            (0, 2, 0)
        );
        assert_eq!(
            (
                row_positions[7].epoch,
                row_positions[7].step,
                row_positions[7].position
            ),
            (1, 0, 0)
        );
        assert_eq!(part.sequence(1, 0), 7);
    }

    #[test]
    fn uneven_batches_are_rejected() {
        assert!(matches!(
            Partition::new(9, 4, 0, 3, Tail::Drop),
            Err(PartitionError::Indivisible { .. })
        ));
        assert!(matches!(
            Partition::new(9, 4, 0, 2, Tail::Keep),
            Err(PartitionError::UnevenTail { .. })
        ));
        assert!(matches!(
            Partition::new(3, 4, 0, 2, Tail::Drop),
            Err(PartitionError::TooFew { .. })
        ));
        assert!(matches!(
            Partition::new(9, 4, 2, 2, Tail::Drop),
            Err(PartitionError::Rank { .. })
        ));
    }

    /// Position and source position of every row of an epoch, in the order of the global batches.
    fn epoch(len: u64, global: u64, world_size: u64, tail: Tail) -> Vec<(u64, Option<u64>)> {
        let ranks: Vec<Partition> = (0..world_size)
            .map(|rank| Partition::new(len, global, rank, world_size, tail).expect("even"))
            .collect();
        let mut rows = Vec::new();
        for step in 0..ranks[0].steps() {
            for part in &ranks {
                assert_eq!(part.steps(), ranks[0].steps(), "equal steps");
                let first = part.sequence(3, step);
                for row in 0..part.rows_at(step) {
                    let row_position = part.row_position(first + row);
                    assert_eq!(
                        (
                            row_position.epoch,
                            row_position.step,
                            row_position.row as u64
                        ),
                        (3, step, row)
                    );
                    rows.push((row_position.position, row_position.taken_from));
                }
            }
        }
        rows
    }

    #[test]
    fn a_tail_is_filled_up_the_same_for_every_world_size() {
        for (len, global) in [(26, 8), (24, 8), (3, 8), (1, 8), (25, 4)] {
            for tail in [Tail::Pad, Tail::Wrap] {
                let whole = epoch(len, global, 1, tail);
                assert_eq!(whole.len() as u64, len.div_ceil(global) * global);
                for (at, (position, taken_from)) in whole.iter().enumerate() {
                    let at = at as u64;
                    let wanted = match tail {
                        Tail::Wrap => Some(at % len),
                        _ => Some(at).filter(|&at| at < len),
                    };
                    assert_eq!((*position, *taken_from), (at, wanted), "{tail:?} of {len}");
                }
                for world_size in [2, 4] {
                    assert_eq!(epoch(len, global, world_size, tail), whole);
                }
            }
        }
    }

    #[test]
    fn batches_of_different_sizes_are_divided_like_equal_ones() {
        let ends = |sizes: &[u64]| -> Arc<[u64]> {
            let sizes = sizes.iter();
            sizes
                .scan(0, |sum, size| {
                    *sum += size;
                    Some(*sum)
                })
                .collect()
        };
        for (len, sizes, last, tail, rows) in [
            (26, &[4, 12, 8][..], 4, Tail::Wrap, &[4, 12, 8, 4][..]),
            (26, &[4, 12, 8], 4, Tail::Pad, &[4, 12, 8, 4]),
            (26, &[4, 12, 8], 4, Tail::Drop, &[4, 12, 8]),
            (24, &[4, 12, 8], 4, Tail::Keep, &[4, 12, 8]),
            (3, &[], 4, Tail::Pad, &[4]),
        ] {
            for world_size in [1, 2, 4] {
                let mut positions = Vec::new();
                for step in 0..rows.len() as u64 {
                    for rank in 0..world_size {
                        let shares = (rank, world_size);
                        let part = Partition::of_sizes(len, ends(sizes), last, shares, tail);
                        let part = part.expect("divides");
                        assert_eq!(part.steps(), rows.len() as u64);
                        assert_eq!(part.rows_at(step), rows[step as usize] / world_size);
                        let first = part.sequence(3, step);
                        for row in 0..part.rows_at(step) {
                            let found = part.row_position(first + row);
                            assert_eq!((found.epoch, found.step), (3, step));
                            assert_eq!(found.row as u64, row);
                            assert_eq!(part.step_at(found.position), step);
                            let taken_from = match tail {
                                Tail::Pad => Some(found.position).filter(|&at| at < len),
                                _ => Some(found.position % len),
                            };
                            assert_eq!(found.taken_from, taken_from);
                            positions.push(found.position);
                        }
                        assert_eq!(part.of_rank(0).expect("a rank").rows(), part.rows());
                    }
                }
                assert!(
                    positions.iter().copied().eq(0..rows.iter().sum()),
                    "{tail:?}"
                );
            }
        }
        let of = |len, sizes: &[u64], world_size, tail| {
            Partition::of_sizes(len, ends(sizes), 4, (0, world_size), tail)
        };
        let short = of(26, &[4, 12, 8], 1, Tail::Keep).expect("one rank");
        assert_eq!((short.steps(), short.rows_at(3), short.rows()), (4, 2, 12));
        assert_eq!(short.rows_unless(|rows| rows.is_multiple_of(4)), Some(2));
        assert_eq!(short.rows_unless(|rows| rows < 13), None);
        assert!(matches!(
            of(26, &[4, 12, 8], 2, Tail::Keep),
            Err(PartitionError::UnevenTail { .. })
        ));
        assert!(matches!(
            of(27, &[4, 11, 8], 4, Tail::Drop),
            Err(PartitionError::Indivisible { global: 11, .. })
        ));
        assert!(matches!(
            of(3, &[], 1, Tail::Drop),
            Err(PartitionError::TooFew { len: 3, global: 4 })
        ));
        let empty = |len, world_size| {
            let part = of(len, &[4, 12, 8], world_size, Tail::Pad);
            part.expect("divides").leaves_a_rank_empty()
        };
        assert!(empty(26, 2) && empty(25, 4));
        assert!(!empty(27, 2) && !empty(24, 2) && !empty(25, 1));
    }

    #[test]
    fn a_rank_without_a_record_in_the_last_batch_is_detected() {
        let empty = |len, world_size| {
            let part = Partition::new(len, 8, 0, world_size, Tail::Pad).expect("even");
            part.leaves_a_rank_empty()
        };

        assert!(empty(26, 4) && empty(30, 4) && empty(3, 2));
        assert!(!empty(31, 4) && !empty(24, 4) && !empty(5, 2) && !empty(1, 1));
    }
}
