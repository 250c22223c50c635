//! Draws records by weight in exact numbers: evenly spaced points on the cumulative weights.
//!
//! The weights of all records form consecutive intervals. An epoch of N positions has N evenly
//! spaced points on them, and a record occurs once for each point in its interval: its share of N,
//! rounded down or up. The offset of the first point decides which records are rounded up. It
//! follows the reversed digits of the epoch number, so that the points of 2, 4, 8, … epochs
//! together are evenly spaced again, and the counts over all of them are as exact.
//!
//! Weights are converted to integers once, so that all later arithmetic is exact.
//!
//! Source: systematic sampling, Madow and Madow, "On the Theory of Systematic Sampling" (1944);
//! van der Corput's sequence for the epochs.

use super::window::Groups;
use crate::random::hash;

/// Maximum number of bits of the sum of all weights.
const BITS: i32 = 62;

/// Separates the key of the points' offset from other keys.
const POINTS: u64 = 6;

/// Consecutive records of equal weight.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    /// One past its last record.
    end: u64,
    /// Cumulative weight up to its end.
    sum: u64,
}

/// Reason why weights are invalid.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)]
pub enum WeightsError {
    #[error("record {record} has the weight {weight}; weights must be numbers of at least zero")]
    Number { record: u64, weight: f64 },
    #[error("all weights are zero; give at least one record a positive weight")]
    Zero,
}

/// Number of occurrences of each record in an epoch.
#[derive(Clone, Debug)]
pub struct RecordWeights {
    stretches: Vec<Stretch>,
    /// Records in the order in which their weights are added up; None: by number.
    listed: Option<Vec<u64>>,
    /// Number of positions of an epoch.
    len: u64,
}

impl RecordWeights {
    /// Takes one weight per record and the number of positions of an epoch. Records of weight zero
    /// never occur. `len` None means the number of records with a positive weight.
    ///
    /// `listed` gives the numbers of all records in another order. `weights` then follow that
    /// order, and the number of occurrences is also exact for records that are adjacent in it.
    ///
    /// # Errors
    ///
    /// A weight is negative or not finite, or all weights are zero.
    pub fn new(
        weights: &[f64],
        listed: Option<Vec<u64>>,
        len: Option<u64>,
    ) -> Result<RecordWeights, WeightsError> {
        for (at, &weight) in weights.iter().enumerate() {
            if !weight.is_finite() || weight < 0.0 {
                let record = listed.as_ref().map_or(at as u64, |listed| listed[at]);
                return Err(WeightsError::Number { record, weight });
            }
        }
        let most = weights.iter().copied().fold(0.0, f64::max);
        if most == 0.0 {
            return Err(WeightsError::Zero);
        }
        // The largest weight is below two to this power, and the sum is below that times the number
        // of records.
        let (_, exponent) = libm::frexp(most);
        let room = BITS - (u64::BITS - (weights.len() as u64).leading_zeros()) as i32;
        let whole = |weight: f64| match weight {
            0.0 => 0,
            // Scaling by a power of two changes no digit; a tiny positive weight stays positive.
            _ => (libm::ldexp(weight, room - exponent).round() as u64).max(1),
        };
        let mut stretches: Vec<Stretch> = Vec::new();
        let (mut sum, mut last) = (0, None);
        for (end, &weight) in (1..).zip(weights) {
            let one = whole(weight);
            sum += one;
            match stretches.last_mut().filter(|_| last == Some(one)) {
                Some(stretch) => *stretch = Stretch { end, sum },
                None => stretches.push(Stretch { end, sum }),
            }
            last = Some(one);
        }
        stretches.shrink_to_fit();
        let some = || weights.iter().filter(|&&weight| weight > 0.0).count() as u64;
        Ok(RecordWeights {
            stretches,
            listed,
            len: len.unwrap_or_else(some),
        })
    }

    /// Number of positions of an epoch.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether an epoch has no positions.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of records, including those of weight zero.
    pub fn records(&self) -> u64 {
        self.stretches.last().map_or(0, |last| last.end)
    }

    /// Hash of the weights and the number of positions.
    pub fn fingerprint(&self) -> u64 {
        let stretches = self.stretches.iter();
        let numbers = stretches.fold(0, |sum, one| hash(&[sum, one.end, one.sum]));
        let listed = self.listed.as_deref().unwrap_or_default();
        hash(&[self.len, numbers, hash(listed)])
    }

