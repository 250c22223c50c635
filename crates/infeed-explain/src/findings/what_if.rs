//! The answer to a what-if question: the rate with the changes, and the arithmetic of each change.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::crossover::Crossover;
use crate::model::interval::Interval;
use crate::model::limit::{Limit, Resource};

/// The prediction for a [`WhatIf`](crate::WhatIf). Rates are in samples per second.
#[derive(Clone, Debug, Default, JsonSchema, Serialize, Deserialize)]
pub struct WhatIfReport {
    /// The changes in a few words, such as `16 cores, storage s3`.
    pub question: String,
    /// The rate now, by the same model.
    pub rate_now: Interval,
    /// The limit now. None if no resource limits.
    pub limit_now: Option<Limit>,
    /// The rate with the changes.
    pub rate: Interval,
    /// The rate with the changes, divided by the rate now.
    pub gain: Interval,
    /// The limit with the changes. None if no resource limits.
    pub limit: Option<Limit>,
    /// Samples per batch with the changes.
    pub batch_rows: u64,
    /// Time of a step with the changes, in seconds.
    pub step_time: Interval,
    /// The rate that each resource allows with the changes, lowest first.
    pub resources: Vec<Resource>,
    /// The step times at which the limit changes, with the changes.
    pub crossovers: Vec<Crossover>,
    /// Each change with its arithmetic.
    pub changes: Vec<PredictedChange>,
}

/// One change of a [`WhatIf`](crate::WhatIf) with its arithmetic.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct PredictedChange {
    /// The option: `cores`, `ram`, `storage` or `batch`.
    pub option: String,
    /// Arithmetic of the rates, one sentence each.
    pub arithmetic: Vec<String>,
    /// Assumptions that were not measured, one sentence each.
    pub assumptions: Vec<String>,
    /// The numbers of the arithmetic by name. Times in seconds, sizes in bytes, shares from 0 to 1.
    pub values: BTreeMap<String, f64>,
}

impl PredictedChange {
    pub(crate) fn new(option: &str) -> PredictedChange {
        PredictedChange {
            option: option.to_owned(),
            ..PredictedChange::default()
        }
    }

    pub(crate) fn value(&mut self, name: &str, value: f64) {
        self.values.insert(name.to_owned(), value);
    }

    pub(crate) fn says(&mut self, sentence: impl Into<String>) {
        self.arithmetic.push(sentence.into());
    }

    pub(crate) fn assumes(&mut self, sentence: impl Into<String>) {
        self.assumptions.push(sentence.into());
    }
}
