//! Order of records: a pure function of seed, epoch and position.

pub mod lengths;
pub mod mixing;
pub mod mixture;
pub mod partition;
pub mod permute;
pub mod similar;
mod sort;
mod substitute;
pub mod weights;
pub mod window;

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use crate::random::hash;
use lengths::LengthBatches;
use mixture::Mixture;
use permute::Permutation;
use similar::BatchGroups;
use sort::BatchSort;
use weights::RecordWeights;
use window::{Groups, WindowOrder};

/// Version of the order function: see [`Order::version`].
pub const ORDER: &str = "feistel8";

/// Version of the order that the program chooses.
const CHOSEN: &str = "chosen by the program";

/// Version of the order of sources that are mixed by weights.
const MIXED: &str = "feistel8, mixed in cycles";

/// Maximum positions of an epoch with passes or weights: ranks, steps and epochs multiply it.
pub const MAX_POSITIONS: u64 = 1 << 48;

/// Separates the key of the order from those of substitutes and transforms.
const SHUFFLE: u64 = 1;

/// Number of neighbouring positions in a mix by weights: the records of each part in a block are
/// consecutive in its order.
const BLOCK: u64 = 1024;

/// Order of the records of a source.
///
/// # Cost
///
/// O(1) per position, or up to two binary searches with groups or weights. The permutations of the
/// last few epochs are kept (a stored shuffle of a small source has 16 kB).
#[derive(Debug)]
pub struct Order {
    /// Number of positions of an epoch.
    len: u64,
    /// None: the source's order in every epoch.
    seed: Option<u64>,
    how: OrderKind,
    recent: Mutex<Vec<(u64, Arc<Epoch>)>>,
}

#[derive(Debug)]
enum OrderKind {
    /// Shuffles all records.
    Alone,
    /// Shuffles groups in windows of this many bytes.
    Windowed(Arc<Groups>, u64),
    Mixed(Arc<MixedOrder>),
    /// Draws records by weight; with groups, in windows of this many bytes.
    Weighted(Arc<RecordWeights>, Option<(Arc<Groups>, u64)>),
    /// Repeats another order this many times per epoch.
    Repeated(Arc<Order>, u64),
    /// Sorts another order into batches of similar records.
    Similar(Arc<Order>, Arc<BatchSort>),
    /// The records that [`Order::choose`] sets, of a source with this many.
    Chosen(u64),
}

/// Reason why records cannot be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum ChoiceError {
    #[error("the loader has its own order; open it with epoch_records=n")]
    OtherOrder,
    #[error("an epoch has {len} records, got {count}")]
    Count { len: u64, count: usize },
    #[error("record {record} is not in the source, which has {records} records")]
    Record { record: u64, records: u64 },
}

/// One of several mixed sources.
#[derive(Debug)]
pub struct MixturePart {
    /// Order of the source.
    pub order: Order,
    /// Positive share, relative to the others.
    pub weight: f64,
}

/// Sources mixed by weights, each in its own order.
#[derive(Debug)]
pub struct MixedOrder {
    mixture: Mixture,
    parts: Vec<Order>,
    /// Number of the first record of each part among all records.
    firsts: Vec<u64>,
}

/// Order of one epoch: maps a position to a record.
#[derive(Debug)]
pub enum Epoch {
    /// A permutation of all records.
    Alone(Permutation),
    /// All records in their order in the source, in groups.
    Grouped(Arc<Groups>),
    /// Shuffled groups, and shuffled records within windows of them.
    Windowed(WindowOrder),
    /// Several sources mixed by weights. A record may occur twice.
    Mixed {
        /// The sources.
        mixed: Arc<MixedOrder>,
        /// Key of the order of positions.
        key: u64,
        /// Number of the epoch.
        epoch: u64,
    },
    /// Records drawn by weight; a record may occur twice.
    Weighted {
        /// Weight of each record.
        weighted: Arc<RecordWeights>,
        /// Offset of the points of this epoch.
        begin: u64,
        /// Order of the points.
        points: Box<Epoch>,
    },
    /// Several consecutive epochs of another order.
    Repeated {
        /// The repeated order.
        order: Arc<Order>,
        /// First repeated epoch.
        first: u64,
    },
    /// Another order, sorted into batches of similar records.
    Similar {
        /// The other order.
        order: Arc<Epoch>,
        /// Position in it of each position.
        positions: Vec<u32>,
    },
    /// The records that the program chose, at most one for each position.
    Chosen(Arc<[u64]>),
}

