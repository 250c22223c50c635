//! A part of the records, such as for validation.

use std::fmt;

use serde::{Deserialize, Serialize};

use infeed_core::error::Error;
use infeed_core::order::mixture::shares;
use infeed_core::order::permute::Permutation;
use infeed_core::random::hash;
use infeed_source::subset::Subset;

/// Separates the key of a split from all other keys.
const SPLIT: u64 = 7;

/// Largest difference of the sum of shares from 1: allows rounding, and no forgotten part.
const ROUNDING: f64 = 1e-6;

/// One part of the records. The record numbers, the number of records and the seed determine the
/// part. The parts of one split are disjoint, and together they contain all records.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordSplit {
    /// Share of each part; the sum is 1.
    pub shares: Vec<f64>,
    /// Index of the part, from 0.
    pub part: usize,
    /// Seed of the division into parts.
    #[serde(default)]
    pub seed: u64,
}

impl RecordSplit {
    pub(super) fn check(&self) -> Result<(), Error> {
        let wrong = |problem: String| Err(Error::config("split", problem));
        if let Some(share) = self
            .shares
            .iter()
            .find(|share| !(share.is_normal() && **share > 0.0))
        {
            return wrong(format!("a share must be greater than 0, not {share}"));
        }
        let sum: f64 = self.shares.iter().sum();
        if (sum - 1.0).abs() > ROUNDING {
            return wrong(format!(
                "the shares add up to {sum}, not 1; list the remaining part too"
            ));
        }
        if self.part >= self.shares.len() {
            return wrong(format!(
                "no part {}; there are {} parts, numbered from 0",
                self.part,
                self.shares.len()
            ));
        }
        Ok(())
    }

    /// Returns the records of `subset` that are in this part.
    pub(super) fn apply(&self, subset: &Subset) -> Result<Subset, Error> {
        let counts = shares(&self.shares, subset.len());
        let begin: u64 = counts[..self.part].iter().sum();
        let own = begin..begin + counts[self.part];
        if own.is_empty() {
            let problem = format!(
                "part {} has none of {} records; use a larger share",
                self.part,
                subset.len()
            );
            return Err(Error::config("split", problem));
        }
        let places = Permutation::with_key(subset.len(), hash(&[SPLIT, self.seed]));
        Ok(subset.filter(|place, _| own.contains(&places.get(place))))
    }
}

impl fmt::Display for RecordSplit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shares: Vec<String> = self.shares.iter().map(f64::to_string).collect();
        write!(
            f,
            "part {} of {}, seed {}",
            self.part,
            shares.join(" / "),
            self.seed
        )
    }
}
