//! Several sources mixed by weights: exact counts in every block of positions.
//!
//! An epoch is cut into blocks of [`BLOCK`] positions. Each block takes a fixed number from every
//! part (its weight's share, by largest remainder), in permuted order, and each part goes through
//! its own order from where the block before left it, on into its next epoch when it is through.
//! So a position needs no count of what came before it: everything is a function of seed, epoch
//! and position.

use super::permute::Permutation;
use crate::random::hash;

/// Positions in which the counts of all parts are exact.
pub const BLOCK: u64 = 10_000;

/// Keeps the key of a block's order apart from others.
const INTERLEAVE: u64 = 3;

/// Which part comes at which position.
#[derive(Clone, Debug)]
pub struct Mixture {
    len: u64,
    /// Positions of a full block that belong to each part, added up from the first.
    full: Vec<u64>,
    /// The same of the last block of an epoch, which may be short.
    tail: Vec<u64>,
}

impl Mixture {
    /// Mixes parts by their weights, all over zero; an epoch has `len` positions.
    pub fn new(weights: &[f64], len: u64) -> Mixture {
        Mixture {
            full: added_up(&shares(weights, BLOCK)),
            tail: added_up(&shares(weights, len % BLOCK)),
            len,
        }
    }

    /// Positions of an epoch.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether an epoch has no positions.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The part at a position of an epoch, and how many positions that part had before, in this
    /// epoch and all earlier ones.
    pub(super) fn at(&self, key: u64, epoch: u64, position: u64) -> (usize, u64) {
        let (block, within) = (position / BLOCK, position % BLOCK);
        let (sums, length) = match block == self.len / BLOCK {
            true => (&self.tail, self.len % BLOCK),
            false => (&self.full, BLOCK),
        };
        // Above the size of a stored shuffle, so that this is arithmetic; a short last block is
        // shuffled as part of a full one would be.
        let place = Permutation::walked(length, hash(&[INTERLEAVE, key, block])).get(within);
        let part = sums.partition_point(|&sum| sum <= place);
        let rank = place - part.checked_sub(1).map_or(0, |before| sums[before]);
        let each = self.len / BLOCK * of(&self.full, part) + of(&self.tail, part);
        (part, epoch * each + block * of(&self.full, part) + rank)
    }
}

/// What one entry adds to a running sum.
fn of(sums: &[u64], part: usize) -> u64 {
    sums[part] - part.checked_sub(1).map_or(0, |before| sums[before])
}

fn added_up(counts: &[u64]) -> Vec<u64> {
    let sums = counts.iter().scan(0, |sum, count| {
        *sum += count;
        Some(*sum)
    });
    sums.collect()
}

/// `total` shared out by weight: whole numbers whose sum is exact, each less than one away from its
/// share. Largest remainders get what is left, the first of equals.
pub fn shares(weights: &[f64], total: u64) -> Vec<u64> {
    let sum: f64 = weights.iter().sum();
    let exact: Vec<f64> = weights
        .iter()
        .map(|weight| weight / sum * total as f64)
        .collect();
    let mut counts: Vec<u64> = exact.iter().map(|share| share.floor() as u64).collect();
    let left = total.saturating_sub(counts.iter().sum());
    let mut by_rest: Vec<usize> = (0..weights.len()).collect();
    by_rest.sort_by(|&a, &b| {
        exact[b]
            .fract()
            .total_cmp(&exact[a].fract())
            .then(a.cmp(&b))
    });
    by_rest
        .into_iter()
        .cycle()
        .take(left as usize)
        .for_each(|part| counts[part] += 1);
    counts
}

#[cfg(test)]
mod tests {
    use super::super::{Order, Part};
    use super::*;

    fn mixture(parts: &[(u64, f64)], len: u64) -> Order {
        let part = |(at, &(records, weight)): (usize, &(u64, f64))| Part {
            order: Order::new(records, Some(at as u64)),
            weight,
        };
        let parts = parts.iter().enumerate().map(part).collect();
        Order::mixed(parts, len, Some(5))
    }

    fn records(order: &Order, epoch: u64) -> Vec<u64> {
        let permutation = order.epoch(epoch);
        (0..order.len())
            .map(|position| permutation.get(position))
            .collect()
    }

    #[test]
    fn every_block_holds_each_part_by_its_weight_exactly() {
        let order = mixture(&[(500, 0.7), (90, 0.25), (1, 0.05)], 23_000);
        let drawn = records(&order, 0);

        for block in drawn.chunks(BLOCK as usize) {
            let of = |range: std::ops::Range<u64>| {
                block.iter().filter(|record| range.contains(record)).count() as f64
            };
            let length = block.len() as f64;
            assert_eq!(of(0..500), 0.7 * length);
            assert_eq!(of(500..590), 0.25 * length);
            assert_eq!(of(590..591), 0.05 * length);
        }
    }

    #[test]
    fn a_part_goes_through_its_records_evenly_over_the_seams_of_epochs() {
        let order = mixture(&[(300, 1.0), (7, 2.0)], 100);
        let mut seen = vec![0_u32; 307];
        for epoch in 0..9 {
            for record in records(&order, epoch) {
                seen[record as usize] += 1;
            }
        }

        // 9 epochs take 33 each of the first part (297 of 300), 67 of the second (603 of 7).
        assert!(seen[..300].iter().all(|&n| n <= 1));
        assert_eq!(seen[..300].iter().sum::<u32>(), 297);
        assert!(
            seen[300..].iter().all(|&n| (86..=87).contains(&n)),
            "{seen:?}"
        );
    }

    #[test]
    fn the_same_seed_and_epoch_mix_the_same_and_others_differently() {
        let order = mixture(&[(300, 1.0), (70, 2.0)], 12_000);

        assert_eq!(
            records(&order, 2),
            records(&mixture(&[(300, 1.0), (70, 2.0)], 12_000), 2)
        );
        assert_ne!(records(&order, 2), records(&order, 3));
    }

    #[test]
    fn shares_add_up_and_are_less_than_one_away() {
        assert_eq!(shares(&[1.0, 1.0, 1.0], 100), [34, 33, 33]);
        assert_eq!(shares(&[0.7, 0.3], 10_000), [7000, 3000]);
        assert_eq!(shares(&[1e-9, 1.0], 5), [0, 5]);
    }
}
