//! Maps positions to steps and rows, for one rank of many.
//!
//! Global batch *t* of an epoch has the positions `t * global .. (t + 1) * global`. Each rank takes
//! a contiguous part of it. Workers and timing have no effect. [`Tail`] defines the content of an
//! incomplete last batch: except with `Keep`, every rank has as many rows in it as in any other
//! batch.

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    len: u64,
    /// Rows of a global batch.
    global: u64,
    rank: u64,
    world_size: u64,
    tail: Tail,
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
        if tail == Tail::Drop && len < global {
            return Err(PartitionError::TooFew { len, global });
        }
        if tail == Tail::Keep && world_size > 1 && !len.is_multiple_of(global) {
            return Err(PartitionError::UnevenTail {
                len,
                global,
                world_size,
            });
        }
        if len.checked_add(global).is_none() {
            return Err(PartitionError::TooMany { len, global });
        }
        Ok(Partition {
            len,
            global,
            rank,
            world_size,
            tail,
        })
    }

    /// Steps of an epoch, the same on every rank.
    pub fn steps(&self) -> u64 {
        match self.tail {
            Tail::Drop => self.len / self.global,
            Tail::Keep | Tail::Pad | Tail::Wrap => self.len.div_ceil(self.global),
        }
    }

    /// Rows of this rank's full batch.
    pub fn rows(&self) -> u64 {
        self.global / self.world_size
    }

    /// Rows of this rank's batch at a step.
    pub fn rows_at(&self, step: u64) -> u64 {
        match self.tail {
            Tail::Keep => self.rows().min(self.len - step * self.global),
            Tail::Drop | Tail::Pad | Tail::Wrap => self.rows(),
        }
    }

    /// Rows this rank sees in an epoch.
    pub fn rows_per_epoch(&self) -> u64 {
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
        let tail = self.len % self.global;
        self.tail == Tail::Pad && tail > 0 && tail <= self.global - self.rows()
    }

    /// Locates the row with sequence number `sequence` of this rank, counted across epochs.
    pub fn row_position(&self, sequence: u64) -> RowPosition {
        let epoch = sequence / self.rows_per_epoch();
        let within = sequence % self.rows_per_epoch();
        let step = within / self.rows();
        let row = within % self.rows();
        let position = step * self.global + self.rank * self.rows() + row;
        let taken_from = match self.tail {
            Tail::Pad if position >= self.len => None,
            Tail::Wrap => Some(position % self.len),
            Tail::Keep | Tail::Drop | Tail::Pad => Some(position),
        };
        RowPosition {
            epoch,
            step,
            row: row as usize,
            position,
            taken_from,
        }
    }

    /// Sequence number of the first row of a step.
    pub fn sequence(&self, epoch: u64, step: u64) -> u64 {
        epoch * self.rows_per_epoch() + step * self.rows()
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
    fn a_rank_without_a_record_in_the_last_batch_is_detected() {
        let empty = |len, world_size| {
            let part = Partition::new(len, 8, 0, world_size, Tail::Pad).expect("even");
            part.leaves_a_rank_empty()
        };

        assert!(empty(26, 4) && empty(30, 4) && empty(3, 2));
        assert!(!empty(31, 4) && !empty(24, 4) && !empty(5, 2) && !empty(1, 1));
    }
}