impl Epoch {
    /// Returns the record at a position below the order's length.
    pub fn get(&self, position: u64) -> u64 {
        match self {
            Epoch::Alone(permutation) => permutation.get(position),
            Epoch::Grouped(_) => position,
            Epoch::Windowed(windows) => windows.get(position),
            Epoch::Mixed { mixed, key, epoch } => {
                let (part, number) = mixed.mixture.at(*key, *epoch, position);
                let order = &mixed.parts[part];
                let own = order.epoch(number / order.len());
                mixed.firsts[part] + own.get(number % order.len())
            }
            Epoch::Weighted {
                weighted,
                begin,
                points,
            } => weighted.at(*begin, points.get(position)),
            Epoch::Repeated { order, first } => {
                let pass = order.epoch(first + position / order.len());
                pass.get(position % order.len())
            }
            Epoch::Similar { order, positions } => {
                order.get(u64::from(positions[position as usize]))
            }
            // Nothing is chosen in an epoch that is over.
            Epoch::Chosen(records) => records.get(position as usize).copied().unwrap_or(0),
        }
    }

    /// Positions that use the same group or window as this one, including it. None if records are
    /// independent.
    fn window(&self, position: u64) -> Option<Range<u64>> {
        match self {
            Epoch::Windowed(windows) => {
                Some(windows.window_begin(position)..windows.window_end(position))
            }
            Epoch::Grouped(groups) => {
                let group = groups.of(position);
                let end = groups.ends.get(group).copied();
                Some(groups.first(group)..end.unwrap_or(position + 1))
            }
            Epoch::Weighted { points, .. } => points.window(position),
            Epoch::Repeated { order, first } => {
                let (pass, within) = (position / order.len(), position % order.len());
                // Records that are read for one pass are not kept for the next.
                let own = order.epoch(first + pass).window(within);
                let own = own.unwrap_or(0..order.len());
                let before = pass * order.len();
                Some(before + own.start..before + own.end)
            }
            Epoch::Alone(_) | Epoch::Mixed { .. } | Epoch::Similar { .. } | Epoch::Chosen(_) => {
                None
            }
        }
    }

    /// One past the last position of the same window or group; the end of the epoch if there is
    /// none.
    pub fn window_end(&self, position: u64) -> u64 {
        self.window(position).map_or(u64::MAX, |window| window.end)
    }
}

impl Order {
    /// Creates an order of `len` records: shuffled in each epoch, or unshuffled without a seed.
    pub fn new(len: u64, seed: Option<u64>) -> Order {
        Order {
            len,
            seed,
            how: OrderKind::Alone,
            recent: Mutex::new(Vec::new()),
        }
    }

    /// Creates an order of grouped records, shuffled in windows of about `window_bytes`: see
    /// [`window`].
    pub fn from_windows(groups: Arc<Groups>, window_bytes: u64, seed: Option<u64>) -> Order {
        let mut order = Order::new(groups.records(), seed);
        order.how = OrderKind::Windowed(groups, window_bytes);
        order
    }

    /// Creates an order of several sources mixed by weights, with `len` positions per epoch: see
    /// [`mixture`]. Without a seed, each source is unshuffled.
    pub fn from_mixture(parts: Vec<MixturePart>, len: u64, seed: Option<u64>) -> Order {
        let weights: Vec<f64> = parts.iter().map(|part| part.weight).collect();
        let parts: Vec<Order> = parts.into_iter().map(|part| part.order).collect();
        let firsts = parts.iter().scan(0, |sum, part| {
            let first = *sum;
            *sum += part.records();
            Some(first)
        });
        let mut order = Order::new(len, seed);
        order.how = OrderKind::Mixed(Arc::new(MixedOrder {
            mixture: Mixture::new(&weights, len, seed.unwrap_or(0)),
            firsts: firsts.collect(),
            parts,
        }));
        order
    }

    /// Creates an order of records by weight: see [`weights`]. Grouped records are shuffled in
    /// windows of the given bytes.
    pub fn from_weights(
        weighted: RecordWeights,
        windows: Option<(Arc<Groups>, u64)>,
        seed: Option<u64>,
    ) -> Order {
        let mut order = Order::new(weighted.len(), seed);
        order.how = OrderKind::Weighted(Arc::new(weighted), windows);
        order
    }

