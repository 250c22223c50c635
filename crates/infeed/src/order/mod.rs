//! Which record comes next: a pure function of seed, epoch and position.

pub mod mixing;
pub mod mixture;
pub mod partition;
pub mod permute;
pub mod window;

use std::sync::{Arc, Mutex, PoisonError};

use crate::random::hash;
use mixture::Mixture;
use permute::Permutation;
use window::{Groups, Windowed};

/// Version of the order function; part of every state, so that a change can be refused.
pub const ORDER: &str = "feistel8";

/// Keeps the key of the order apart from those of substitutes and transforms.
const SHUFFLE: u64 = 1;
const SUBSTITUTE: u64 = 2;

/// The order of the records of a source.
///
/// # Cost
///
/// O(1) a position; the last few epochs' permutations are kept (a stored shuffle for small
/// sources is 16 kB).
#[derive(Debug)]
pub struct Order {
    /// Positions of an epoch.
    len: u64,
    /// None: the source's own order in every epoch.
    seed: Option<u64>,
    how: How,
    recent: Mutex<Vec<(u64, Arc<Permutation>)>>,
}

#[derive(Debug)]
enum How {
    /// Every record for itself.
    Alone,
    /// Groups, shuffled in windows of so many bytes.
    Windowed(Arc<Groups>, u64),
    Mixed(Arc<Mixture>),
}

impl Order {
    /// The order of `len` records: shuffled anew in each epoch, or as they are.
    pub fn new(len: u64, seed: Option<u64>) -> Order {
        Order {
            len,
            seed,
            how: How::Alone,
            recent: Mutex::new(Vec::new()),
        }
    }

    /// The order of records that lie in groups, shuffled in windows of about `window_bytes`: see
    /// [`window`].
    pub fn windowed(groups: Arc<Groups>, window_bytes: u64, seed: Option<u64>) -> Order {
        let mut order = Order::new(groups.records(), seed);
        order.how = How::Windowed(groups, window_bytes);
        order
    }

    /// The order of several sources mixed by weights; without a seed, each in its own order.
    pub fn mixed(mixture: Mixture, seed: Option<u64>) -> Order {
        let mut order = Order::new(mixture.len(), seed);
        order.how = How::Mixed(Arc::new(mixture));
        order
    }

    /// Bytes of a window, where records are shuffled in windows.
    pub fn window(&self) -> Option<u64> {
        match self.how {
            How::Windowed(_, bytes) if self.seed.is_some() => Some(bytes),
            _ => None,
        }
    }

    /// Positions of an epoch: the records, unless they are mixed by weights.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Number of records.
    pub fn records(&self) -> u64 {
        match &self.how {
            How::Mixed(mixture) => mixture.records(),
            _ => self.len,
        }
    }

    /// Whether an epoch has no positions.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The permutation of an epoch.
    pub fn epoch(&self, epoch: u64) -> Arc<Permutation> {
        let seed = match (self.seed, &self.how) {
            (Some(seed), _) => seed,
            // Which part comes when is drawn anyway.
            (None, How::Mixed(_)) => 0,
            (None, _) => return Arc::new(Permutation::Identity),
        };
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = recent.iter().find(|(known, _)| *known == epoch) {
            return Arc::clone(known);
        }
        let key = hash(&[SHUFFLE, seed, epoch]);
        let fresh = Arc::new(match &self.how {
            How::Alone => Permutation::keyed(self.len, key),
            How::Windowed(groups, bytes) => {
                Permutation::Windowed(Windowed::new(Arc::clone(groups), *bytes, key))
            }
            How::Mixed(mixture) => Permutation::Mixed(Arc::clone(mixture), key, epoch),
        });
        // Preparation runs across at most a few epochs' seams at once.
        if recent.len() >= 4 {
            recent.remove(0);
        }
        recent.push((epoch, Arc::clone(&fresh)));
        fresh
    }

    /// The record that stands in for a bad one at `position`: the `attempt`-th (from 1) of a
    /// sequence that belongs to seed, epoch and position. It may name any record, the bad one
    /// among them; the next attempt then names another.
    pub fn substitute(&self, epoch: u64, position: u64, attempt: u32) -> u64 {
        let key = [
            SUBSTITUTE,
            self.seed.unwrap_or(0),
            epoch,
            position,
            u64::from(attempt),
        ];
        ((u128::from(hash(&key)) * u128::from(self.records())) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(order: &Order, epoch: u64) -> Vec<u64> {
        let permutation = order.epoch(epoch);
        (0..order.len())
            .map(|position| permutation.get(position))
            .collect()
    }

    #[test]
    fn the_same_seed_and_epoch_give_the_same_order_and_others_give_others() {
        let (one, same, other) = (
            Order::new(50, Some(1)),
            Order::new(50, Some(1)),
            Order::new(50, Some(2)),
        );

        assert_eq!(records(&one, 3), records(&same, 3));
        assert_ne!(records(&one, 3), records(&one, 4));
        assert_ne!(records(&one, 3), records(&other, 3));
    }

    #[test]
    fn without_a_seed_records_come_as_they_are() {
        assert_eq!(records(&Order::new(5, None), 7), [0, 1, 2, 3, 4]);
    }

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