    /// Offset of the points of an epoch.
    pub(super) fn begin(&self, seed: u64, epoch: u64) -> u64 {
        let share = |of: u64| scale(of, self.sum());
        (share(hash(&[POINTS, seed])) + share(epoch.reverse_bits())) % self.sum()
    }

    /// Returns the record at a point of an epoch.
    pub(super) fn at(&self, begin: u64, point: u64) -> u64 {
        let place = u128::from(point) * u128::from(self.sum()) + u128::from(begin);
        self.record((place / u128::from(self.len)) as u64)
    }

    /// Draws a record by its weight.
    pub(super) fn draw(&self, by: u64) -> u64 {
        self.record(scale(by, self.sum()))
    }

    /// Returns groups of points for groups of records. A group has as many points as fall on its
    /// records.
    pub(super) fn point_groups(&self, groups: &Groups, begin: u64) -> Groups {
        // The first point at or after a weight: point * sum + begin >= weight * len.
        let before = |&end: &u64| {
            let weight = u128::from(self.before(end)) * u128::from(self.len);
            let points = weight.saturating_sub(u128::from(begin));
            points.div_ceil(u128::from(self.sum())) as u64
        };
        Groups {
            ends: groups.ends.iter().map(before).collect(),
            bytes: groups.bytes.clone(),
            whole: groups.whole,
        }
    }

    fn sum(&self) -> u64 {
        self.stretches.last().map_or(0, |last| last.sum)
    }

    /// Number of records and weight before a stretch.
    fn start(&self, stretch: usize) -> (u64, u64) {
        let before = stretch.checked_sub(1).map(|before| self.stretches[before]);
        before.map_or((0, 0), |before| (before.end, before.sum))
    }

    /// Returns the record at a cumulative weight below the sum.
    fn record(&self, weight: u64) -> u64 {
        let stretch = self.stretches.partition_point(|one| one.sum <= weight);
        let (first, sum) = self.start(stretch);
        let found = self.stretches[stretch];
        let each = (found.sum - sum) / (found.end - first);
        let place = first + (weight - sum) / each;
        let listed = self.listed.as_ref();
        listed.map_or(place, |listed| listed[place as usize])
    }

    /// Returns the cumulative weight of all records before `record`.
    fn before(&self, record: u64) -> u64 {
        let stretch = self.stretches.partition_point(|one| one.end <= record);
        let (first, sum) = self.start(stretch);
        let Some(found) = self.stretches.get(stretch) else {
            return sum;
        };
        sum + (found.sum - sum) / (found.end - first) * (record - first)
    }
}

