//! Bad records that a run met, each once: those that its loader lists, and those that its state
//! carries on. A record that is bad in every epoch is one bad record.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::parcel::BadRecord;

/// Bad records by their number, and those that this loader met in the order of the first time.
#[derive(Debug, Default)]
pub(super) struct Quarantine {
    listed: Vec<BadRecord>,
    met: HashMap<u64, Met>,
}

/// Where a record was met, or would have been met first had the run not been put forward.
#[derive(Debug)]
struct Met {
    epoch: u64,
    position: u64,
    /// Whether this loader met it, rather than the run that it goes on from.
    here: bool,
}

impl Quarantine {
    /// Those of a state, as epoch, position and number.
    pub(super) fn from_state(saved: &[(u64, u64, u64)]) -> Quarantine {
        let mut quarantine = Quarantine::default();
        for &(epoch, position, record) in saved {
            quarantine.meet(record, epoch, position, false);
        }
        quarantine
    }

    /// Takes in a record of a batch that was delivered. Says whether this loader had not met it.
    pub(super) fn take(&mut self, bad: &BadRecord) -> bool {
        let fresh = self.meet(bad.record.index, bad.epoch, bad.position, true);
        if fresh {
            self.listed.push(bad.clone());
        }
        fresh
    }

    fn meet(&mut self, record: u64, epoch: u64, position: u64, here: bool) -> bool {
        match self.met.entry(record) {
            Entry::Vacant(entry) => {
                entry.insert(Met {
                    epoch,
                    position,
                    here,
                });
                here
            }
            Entry::Occupied(mut entry) => {
                let met = entry.get_mut();
                // A run that was put back meets a record where it had not been before.
                (met.epoch, met.position) = (met.epoch, met.position).min((epoch, position));
                here && !std::mem::replace(&mut met.here, true)
            }
        }
    }

    /// Different records that were bad, those of the run before too.
    pub(super) fn count(&self) -> u64 {
        self.met.len() as u64
    }

    /// Those that this loader met.
    pub(super) fn listed(&self) -> &[BadRecord] {
        &self.listed
    }

    /// Epoch, position and number of those met before a place, in that order: whatever was met
    /// beyond it is met again by a run that goes on from there.
    pub(super) fn before(&self, epoch: u64, position: u64) -> Vec<(u64, u64, u64)> {
        let all = self.met.iter();
        let all = all.map(|(&record, met)| (met.epoch, met.position, record));
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
    use crate::error::Error;
    use crate::sample::RecordId;

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
    fn a_record_that_is_bad_in_every_epoch_is_one() {
        let mut quarantine = Quarantine::default();

        let fresh: Vec<bool> = (0..90).map(|n| quarantine.take(&bad(7, n, 3))).collect();

        assert_eq!(fresh.iter().filter(|&&fresh| fresh).count(), 1);
        assert_eq!((quarantine.count(), quarantine.listed().len()), (1, 1));
        assert_eq!(quarantine.before(90, 0), [(0, 3, 7)]);
    }

    #[test]
    fn a_place_knows_what_was_met_before_it_and_forgets_nothing() {
        let mut quarantine = Quarantine::default();
        quarantine.take(&bad(9, 1, 4));
        quarantine.take(&bad(2, 1, 8));

        assert_eq!(quarantine.before(1, 8), [(1, 4, 9)]);
        // Put back to epoch 0, where both lie elsewhere.
        quarantine.take(&bad(2, 0, 6));
        assert_eq!(quarantine.before(0, 8), [(0, 6, 2)]);
        assert_eq!(quarantine.count(), 2);
    }

    #[test]
    fn what_the_run_before_met_is_counted_and_listed_once_it_is_met_here() {
        let mut quarantine = Quarantine::from_state(&[(0, 3, 7), (0, 3, 7), (0, 5, 8)]);

        assert_eq!((quarantine.count(), quarantine.listed().len()), (2, 0));
        assert!(quarantine.take(&bad(7, 1, 1)));
        assert!(!quarantine.take(&bad(7, 2, 1)));

        assert_eq!((quarantine.count(), quarantine.listed().len()), (2, 1));
        assert_eq!(quarantine.before(3, 0), [(0, 3, 7), (0, 5, 8)]);
    }
}
