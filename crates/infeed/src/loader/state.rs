//! State of a run, a few numbers: enough to resume mid-epoch without reading consumed records.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::digest::Digest;
use crate::pipeline::{Pipeline, RaggedLayout};
use crate::plan::device::DecodeBy;
use infeed_codec::transform::Transform;
use infeed_core::error::Error;
use infeed_core::order::Order;
use infeed_core::order::partition::{Partition, Tail};
use infeed_core::parse_problem::in_words;
use infeed_core::printable::excerpt;
use infeed_core::random::{hash, hash_bytes};
use infeed_source::Source;

/// Version of the state format.
pub(super) const VERSION: u32 = 1;

/// State from which a run resumes. It is equal on all ranks, except for the bad records, which each
/// rank met itself. They only continue the count and change no batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoaderState {
    /// Version of the format.
    pub version: u32,
    /// Version of the order function.
    pub order: String,
    /// Seed of the order; `None` for the source's own order.
    pub seed: Option<u64>,
    /// Window size in bytes for shuffling shards; `None` if records are shuffled one by one.
    #[serde(default)]
    pub window: Option<u64>,
    /// Positions of an epoch.
    pub records: u64,
    /// Rows of the global batch.
    pub batch: u64,
    /// Whether an incomplete last batch is dropped.
    pub drop_last: bool,
    /// How an incomplete last batch is filled: `Pad` or `Wrap`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<Tail>,
    /// Epoch of the next batch.
    pub epoch: u64,
    /// Position in the epoch of the next batch's first row. Counts *delivered* batches.
    pub position: u64,
    /// Fingerprint of the data: names, counts and selected records.
    pub data: String,
    /// Fingerprint of decoding, boxes, points, transforms, weights and passes.
    pub description: String,
    /// Digest of all batches delivered before. `None` in the states of several ranks, because each
    /// rank knows only its own rows. The sum of their digests may be stored here.
    // Always written: distributed checkpoints expect the keys of a fresh loader.
    #[serde(default)]
    pub digest: Option<Digest>,
    /// Name of the device's JPEG decoder, if a device decoded. Its pixels differ from the host's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decoder: Option<String>,
    /// Number of records in 16 that the device decoded, if it did not decode all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decoder_share: Option<u8>,
    /// Names of the functions on samples and batches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub python: Vec<String>,
    /// Number of ranks, if functions on batches depend on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks: Option<u64>,
    /// Bad records that this rank skipped or substituted: epoch and position of the first
    /// occurrence, and number. Always written: `torch.distributed` loads a checkpoint key by key
    /// and asks for the keys of a fresh state.
    #[serde(default)]
    pub bad: Vec<(u64, u64, u64)>,
}

impl LoaderState {
    /// Creates the state before the first step.
    pub(super) fn begin(
        pipeline: &Pipeline,
        source: &dyn Source,
        (order, partition): (&Order, &Partition),
        ranks: u64,
    ) -> LoaderState {
        let tail = partition.tail();
        LoaderState {
            version: VERSION,
            order: order.version().to_owned(),
            seed: pipeline.shuffle.map(|shuffle| shuffle.seed),
            window: order.window(),
            records: order.len(),
            batch: partition.global(),
            drop_last: tail == Tail::Drop,
            tail: matches!(tail, Tail::Pad | Tail::Wrap).then_some(tail),
            epoch: 0,
            position: 0,
            data: hex(source.fingerprint()),
            description: hex(fingerprint(pipeline, order.fingerprint())),
            digest: None,
            decoder: None,
            decoder_share: None,
            python: functions(pipeline),
            ranks: pipeline.has_batch_functions().then_some(ranks),
            bad: Vec::new(),
        }
    }

    /// Returns the state as JSON: under 300 bytes, plus bad records, plus 17 for a digest of
    /// pixels.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a state holds plain data")
    }

    /// Reads a state.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if the text is not a state.
    pub fn from_json(text: &str) -> Result<LoaderState, Error> {
        serde_json::from_str(text).map_err(|error: serde_json::Error| {
            let problem = in_words(&error.to_string());
            Error::config(
                "state",
                format!("it is not a loader state: {}", excerpt(&problem)),
            )
        })
    }

    /// Describes the differences that keep a run from resuming another run's state.
    pub(super) fn differences(&self, saved: &LoaderState) -> Vec<String> {
        let seed = |state: &LoaderState| match state.seed {
            Some(seed) => seed.to_string(),
            None => "none".to_owned(),
        };
        let window = |state: &LoaderState| match state.window {
            Some(bytes) => bytes.to_string(),
            None => "all".to_owned(),
        };
        let tail = |state: &LoaderState| match (state.tail, state.drop_last) {
            (Some(tail), _) => tail.name(),
            (None, true) => Tail::Drop.name(),
            (None, false) => Tail::Keep.name(),
        };
        let names = |names: &[String]| match names {
            [] => "none".to_owned(),
            names => names.join(", "),
        };
        let decode = |state: &LoaderState| match (&state.decoder, state.decoder_share) {
            (None, _) => DecodeBy::share_name(DecodeBy::Cpu.share()),
            (Some(_), share) => DecodeBy::share_name(share.unwrap_or(DecodeBy::Gpu.share())),
        };
        let ranks = |state: &LoaderState| match state.ranks {
            Some(ranks) => ranks.to_string(),
            None => "of no effect".to_owned(),
        };
        let facts = |state: &LoaderState| {
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
                    "the description's fingerprint (decode, transforms, fuse, boxes, weights, repeat)",
                    state.description.clone(),
                ),
            ]
        };
        let both = facts(self).into_iter().zip(facts(saved));
        both.filter(|((_, now), (_, then))| now != then)
            .map(|((name, now), (_, then))| format!("{name} is {now}, was {}", excerpt(&then)))
            .collect()
    }
}

