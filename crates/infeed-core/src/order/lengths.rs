//! Batches with a limited number of tokens: the positions of an epoch, sorted so that a batch has
//! records of similar length, and the more rows the shorter they are.
//!
//! A record of length `n` belongs to batches of the largest number of rows for which all rows,
//! padded to length `n`, stay within the limit. Records with the same number form a group. Each
//! group gives its full batches, and its other records fill the first batch of the next group, whose
//! records are longer. So only the last batch of an epoch can be incomplete, and no record is lost
//! or repeated.
//!
//! The sizes of the batches are the same in every epoch: the number of records of each group does
//! not change, and the order of the sizes is a function of the seed. Only the records differ.

use std::sync::Arc;

use super::permute::Permutation;
use crate::random::hash;

/// Separates the key of the order of sizes from those of other orders.
const SIZES: u64 = 4;

/// Limits of a batch over all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenLimits {
    /// Maximum number of rows times the length of the longest row.
    pub tokens: u64,
    /// Maximum number of rows.
    pub rows: u64,
    /// Every number of rows is a multiple of this.
    pub multiple: u64,
}

impl TokenLimits {
    /// Returns the rows of a batch whose longest row has this length; 0 if there is no such batch.
    fn rows_of(&self, length: u64) -> u64 {
        let multiple = self.multiple.max(1);
        let most = (self.tokens / length.max(1)).min(self.rows);
        most / multiple * multiple
    }
}

/// A record that is too long for a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OversizedRecord {
    /// Number of the record among the selected ones.
    pub record: u64,
    /// Its length.
    pub length: u64,
}

/// Group of each record, and the batches of an epoch.
#[derive(Debug)]
pub struct LengthBatches {
    /// Number of the group of each record, from the shortest records to the longest.
    groups: Vec<u32>,
    /// Rows of the batches of each group.
    rows: Vec<u64>,
    /// First positions of the full batches of each group.
    begins: Vec<Vec<u64>>,
    /// One past the last position of each full batch.
    ends: Arc<[u64]>,
}

impl LengthBatches {
    /// Divides an epoch of `passes` passes over records of these lengths. Without a seed, the
    /// batches of the shortest records come first.
    ///
    /// # Errors
    ///
    /// The first record whose batch would have no row.
    pub fn new(
        lengths: &[u64],
        passes: u64,
        limits: TokenLimits,
        seed: Option<u64>,
    ) -> Result<LengthBatches, OversizedRecord> {
        let mut of_records = Vec::with_capacity(lengths.len());
        for (record, &length) in lengths.iter().enumerate() {
            match limits.rows_of(length) {
                0 => {
                    return Err(OversizedRecord {
                        record: record as u64,
                        length,
                    });
                }
                rows => of_records.push(rows),
            }
        }
        let mut rows = of_records.clone();
        rows.sort_unstable_by(|a, b| b.cmp(a));
        rows.dedup();
        let group = |own: &u64| rows.partition_point(|rows| rows > own) as u32;
        let groups: Vec<u32> = of_records.iter().map(group).collect();
        let mut counts = vec![0; rows.len()];
        for &group in &groups {
            counts[group as usize] += passes;
        }
        let (begins, ends) = arrange_batches(&rows, &counts, seed);
        Ok(LengthBatches {
            groups,
            rows,
            begins,
            ends,
        })
    }

    /// Number of groups.
    pub fn count(&self) -> usize {
        self.rows.len()
    }

    /// Returns one past the last position of each full batch of an epoch.
    pub fn ends(&self) -> &Arc<[u64]> {
        &self.ends
    }

    /// Rows of a full batch at the end of an epoch.
    pub fn last_rows(&self) -> u64 {
        self.rows.last().copied().unwrap_or(1)
    }

    /// Hash of the groups and the rows of their batches.
    pub(super) fn fingerprint(&self) -> u64 {
        self.groups.iter().fold(hash(&self.rows), |sum, &group| {
            hash(&[sum, u64::from(group)])
        })
    }

