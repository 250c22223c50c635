//! A rate as a function of the number of cores: measured with up to all cores here, and
//! extrapolated beyond.

use crate::model::interval::Interval;

/// Additional spread for each doubling of the measured cores. Assumed: other caches, memory and
/// clock rates of a larger machine are unknown.
const PER_DOUBLING: f64 = 0.05;

/// Growth for each doubling, as an exponent, if scaling could not be measured. Assumed: 0.7 is a
/// rate of 1.62 with twice the cores.
const UNMEASURED: f64 = 0.7;

/// Rates by number of cores.
#[derive(Clone, Debug, Default)]
pub(super) struct Scaling {
    /// Number of cores and rate, ascending.
    points: Vec<(usize, Interval)>,
    /// Number of cores, counting hardware threads of one core once. The growth is measured up to
    /// this number, because more threads of the same cores add less than more cores.
    physical: usize,
}

impl Scaling {
    /// Creates the function from measured points, one for each number of cores.
    pub(super) fn new(mut points: Vec<(usize, Interval)>, physical: usize) -> Scaling {
        points.sort_by_key(|(cores, _)| *cores);
        Scaling { points, physical }
    }

    /// Returns the largest measured number of cores. 0 without points.
    pub(super) fn most_cores(&self) -> usize {
        self.points.last().map_or(0, |(cores, _)| *cores)
    }

    /// Returns the measured exponent of the growth, 0 to 1: a rate is proportional to cores to the
    /// power of it. None with one point.
    pub(super) fn exponent(&self) -> Option<f64> {
        let (one, first) = self.points.first()?;
        let distinct = self.points.iter().rev();
        let (all, last) = distinct
            .clone()
            .find(|(cores, _)| *cores <= self.physical)?;
        let grown = (last.mid / first.mid).ln() / (*all as f64 / *one as f64).ln();
        (all > one && grown.is_finite()).then(|| grown.clamp(0.0, 1.0))
    }

    /// Returns the rate with a number of cores. None without points.
    ///
    /// Between two measured numbers, the rate is interpolated on logarithmic scales. Beyond the
    /// last one, the lower end continues the measured growth for each doubling, the upper end is
    /// proportional to the cores, and the middle is their geometric mean. Each doubling widens the
    /// interval.
    pub(super) fn at(&self, cores: usize) -> Option<Interval> {
        let (first, last) = (self.points.first()?, self.points.last()?);
        if let Some((_, rate)) = self.points.iter().find(|(count, _)| *count == cores) {
            return Some(*rate);
        }
        if cores < first.0 {
            let less = cores as f64 / first.0 as f64;
            return Some(first.1.map(|rate| rate * less));
        }
        if cores > last.0 {
            return Some(self.beyond(cores as f64 / last.0 as f64, last.1));
        }
        let after = self.points.iter().position(|(count, _)| *count > cores)?;
        let (low, high) = (self.points[after - 1], self.points[after]);
        let part = (cores as f64 / low.0 as f64).ln() / (high.0 as f64 / low.0 as f64).ln();
        let between = |a: f64, b: f64| a.powf(1.0 - part) * b.powf(part);
        Some(Interval {
            low: between(low.1.low, high.1.low),
            mid: between(low.1.mid, high.1.mid),
            high: between(low.1.high, high.1.high),
        })
    }

    fn beyond(&self, factor: f64, last: Interval) -> Interval {
        let exponent = self.exponent().unwrap_or(UNMEASURED);
        let (least, most) = (factor.powf(exponent), factor);
        let wider = PER_DOUBLING * factor.log2();
        Interval {
            low: last.low * least * (1.0 - wider).max(0.0),
            mid: last.mid * (least * most).sqrt(),
            high: last.high * most * (1.0 + wider),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scaling(points: &[(usize, f64)], physical: usize) -> Scaling {
        let points = points.iter().map(|&(n, rate)| (n, Interval::exact(rate)));
        Scaling::new(points.collect(), physical)
    }

    #[test]
    fn measured_numbers_are_returned_and_those_between_interpolated() {
        let found = scaling(&[(4, 400.0), (1, 100.0)], 4);

        assert_eq!(found.at(4), Some(Interval::exact(400.0)));
        let two = found.at(2).expect("points");
        assert!((two.mid - 200.0).abs() < 1e-9, "{two:?}");
        assert_eq!(Scaling::default().at(2), None);
        assert_eq!(scaling(&[(2, 100.0)], 2).at(1), Some(Interval::exact(50.0)));
    }

    #[test]
    fn beyond_the_cores_the_interval_spans_measured_and_full_growth() {
        let found = scaling(&[(1, 100.0), (2, 190.0)], 2);

        // ln 1.9 / ln 2
        let exponent = found.exponent().expect("two points");
        assert!((exponent - 0.925_999).abs() < 1e-6);
        let sixteen = found.at(16).expect("points");
        let (power, linear) = (190.0 * 1.9_f64.powi(3), 1520.0);
        // Three doublings widen both ends by 15 %.
        assert!((sixteen.low - 0.85 * power).abs() < 1e-6, "{sixteen:?}");
        assert!((sixteen.high - 1.15 * linear).abs() < 1e-6, "{sixteen:?}");
        assert!((sixteen.mid - (power * linear).sqrt()).abs() < 1e-6);
        // The interval grows with the distance.
        let width = |n| found.at(n).map(|rate| rate.high / rate.low);
        assert!(width(4) < width(8) && width(8) < width(64));
    }

    #[test]
    fn second_hardware_threads_do_not_count_as_growth_of_cores() {
        let threads = scaling(&[(1, 100.0), (2, 190.0), (4, 230.0)], 2);
        let exponent = threads.exponent().expect("two cores");
        assert!((exponent - 0.925_999).abs() < 1e-6);

        // Two threads of one core do not show how cores scale.
        let one = scaling(&[(1, 100.0), (2, 130.0)], 1);
        assert_eq!(one.exponent(), None);
        let four = one.at(4).expect("points");
        assert!(four.low < 130.0 * 2.0_f64.powf(UNMEASURED));
        assert!(four.high > 260.0);
    }

    #[test]
    fn a_rate_that_more_cores_do_not_raise_has_exponent_0() {
        let flat = scaling(&[(1, 100.0), (2, 95.0)], 2);

        assert_eq!(flat.exponent(), Some(0.0));
        assert_eq!(flat.at(8).map(|rate| rate.mid), Some(190.0));
    }
}