    /// Creates an order whose epoch is `passes` epochs of another order; None if the number of
    /// positions overflows.
    pub fn repeat(order: Order, passes: u64) -> Option<Order> {
        let len = order.len().checked_mul(passes);
        let len = len.filter(|&len| len <= MAX_POSITIONS)?;
        let mut repeated = Order::new(len, order.seed);
        repeated.how = OrderKind::Repeated(Arc::new(order), passes);
        Some(repeated)
    }

    /// Creates an order of the same positions as another one, sorted into batches of one group; None
    /// if there are more than [`similar::MAX_POSITIONS`]: see [`similar`].
    pub fn similar(order: Order, groups: BatchGroups) -> Option<Order> {
        Order::from_batch_sort(order, BatchSort::Groups(groups))
    }

    /// Creates an order of the same positions as another one, sorted into batches with a limited
    /// number of tokens; None if there are more than [`similar::MAX_POSITIONS`]: see [`lengths`].
    pub fn by_length(order: Order, lengths: LengthBatches) -> Option<Order> {
        Order::from_batch_sort(order, BatchSort::Lengths(lengths))
    }

    /// Creates an order of `len` positions whose records [`Order::choose`] sets for each epoch, of
    /// a source of `records`.
    pub fn from_choices(len: u64, records: u64) -> Order {
        let mut order = Order::new(len, None);
        order.how = OrderKind::Chosen(records);
        order
    }

    /// Sets the records of an epoch of an order from [`Order::from_choices`]. Those of all other
    /// epochs are dropped.
    ///
    /// # Errors
    ///
    /// [`ChoiceError`]: nothing is set.
    pub fn choose(&self, epoch: u64, records: Arc<[u64]>) -> Result<(), ChoiceError> {
        let OrderKind::Chosen(known) = &self.how else {
            return Err(ChoiceError::OtherOrder);
        };
        if records.len() as u64 != self.len {
            return Err(ChoiceError::Count {
                len: self.len,
                count: records.len(),
            });
        }
        if let Some(&record) = records.iter().find(|&record| record >= known) {
            return Err(ChoiceError::Record {
                record,
                records: *known,
            });
        }
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        *recent = vec![(epoch, Arc::new(Epoch::Chosen(records)))];
        Ok(())
    }

    fn from_batch_sort(order: Order, sort: BatchSort) -> Option<Order> {
        if order.len() > similar::MAX_POSITIONS {
            return None;
        }
        let mut similar = Order::new(order.len(), order.seed);
        similar.how = OrderKind::Similar(Arc::new(order), Arc::new(sort));
        Some(similar)
    }

    /// Bytes of a window, if records are shuffled in windows.
    pub fn window(&self) -> Option<u64> {
        match &self.how {
            OrderKind::Windowed(_, bytes) | OrderKind::Weighted(_, Some((_, bytes))) => {
                self.seed.map(|_| *bytes)
            }
            OrderKind::Repeated(order, _) | OrderKind::Similar(order, _) => order.window(),
            OrderKind::Mixed(mixed) => mixed.parts.iter().filter_map(Order::window).max(),
            OrderKind::Alone | OrderKind::Weighted(_, None) | OrderKind::Chosen(_) => None,
        }
    }

    /// Number of positions of an epoch: the number of records, unless they are weighted or
    /// repeated.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Number of records.
    pub fn records(&self) -> u64 {
        match &self.how {
            OrderKind::Mixed(mixed) => mixed.parts.iter().map(Order::records).sum(),
            OrderKind::Weighted(weighted, _) => weighted.records(),
            OrderKind::Repeated(order, _) | OrderKind::Similar(order, _) => order.records(),
            OrderKind::Alone | OrderKind::Windowed(..) => self.len,
            OrderKind::Chosen(records) => *records,
        }
    }

    /// Number of groups whose records have batches of their own; None if batches have any records.
    pub fn batch_groups(&self) -> Option<usize> {
        match &self.how {
            OrderKind::Similar(_, groups) => Some(groups.count()),
            _ => None,
        }
    }

    /// Returns one past the last position of each full batch, and the rows of a full last batch, if
    /// batches differ in size.
    pub fn batch_ends(&self) -> Option<(&Arc<[u64]>, u64)> {
        match &self.how {
            OrderKind::Similar(_, sort) => match &**sort {
                BatchSort::Lengths(lengths) => Some((lengths.ends(), lengths.last_rows())),
                BatchSort::Groups(_) => None,
            },
            _ => None,
        }
    }

