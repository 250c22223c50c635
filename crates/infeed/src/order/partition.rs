//! Positions to steps and rows, for one rank of many.
//!
//! Global batch *t* of an epoch is positions `t * global .. (t + 1) * global`; a rank takes its
//! contiguous part. Workers and timing do not enter.

/// How an epoch is cut into steps and a step among ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    len: u64,
    /// Rows of a global batch.
    global: u64,
    rank: u64,
    world_size: u64,
    drop_last: bool,
}

/// Why an epoch cannot be cut so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum PartitionError {
    #[error("a batch needs at least one row")]
    EmptyBatch,
    #[error("rank {rank} is not below the world size {world_size}")]
    Rank { rank: u64, world_size: u64 },
    #[error(
        "a global batch of {global} does not divide among {world_size} ranks; use .batch(per_rank=n)"
    )]
    Indivisible { global: u64, world_size: u64 },
    #[error(
        "{len} records do not fill one batch of {global}; lower the batch or leave out drop_last"
    )]
    TooFew { len: u64, global: u64 },
    #[error("the source has no records")]
    NoRecords,
    #[error(
        "the last batch of {len} records in batches of {global} is uneven among {world_size} ranks; \
         use drop_last=True"
    )]
    UnevenTail {
        len: u64,
        global: u64,
        world_size: u64,
    },
}

/// A row of a rank's batch, located in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// Epoch, from 0.
    pub epoch: u64,
    /// Step in the epoch, from 0.
    pub step: u64,
    /// Row in this rank's batch.
    pub row: usize,
    /// Position in the epoch's order, the same for every world size.
    pub position: u64,
}

impl Partition {
    /// Cuts `len` records into batches of `global` rows among `world_size` ranks.
    ///
    /// # Errors
    ///
    /// When a step would be uneven among ranks or there would be no step at all.
    pub fn new(
        len: u64,
        global: u64,
        rank: u64,
        world_size: u64,
        drop_last: bool,
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
        if drop_last && len < global {
            return Err(PartitionError::TooFew { len, global });
        }
        if !drop_last && world_size > 1 && !len.is_multiple_of(global) {
            return Err(PartitionError::UnevenTail {
                len,
                global,
                world_size,
            });
        }
        Ok(Partition {
            len,
            global,
            rank,
            world_size,
            drop_last,
        })
    }

    /// Steps of an epoch, the same on every rank.
    pub fn steps(&self) -> u64 {
        if self.drop_last {
            self.len / self.global
        } else {
            self.len.div_ceil(self.global)
        }
    }

    /// Rows of this rank's full batch.
    pub fn rows(&self) -> u64 {
        self.global / self.world_size
    }

    /// Rows of this rank's batch at a step.
    pub fn rows_at(&self, step: u64) -> u64 {
        let begin = step * self.global;
        self.rows().min(self.len - begin)
    }

    /// Rows this rank sees in an epoch.
    pub fn rows_an_epoch(&self) -> u64 {
        let full = self.len / self.global;
        let tail = if self.drop_last {
            0
        } else {
            self.len % self.global
        };
        // A tail exists on a single rank only.
        full * self.rows() + tail
    }

    /// Where a rank's `ticket`-th row, counted on across epochs, lies.
    pub fn spot(&self, ticket: u64) -> Spot {
        let epoch = ticket / self.rows_an_epoch();
        let within = ticket % self.rows_an_epoch();
        let step = within / self.rows();
        let row = within % self.rows();
        let position = step * self.global + self.rank * self.rows() + row;
        Spot {
            epoch,
            step,
            row: row as usize,
            position,
        }
    }

    /// The first ticket of a step.
    pub fn ticket(&self, epoch: u64, step: u64) -> u64 {
        epoch * self.rows_an_epoch() + step * self.rows()
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
                let part = Partition::new(26, 8, rank, world_size, true).expect("divides");
                assert_eq!(part.steps(), 3);
                seen.extend((0..part.rows_an_epoch()).map(|ticket| part.spot(ticket).position));
            }
            seen.sort_unstable();
            assert_eq!(seen, (0..24).collect::<Vec<_>>(), "world size {world_size}");
        }
    }

    #[test]
    fn tickets_go_on_across_the_seam_of_epochs_with_a_short_last_batch() {
        let part = Partition::new(7, 3, 0, 1, false).expect("one rank");

        let spots: Vec<_> = (0..14).map(|ticket| part.spot(ticket)).collect();

        assert_eq!(part.steps(), 3);
        assert_eq!(part.rows_at(2), 1);
        assert_eq!((spots[6].epoch, spots[6].step, spots[6].row), (0, 2, 0));
        assert_eq!(
            (spots[7].epoch, spots[7].step, spots[7].position),
            (1, 0, 0)
        );
        assert_eq!(part.ticket(1, 0), 7);
    }

    #[test]
    fn what_ranks_cannot_share_evenly_is_refused() {
        assert!(matches!(
            Partition::new(9, 4, 0, 3, true),
            Err(PartitionError::Indivisible { .. })
        ));
        assert!(matches!(
            Partition::new(9, 4, 0, 2, false),
            Err(PartitionError::UnevenTail { .. })
        ));
        assert!(matches!(
            Partition::new(3, 4, 0, 2, true),
            Err(PartitionError::TooFew { .. })
        ));
        assert!(matches!(
            Partition::new(9, 4, 2, 2, true),
            Err(PartitionError::Rank { .. })
        ));
    }
}