    pub(super) fn group(&self, record: u64) -> Option<u32> {
        self.groups.get(record as usize).copied()
    }

    /// Returns the positions that have the same batch as this one.
    pub(super) fn batch_of(&self, position: u64, len: u64) -> std::ops::Range<u64> {
        let step = self.ends.partition_point(|&end| end <= position);
        let begin = step.checked_sub(1).map_or(0, |before| self.ends[before]);
        begin..self.ends.get(step).copied().unwrap_or(len)
    }

    /// Returns the position in the other order of each position. `record` is the other order, of
    /// `len` positions.
    pub(super) fn positions(&self, len: u64, record: impl Fn(u64) -> u64) -> Vec<u32> {
        let mut lists: Vec<Vec<u32>> = vec![Vec::new(); self.rows.len()];
        for position in 0..len {
            let group = self.group(record(position)).unwrap_or(0);
            lists[group as usize].push(position as u32);
        }
        let mut sorted = vec![0; len as usize];
        let mut rest = Vec::new();
        for ((list, &rows), begins) in lists.iter_mut().zip(&self.rows).zip(&self.begins) {
            rest.append(list);
            for (batch, &begin) in rest.chunks_exact(rows as usize).zip(begins) {
                sorted[begin as usize..][..batch.len()].copy_from_slice(batch);
            }
            rest.drain(..begins.len() * rows as usize);
        }
        let begin = sorted.len() - rest.len();
        sorted[begin..].copy_from_slice(&rest);
        sorted
    }
}

/// Returns the first positions of the full batches of each group, and the ends of all batches in
/// their order.
fn arrange_batches(rows: &[u64], counts: &[u64], seed: Option<u64>) -> (Vec<Vec<u64>>, Arc<[u64]>) {
    let mut rest = 0;
    let full: Vec<u64> = rows
        .iter()
        .zip(counts)
        .map(|(&rows, &count)| {
            let records = rest + count;
            rest = records % rows;
            records / rows
        })
        .collect();
    let steps: u64 = full.iter().sum();
    let order = match seed {
        Some(seed) => Permutation::with_key(steps, hash(&[SIZES, seed])),
        None => Permutation::Identity,
    };
    // The batch at each step: batches of a group have consecutive numbers.
    let firsts: Vec<u64> = full
        .iter()
        .scan(0, |sum, &count| {
            let first = *sum;
            *sum += count;
            Some(first)
        })
        .collect();
    let mut begins: Vec<Vec<u64>> = full
        .iter()
        .map(|&n| Vec::with_capacity(n as usize))
        .collect();
    let mut ends = Vec::with_capacity(steps as usize);
    let mut end = 0;
    for step in 0..steps {
        let batch = order.get(step);
        // Groups without a full batch begin at the same number as the next one.
        let group = firsts.partition_point(|&first| first <= batch) - 1;
        begins[group].push(end);
        end += rows[group];
        ends.push(end);
    }
    (begins, ends.into())
}

#[cfg(test)]
mod tests {
    use super::super::Order;
    use super::super::partition::{Partition, Tail};
    use super::*;

    const LIMITS: TokenLimits = TokenLimits {
        tokens: 64,
        rows: 10,
        multiple: 2,
    };

    fn lengths(count: u64) -> Vec<u64> {
        (0..count).map(|record| 1 + record * 7 % 32).collect()
    }

    fn order(count: u64, passes: u64, seed: Option<u64>) -> Order {
        let batches = LengthBatches::new(&lengths(count), passes, LIMITS, seed);
        let order = Order::repeat(Order::new(count, seed), passes).expect("few");
        Order::by_length(order, batches.expect("short records")).expect("few positions")
    }

    fn partition(order: &Order, tail: Tail) -> Partition {
        let (ends, last) = order.batch_ends().expect("batches by length");
        let ends = Arc::clone(ends);
        Partition::of_sizes(order.len(), ends, last, (0, 1), tail).expect("one rank")
    }

