//! Mixes several sources by weights, with exact counts in every block of positions.
//!
//! An epoch is divided into blocks of [`BLOCK`] positions. Each block takes a fixed number of
//! positions from every part (its weight's share, by largest remainder). The seed determines a cycle
//! of parts, and each block begins at a random place of the cycle. Each part continues in its own
//! order across blocks and epochs, and begins its next epoch when one ends. A position therefore
//! needs no count of earlier positions: everything is a function of seed, epoch and position.

use super::permute::Permutation;
use crate::random::hash;

/// Number of positions in which the counts of all parts are exact.
pub const BLOCK: u64 = 10_000;

/// Separates the key of a block's order from other keys.
const INTERLEAVE: u64 = 3;

/// Part at each position.
#[derive(Clone, Debug)]
pub struct Mixture {
    len: u64,
    /// Parts of a full block.
    full: PartCycle,
    /// Parts of the last block of an epoch, which may be shorter.
    tail: PartCycle,
}

impl Mixture {
    /// Mixes parts by their positive weights; an epoch has `len` positions. `seed` determines the
    /// cycle of parts.
    pub fn new(weights: &[f64], len: u64, seed: u64) -> Mixture {
        let cycle = |length| PartCycle::new(&shares(weights, length), hash(&[INTERLEAVE, seed]));
        Mixture {
            full: cycle(BLOCK),
            tail: cycle(len % BLOCK),
            len,
        }
    }

    /// Number of positions of an epoch.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether an epoch has no positions.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the part at a position of an epoch, and the number of positions that the part had
    /// before, in this epoch and all earlier ones.
    pub(super) fn at(&self, key: u64, epoch: u64, position: u64) -> (usize, u64) {
        let (block, within) = (position / BLOCK, position % BLOCK);
        let cycle = match block == self.len / BLOCK {
            true => &self.tail,
            false => &self.full,
        };
        let (part, before) = cycle.at(hash(&[INTERLEAVE, key, block]), within);
        let in_block = self.full.count(part);
        let in_epoch = self.len / BLOCK * in_block + self.tail.count(part);
        (part, epoch * in_epoch + block * in_block + before)
    }
}

/// Parts in a random order, which may begin at any place.
#[derive(Clone)]
struct PartCycle {
    /// Part at each place, and the number of earlier places of this part.
    each: Vec<(u32, u32)>,
    /// Places of each part, sorted.
    places: Vec<Vec<u32>>,
}

impl PartCycle {
    /// Orders `counts[part]` places of each part.
    fn new(counts: &[u64], key: u64) -> PartCycle {
        let sums: Vec<u64> = counts
            .iter()
            .scan(0, |sum, count| {
                *sum += count;
                Some(*sum)
            })
            .collect();
        let length = sums.last().copied().unwrap_or(0);
        let order = Permutation::feistel(length, key);
        let mut cycle = PartCycle {
            each: Vec::with_capacity(length as usize),
            places: vec![Vec::new(); counts.len()],
        };
        for place in 0..length {
            let drawn = order.get(place);
            let part = sums.partition_point(|&sum| sum <= drawn);
            let places = &mut cycle.places[part];
            cycle.each.push((part as u32, places.len() as u32));
            places.push(place as u32);
        }
        cycle
    }

    /// Number of places of a part.
    fn count(&self, part: usize) -> u64 {
        self.places[part].len() as u64
    }

    /// Returns the part at a position of the cycle that begins at a place drawn by `key`, and the
    /// number of earlier positions of this part.
    fn at(&self, key: u64, position: u64) -> (usize, u64) {
        let length = self.each.len() as u64;
        let begin = key % length;
        let (part, rank) = self.each[((begin + position) % length) as usize];
        let part = part as usize;
        let skipped = self.places[part].partition_point(|&place| u64::from(place) < begin);
        let count = self.count(part);
        (part, (u64::from(rank) + count - skipped as u64) % count)
    }
}

impl std::fmt::Debug for PartCycle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let counts: Vec<usize> = self.places.iter().map(Vec::len).collect();
        f.debug_struct("PartCycle")
            .field("counts", &counts)
            .finish_non_exhaustive()
    }
}

/// Divides `total` by weights into integers with this exact sum. Each integer differs by less than
/// one from its exact share. The largest remainders are rounded up; among equal remainders, the
/// first.
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
    use super::super::{MixturePart, Order};
    use super::*;

    fn mixture(parts: &[(u64, f64)], len: u64) -> Order {
        let part = |(at, &(records, weight)): (usize, &(u64, f64))| MixturePart {
            order: Order::new(records, Some(at as u64)),
            weight,
        };
        let parts = parts.iter().enumerate().map(part).collect();
        Order::from_mixture(parts, len, Some(5))
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
    fn each_part_keeps_its_own_order() {
        let part = |records, weight| MixturePart {
            order: Order::new(records, None),
            weight,
        };
        for len in [9, 10_000, 23_456] {
            let order = Order::from_mixture(vec![part(100_000, 0.7), part(40, 0.3)], len, Some(3));
            let drawn: Vec<u64> = (0..3).flat_map(|epoch| records(&order, epoch)).collect();
            let (first, second): (Vec<u64>, Vec<u64>) =
                drawn.into_iter().partition(|&record| record < 100_000);

            assert!(first.iter().copied().eq(0..first.len() as u64));
            let cycle = (100_000..100_040).cycle();
            assert!(
                second
                    .into_iter()
                    .zip(cycle)
                    .all(|(record, next)| record == next)
            );
        }
    }

    #[test]
    fn a_part_continues_evenly_across_epochs() {
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
