//! Substitutes of bad records: a pure function of seed, epoch, position and attempt.

use super::sort::BatchSort;
use super::{Order, OrderKind};
use crate::random::hash;

/// Separates the key of substitutes from those of the order and of transforms.
const SUBSTITUTE: u64 = 2;

/// Number of records to draw for a substitute of the same group.
const DRAWS: u32 = 64;

impl Order {
    /// Returns the substitute for a bad record at `position`: the `attempt`-th element (from 1) of
    /// a sequence that belongs to seed, epoch and position. It may be any record, including the bad
    /// one; the next attempt then returns another. With groups of batches, it has the group of the
    /// record at `position`, if one is found.
    pub fn substitute(&self, epoch: u64, position: u64, attempt: u32) -> u64 {
        if let OrderKind::Similar(order, groups) = &self.how {
            return self.similar_substitute(order, groups, (epoch, position, attempt));
        }
        let key = [
            SUBSTITUTE,
            self.seed.unwrap_or(0),
            epoch,
            position,
            u64::from(attempt),
        ];
        let mut how = &self.how;
        while let OrderKind::Repeated(order, _) = how {
            how = &order.how;
        }
        match how {
            // A record of weight zero must not be used as a substitute.
            OrderKind::Weighted(weighted, _) => weighted.draw(hash(&key)),
            _ => ((u128::from(hash(&key)) * u128::from(self.records())) >> 64) as u64,
        }
    }

    /// Returns a substitute of the same group: one of many drawn ones, or another row of the batch.
    fn similar_substitute(
        &self,
        order: &Order,
        groups: &BatchSort,
        (epoch, position, attempt): (u64, u64, u32),
    ) -> u64 {
        let records = self.epoch(epoch);
        // A wrapped row has a position past the end, and the record of one from the beginning.
        let taken_from = position % self.len.max(1);
        let wanted = groups.group(records.get(taken_from));
        let draw = |draw| order.substitute(epoch, position, attempt.wrapping_mul(DRAWS) + draw);
        let mut drawn = (0..DRAWS).map(draw);
        drawn
            .find(|&record| groups.group(record) == wanted)
            .unwrap_or_else(|| {
                let batch = groups.batch_of(taken_from, self.len);
                let others = batch.end - batch.start;
                let other = (taken_from - batch.start + u64::from(attempt)) % others;
                records.get(batch.start + other)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn substitutes_stay_within_the_source_and_differ_by_attempt() {
        let order = Order::new(1000, Some(0));
        let drawn: Vec<u64> = (1..20)
            .map(|attempt| order.substitute(0, 5, attempt))
            .collect();

        assert!(drawn.iter().all(|&record| record < 1000));
        assert!(drawn.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