/// Formats a fingerprint for states.
pub(super) fn hex(fingerprint: u64) -> String {
    format!("{fingerprint:016x}")
}

/// Fingerprint of the parts of a description that change the bits of a batch, apart from source and
/// order. `order` covers weights and passes, whose numbers no file contains.
pub(super) fn fingerprint(pipeline: &Pipeline, order: Option<u64>) -> u64 {
    // The location of a palette changes no bit.
    let mut transforms = pipeline.transforms.clone();
    for palette in transforms.iter_mut().filter_map(Transform::palette_mut) {
        let name = Path::new(palette.as_str()).file_name();
        *palette = name.unwrap_or_default().to_string_lossy().into_owned();
    }
    let description = (
        &pipeline.decode,
        &transforms,
        &pipeline.output,
        pipeline.batch.pad,
    );
    let shapes = (&pipeline.boxes, &pipeline.points, pipeline.batch.ragged);
    let has_shapes = !pipeline.boxes.is_empty() || !pipeline.points.is_empty();
    let is_ragged = pipeline.batch.ragged != RaggedLayout::default();
    // A function's process and import path change no bit.
    let functions = pipeline.python.iter();
    let functions: Vec<_> = functions
        .map(|spec| (&spec.function, spec.on, &spec.fields, &spec.output))
        .collect();
    let json = match functions.is_empty() {
        true => serde_json::to_vec(&description),
        false => serde_json::to_vec(&(description, functions)),
    };
    let bytes = |json: Result<Vec<u8>, serde_json::Error>| {
        hash_bytes(&json.expect("a description holds plain data with string keys"))
    };
    let mut parts = vec![bytes(json)];
    parts.extend((has_shapes || is_ragged).then(|| bytes(serde_json::to_vec(&shapes))));
    let declared = &pipeline.declare;
    parts.extend((!declared.is_empty()).then(|| bytes(serde_json::to_vec(declared))));
    parts.extend(pipeline.fuse.then(|| hash_bytes(b"fuse")));
    parts.extend(order);
    match parts[..] {
        [done] => done,
        _ => hash(&parts),
    }
}

/// Names of all functions, for states.
fn functions(pipeline: &Pipeline) -> Vec<String> {
    let names = pipeline.python.iter();
    names.map(|spec| spec.function.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::{BoxesSpec, SourceSpec};
    use infeed_codec::transform::{BoxFormat, ClassIndex, Crop};
    use infeed_core::order::ORDER;

    /// A number larger than any dataset's records.
    const LARGE: u64 = 1 << 48;

    fn state(seed: u64, batch: u64) -> LoaderState {
        LoaderState {
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
    fn a_state_without_tail_and_digest_is_read() {
        let old = r#"{"version":1,"order":"feistel8","seed":1,"records":9,"batch":2,
            "drop_last":true,"epoch":0,"position":4,"data":"0","description":"0"}"#;

        let state = LoaderState::from_json(old).expect("the format is unchanged");

        assert_eq!((state.tail, state.digest), (None, None));
        let now = LoaderState {
            tail: Some(Tail::Pad),
            drop_last: false,
            ..state.clone()
        };
        assert_eq!(now.differences(&state), ["tail is pad, was drop"]);
    }

    #[test]
    fn ranks_of_a_run_without_batch_functions_are_named() {
        let saved = LoaderState {
            ranks: Some(1),
            ..state(1, 64)
        };

        assert_eq!(
            state(1, 64).differences(&saved),
            ["ranks (python_batch sees the batch of one) is of no effect, was 1"]
        );
    }

    #[test]
    fn the_fingerprint_depends_on_bits_and_not_on_the_location_of_data() {
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
        assert_ne!(of(&pipeline), of(&pipeline.clone().fuse()));
        let [here, there, other] = ["a/1.csv", "/b/1.csv", "a/2.csv"]
            .map(|palette| pipeline.clone().transform(ClassIndex::new(palette)));
        assert_eq!(of(&here), of(&there));
        assert_ne!(of(&here), of(&other));
        assert_ne!(
            of(&pipeline),
            of(&pipeline
                .clone()
                .boxes(BoxesSpec::new("boxes", BoxFormat::Xyxy)))
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
