//! Decides which of two settings is faster, from rounds in which they take turns. Both then meet the
//! same load of the machine, so their ratio is known better than the duration of either.
//!
//! Numbers of workers, placements and the remedies of `infeed explain` are compared here. They differ
//! in the numbers of a [`ComparisonRule`].

/// Median of repeated measurements, with its uncertainty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Lower end.
    pub low: f64,
    /// The median.
    pub mid: f64,
    /// Upper end.
    pub high: f64,
}

/// Uncertainty of a median.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Noise {
    /// A number of standard errors of the mean. They are not robust on purpose: a disturbed round
    /// makes a decision less certain and leads to more rounds.
    StandardErrors(f64),
    /// A number of standard errors, estimated from the median absolute deviation, so that a
    /// disturbed round changes little.
    Robust {
        /// Number of standard errors.
        errors: f64,
        /// Minimum, as a share of the median.
        least: f64,
    },
}

impl Estimate {
    /// Computes median and uncertainty. Both are 0 without numbers.
    pub fn new(numbers: &[f64], noise: Noise) -> Estimate {
        let mid = median(numbers.iter().copied());
        let half = match noise {
            Noise::StandardErrors(errors) => errors * standard_error(numbers),
            Noise::Robust { errors, least } => {
                let deviation = median(numbers.iter().map(|number| (number - mid).abs()));
                // 1.4826 converts the median absolute deviation to a standard deviation for normal
                // errors.
                let standard = 1.4826 * deviation / (numbers.len().max(1) as f64).sqrt();
                (errors * standard).max(least * mid)
            }
        };
        Estimate {
            low: mid - half,
            mid,
            high: mid + half,
        }
    }
}

/// Setting with the shorter steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShorterStep {
    /// The current setting.
    Present,
    /// The setting that is compared with it.
    Challenger,
    /// Both steps take equally long, or the difference does not matter.
    Neither,
}

/// Conditions under which rounds decide a comparison. Ratios are a step of the challenger divided by
/// a step of the current setting. The first condition that holds decides.
#[derive(Clone, Copy, Debug)]
pub struct ComparisonRule {
    /// A first turn of the challenger with a step longer by this factor ends the comparison.
    pub hopeless_turn: f64,
    /// A larger median ratio ends the comparison before `least_rounds`.
    pub hopeless: f64,
    /// Minimum number of rounds before any other decision.
    pub least_rounds: usize,
    /// Number of rounds that end the comparison.
    pub most_rounds: usize,
    /// Number of standard errors that make a difference significant.
    pub errors: f64,
    /// The challenger is faster if the median ratio is below this...
    pub faster: f64,
    /// ...and its upper end below this.
    pub surely_faster: f64,
    /// The challenger is slower if the lower end of the ratio is above this...
    pub slower: f64,
    /// ...and its upper end above this.
    pub tolerated: f64,
    /// Neither is faster if the lower end of the ratio is above this...
    pub even_above: f64,
    /// ...and its upper end at most this.
    pub even_up_to: f64,
    /// Decision if `most_rounds` decide nothing. None: compare the median ratio with `faster` and
    /// `slower`.
    pub undecided: Option<ShorterStep>,
}

impl ComparisonRule {
    /// Returns whether the challenger's first turn, after one of the current setting, is so slow
    /// that no other turn is needed. Takes the durations of steps in seconds.
    pub fn ends_at_first_turn(&self, present_s: f64, challenger_s: f64) -> bool {
        challenger_s > self.hopeless_turn * present_s
    }

