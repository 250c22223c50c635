//! Where a run is, in a few numbers: enough to go on mid-epoch without reading what was consumed.

use serde::{Deserialize, Serialize};

use super::Loader;
use crate::error::Error;
use crate::order::ORDER;

/// Version of the state's form.
const VERSION: u32 = 1;

/// What a run needs to go on where it was. The same on all ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Version of this form.
    pub version: u32,
    /// Version of the order function.
    pub order: String,
    /// Seed of the order; None for the source's own.
    pub seed: Option<u64>,
    /// Bytes of the windows in which shards are shuffled; None where records are shuffled one by
    /// one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// Records of the source.
    pub records: u64,
    /// Rows of the global batch.
    pub batch: u64,
    /// Whether a last batch that is not full is left out.
    pub drop_last: bool,
    /// Epoch of the next batch.
    pub epoch: u64,
    /// Position in the epoch of the next batch's first row: what was *delivered* counts.
    pub position: u64,
}

impl State {
    /// The state as JSON, under 300 bytes.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a state holds plain data")
    }

    /// Reads a state.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if the text is none.
    pub fn from_json(text: &str) -> Result<State, Error> {
        serde_json::from_str(text)
            .map_err(|error| Error::config("state", format!("it is no state of a loader: {error}")))
    }

    /// The state at the beginning of a run.
    pub(super) fn begin(
        seed: Option<u64>,
        window: Option<u64>,
        records: u64,
        batch: u64,
        drop_last: bool,
    ) -> State {
        State {
            version: VERSION,
            order: ORDER.to_owned(),
            seed,
            window,
            records,
            batch,
            drop_last,
            epoch: 0,
            position: 0,
        }
    }

    /// What differs between two runs, so that one cannot go on from the other's state.
    fn differences(&self, saved: &State) -> Vec<String> {
        let mut found = Vec::new();
        let mut compare = |name: &str, now: String, then: String| {
            if now != then {
                found.push(format!("{name} is {now}, was {then}"));
            }
        };
        let seed = |state: &State| {
            state
                .seed
                .map_or("none".to_owned(), |seed| seed.to_string())
        };
        compare(
            "version",
            self.version.to_string(),
            saved.version.to_string(),
        );
        compare("order", self.order.clone(), saved.order.clone());
        compare("seed", seed(self), seed(saved));
        let window = |state: &State| {
            state
                .window
                .map_or("all".to_owned(), |bytes| bytes.to_string())
        };
        compare("window", window(self), window(saved));
        compare(
            "records",
            self.records.to_string(),
            saved.records.to_string(),
        );
        compare(
            "global batch",
            self.batch.to_string(),
            saved.batch.to_string(),
        );
        compare(
            "drop_last",
            self.drop_last.to_string(),
            saved.drop_last.to_string(),
        );
        found
    }
}

impl Loader {
    /// Where the run is.
    pub fn state(&self) -> State {
        let (epoch, step) = self.place();
        let mut state = self.begin.clone();
        // After the last step the next batch is the next epoch's first.
        let over = self.steps().is_ok_and(|steps| step == steps);
        (state.epoch, state.position) = if over {
            (epoch + 1, 0)
        } else {
            (epoch, step * state.batch)
        };
        state
    }

    /// Goes on where a run was, in O(1): nothing that was consumed is read again. Another number
    /// of workers or ranks does not matter.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] naming what differs, if the state is of another dataset, seed or batch;
    /// or as [`Loader::seek`].
    pub fn restore(&self, saved: &State) -> Result<(), Error> {
        let differences = self.begin.differences(saved);
        if !differences.is_empty() {
            let problem = format!(
                "it is of another run ({}); open the pipeline as it was",
                differences.join("; ")
            );
            return Err(Error::config("state", problem));
        }
        if !saved.position.is_multiple_of(saved.batch.max(1)) {
            let problem = format!("position {} is inside a batch", saved.position);
            return Err(Error::config("state", problem));
        }
        self.seek(saved.epoch, saved.position / saved.batch.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_a_few_hundred_bytes_and_names_what_differs() {
        let state = State::begin(Some(u64::MAX), Some(u64::MAX), u64::MAX, u64::MAX, false);
        let other = State::begin(Some(1), Some(u64::MAX), u64::MAX, 64, false);

        assert!(state.to_json().len() < 300);
        assert_eq!(
            other.differences(&state),
            [
                "seed is 1, was 18446744073709551615",
                "global batch is 64, was 18446744073709551615"
            ]
        );
    }
}
