//! A number with a lower and an upper bound.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A measured or predicted number with its bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// The most likely value.
    pub mid: f64,
    /// Upper end.
    pub high: f64,
}

/// Ratio of the ends of an interval above which it contains almost any result.
const WIDE: f64 = 2.0;

/// A predicted interval compared with the measured value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PredictionOutcome {
    /// The interval contains the value.
    Held,
    /// The interval contains the value, and is too wide for a success.
    TooWide,
    /// The value is outside of the interval.
    Missed,
}

impl PredictionOutcome {
    /// Returns the outcome for a sentence, such as `within the interval`.
    pub fn text(self) -> &'static str {
        match self {
            PredictionOutcome::Held => "within the interval",
            PredictionOutcome::TooWide => "within the interval, which is too wide to count",
            PredictionOutcome::Missed => "outside the interval",
        }
    }
}

impl Interval {
    /// Returns an interval without spread.
    pub fn exact(value: f64) -> Interval {
        Interval {
            low: value,
            mid: value,
            high: value,
        }
    }

    /// Applies `f` to each end. `f` must not decrease.
    pub fn map(self, f: impl Fn(f64) -> f64) -> Interval {
        Interval {
            low: f(self.low),
            mid: f(self.mid),
            high: f(self.high),
        }
    }

    /// Moves both ends away from the middle by `share` of the middle. An end above 0 does not fall
    /// below 0.
    pub fn widen(self, share: f64) -> Interval {
        Interval {
            low: (self.low - share * self.mid).max(self.low.min(0.0)),
            mid: self.mid,
            high: self.high + share * self.mid,
        }
    }

    /// Divides the lower end by `factor` and multiplies the upper end by it.
    pub fn spread(self, factor: f64) -> Interval {
        Interval {
            low: self.low / factor,
            mid: self.mid,
            high: self.high * factor,
        }
    }

    /// Returns whether the interval is too wide to answer a question: its upper end is more than
    /// twice the lower one.
    pub fn is_wide(self) -> bool {
        self.high > WIDE * self.low
    }

    /// Compares a predicted interval with the measured value.
    pub fn outcome(self, measured: f64) -> PredictionOutcome {
        match self.holds(measured) {
            false => PredictionOutcome::Missed,
            true if self.is_wide() => PredictionOutcome::TooWide,
            true => PredictionOutcome::Held,
        }
    }

    /// Returns whether the interval contains a value.
    pub fn holds(self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}