/// Scales `part` of 2^64 to a part of `whole`.
fn scale(part: u64, whole: u64) -> u64 {
    ((u128::from(part) * u128::from(whole)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts the occurrences of each record in an epoch.
    fn counts(weighted: &RecordWeights, epoch: u64) -> Vec<u64> {
        let mut counts = vec![0; weighted.records() as usize];
        let begin = weighted.begin(3, epoch);
        for point in 0..weighted.len() {
            counts[weighted.at(begin, point) as usize] += 1;
        }
        counts
    }

    fn close(counts: &[u64], weights: &[f64], len: u64) {
        assert_eq!(counts.iter().sum::<u64>(), len);
        let sum: f64 = weights.iter().sum();
        for (record, (&count, weight)) in counts.iter().zip(weights).enumerate() {
            let share = weight / sum * len as f64;
            // Shares that are integers may be off by a rounding of this check.
            let (low, high) = ((share - 1e-6).floor(), (share + 1e-6).ceil());
            let count = count as f64;
            assert!(
                low <= count && count <= high,
                "{record}: {count} of {share}"
            );
        }
    }

    #[test]
    fn counts_are_rounded_shares_in_one_epoch_and_in_many() {
        let random: Vec<f64> = (0..500)
            .map(|n| (hash(&[n]) >> 40) as f64 * (n % 3) as f64)
            .collect();
        for (weights, len) in [
            (vec![1.0; 37], 37),
            (vec![0.1, 0.2, 0.7], 10),
            (vec![3.0, 0.0, 1.0, 1.0, 0.0, 2.5], 7),
            (vec![1e-300, 2e-300], 9),
            (vec![1e300, 3e300, 0.0], 4000),
            (random.clone(), 100),
            (random, 12_345),
            (vec![5.0], 3),
        ] {
            let weighted = RecordWeights::new(&weights, None, Some(len)).expect("weights");
            for epochs in [1, 2, 4, 16] {
                let mut together = vec![0; weights.len()];
                for epoch in 3 * epochs..4 * epochs {
                    let counts = counts(&weighted, epoch);
                    close(&counts, &weights, len);
                    together
                        .iter_mut()
                        .zip(counts)
                        .for_each(|(sum, n)| *sum += n);
                }
                close(&together, &weights, len * epochs);
            }
        }
    }

    #[test]
    fn equal_weights_occur_once_and_rounding_changes_by_epoch() {
        let equal = RecordWeights::new(&[0.3; 1000], None, None).expect("weights");
        assert!((0..5).all(|epoch| counts(&equal, epoch).iter().all(|&n| n == 1)));

        let third = RecordWeights::new(&[1.0; 9], None, Some(3)).expect("weights");
        let mut together = vec![0; 9];
        for epoch in 0..4 {
            let counts = counts(&third, epoch);
            together
                .iter_mut()
                .zip(counts)
                .for_each(|(sum, n)| *sum += n);
        }
        assert!(together.iter().all(|&n| n == 1 || n == 2), "{together:?}");
    }

    #[test]
    fn a_weight_of_zero_is_left_out_and_an_epoch_has_the_others_once() {
        let weighted = RecordWeights::new(&[0.0, 2.0, 0.0, 2.0, 0.0], None, None).expect("weights");

        assert_eq!(counts(&weighted, 0), [0, 1, 0, 1, 0]);
        assert!((0..100).all(|n| weighted.draw(hash(&[n])) % 2 == 1));
    }

    #[test]
    fn an_invalid_weight_is_rejected_with_its_record() {
        for (weights, expected) in [
            (vec![1.0, -0.5], "record 1 has the weight -0.5"),
            (vec![f64::NAN], "record 0 has the weight NaN"),
            (vec![1.0, 2.0, f64::INFINITY], "record 2 has the weight inf"),
            (vec![0.0, 0.0], "all weights are zero"),
            (vec![], "all weights are zero"),
        ] {
            let error = RecordWeights::new(&weights, None, None).expect_err(expected);
            assert!(error.to_string().contains(expected), "{error}");
        }
        let error = RecordWeights::new(&[1.0, -1.0], Some(vec![7, 4]), None).expect_err("negative");
        assert!(error.to_string().contains("record 4"), "{error}");
    }

    #[test]
    fn points_of_a_group_are_on_its_records() {
        let weights: Vec<f64> = (0..60).map(|n| f64::from(n * 7 % 5)).collect();
        let weighted = RecordWeights::new(&weights, None, Some(77)).expect("weights");
        let groups = Groups {
            ends: vec![0, 11, 12, 40, 40, 60],
            bytes: vec![10; 6],
            whole: true,
        };
        for epoch in 0..9 {
            let begin = weighted.begin(3, epoch);

            let points = weighted.point_groups(&groups, begin);

            assert_eq!(points.records(), 77);
            for point in 0..77 {
                let record = weighted.at(begin, point);
                assert_eq!(points.of(point), groups.of(record), "point {point}");
            }
        }
    }

    #[test]
    fn records_listed_by_class_occur_in_exact_numbers_by_class() {
        // Class 0 has the even records, each of weight 2; class 1 has the odd ones.
        let listed: Vec<u64> = (0..50)
            .map(|n| 2 * n)
            .chain((0..50).map(|n| 2 * n + 1))
            .collect();
        let weights: Vec<f64> = (0..100).map(|n| if n < 50 { 2.0 } else { 1.0 }).collect();
        let weighted = RecordWeights::new(&weights, Some(listed), Some(90)).expect("weights");

        for epoch in 0..20 {
            let of_class = counts(&weighted, epoch).into_iter().step_by(2).sum::<u64>();
            assert_eq!(of_class, 60);
        }
    }
}
