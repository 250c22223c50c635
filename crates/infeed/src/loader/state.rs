//! Where a run is, in a few numbers: enough to go on mid-epoch without reading what was consumed.

use serde::{Deserialize, Serialize};

use super::Loader;
use super::digest::Digest;
use crate::error::Error;
use crate::order::partition::Tail;
use crate::pipeline::Pipeline;
use crate::plan::device::DecodeBy;
use crate::random::{hash, hash_bytes};

/// Version of the state's form.
pub(super) const VERSION: u32 = 1;

/// What a run needs to go on where it was. The same on all ranks, but for the bad records, which are
/// those that this rank met: they say what to count on from and change no batch.
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
    #[serde(default)]
    pub window: Option<u64>,
    /// Positions of an epoch.
    pub records: u64,
    /// Rows of the global batch.
    pub batch: u64,
    /// Whether a last batch that is not full is left out.
    pub drop_last: bool,
    /// How it is filled up instead: `Pad` or `Wrap`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<Tail>,
    /// Epoch of the next batch.
    pub epoch: u64,
    /// Position in the epoch of the next batch's first row: what was *delivered* counts.
    pub position: u64,
    /// Fingerprint of the data: names and counts, and which records are selected.
    pub data: String,
    /// Fingerprint of what is done to a record, and of weights and passes.
    pub description: String,
    /// Digest of all that was delivered before. None where that is not known: in the states of
    /// several ranks, each of which knows its own rows; the sum of theirs may be put here.
    // Written even so: distributed checkpoints want the keys that a fresh loader has.
    #[serde(default)]
    pub digest: Option<Digest>,
    /// What decoded JPEGs where a device did: other pixels than the host's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decoder: Option<String>,
    /// Records of 16 that were the device's, where not all were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decoder_share: Option<u8>,
    /// Names of the functions that samples and batches go through.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub python: Vec<String>,
    /// How many ranks there were, where functions are called with the batch of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks: Option<u64>,
    /// Bad records that this rank skipped or substituted so far: epoch and position where each was met
    /// first, and its number. Written where there are none too: what loads a checkpoint key by key
    /// (that of `torch.distributed`) asks for the keys that a fresh state has.
    #[serde(default)]
    pub bad: Vec<(u64, u64, u64)>,
}

impl State {
    /// The state as JSON, under 300 bytes without its bad records and a digest of pixels, which has 17.
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

    /// What differs between two runs, so that one cannot go on from the other's state.
    pub(super) fn differences(&self, saved: &State) -> Vec<String> {
        let seed = |state: &State| match state.seed {
            Some(seed) => seed.to_string(),
            None => "none".to_owned(),
        };
        let window = |state: &State| match state.window {
            Some(bytes) => bytes.to_string(),
            None => "all".to_owned(),
        };
        let tail = |state: &State| match (state.tail, state.drop_last) {
            (Some(tail), _) => tail.name(),
            (None, true) => Tail::Drop.name(),
            (None, false) => Tail::Keep.name(),
        };
        let names = |names: &[String]| match names {
            [] => "none".to_owned(),
            names => names.join(", "),
        };
        let decode = |state: &State| match (&state.decoder, state.decoder_share) {
            (None, _) => DecodeBy::told(DecodeBy::Cpu.share()),
            (Some(_), share) => DecodeBy::told(share.unwrap_or(DecodeBy::Gpu.share())),
        };
        let ranks = |state: &State| state.ranks.map_or(String::new(), |ranks| ranks.to_string());
        let facts = |state: &State| {
            [
                ("version", state.version.to_string()),
                ("order", state.order.clone()),
                ("seed", seed(state)),
                ("window", window(state)),
                ("records", state.records.to_string()),
                ("global batch", state.batch.to_string()),
                ("tail", tail(state).to_owned()),
                ("decode", decode(state)),
                ("python", names(&state.python)),
                ("ranks (python_batch sees the batch of one)", ranks(state)),
                (
                    "the data's fingerprint (names, counts, filter, split, take)",
                    state.data.clone(),
                ),
                (
                    "the description's fingerprint (weights and repeat, too)",
                    state.description.clone(),
                ),
            ]
        };
        let both = facts(self).into_iter().zip(facts(saved));
        both.filter(|((_, now), (_, then))| now != then)
            .map(|((name, now), (_, then))| format!("{name} is {now}, was {then}"))
            .collect()
    }
}

/// A fingerprint as states write it.
pub(super) fn hex(fingerprint: u64) -> String {
    format!("{fingerprint:016x}")
}

/// What of a description changes the bits of a batch, beside its source and order.
/// Weights and passes are in the order, whose numbers no file holds.
pub(super) fn fingerprint(pipeline: &Pipeline, order: Option<u64>) -> u64 {
    let description = (
        &pipeline.decode,
        &pipeline.transforms,
        &pipeline.output,
        pipeline.batch.pad,
    );
    // Where a function runs and how it came here changes no bit.
    let functions = pipeline.python.iter();
    let functions: Vec<_> = functions
        .map(|spec| (&spec.function, spec.on, &spec.fields, &spec.output))
        .collect();
    let json = match functions.is_empty() {
        true => serde_json::to_vec(&description),
        false => serde_json::to_vec(&(description, functions)),
    };
    let done = hash_bytes(&json.expect("a description holds plain data with string keys"));
    order.map_or(done, |order| hash(&[done, order]))
}

