//! Which record comes next: a pure function of seed, epoch and position.

pub mod mixing;
pub mod mixture;
pub mod partition;
pub mod permute;
pub mod window;

use std::ops::Range;
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

/// Positions of a mix by weights that are taken to be near each other: of each part they are
/// consecutive ones of its own order.
const BLOCK: u64 = 1024;

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
    recent: Mutex<Vec<(u64, Arc<Epoch>)>>,
}

#[derive(Debug)]
enum How {
    /// Every record for itself.
    Alone,
    /// Groups, shuffled in windows of so many bytes.
    Windowed(Arc<Groups>, u64),
    Mixed(Arc<Mixed>),
}

/// One source among several.
#[derive(Debug)]
pub struct Part {
    /// Its own order.
    pub order: Order,
    /// Its share, in relation to those of the others; over zero.
    pub weight: f64,
}

/// Sources by weights, each in its own order.
#[derive(Debug)]
pub struct Mixed {
    mixture: Mixture,
    parts: Vec<Order>,
    /// Number of the first record of each part among the records of all.
    firsts: Vec<u64>,
}

/// The order of one epoch: position to record.
#[derive(Debug)]
pub enum Epoch {
    /// A permutation of all records.
    Alone(Permutation),
    /// Groups, and records within windows of them.
    Windowed(Windowed),
    /// Several sources by weights. Not one to one: a record may come twice.
    Mixed {
        /// The sources.
        mixed: Arc<Mixed>,
        /// What the order of their positions is drawn by.
        key: u64,
        /// Number of the epoch.
        epoch: u64,
    },
}

impl Epoch {
    /// The record at a position; the position must be below the order's length.
    pub fn get(&self, position: u64) -> u64 {
        match self {
            Epoch::Alone(permutation) => permutation.get(position),
            Epoch::Windowed(windows) => windows.get(position),
            Epoch::Mixed { mixed, key, epoch } => {
                let (part, number) = mixed.mixture.at(*key, *epoch, position);
                let order = &mixed.parts[part];
                let own = order.epoch(number / order.len());
                mixed.firsts[part] + own.get(number % order.len())
            }
        }
    }

    /// One past the last position that draws on the same records as this one: the end of its
    /// window, or of all.
    pub fn window_end(&self, position: u64) -> u64 {
        match self {
            Epoch::Windowed(windows) => windows.window_end(position),
            Epoch::Alone(_) | Epoch::Mixed { .. } => u64::MAX,
        }
    }
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

