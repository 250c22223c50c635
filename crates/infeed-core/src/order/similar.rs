//! Batches of similar records: the positions of an epoch, sorted so that a batch has records of one
//! group.
//!
//! The records of another order are dealt to one list per group. A list that has the rows of a batch
//! becomes the next batch. The rest of all lists follows at the end of the epoch, group by group, so
//! the last batches may have records of several groups. Each position of the other order occurs
//! once: no record is lost or repeated.
//!
//! Source: `GroupedBatchSampler` of torchvision's reference for detection, which repeats records to
//! fill the last batches instead.

use crate::random::hash;

/// Maximum number of positions of an epoch: a table has a number of 32 bits for each.
pub const MAX_POSITIONS: u64 = 1 << 32;

/// Group of each record, and the size of a batch.
#[derive(Debug)]
pub struct BatchGroups {
    /// Number of the group of each record, from 0.
    groups: Vec<u32>,
    count: usize,
    /// Rows of the batch over all ranks.
    batch: u64,
}

impl BatchGroups {
    /// Creates groups of records with equal keys, for batches of `batch` rows over all ranks.
    pub fn new(keys: &[i64], batch: u64) -> BatchGroups {
        let mut distinct = keys.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        let group = |key| distinct.partition_point(|other| other < key) as u32;
        BatchGroups {
            groups: keys.iter().map(group).collect(),
            count: distinct.len(),
            batch: batch.max(1),
        }
    }

    /// Number of groups.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Hash of the groups and the size of a batch.
    pub(super) fn fingerprint(&self) -> u64 {
        self.groups.iter().fold(hash(&[self.batch]), |sum, &group| {
            hash(&[sum, u64::from(group)])
        })
    }

    pub(super) fn group(&self, record: u64) -> Option<u32> {
        self.groups.get(record as usize).copied()
    }

    /// Returns the positions that have the same batch as this one.
    pub(super) fn batch_of(&self, position: u64, len: u64) -> std::ops::Range<u64> {
        let begin = position / self.batch * self.batch;
        begin..(begin + self.batch).min(len)
    }

    /// Returns the position in the other order of each position. `record` is the other order, of
    /// `len` positions.
    pub(super) fn positions(&self, len: u64, record: impl Fn(u64) -> u64) -> Vec<u32> {
        let mut lists: Vec<Vec<u32>> = vec![Vec::new(); self.count];
        let mut sorted = Vec::with_capacity(len as usize);
        for position in 0..len {
            let group = self.group(record(position)).unwrap_or(0);
            let list = &mut lists[group as usize];
            list.push(position as u32);
            if list.len() as u64 == self.batch {
                sorted.append(list);
            }
        }
        lists.iter_mut().for_each(|list| sorted.append(list));
        sorted
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::Order;
    use super::super::weights::RecordWeights;
    use super::*;

    const BATCH: u64 = 4;

    fn keys(count: u64) -> Vec<i64> {
        (0..count as i64)
            .map(|record| [-7, 2, 2, 900][record as usize % 4])
            .collect()
    }

    fn similar_order(order: Order, count: u64) -> Order {
        Order::similar(order, BatchGroups::new(&keys(count), BATCH)).expect("few positions")
    }

    fn epoch(order: &Order, epoch: u64) -> Vec<u64> {
        let epoch = order.epoch(epoch);
        (0..order.len()).map(|at| epoch.get(at)).collect()
    }

    /// Number of batches with records of one group.
    fn uniform(records: &[u64], keys: &[i64]) -> usize {
        let is_uniform = |batch: &&[u64]| {
            let mut batch = batch.iter().map(|&record| keys[record as usize]);
            let first = batch.next();
            batch.all(|key| Some(key) == first)
        };
        records.chunks(BATCH as usize).filter(is_uniform).count()
    }

    #[test]
    fn every_record_occurs_once_and_batches_have_one_group_until_the_last_ones() {
        let order = similar_order(Order::new(103, Some(5)), 103);
        for number in 0..3 {
            let records = epoch(&order, number);

            let mut sorted = records.clone();
            sorted.sort_unstable();
            assert!(sorted.iter().copied().eq(0..103));
            // Three groups leave at most three rows each: two batches and a half.
            assert!(uniform(&records, &keys(103)) >= 26 - 3);
        }
        assert_ne!(epoch(&order, 0), epoch(&order, 1));
    }

    #[test]
    fn it_is_a_function_of_seed_groups_and_batch() {
        let one = similar_order(Order::new(103, Some(5)), 103);
        let same = similar_order(Order::new(103, Some(5)), 103);
        let larger = BatchGroups::new(&keys(103), 2 * BATCH);
        let larger = Order::similar(Order::new(103, Some(5)), larger).expect("few positions");

        assert_eq!(epoch(&one, 2), epoch(&same, 2));
        assert_eq!(one.fingerprint(), same.fingerprint());
        assert_ne!(one.fingerprint(), larger.fingerprint());
        assert_ne!(one.fingerprint(), Order::new(103, Some(5)).fingerprint());
    }

    #[test]
    fn the_order_within_a_group_is_that_of_the_other_order() {
        let keys = keys(40);
        let order = similar_order(Order::new(40, None), 40);

        for key in [-7, 2, 900] {
            let of_group = |record: &u64| keys[*record as usize] == key;
            let records: Vec<u64> = epoch(&order, 0).into_iter().filter(of_group).collect();
            assert!(records.is_sorted());
        }
    }

    #[test]
    fn weights_and_passes_keep_their_records() {
        let weights: Vec<f64> = (0..40).map(|record| f64::from(record % 3)).collect();
        let weighted = || RecordWeights::new(&weights, None, Some(200)).expect("weights");
        let order = Order::repeat(Order::from_weights(weighted(), None, Some(1)), 2);
        let plain = order.expect("few positions");
        let order = Order::repeat(Order::from_weights(weighted(), None, Some(1)), 2);
        let similar = similar_order(order.expect("few positions"), 40);

        let (mut before, mut after) = (epoch(&plain, 3), epoch(&similar, 3));
        assert!(uniform(&after, &keys(40)) >= 100 - 3);
        before.sort_unstable();
        after.sort_unstable();
        assert_eq!(before, after);
    }

    #[test]
    fn a_substitute_has_the_group_of_its_batch() {
        let mut keys = vec![0; 10_000];
        keys[..8].fill(1);
        let order = Order::new(10_000, Some(9));
        let order = Order::similar(order, BatchGroups::new(&keys, BATCH)).expect("few positions");
        let epoch: Arc<_> = order.epoch(0);

        for position in 0..order.len() - 2 * BATCH {
            let group = keys[epoch.get(position) as usize];
            for attempt in 1..3 {
                let other = order.substitute(0, position, attempt);
                assert_eq!(keys[other as usize], group, "{position}");
                assert_eq!(other, order.substitute(0, position, attempt));
            }
        }
    }

    #[test]
    fn a_wrapped_row_has_a_substitute_of_the_group_of_its_record() {
        // Group 1 has one batch: most substitutes are other rows of it.
        let mut keys = vec![0; 1001];
        keys[..4].fill(1);
        let order = Order::new(1001, Some(9));
        let order = Order::similar(order, BatchGroups::new(&keys, BATCH)).expect("few positions");
        let epoch: Arc<_> = order.epoch(0);

        for taken_from in 0..1000 {
            let group = keys[epoch.get(taken_from) as usize];
            for attempt in 1..3 {
                let other = order.substitute(0, order.len() + taken_from, attempt);
                assert_eq!(keys[other as usize], group, "{taken_from}");
            }
        }
    }
}
