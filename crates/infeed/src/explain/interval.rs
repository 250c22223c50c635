//! A number that is known to lie between two others.

use serde::{Deserialize, Serialize};

/// A measured or predicted number and how sure it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// The most likely value.
    pub mid: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// A number without spread.
    pub fn exact(value: f64) -> Interval {
        Interval {
            low: value,
            mid: value,
            high: value,
        }
    }

    /// Each end by `f`, which must not fall.
    pub fn map(self, f: impl Fn(f64) -> f64) -> Interval {
        Interval {
            low: f(self.low),
            mid: f(self.mid),
            high: f(self.high),
        }
    }

    /// Both ends moved away from the middle by a share of it.
    pub fn widen(self, share: f64) -> Interval {
        Interval {
            low: self.low - share * self.mid,
            mid: self.mid,
            high: self.high + share * self.mid,
        }
    }

    /// Whether a value lies in it.
    pub fn holds(self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}
