//! Bad records of a run, each once: those that this loader met, and those from a restored state. A
//! record that is bad in every epoch counts once.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::fetched_records::BadRecord;

/// Bad records by number, and those that this loader met in order of first occurrence.
#[derive(Debug, Default)]
pub(super) struct BadRecords {
    listed: Vec<BadRecord>,
    seen: HashMap<u64, FirstOccurrence>,
}

/// First position of a bad record in the order, also if a seek made the run meet it elsewhere
/// first.
#[derive(Debug)]
struct FirstOccurrence {
    epoch: u64,
    position: u64,
    /// Whether this loader met the record, not only the run from which it was restored.
    here: bool,
}

impl BadRecords {
    /// Creates the list from a state's entries: epoch, position and number.
    pub(super) fn from_state(saved: &[(u64, u64, u64)]) -> BadRecords {
        let mut bad_records = BadRecords::default();
        for &(epoch, position, record) in saved {
            bad_records.observe(record, epoch, position, false);
        }
        bad_records
    }

    /// Adds a bad record of a delivered batch. Returns whether this loader had not met it before.
    pub(super) fn take(&mut self, bad: &BadRecord) -> bool {
        let fresh = self.observe(bad.record.index, bad.epoch, bad.position, true);
        if fresh {
            self.listed.push(bad.clone());
        }
        fresh
    }

    fn observe(&mut self, record: u64, epoch: u64, position: u64, here: bool) -> bool {
        match self.seen.entry(record) {
            Entry::Vacant(entry) => {
                entry.insert(FirstOccurrence {
                    epoch,
                    position,
                    here,
                });
                here
            }
            Entry::Occupied(mut entry) => {
                let seen = entry.get_mut();
                // After a seek backwards, a run can meet a record at an earlier position.
                (seen.epoch, seen.position) = (seen.epoch, seen.position).min((epoch, position));
                here && !std::mem::replace(&mut seen.here, true)
            }
        }
    }

    /// Number of distinct bad records, including those of the restored run.
    pub(super) fn count(&self) -> u64 {
        self.seen.len() as u64
    }

    /// Bad records that this loader met.
    pub(super) fn records(&self) -> &[BadRecord] {
        &self.listed
    }

    /// Returns epoch, position and number of bad records before a position, sorted. A run that is
    /// restored there meets the later ones again.
    pub(super) fn before(&self, epoch: u64, position: u64) -> Vec<(u64, u64, u64)> {
        let all = self.seen.iter();
        let all = all.map(|(&record, seen)| (seen.epoch, seen.position, record));
        let mut before: Vec<_> = all
            .filter(|&(e, p, _)| (e, p) < (epoch, position))
            .collect();
        before.sort_unstable();
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infeed_core::error::Error;
    use infeed_core::sample::RecordId;

    fn bad(index: u64, epoch: u64, position: u64) -> BadRecord {
        let name = format!("record {index}");
        BadRecord {
            record: RecordId { index, name },
            epoch,
            position,
            reason: Error::Closed,
        }
    }

    #[test]
    fn a_record_that_is_bad_in_every_epoch_counts_once() {
        let mut bad_records = BadRecords::default();

        let fresh: Vec<bool> = (0..90).map(|n| bad_records.take(&bad(7, n, 3))).collect();

        assert_eq!(fresh.iter().filter(|&&fresh| fresh).count(), 1);
        assert_eq!((bad_records.count(), bad_records.records().len()), (1, 1));
        assert_eq!(bad_records.before(90, 0), [(0, 3, 7)]);
    }

    #[test]
    fn before_lists_the_earlier_records_and_keeps_the_others() {
        let mut bad_records = BadRecords::default();
        bad_records.take(&bad(9, 1, 4));
        bad_records.take(&bad(2, 1, 8));

        assert_eq!(bad_records.before(1, 8), [(1, 4, 9)]);
        // A seek back to epoch 0, where both records have other positions.
        bad_records.take(&bad(2, 0, 6));
        assert_eq!(bad_records.before(0, 8), [(0, 6, 2)]);
        assert_eq!(bad_records.count(), 2);
    }

    #[test]
    fn records_of_the_restored_run_are_counted_and_listed_once_seen_again() {
        let mut bad_records = BadRecords::from_state(&[(0, 3, 7), (0, 3, 7), (0, 5, 8)]);

        assert_eq!((bad_records.count(), bad_records.records().len()), (2, 0));
        assert!(bad_records.take(&bad(7, 1, 1)));
        assert!(!bad_records.take(&bad(7, 2, 1)));

        assert_eq!((bad_records.count(), bad_records.records().len()), (2, 1));
        assert_eq!(bad_records.before(3, 0), [(0, 3, 7), (0, 5, 8)]);
    }
}