/// Names of all functions, as a state holds them.
pub(super) fn functions(pipeline: &Pipeline) -> Vec<String> {
    let names = pipeline.python.iter();
    names.map(|spec| spec.function.clone()).collect()
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
        state.bad = self.bad_before(state.epoch, state.position);
        state.digest = (self.options.world_size == 1).then(|| self.digest());
        state
    }

    /// Goes on where a run was, in O(1): nothing that was consumed is read again. Another number
    /// of workers or ranks does not matter.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] naming what differs, if the state is of another dataset, description,
    /// seed or batch; or as [`Loader::seek`].
    pub fn restore(&self, saved: &State) -> Result<(), Error> {
        let differences = self.begin.differences(saved);
        if !differences.is_empty() {
            let problem = format!(
                "it is of another run ({}); open the pipeline as it was, or load the state with \
                 strict=False",
                differences.join("; ")
            );
            return Err(Error::config("state", problem));
        }
        if !saved.position.is_multiple_of(saved.batch.max(1)) {
            let problem = format!("position {} is inside a batch", saved.position);
            return Err(Error::config("state", problem));
        }
        self.go_on(saved, saved.position / saved.batch.max(1))
    }

    /// As [`Loader::restore`] where that would refuse: goes on at the same place of this loader's
    /// own order, and says what that means. Nothing said: it went on as if nothing had changed.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a state of another version, or as [`Loader::seek`].
    pub fn restore_anyway(&self, saved: &State) -> Result<Vec<String>, Error> {
        if saved.version != VERSION {
            let problem = format!("version {} is not known; this is {VERSION}", saved.version);
            return Err(Error::config("state", problem));
        }
        let mut notes = self.begin.differences(saved);
        // A batch that was delivered in part is delivered again rather than left out.
        let step = saved.position / self.begin.batch.max(1);
        let steps = self.steps()?;
        let mut place = saved.clone();
        let step = match step < steps {
            true => step,
            false => {
                place.epoch += 1;
                0
            }
        };
        if !notes.is_empty() {
            notes.push(format!(
                "it goes on at step {step} of epoch {} in the order of this loader: some records \
                 of the epoch may come twice and others not at all",
                place.epoch
            ));
        }
        self.go_on(&place, step)?;
        Ok(notes)
    }

    fn go_on(&self, saved: &State, step: u64) -> Result<(), Error> {
        self.seek(saved.epoch, step)?;
        if let (Some(now), Some(then)) = (&self.begin.decoder, &saved.decoder)
            && now != then
        {
            let text = format!(
                "JPEGs are decoded by {now} from here on, and were by {then}: their pixels are near \
                 each other's and not the same"
            );
            tracing::warn!("{text}");
            self.progress().notices.push(text);
        }
        self.take_bad_from(saved);
        self.take_digest_from(saved);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::ORDER;
    use crate::pipeline::SourceSpec;
    use crate::transform::Crop;

    /// More records than any dataset has.
    const LARGE: u64 = 1 << 48;

    fn state(seed: u64, batch: u64) -> State {
        State {
            version: VERSION,
            order: ORDER.to_owned(),
            seed: Some(seed),
            window: Some(u64::from(u32::MAX)),
            records: LARGE,
            batch,
            drop_last: false,
            tail: Some(Tail::Wrap),
            epoch: u64::from(u32::MAX),
            position: LARGE,
            data: hex(u64::MAX),
            description: hex(1),
            digest: Some(Digest {
                ids: u64::MAX,
                pixels: None,
            }),
            decoder: None,
            decoder_share: None,
            python: Vec::new(),
            ranks: None,
            bad: Vec::new(),
        }
    }

    #[test]
    fn a_state_is_under_300_bytes_and_names_what_differs() {
        let (saved, now) = (state(u64::MAX, u64::from(u32::MAX)), state(1, 64));

        let json = saved.to_json();

        assert!(json.len() < 300, "{} bytes: {json}", json.len());
        assert_eq!(
            now.differences(&saved),
            [
                "seed is 1, was 18446744073709551615",
                "global batch is 64, was 4294967295"
            ]
        );
    }

    #[test]
    fn a_state_from_before_there_were_tails_and_digests_is_read() {
        let old = r#"{"version":1,"order":"feistel8","seed":1,"records":9,"batch":2,
            "drop_last":true,"epoch":0,"position":4,"data":"0","description":"0"}"#;

        let state = State::from_json(old).expect("the form has not changed");

        assert_eq!((state.tail, state.digest), (None, None));
        let now = State {
            tail: Some(Tail::Pad),
            drop_last: false,
            ..state.clone()
        };
        assert_eq!(now.differences(&state), ["tail is pad, was drop"]);
    }

    #[test]
    fn what_changes_bits_changes_the_fingerprint_and_where_data_lies_does_not() {
        let pipeline = Pipeline::new(SourceSpec::folder("a")).decode();

        let of = |pipeline: &Pipeline| fingerprint(pipeline, None);

        assert_eq!(
            of(&pipeline),
            of(&Pipeline::new(SourceSpec::folder("b")).decode())
        );
        assert_ne!(
            of(&pipeline),
            of(&pipeline.clone().transform(Crop::new(2, 2)))
        );
        assert_eq!(of(&pipeline), of(&pipeline.clone().batch(7)));
        let (twice, thrice) = (Some(2), Some(3));
        assert_ne!(of(&pipeline), fingerprint(&pipeline, twice));
        assert_ne!(
            fingerprint(&pipeline, twice),
            fingerprint(&pipeline, thrice)
        );
    }
}