    /// Whether each record occurs equally often in every epoch.
    pub fn is_even(&self) -> bool {
        match &self.how {
            OrderKind::Alone | OrderKind::Windowed(..) => true,
            OrderKind::Repeated(order, _) | OrderKind::Similar(order, _) => order.is_even(),
            OrderKind::Mixed(_) | OrderKind::Weighted(..) | OrderKind::Chosen(_) => false,
        }
    }

    /// Whether an epoch has no positions.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Version of the function that gives this order. Every state contains it, so that a state of
    /// another version is rejected.
    pub fn version(&self) -> &'static str {
        match &self.how {
            OrderKind::Mixed(_) => MIXED,
            OrderKind::Chosen(_) => CHOSEN,
            OrderKind::Repeated(order, _) | OrderKind::Similar(order, _) => order.version(),
            OrderKind::Alone | OrderKind::Windowed(..) | OrderKind::Weighted(..) => ORDER,
        }
    }

    /// Hash of the multiplicities of records: weights or passes. None if each record occurs once,
    /// or the source's own weights decide.
    pub fn fingerprint(&self) -> Option<u64> {
        match &self.how {
            OrderKind::Weighted(weighted, _) => Some(weighted.fingerprint()),
            OrderKind::Repeated(order, passes) => {
                Some(hash(&[order.fingerprint().unwrap_or(0), *passes]))
            }
            OrderKind::Similar(order, groups) => Some(hash(&[
                order.fingerprint().unwrap_or(0),
                groups.fingerprint(),
            ])),
            OrderKind::Alone
            | OrderKind::Windowed(..)
            | OrderKind::Mixed(_)
            | OrderKind::Chosen(_) => None,
        }
    }

    /// Returns the order of an epoch.
    pub fn epoch(&self, epoch: u64) -> Arc<Epoch> {
        // These are computed immediately.
        if matches!(
            (&self.how, self.seed),
            (OrderKind::Repeated(..), _) | (OrderKind::Alone | OrderKind::Windowed(..), None)
        ) {
            return Arc::new(self.make_epoch(epoch));
        }
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = recent.iter().find(|(known, _)| *known == epoch) {
            return Arc::clone(known);
        }
        if let OrderKind::Chosen(_) = &self.how {
            return Arc::new(self.make_epoch(epoch));
        }
        let fresh = Arc::new(self.make_epoch(epoch));
        // Preparation works on at most a few epochs at the same time.
        if recent.len() >= 4 {
            recent.remove(0);
        }
        recent.push((epoch, Arc::clone(&fresh)));
        fresh
    }

    /// Returns the positions of an epoch that are read at about the same time as `position`,
    /// including it. These are all positions if records are independent, the window or group if
    /// records are read in groups, and a block if sources are mixed by weights. The result does not
    /// depend on the world size.
    pub fn near(&self, epoch: u64, position: u64) -> Range<u64> {
        if let OrderKind::Repeated(order, passes) = &self.how {
            let (pass, within) = (position / order.len(), position % order.len());
            let near = order.near(epoch.saturating_mul(*passes) + pass, within);
            let before = pass * order.len();
            return before + near.start..before + near.end;
        }
        if let OrderKind::Mixed(_) = &self.how {
            let begin = position / BLOCK * BLOCK;
            return begin..(begin + BLOCK).min(self.len);
        }
        self.epoch(epoch).window(position).unwrap_or(0..self.len)
    }

    fn make_epoch(&self, epoch: u64) -> Epoch {
        // Even without a seed, the part at each position and the rounding of weights are drawn.
        let seed = self.seed.unwrap_or(0);
        let key = hash(&[SHUFFLE, seed, epoch]);
        match (&self.how, self.seed) {
            (OrderKind::Alone, None) => Epoch::Alone(Permutation::Identity),
            (OrderKind::Windowed(groups, _), None) => Epoch::Grouped(Arc::clone(groups)),
            (OrderKind::Alone, Some(_)) => Epoch::Alone(Permutation::with_key(self.len, key)),
            (OrderKind::Windowed(groups, bytes), Some(_)) => {
                Epoch::Windowed(WindowOrder::new(Arc::clone(groups), *bytes, key))
            }
            (OrderKind::Mixed(mixed), _) => Epoch::Mixed {
                mixed: Arc::clone(mixed),
                key,
                epoch,
            },
            (OrderKind::Weighted(weighted, windows), shuffled) => {
                let begin = weighted.begin(seed, epoch);
                let groups = windows.as_ref().map(|(groups, bytes)| {
                    let points = Arc::new(weighted.point_groups(groups, begin));
                    (points, *bytes)
                });
                let points = match (shuffled, groups) {
                    (None, None) => Epoch::Alone(Permutation::Identity),
                    (None, Some((groups, _))) => Epoch::Grouped(groups),
                    (Some(_), None) => Epoch::Alone(Permutation::with_key(self.len, key)),
                    (Some(_), Some((groups, bytes))) => {
                        Epoch::Windowed(WindowOrder::new(groups, bytes, key))
                    }
                };
                Epoch::Weighted {
                    weighted: Arc::clone(weighted),
                    begin,
                    points: Box::new(points),
                }
            }
            (OrderKind::Repeated(order, passes), _) => Epoch::Repeated {
                order: Arc::clone(order),
                first: epoch.saturating_mul(*passes),
            },
            (OrderKind::Similar(order, groups), _) => {
                let order = order.epoch(epoch);
                let positions = groups.positions(self.len, |position| order.get(position));
                Epoch::Similar { order, positions }
            }
            (OrderKind::Chosen(_), _) => Epoch::Chosen(Arc::default()),
        }
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
    fn chosen_records_come_in_their_epoch_only() {
        let order = Order::from_choices(3, 5);
        let choose = |epoch, chosen: &[u64]| order.choose(epoch, chosen.into());

        choose(7, &[4, 0, 4]).expect("three of five records");

        assert_eq!(records(&order, 7), [4, 0, 4]);
        assert_eq!(order.records(), 5);
        assert_eq!(records(&order, 8), [0, 0, 0], "nothing is chosen");
        choose(8, &[1, 2, 3]).expect("the next epoch");
        assert_eq!(records(&order, 8), [1, 2, 3]);
        assert_eq!(order.recent.lock().expect("no panic").len(), 1);
        let count = ChoiceError::Count { len: 3, count: 2 };
        assert_eq!(choose(9, &[1, 2]), Err(count));
        let record = ChoiceError::Record {
            record: 5,
            records: 5,
        };
        assert_eq!(choose(9, &[1, 2, 5]), Err(record));
        let other = Order::new(3, Some(1)).choose(0, [0, 1, 2].into());
        assert_eq!(other, Err(ChoiceError::OtherOrder));
    }

    #[test]
    fn without_a_seed_records_keep_the_source_order() {
        assert_eq!(records(&Order::new(5, None), 7), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn unshuffled_groups_have_one_window_per_group() {
        let groups = Groups {
            ends: vec![10, 30, 30, 35],
            bytes: vec![100, 200, 0, 50],
            whole: true,
        };
        let order = Order::from_windows(Arc::new(groups), 1 << 30, None);
        let ends = [0, 9, 10, 29, 30, 34].map(|position| order.epoch(1).window_end(position));

        assert_eq!(records(&order, 1), (0..35).collect::<Vec<_>>());
        assert_eq!(ends, [10, 10, 30, 30, 35, 35]);
    }

    #[test]
    fn a_mix_has_the_window_of_its_parts() {
        let groups = Arc::new(Groups {
            ends: vec![10, 30],
            bytes: vec![100, 200],
            whole: false,
        });
        let part = |order| MixturePart { order, weight: 1.0 };
        let windowed = part(Order::from_windows(groups, 150, Some(1)));
        let mixed = Order::from_mixture(vec![part(Order::new(9, Some(1))), windowed], 39, Some(1));

        assert_eq!(mixed.window(), Some(150));
    }

    #[test]
    fn near_positions_contain_the_position_and_agree() {
        let groups = Arc::new(Groups {
            ends: vec![10, 30, 35, 80],
            bytes: vec![100, 200, 50, 450],
            whole: true,
        });
        let part = |len| MixturePart {
            order: Order::new(len, Some(1)),
            weight: 1.0,
        };
        let orders = [
            Order::new(80, Some(1)),
            Order::from_windows(Arc::clone(&groups), 300, Some(1)),
            Order::from_windows(Arc::clone(&groups), 300, None),
            Order::from_mixture(vec![part(2000), part(50)], 3000, Some(1)),
            Order::repeat(Order::from_windows(groups, 300, None), 3).expect("few"),
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

    /// A state contains the version of the order, but not the order. If an expected value changes,
    /// the version must change too.
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
            [(500, 0.7), (90, 0.3)].map(|(records, weight)| MixturePart {
                order: Order::new(records, Some(records)),
                weight,
            })
        };
        for (order, expected) in [
            (Order::new(100, Some(7)), 0x7f47_a505_3930_6500),
            (Order::new(9000, Some(7)), 0x08ed_4110_8b07_e041),
            (
                Order::from_windows(groups, 9000, Some(7)),
                0xdd75_d609_d20b_6332,
            ),
            (
                Order::from_mixture(parts().into(), 12_345, Some(7)),
                0x3480_a719_0fde_cf2f,
            ),
            (
                Order::from_mixture(parts().into(), 1000, None),
                0xea83_978c_840b_2e74,
            ),
        ] {
            assert_eq!(hash(&records(&order, 3)), expected, "{:?}", order.how);
        }
    }

    #[test]
    fn an_epoch_of_several_passes_is_consecutive_epochs_of_the_order() {
        let sizes = [40, 3, 77, 0, 12];
        let ends = sizes.iter().scan(0, |sum, size| {
            *sum += size;
            Some(*sum)
        });
        let groups = Arc::new(Groups {
            ends: ends.collect(),
            bytes: vec![1; 5],
            whole: true,
        });
        let part = |weight| MixturePart {
            order: Order::new(30, Some(1)),
            weight,
        };
        let weights: Vec<f64> = (0..132).map(|n| f64::from(n % 4)).collect();
        let weighted = RecordWeights::new(&weights, None, None).expect("weights");
        let kinds: [&dyn Fn() -> Order; 5] = [
            &|| Order::new(50, Some(1)),
            &|| Order::new(5, None),
            &|| Order::from_windows(Arc::clone(&groups), 2, Some(1)),
            &|| Order::from_mixture(vec![part(1.0), part(2.0)], 40, Some(1)),
            &|| Order::from_weights(weighted.clone(), Some((Arc::clone(&groups), 2)), Some(1)),
        ];
        for order in kinds {
            let three = Order::repeat(order(), 3).expect("few");
            let once = order();
            let passes: Vec<u64> = (6..9).flat_map(|epoch| records(&once, epoch)).collect();

            assert_eq!(records(&three, 2), passes);

            assert_eq!(three.records(), once.records());
            let (epoch, pass) = (three.epoch(2), once.epoch(7));
            for position in 0..once.len() {
                let end = pass.window_end(position).min(once.len());
                assert_eq!(epoch.window_end(once.len() + position), once.len() + end);
            }
        }
        assert!(Order::repeat(Order::new(u64::MAX / 8, None), 16).is_none());
    }

    #[test]
    fn weights_over_groups_are_drawn_in_windows_of_whole_groups() {
        let groups = Arc::new(Groups {
            ends: (1..=20).map(|n| n * 10).collect(),
            bytes: vec![100; 20],
            whole: true,
        });
        let weights: Vec<f64> = (0..200).map(|n| f64::from(n / 50)).collect();
        let weighted = RecordWeights::new(&weights, None, Some(300)).expect("weights");
        let order = Order::from_weights(weighted, Some((Arc::clone(&groups), 400)), Some(1));
        for epoch in 0..3 {
            let drawn = order.epoch(epoch);
            let mut seen = vec![0; 200];
            let mut windows_of = [0; 20];
            let mut position = 0;
            while position < order.len() {
                let end = drawn.window_end(position);
                let mut held: Vec<usize> = Vec::new();
                for position in position..end {
                    let record = drawn.get(position);
                    seen[record as usize] += 1;
                    held.push(groups.of(record));
                }
                held.sort_unstable();
                held.dedup();
                assert!(held.len() <= 4, "{held:?}");
                held.iter().for_each(|&group| windows_of[group] += 1);
                position = end;
            }
            // Weights 0 to 3 over 200 records and 300 positions: each record occurs as often as its
            // weight.
            assert!(
                (0..200).all(|record| seen[record] == record / 50),
                "{seen:?}"
            );
            assert!(windows_of.iter().all(|&windows| windows <= 1));
        }
        assert!((1..50).all(|attempt| order.substitute(0, 3, attempt) >= 50));
    }
}