    /// Returns the setting with the shorter steps, from the ratio of each round. None if more rounds
    /// are needed.
    pub fn decide(&self, ratios: &[f64]) -> Option<ShorterStep> {
        let Estimate { low, mid, high } = Estimate::new(ratios, Noise::StandardErrors(self.errors));
        if ratios.len() < self.least_rounds {
            return (mid > self.hopeless).then_some(ShorterStep::Present);
        }
        if mid < self.faster && high < self.surely_faster {
            return Some(ShorterStep::Challenger);
        }
        if low > self.slower && high > self.tolerated {
            return Some(ShorterStep::Present);
        }
        if low > self.even_above && high <= self.even_up_to {
            return Some(ShorterStep::Neither);
        }
        if ratios.len() < self.most_rounds {
            return None;
        }
        self.undecided.or(Some(match mid {
            mid if mid < self.faster => ShorterStep::Challenger,
            mid if mid > self.slower => ShorterStep::Present,
            _ => ShorterStep::Neither,
        }))
    }
}

/// Returns the median. 0 without numbers.
pub fn median(numbers: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = numbers.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// Returns the standard error of the mean.
fn standard_error(numbers: &[f64]) -> f64 {
    let count = numbers.len() as f64;
    let mean = numbers.iter().sum::<f64>() / count.max(1.0);
    let squares = numbers.iter().map(|number| (number - mean).powi(2));
    (squares.sum::<f64>() / (count - 1.0).max(1.0) / count.max(1.0)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decides by a margin of 10 %, after two to four rounds.
    const RULE: ComparisonRule = ComparisonRule {
        hopeless_turn: 3.0,
        hopeless: 2.0,
        least_rounds: 2,
        most_rounds: 4,
        errors: 2.0,
        faster: 0.9,
        surely_faster: 1.0,
        slower: 1.1,
        tolerated: 1.2,
        even_above: 0.9,
        even_up_to: 1.1,
        undecided: None,
    };

    #[test]
    fn equal_rounds_decide_as_soon_as_they_are_enough() {
        assert_eq!(RULE.decide(&[0.5]), None);
        assert_eq!(RULE.decide(&[0.5; 2]), Some(ShorterStep::Challenger));
        assert_eq!(RULE.decide(&[1.5; 2]), Some(ShorterStep::Present));
        assert_eq!(RULE.decide(&[1.0; 2]), Some(ShorterStep::Neither));
        assert_eq!(RULE.decide(&[2.5]), Some(ShorterStep::Present));
    }

    #[test]
    fn noise_leads_to_more_rounds_and_the_last_round_decides_by_the_median() {
        assert_eq!(RULE.decide(&[0.6, 1.0]), None);
        assert_eq!(RULE.decide(&[0.6, 1.4, 0.5]), None);
        assert_eq!(
            RULE.decide(&[0.6, 1.4, 0.5, 0.7]),
            Some(ShorterStep::Challenger)
        );
        let even = ComparisonRule {
            undecided: Some(ShorterStep::Neither),
            ..RULE
        };
        assert_eq!(
            even.decide(&[0.6, 1.4, 0.5, 0.7]),
            Some(ShorterStep::Neither)
        );
    }

    #[test]
    fn a_slower_challenger_within_the_tolerance_is_compared_to_the_last_round() {
        assert_eq!(RULE.decide(&[1.15; 2]), None);
        assert_eq!(RULE.decide(&[1.15; 4]), Some(ShorterStep::Present));
    }

    #[test]
    fn a_far_slower_first_turn_ends_the_comparison() {
        assert!(RULE.ends_at_first_turn(1.0, 3.1));
        assert!(!RULE.ends_at_first_turn(1.0, 2.9));
    }

    #[test]
    fn one_disturbed_number_moves_no_robust_estimate() {
        let noise = Noise::Robust {
            errors: 1.5,
            least: 0.1,
        };

        let disturbed = Estimate::new(&[2.0, 2.01, 1.99, 2.0, 9.0], noise);

        assert!((disturbed.mid - 2.0).abs() < 1e-9);
        assert!((disturbed.high - 2.2).abs() < 1e-9, "{disturbed:?}");
        let wide = Estimate::new(&[2.0, 2.01, 1.99, 2.0, 9.0], Noise::StandardErrors(2.0));
        assert!(wide.high > 4.0, "{wide:?}");
    }

    #[test]
    fn the_median_of_an_even_number_is_the_middle_of_two() {
        assert_eq!(median([4.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median([]), 0.0);
    }
}
