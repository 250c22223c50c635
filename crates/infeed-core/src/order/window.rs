//! Shuffles grouped records: permutes the groups, and the records within windows of groups.
//!
//! A shard or row group is cheap to read whole and expensive to read record by record. Each epoch
//! therefore permutes the groups, divides the permuted groups into windows of a given number of
//! bytes, and permutes the records of each window. The record at a position is a function of seed,
//! epoch and the sizes of the groups; finding it takes two binary searches.

use std::sync::{Arc, Mutex, PoisonError};

use super::permute::Permutation;
use crate::random::hash;

/// Separate the keys of the order of groups and of a window.
const GROUPS: u64 = 1;
const WINDOW: u64 = 2;

/// Number of cached permutations of windows: preparation works on few windows at a time.
const KEPT: usize = 4;

/// Records that are stored together: shards, row groups. Every record is in one group, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Groups {
    /// One past the last record of each group, ascending.
    pub ends: Vec<u64>,
    /// Bytes of each group.
    pub bytes: Vec<u64>,
    /// Whether a group can only be read whole.
    pub whole: bool,
}

impl Groups {
    /// Number of records in all groups.
    pub fn records(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// First record of a group.
    pub fn first(&self, group: usize) -> u64 {
        group.checked_sub(1).map_or(0, |before| self.ends[before])
    }

    /// Returns the group of a record.
    pub fn of(&self, record: u64) -> usize {
        self.ends.partition_point(|&end| end <= record)
    }
}

/// Order of one epoch, in windows of groups.
#[derive(Debug)]
pub struct WindowOrder {
    groups: Arc<Groups>,
    /// Groups in the order of this epoch, without empty ones.
    order: Vec<u32>,
    /// Position at which each group in `order` begins, and the number of positions.
    starts: Vec<u64>,
    /// Position at which each window begins, and the number of positions.
    windows: Vec<u64>,
    key: u64,
    recent: Mutex<Vec<(usize, Arc<Permutation>)>>,
}

impl WindowOrder {
    /// Creates the order for a key. A window has as many groups as fit in `window_bytes`, at least
    /// one.
    pub fn new(groups: Arc<Groups>, window_bytes: u64, key: u64) -> WindowOrder {
        let count = groups.ends.len() as u64;
        let permutation = Permutation::with_key(count.max(1), hash(&[GROUPS, key]));
        let order: Vec<u32> = (0..count)
            .map(|place| permutation.get(place) as usize)
            .filter(|&group| groups.ends[group] > groups.first(group))
            .map(|group| group as u32)
            .collect();
        let mut starts = vec![0];
        let mut windows = vec![0];
        let (mut position, mut held) = (0, 0_u64);
        for &group in &order {
            let group = group as usize;
            let bytes = groups.bytes[group];
            if held > 0 && held.saturating_add(bytes) > window_bytes {
                windows.push(position);
                held = 0;
            }
            held = held.saturating_add(bytes.max(1));
            position += groups.ends[group] - groups.first(group);
            starts.push(position);
        }
        windows.push(position);
        WindowOrder {
            groups,
            order,
            starts,
            windows,
            key,
            recent: Mutex::default(),
        }
    }

    /// Returns the record at a position below the number of records.
    pub fn get(&self, position: u64) -> u64 {
        let window = self.window(position);
        let begin = self.windows[window];
        let place = begin + self.permutation(window).get(position - begin);
        let at = self.starts.partition_point(|&start| start <= place) - 1;
        self.groups.first(self.order[at] as usize) + (place - self.starts[at])
    }

    /// One past the last position of the window of a position.
    pub fn window_end(&self, position: u64) -> u64 {
        self.windows[self.window(position) + 1]
    }

    /// First position of the window of a position.
    pub fn window_begin(&self, position: u64) -> u64 {
        self.windows[self.window(position)]
    }

    fn window(&self, position: u64) -> usize {
        self.windows.partition_point(|&begin| begin <= position) - 1
    }

    /// Permutation within a window.
    fn permutation(&self, window: usize) -> Arc<Permutation> {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = recent.iter().find(|(known, _)| *known == window) {
            return Arc::clone(known);
        }
        let length = self.windows[window + 1] - self.windows[window];
        let key = hash(&[WINDOW, self.key, window as u64]);
        let fresh = Arc::new(Permutation::with_key(length, key));
        if recent.len() >= KEPT {
            recent.remove(0);
        }
        recent.push((window, Arc::clone(&fresh)));
        fresh
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(sizes: &[u64]) -> Arc<Groups> {
        let ends = sizes.iter().scan(0, |sum, &size| {
            *sum += size;
            Some(*sum)
        });
        Arc::new(Groups {
            ends: ends.collect(),
            bytes: sizes.iter().map(|size| size * 10).collect(),
            whole: true,
        })
    }

    #[test]
    fn every_record_occurs_once_and_windows_hold_whole_groups_within_the_limit() {
        let sizes = [5, 0, 100, 7, 30, 5000, 1, 1, 64];
        let groups = groups(&sizes);
        for window in [1, 400, 1200, u64::MAX] {
            let order = WindowOrder::new(Arc::clone(&groups), window, 3);
            let mut seen = vec![false; groups.records() as usize];
            let mut position = 0;
            while position < groups.records() {
                let end = order.window_end(position);
                let mut of: Vec<usize> = Vec::new();
                for position in position..end {
                    let record = order.get(position);
                    assert!(!std::mem::replace(&mut seen[record as usize], true));
                    of.push(groups.of(record));
                }
                of.sort_unstable();
                of.dedup();
                let records: u64 = of.iter().map(|&group| sizes[group]).sum();
                assert_eq!(records, end - position, "whole groups");
                let bytes: u64 = of.iter().map(|&group| groups.bytes[group]).sum();
                assert!(bytes <= window || of.len() == 1, "{bytes} in {window}");
                position = end;
            }
            assert!(seen.iter().all(|&seen| seen));
        }
    }

    #[test]
    fn another_epoch_combines_other_groups() {
        let groups = groups(&[10; 40]);
        let first = |key| {
            let order = WindowOrder::new(Arc::clone(&groups), 500, key);
            let mut of: Vec<usize> = (0..order.window_end(0))
                .map(|position| groups.of(order.get(position)))
                .collect();
            of.sort_unstable();
            of.dedup();
            of
        };

        assert_eq!(first(1), first(1));
        assert_ne!(first(1), first(2));
        assert_eq!(first(1).len(), 5);
    }
}