    #[test]
    fn every_record_occurs_once_and_no_batch_exceeds_a_limit() {
        let lengths = lengths(333);
        for seed in [None, Some(5)] {
            let order = order(333, 1, seed);
            let partition = partition(&order, Tail::Keep);
            let mut sizes = Vec::new();
            for number in 0..3 {
                let epoch = order.epoch(number);
                let mut all: Vec<u64> = (0..order.len()).map(|at| epoch.get(at)).collect();
                for step in 0..partition.steps() {
                    let first = partition.row_position(partition.sequence(number, step));
                    let rows = partition.rows_at(step);
                    let batch = &all[first.position as usize..][..rows as usize];
                    let longest = batch.iter().map(|&r| lengths[r as usize]).max();
                    assert!(rows <= LIMITS.rows && rows * longest.unwrap_or(0) <= 64);
                    assert!(rows.is_multiple_of(2) || step + 1 == partition.steps());
                    sizes.push(rows);
                }
                all.sort_unstable();
                assert!(all.iter().copied().eq(0..333));
            }
            let steps = partition.steps() as usize;
            assert_eq!(sizes[..steps], sizes[steps..2 * steps]);
            assert!(!sizes.is_sorted_by(|a, b| a >= b), "epochs repeat");
            assert_eq!(
                sizes[..steps - 1].is_sorted_by(|a, b| a >= b),
                seed.is_none()
            );
        }
    }

    #[test]
    fn epochs_have_other_records_in_batches_of_the_same_sizes() {
        let order = order(333, 2, Some(5));
        let records = |epoch: u64| -> Vec<u64> {
            let epoch = order.epoch(epoch);
            (0..order.len()).map(|at| epoch.get(at)).collect()
        };
        assert_eq!(order.len(), 666);
        assert_eq!(records(1), records(1));
        assert_ne!(records(0), records(1));
        let mut both = records(4);
        both.sort_unstable();
        assert!(
            both.chunks(2)
                .enumerate()
                .all(|(n, pair)| pair == [n as u64; 2])
        );
    }

    #[test]
    fn rows_are_the_most_that_the_limits_allow() {
        let rows = [1, 6, 7, 16, 17, 32, 33].map(|length| LIMITS.rows_of(length));
        assert_eq!(rows, [10, 10, 8, 4, 2, 2, 0]);
        let error = LengthBatches::new(&[3, 33, 40], 1, LIMITS, None).map(|_| ());
        let expected = OversizedRecord {
            record: 1,
            length: 33,
        };
        assert_eq!(error, Err(expected));
    }

    #[test]
    fn a_substitute_is_not_longer_than_the_batch_allows() {
        let lengths = lengths(1000);
        let order = order(1000, 1, Some(9));
        let partition = partition(&order, Tail::Drop);
        let epoch = order.epoch(0);
        for step in 0..partition.steps() {
            let first = partition.row_position(partition.sequence(0, step)).position;
            let rows = partition.rows_at(step);
            for position in first..first + rows {
                for attempt in 1..3 {
                    let other = order.substitute(0, position, attempt);
                    assert!(lengths[other as usize] * rows <= 64, "{position}");
                    assert_eq!(other, order.substitute(0, position, attempt));
                }
                assert!(lengths[epoch.get(position) as usize] * rows <= 64);
            }
        }
    }

    #[test]
    fn the_fingerprint_covers_lengths_and_limits() {
        let one = order(100, 1, Some(5)).fingerprint();
        let wider = TokenLimits {
            tokens: 128,
            ..LIMITS
        };
        let other = LengthBatches::new(&lengths(100), 1, wider, Some(5)).expect("short records");
        let other = Order::by_length(Order::new(100, Some(5)), other).expect("few");
        assert_eq!(one, order(100, 1, Some(5)).fingerprint());
        assert_ne!(one, other.fingerprint());
        assert_ne!(one, Order::new(100, Some(5)).fingerprint());
    }
}
