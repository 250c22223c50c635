//! The steps of a run in memory.

use serde::{Deserialize, Serialize};

use super::keys::{KeyKind, RowKey};
use crate::loader::digest::{Digest, DigestScope};
use crate::loader::state::LoaderState;
use crate::loader::{OnError, Options};
use infeed_core::error::Error;

/// A recorded run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunRecord {
    /// The run of infeed's own loader that was recorded; `None` for other loaders.
    pub run: Option<RecordedRun>,
    /// By number, each number once.
    steps: Vec<RecordedStep>,
    kind: Option<KeyKind>,
}

/// A run of infeed's own loader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedRun {
    /// Content of the digests of steps.
    pub digest: DigestScope,
    /// Rank whose rows are recorded.
    pub rank: u64,
    /// Number of ranks.
    pub world_size: u64,
    /// Policy for bad records.
    pub on_error: OnError,
    /// State before the first step; a compared run must agree with it.
    pub begin: LoaderState,
}

/// A recorded step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedStep {
    /// Number of the step in the run, from 0, across epochs.
    pub step: u64,
    /// Keys of its rows, all of one kind.
    pub rows: Vec<RowKey>,
    /// Digest of its rows, for runs of infeed's own loader.
    pub digest: Option<Digest>,
}

impl RecordedRun {
    pub(in crate::loader) fn new(options: &Options, begin: &LoaderState) -> RecordedRun {
        RecordedRun {
            digest: options.digest,
            rank: options.rank,
            world_size: options.world_size,
            on_error: options.on_error,
            begin: begin.clone(),
        }
    }

    /// Whether digests of two runs can be compared: the same run of the same rank, perhaps on
    /// another machine.
    pub(super) fn is_same_run(&self, other: &RecordedRun) -> bool {
        (self.rank, self.world_size) == (other.rank, other.world_size)
            && self.begin.differences(&other.begin).is_empty()
    }
}

impl RunRecord {
    /// Adds a step. If it is not after the last one, the run continues there: the step replaces all
    /// steps from its number on.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if its keys are of another kind than those before it.
    pub fn push(&mut self, step: RecordedStep) -> Result<(), Error> {
        while self.steps.last().is_some_and(|last| last.step >= step.step) {
            self.steps.pop();
        }
        let kind = step.rows.first().map(RowKey::kind);
        if let (Some(before), Some(kind)) = (self.kind, kind)
            && before != kind
        {
            return Err(Error::config(
                format!("step {}", step.step),
                format!("it has {kind}, and the steps before it have {before}"),
            ));
        }
        self.kind = self.kind.or(kind);
        self.steps.push(step);
        Ok(())
    }

    /// Returns the steps, by number.
    pub fn steps(&self) -> &[RecordedStep] {
        &self.steps
    }

    /// Returns the step with a number.
    pub fn get(&self, step: u64) -> Option<&RecordedStep> {
        let at = self.steps.binary_search_by_key(&step, |found| found.step);
        at.ok().map(|at| &self.steps[at])
    }

    /// Returns the kind of the keys; `None` if no step has a row.
    pub fn kind(&self) -> Option<KeyKind> {
        self.kind
    }
}