    /// The order of several sources mixed by weights, `len` positions an epoch: see [`mixture`].
    /// Without a seed, each comes in its own order.
    pub fn mixed(parts: Vec<Part>, len: u64, seed: Option<u64>) -> Order {
        let weights: Vec<f64> = parts.iter().map(|part| part.weight).collect();
        let parts: Vec<Order> = parts.into_iter().map(|part| part.order).collect();
        let firsts = parts.iter().scan(0, |sum, part| {
            let first = *sum;
            *sum += part.records();
            Some(first)
        });
        let mut order = Order::new(len, seed);
        order.how = How::Mixed(Arc::new(Mixed {
            mixture: Mixture::new(&weights, len),
            firsts: firsts.collect(),
            parts,
        }));
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
            How::Mixed(mixed) => mixed.parts.iter().map(Order::records).sum(),
            _ => self.len,
        }
    }

    /// Whether an epoch has no positions.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The order of an epoch.
    pub fn epoch(&self, epoch: u64) -> Arc<Epoch> {
        let seed = match (self.seed, &self.how) {
            (Some(seed), _) => seed,
            // Which part comes when is drawn anyway.
            (None, How::Mixed(_)) => 0,
            (None, _) => return Arc::new(Epoch::Alone(Permutation::Identity)),
        };
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = recent.iter().find(|(known, _)| *known == epoch) {
            return Arc::clone(known);
        }
        let key = hash(&[SHUFFLE, seed, epoch]);
        let fresh = Arc::new(match &self.how {
            How::Alone => Epoch::Alone(Permutation::keyed(self.len, key)),
            How::Windowed(groups, bytes) => {
                Epoch::Windowed(Windowed::new(Arc::clone(groups), *bytes, key))
            }
            How::Mixed(mixed) => Epoch::Mixed {
                mixed: Arc::clone(mixed),
                key,
                epoch,
            },
        });
        // Preparation runs across at most a few epochs' seams at once.
        if recent.len() >= 4 {
            recent.remove(0);
        }
        recent.push((epoch, Arc::clone(&fresh)));
        fresh
    }

    /// Positions of an epoch that are read about when `position` is, itself among them: all of them,
    /// where records lie by themselves; those of its window or group, where groups are read
    /// together; a block, in a mix by weights. The same for every world size.
    pub fn near(&self, epoch: u64, position: u64) -> Range<u64> {
        match (&self.how, &*self.epoch(epoch)) {
            (_, Epoch::Windowed(windows)) => {
                windows.window_begin(position)..windows.window_end(position)
            }
            (How::Windowed(groups, _), _) => {
                let group = groups.of(position);
                groups.first(group)..groups.ends.get(group).copied().unwrap_or(self.len)
            }
            (How::Mixed(_), _) => {
                let begin = position / BLOCK * BLOCK;
                begin..(begin + BLOCK).min(self.len)
            }
            (How::Alone, _) => 0..self.len,
        }
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
    fn what_is_near_holds_the_position_and_is_the_same_from_all_of_it() {
        let groups = Arc::new(Groups {
            ends: vec![10, 30, 35, 80],
            bytes: vec![100, 200, 50, 450],
            whole: true,
        });
        let part = |len| Part {
            order: Order::new(len, Some(1)),
            weight: 1.0,
        };
        let orders = [
            Order::new(80, Some(1)),
            Order::windowed(Arc::clone(&groups), 300, Some(1)),
            Order::windowed(groups, 300, None),
            Order::mixed(vec![part(2000), part(50)], 3000, Some(1)),
        ];
        for order in orders {
            for epoch in 0..2 {
                let mut seen = 0;
                while seen < order.len() {
                    let near = order.near(epoch, seen);
                    assert_eq!(near.start, seen, "{order:?}");
                    assert!(near.clone().all(|other| order.near(epoch, other) == near));
                    seen = near.end;
                }
                assert_eq!(seen, order.len());
            }
        }
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

    /// A state names the version of the order and no order itself: were these to change, so must
    /// [`ORDER`].
    #[test]
    fn every_kind_of_order_is_the_one_that_its_version_names() {
        let mut ends = Vec::new();
        let mut bytes = Vec::new();
        for n in 0..60_u64 {
            ends.push(ends.last().copied().unwrap_or(0) + n * 37 % 200);
            bytes.push(1000 + n * 13 % 700);
        }
        let groups = Arc::new(Groups {
            ends,
            bytes,
            whole: false,
        });
        let parts = || {
            [(500, 0.7), (90, 0.3)].map(|(records, weight)| Part {
                order: Order::new(records, Some(records)),
                weight,
            })
        };
        for (order, expected) in [
            (Order::new(100, Some(7)), 0x7f47_a505_3930_6500),
            (Order::new(9000, Some(7)), 0x08ed_4110_8b07_e041),
            (
                Order::windowed(groups, 9000, Some(7)),
                0xdd75_d609_d20b_6332,
            ),
            (
                Order::mixed(parts().into(), 12_345, Some(7)),
                0x70c4_9e51_85a0_f914,
            ),
            (
                Order::mixed(parts().into(), 1000, None),
                0xab4f_52a9_6d8d_9ebc,
            ),
        ] {
            assert_eq!(hash(&records(&order, 3)), expected, "{:?}", order.how);
        }
    }
}
