//! Measures how well an order mixes: the groups and labels in its batches, compared with those of a
//! shuffle over all records.

use std::collections::HashSet;

use super::Order;
use super::permute::Permutation;
use super::window::Groups;
use crate::random::hash;

/// Number of batches that are examined, spread over an epoch.
const BATCHES: u64 = 64;

/// Maximum number of records that are examined: large batches need fewer.
const RECORDS: u64 = 1 << 20;

/// Separates the key of the reference shuffle from other keys.
const COMPARED: u64 = 5;

/// Minimum share of the reference shuffle's variety for an order that mixes well.
const GOOD: f64 = 0.9;

/// Variety of the batches of an order, averaged over some batches of an epoch.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchVariety {
    /// Rows of a batch.
    pub batch: u64,
    /// Number of examined batches.
    pub batches: u64,
    /// Groups (shards) with records in a batch.
    pub groups: Option<Variety>,
    /// Labels in a batch.
    pub labels: Option<Variety>,
}

/// Number of different groups or labels in a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Variety {
    /// Number in the dataset.
    pub all: u64,
    /// Mean number in a batch.
    pub found: f64,
    /// Mean number in a batch of a full shuffle.
    pub shuffled: f64,
}

impl Variety {
    /// Variety relative to a full shuffle: 0 to 1, plus a little noise.
    pub fn share(&self) -> f64 {
        self.found / self.shuffled.max(1.0)
    }
}

impl BatchVariety {
    /// Examines batches of an order's first epoch. `labels` are those of all records by number.
    pub fn of(
        order: &Order,
        batch: u64,
        groups: Option<&Groups>,
        labels: Option<&[i64]>,
    ) -> BatchVariety {
        let batch = batch.clamp(1, order.len().max(1));
        let steps = (order.len() / batch).max(1);
        let batches = steps.min(BATCHES).min((RECORDS / batch).max(1));
        let begins: Vec<u64> = (0..batches).map(|n| n * steps / batches * batch).collect();
        let own = order.epoch(0);
        let shuffle = Permutation::with_key(order.records(), hash(&[COMPARED]));
        let variety = |of: &dyn Fn(u64) -> i64, all: u64| {
            let mean = |record: &dyn Fn(u64) -> u64| {
                let distinct = begins.iter().map(|&begin| {
                    let mut seen: HashSet<i64> = HashSet::new();
                    for position in begin..(begin + batch).min(order.len()) {
                        seen.insert(of(record(position)));
                    }
                    seen.len() as f64
                });
                distinct.sum::<f64>() / batches as f64
            };
            Variety {
                all,
                found: mean(&|position| own.get(position)),
                shuffled: mean(&|position| shuffle.get(position % order.records())),
            }
        };
        BatchVariety {
            batch,
            batches,
            groups: groups.filter(|groups| groups.ends.len() > 1).map(|groups| {
                variety(&|record| groups.of(record) as i64, groups.ends.len() as u64)
            }),
            labels: labels.map(|labels| {
                let all: HashSet<i64> = labels.iter().copied().collect();
                variety(&|record| labels[record as usize], all.len() as u64)
            }),
        }
    }

    /// Returns a warning if batches are mixed badly. Known labels take precedence: shards that are
    /// mixed inside need no further mixing.
    pub fn warning(&self) -> Option<String> {
        let (what, variety) = match (&self.labels, &self.groups) {
            (Some(labels), _) => ("labels", labels),
            (None, Some(groups)) => ("shards", groups),
            (None, None) => return None,
        };
        (variety.share() < GOOD).then(|| {
            format!(
                "a batch of {} has {:.1} {what} of {}, {:.0} % of the number with a full shuffle \
                 ({:.1}); widen the window (shuffle.window), or pack the dataset shuffled (infeed \
                 pack --shuffle)",
                self.batch,
                variety.found,
                variety.all,
                variety.share() * 100.0,
                variety.shuffled,
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Shards of 100 records, with one label each.
    fn sorted_shards() -> (Arc<Groups>, Vec<i64>) {
        let groups = Groups {
            ends: (1..=50).map(|n| n * 100).collect(),
            bytes: vec![100; 50],
            whole: false,
        };
        (Arc::new(groups), (0..5000).map(|n| n / 100).collect())
    }

    #[test]
    fn narrow_windows_over_sorted_shards_give_a_warning_with_numbers() {
        let (groups, labels) = sorted_shards();
        let order = Order::from_windows(Arc::clone(&groups), 500, Some(1));

        let mixing = BatchVariety::of(&order, 50, Some(&groups), Some(&labels));

        let labels = mixing.labels.expect("given");
        assert!((4.0..=7.0).contains(&labels.found), "{labels:?}");
        assert!((30.0..34.0).contains(&labels.shuffled), "{labels:?}");
        let warning = mixing.warning().expect("five of fifty");
        assert!(
            warning.contains("a batch of 50 has") && warning.contains("of 50"),
            "{warning}"
        );
    }

    #[test]
    fn a_shuffle_over_all_and_shards_that_are_mixed_inside_are_well_mixed() {
        let (groups, labels) = sorted_shards();
        let whole = Order::new(5000, Some(1));
        assert_eq!(
            BatchVariety::of(&whole, 50, Some(&groups), Some(&labels)).warning(),
            None
        );

        let narrow = Order::from_windows(Arc::clone(&groups), 500, Some(1));
        let mixed: Vec<i64> = (0..5000).map(|n| n % 50).collect();
        assert_eq!(
            BatchVariety::of(&narrow, 50, Some(&groups), Some(&mixed)).warning(),
            None
        );
    }

    #[test]
    fn unshuffled_records_have_one_label_per_batch() {
        let (_, labels) = sorted_shards();

        let mixing = BatchVariety::of(&Order::new(5000, None), 50, None, Some(&labels));

        assert_eq!(mixing.labels.expect("given").found, 1.0);
        assert!(mixing.warning().is_some());
    }
}
