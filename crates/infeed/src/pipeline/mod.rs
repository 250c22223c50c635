//! What the user asked for: a description, plain data, the same in Rust, Python, TOML and JSON.
//!
//! Nothing here runs. The planner checks a description against its source and turns it into what
//! runs.

mod filter;
mod function;
pub mod packed;
mod select;
mod source;
mod weights;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::decode::{ColorMode, Limits};
use crate::error::Error;
use crate::order::window::Groups;
use crate::order::{Order, Part};
use crate::random::hash;
use crate::sample::DType;
use crate::source::Source;
use crate::transform::Transform;

pub use crate::order::partition::Tail;
pub use filter::{Class, Filter};
pub use function::{Bound, FunctionSpec};
pub use select::Split;
pub use source::{FieldSpec, Handle, MemoryField, MixPart, SourceSpec};
pub use weights::{ClassWeight, Weights};

/// Keeps the seeds of a mix's parts apart from others.
const PART: u64 = 4;

/// Version of the file form.
pub const VERSION: u32 = 1;

/// A pipeline as described: where records lie, their order, and what becomes of them.
///
/// ```no_run
/// use infeed::pipeline::{Pipeline, SourceSpec};
/// use infeed::transform::{RandomHorizontalFlip, RandomResizedCrop};
///
/// let train = Pipeline::new(SourceSpec::folder("imagenet/train"))
///     .shuffle(0)
///     .decode()
///     .transform(RandomResizedCrop::new(224))
///     .transform(RandomHorizontalFlip::new(0.5))
///     .batch(256)
///     .drop_last();
/// let mut loader = train.open(&infeed::Options::default())?;
/// while let Some(batch) = loader.next_batch()? {
///     let images = batch.array("image"); // uint8 [256, 224, 224, 3]
/// }
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pipeline {
    /// Version of the form, 1.
    #[serde(default = "version")]
    pub version: u32,
    /// Only the first so many records of those that filter and split leave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub take: Option<u64>,
    /// So many passes in an epoch, each in an order of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeat: Option<u64>,
    /// Fields that geometric transforms leave as they are, although they may hold coordinates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keep: Vec<String>,
    /// Where records lie.
    pub source: SourceSpec,
    /// Which records stay: those that all of these keep.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filter: Vec<Filter>,
    /// Only a part of those.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<Split>,
    /// How often each of what is left comes; absent: once in a pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<Weights>,
    /// Absent: the source's own order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shuffle: Option<Shuffle>,
    /// Absent: encoded images are given out as bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decode: Option<Decode>,
    /// Applied in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub transforms: Vec<Transform>,
    /// How pixels are laid out in a batch.
    #[serde(default)]
    pub output: Output,
    /// Absent: batches of one.
    #[serde(default)]
    pub batch: BatchSpec,
    /// Functions of the user's: those on samples in order, then those on batches in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub python: Vec<FunctionSpec>,
    /// Why its calls cannot run in the order in which they were written; no part of a description,
    /// whose order is that of its parts.
    #[serde(skip)]
    pub misplaced: Option<Misplaced>,
}

/// A call that was written behind one that it cannot follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misplaced {
    /// What errors call the part.
    pub part: &'static str,
    /// What it comes behind, and the order that works.
    pub problem: &'static str,
}

/// The order of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shuffle {
    /// Seed of the order and of every random parameter.
    pub seed: u64,
    /// How far records of shards are mixed. Absent: in windows of [`WINDOW_BYTES`], or of
    /// [`WHOLE_WINDOW_BYTES`] where a shard or row group can only be read whole. Means nothing
    /// where records lie by themselves: they are always mixed all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Window>,
}

/// How far records of shards are mixed: shards are permuted, and records within a window of
/// shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", untagged)]
pub enum Window {
    /// As many shards as have so many bytes, one at least.
    Bytes(u64),
    /// Over the whole dataset: `"all"`.
    All(All),
}

/// The word `all`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum All {
    /// `"all"`.
    All,
}

/// A window over shards whose records can be read one by one. The same on every machine, as the
/// order must be.
pub const WINDOW_BYTES: u64 = 512 << 20;

/// A window over shards that can only be read whole: it has to fit in memory, and the next beside
/// it.
pub const WHOLE_WINDOW_BYTES: u64 = 64 << 20;

/// How encoded images become pixels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Decode {
    /// Turn pixels upright as EXIF says.
    pub orient: bool,
    /// Verify checksums where the format has them.
    pub verify: bool,
    /// Allow a JPEG to be decoded at a reduced DCT scale where a large downscale follows.
    /// Not equal to the exact pixels, and of modest gain: most of a JPEG's time is entropy coding.
    ///
    /// Of 300 ImageNet JPEGs, 14 are large enough for it before `Resize(256), CenterCrop(224)` and 7
    /// before one draw of `RandomResizedCrop(224)`: those are 38.9 and 38.0 dB (PSNR, mean) from
    /// the exact pixels, 30.9 and 28.6 dB at worst, and an epoch gains 2 %. Of 46 street scenes of
    /// 960x720, all and 33 are: 47.9 and 34.7 dB, 44.2 and 25.8 dB at worst, and an epoch gains 23 %
    /// and 19 % (`examples/dct_scale.rs`, one core of an AMD EPYC, Zen 4).
    pub dct_scale: bool,
    /// Images of more pixels are bad records; checked before anything is allocated.
    #[serde(skip_serializing_if = "is_default_limit")]
    pub max_pixels: u64,
    /// Pixels wanted, by field; otherwise RGB for images, and for masks RGB where a palette
    /// names their colours, else the stored 8-bit samples.
    #[serde(skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub modes: std::collections::BTreeMap<String, ColorMode>,
}

impl Default for Decode {
    fn default() -> Decode {
        Decode {
            orient: false,
            verify: true,
            dct_scale: false,
            max_pixels: Limits::DEFAULT_MAX_PIXELS,
            modes: Default::default(),
        }
    }
}

/// Order of the axes of an image in a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Layout {
    /// `[N, H, W, C]`.
    #[default]
    #[serde(rename = "HWC")]
    Hwc,
    /// `[N, C, H, W]`.
    #[serde(rename = "CHW")]
    Chw,
}

/// How pixels are laid out in a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Output {
    /// Order of the axes of images and one-hot masks.
    pub layout: Layout,
    /// Element type of images: float32 after `ToFloat` or `Normalize`, else as decoded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dtype: Option<DType>,
}

/// How samples are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BatchSpec {
    /// Rows of the global batch, over all ranks.
    // A default of its own, so that `per_rank` alone does not bring the batch of one with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Rows of each rank's batch: the other spelling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_rank: Option<u64>,
    /// Leave out a last batch that is not full: the other spelling of `tail = "drop"`.
    pub drop_last: bool,
    /// Pad samples of differing sizes with zeros to the largest of their batch.
    pub pad: bool,
    /// What becomes of a last batch that is not full. Absent: as `drop_last` says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tail: Option<Tail>,
}

impl BatchSpec {
    /// Whether each batch of a rank is one sample, so that rows cannot differ in shape.
    pub fn is_of_one(&self) -> bool {
        matches!(
            (self.size, self.per_rank),
            (Some(1), None) | (None, Some(1))
        )
    }

    /// What becomes of a last batch that is not full, by whichever spelling.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if the two contradict each other.
    pub fn settled_tail(&self) -> Result<Tail, Error> {
        match (self.tail, self.drop_last) {
            (None, false) => Ok(Tail::Keep),
            (None | Some(Tail::Drop), _) => Ok(Tail::Drop),
            (Some(tail), false) => Ok(tail),
            (Some(tail), true) => {
                let problem = format!(
                    "drop_last leaves the last batch out and tail=\"{}\" does not; give one of \
                     them",
                    tail.name()
                );
                Err(Error::config("batch", problem))
            }
        }
    }
}

impl Default for BatchSpec {
    fn default() -> BatchSpec {
        BatchSpec {
            size: Some(1),
            per_rank: None,
            drop_last: false,
            pad: false,
            tail: None,
        }
    }
}

fn version() -> u32 {
    VERSION
}

fn is_default_limit(pixels: &u64) -> bool {
    *pixels == Limits::DEFAULT_MAX_PIXELS
}

impl Pipeline {
    /// Records of a source in its own order, one a batch.
    pub fn new(source: SourceSpec) -> Pipeline {
        Pipeline {
            version: VERSION,
            take: None,
            repeat: None,
            keep: Vec::new(),
            source,
            filter: Vec::new(),
            split: None,
            weights: None,
            shuffle: None,
            decode: None,
            transforms: Vec::new(),
            output: Output::default(),
            batch: BatchSpec::default(),
            python: Vec::new(),
            misplaced: None,
        }
    }

    /// Notes that a call cannot run where it was written; the first one is the error.
    fn note_misplaced(&mut self, condition: bool, part: &'static str, problem: &'static str) {
        if condition && self.misplaced.is_none() {
            self.misplaced = Some(Misplaced { part, problem });
        }
    }

    /// Shuffles anew in each epoch.
    pub fn shuffle(mut self, seed: u64) -> Pipeline {
        self.shuffle = Some(Shuffle { seed, window: None });
        self
    }

    /// Lets records come by weight.
    pub fn weights(mut self, weights: Weights) -> Pipeline {
        self.weights = Some(weights);
        self
    }

    /// Makes an epoch of so many passes, each in an order of its own.
    pub fn repeat(mut self, passes: u64) -> Pipeline {
        self.repeat = Some(passes);
        self
    }

    /// Refuses a selection, weights or passes that cannot be, as far as that shows without a source.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] naming the part and the mend.
    pub fn check_selection(&self) -> Result<(), Error> {
        self.check_chosen()?;
        self.weights.as_ref().map_or(Ok(()), Weights::check)?;
        match self.repeat {
            Some(0) => Err(Error::config("repeat", "it is at least 1")),
            _ => Ok(()),
        }
    }

    /// The order of a source's records under this description; the source is what
    /// [`Pipeline::select`] made of the description's own. `handles` are what weights refer to.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for weights that do not go with the source, or more positions than can be
    /// counted.
    pub fn order(&self, source: &dyn Source, handles: &[Handle]) -> Result<Order, Error> {
        let window = self.shuffle.and_then(|shuffle| shuffle.window);
        let seed = self.shuffle.map(|shuffle| shuffle.seed);
        let once = match &self.weights {
            Some(weights) => {
                let weighted = weights.resolve(source, handles)?;
                Order::weighted(weighted, windows(source, window), seed)
            }
            None => order(source, window, seed),
        };
        let Some(passes) = self.repeat else {
            return Ok(once);
        };
        let len = once.len();
        Order::repeated(once, passes).ok_or_else(|| {
            let problem =
                format!("{passes} passes of {len} positions are more than can be counted");
            Error::config("repeat", problem)
        })
    }

    /// Bytes of the windows in which groups are shuffled; None where nothing is, or record by
    /// record.
    pub(crate) fn window_bytes(&self, groups: &Groups) -> Option<u64> {
        self.shuffle
            .and_then(|shuffle| window_bytes(shuffle.window, groups))
    }

    /// Decodes images with the defaults; for others set [`Pipeline::decode`].
    pub fn decode(mut self) -> Pipeline {
        let is_late = !self.transforms.is_empty() || !self.python.is_empty();
        self.note_misplaced(
            is_late,
            "decode",
            "it runs before transforms and functions; write .decode() before them",
        );
        self.decode = Some(Decode::default());
        self
    }

    /// Adds a transform.
    pub fn transform(mut self, transform: impl Into<Transform>) -> Pipeline {
        let is_late = !self.python.is_empty();
        self.note_misplaced(
            is_late,
            "transform",
            "transforms run before functions; write .transform(...) before .function(...), or do \
             its work in the function",
        );
        self.transforms.push(transform.into());
        self
    }

    /// Declares that geometric transforms leave these fields as they are: for coordinates that are
    /// right all the same, and numbers that only look like coordinates.
    pub fn keep<S: Into<String>>(mut self, fields: impl IntoIterator<Item = S>) -> Pipeline {
        self.keep.extend(fields.into_iter().map(Into::into));
        self
    }

    /// Sets the order of axes.
    pub fn layout(mut self, layout: Layout) -> Pipeline {
        self.output.layout = layout;
        self
    }

    /// Sets the element type of images.
    pub fn dtype(mut self, dtype: DType) -> Pipeline {
        self.output.dtype = Some(dtype);
        self
    }

    /// Sets the rows of the global batch.
    pub fn batch(mut self, rows: u64) -> Pipeline {
        self.batch.size = Some(rows);
        self.batch.per_rank = None;
        self
    }

    /// Leaves out a last batch that is not full.
    pub fn drop_last(mut self) -> Pipeline {
        self.batch.drop_last = true;
        self
    }

    /// Says what becomes of a last batch that is not full.
    pub fn tail(mut self, tail: Tail) -> Pipeline {
        self.batch.tail = Some(tail);
        self
    }

    /// Pads samples of differing sizes to the largest of their batch.
    pub fn pad(mut self) -> Pipeline {
        self.batch.pad = true;
        self
    }

    /// Reads a description from TOML.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] with line and column of what is wrong.
    pub fn from_toml(text: &str) -> Result<Pipeline, Error> {
        let pipeline: Pipeline = toml::from_str(text)
            .map_err(|error| Error::config("pipeline file", error.to_string().trim_end()))?;
        pipeline.known_version()
    }

    /// Reads a description from JSON.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] with what is wrong.
    pub fn from_json(text: &str) -> Result<Pipeline, Error> {
        let pipeline: Pipeline = serde_json::from_str(text)
            .map_err(|error| Error::config("pipeline", error.to_string()))?;
        pipeline.known_version()
    }

    fn known_version(self) -> Result<Pipeline, Error> {
        if self.version == VERSION {
            return Ok(self);
        }
        let problem = format!(
            "version {} is not known; this infeed reads {VERSION}",
            self.version
        );
        Err(Error::config("pipeline", problem))
    }

    /// Writes the description as TOML.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if the source or a function is in memory: no file holds that. Arrays in
    /// files are named by path.
    pub fn to_toml(&self) -> Result<String, Error> {
        if let Some(name) = self.weights.as_ref().and_then(Weights::held) {
            let problem = format!(
                "the array `{name}` is in memory and cannot be saved; write it with np.save and give \
                 np.load(path, mmap_mode=\"r\")"
            );
            return Err(Error::config("weights", problem));
        }
        let names = self.source.held();
        if !names.is_empty() {
            let problem = format!(
                "what is in memory ({}) cannot be saved; write it to files first",
                names.join(", ")
            );
            return Err(Error::config("source", problem));
        }
        let functions = self.held_functions();
        if !functions.is_empty() {
            let problem = format!(
                "no file can hold {}; put it in a module, so that it can be imported",
                functions.join(", ")
            );
            return Err(Error::config("python", problem));
        }
        toml::to_string(self).map_err(|error| Error::config("pipeline", error.to_string()))
    }

    /// Writes the description as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a description holds plain data with string keys")
    }

    /// Reads a TOML file, or that of a packed dataset of which the folder is named; see
    /// [`packed::PIPELINE`] for what relative paths mean.
    ///
    /// # Errors
    ///
    /// [`Error::Open`] or as [`Pipeline::from_toml`]; [`Error::Config`] for a packed dataset that
    /// is not complete.
    pub fn load(path: impl AsRef<Path>) -> Result<Pipeline, Error> {
        let path = path.as_ref();
        let file = match packed::is_folder(path) {
            true => packed::pipeline_of(path)?,
            false => path.to_owned(),
        };
        let text = packed::text_of(&file)?;
        let pipeline = Pipeline::from_toml(&text).map_err(|error| match error {
            Error::Config { problem, .. } => Error::config(file.display().to_string(), problem),
            other => other,
        })?;
        let folder = file.parent().unwrap_or(Path::new(""));
        if !packed::belongs(&file) {
            return Ok(pipeline);
        }
        packed::pipeline_of(folder)?;
        Ok(pipeline.from_folder(folder))
    }

    /// Writes a TOML file.
    ///
    /// # Errors
    ///
    /// As [`Pipeline::to_toml`], or [`Error::Open`].
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        fs::write(path, self.to_toml()?).map_err(|error| Error::open(path, error))
    }
}

fn order(source: &dyn Source, window: Option<Window>, seed: Option<u64>) -> Order {
    if let Some((sources, weights)) = source.mixed() {
        let part = |(at, (source, &weight)): (usize, (&Arc<dyn Source>, &f64))| Part {
            // Two parts of one length must not come in the same order.
            order: order(
                &**source,
                window,
                seed.map(|seed| hash(&[PART, seed, at as u64])),
            ),
            weight,
        };
        let parts = sources.iter().zip(&weights.shares).enumerate().map(part);
        let epoch = weights.epoch.unwrap_or_else(|| source.len());
        return Order::mixed(parts.collect(), epoch, seed);
    }
    match windows(source, window) {
        Some((groups, bytes)) => Order::windowed(groups, bytes, seed),
        None => Order::new(source.len(), seed),
    }
}

/// The groups of a source and the bytes of the windows they are shuffled in; None where records are
/// shuffled one by one.
fn windows(source: &dyn Source, window: Option<Window>) -> Option<(Arc<Groups>, u64)> {
    let groups = source.groups()?;
    let bytes = window_bytes(window, &groups)?;
    Some((groups, bytes))
}

/// Bytes of the windows in which groups are shuffled; None for none.
fn window_bytes(window: Option<Window>, groups: &Groups) -> Option<u64> {
    match window {
        Some(Window::All(_)) if !groups.whole => None,
        Some(Window::All(_)) => Some(u64::MAX),
        Some(Window::Bytes(bytes)) => Some(bytes),
        None if groups.whole => Some(WHOLE_WINDOW_BYTES),
        None => Some(WINDOW_BYTES),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transform::{Crop, OneHot, ToFloat};

    #[test]
    fn a_description_survives_toml_and_json_unchanged() {
        let mut pipeline = Pipeline::new(SourceSpec::pairs("train", "train_labels"))
            .shuffle(7)
            .decode()
            .transform(Crop::new(512, 512))
            .transform(ToFloat::of("image"))
            .transform(OneHot::from_palette("class_dict.csv"))
            .layout(Layout::Chw)
            .dtype(DType::Float16)
            .batch(3)
            .drop_last();
        if let Some(decode) = &mut pipeline.decode {
            decode.modes.insert("mask".to_owned(), ColorMode::Rgb);
        }

        let text = pipeline.to_toml().expect("plain data");

        assert_eq!(
            Pipeline::from_toml(&text).expect("its own form"),
            pipeline,
            "{text}"
        );
        assert_eq!(
            Pipeline::from_json(&pipeline.to_json()).expect("its own form"),
            pipeline
        );
    }

    #[test]
    fn calls_in_an_order_that_cannot_run_are_rejected_with_the_one_that_works() {
        let base = || Pipeline::new(SourceSpec::folder("x"));
        let late = base().decode().function(FunctionSpec::new("steps:blur"));

        for (pipeline, fix) in [
            (
                late.clone().transform(Crop::new(8, 8)),
                "write .transform(...) before",
            ),
            (
                base().transform(Crop::new(8, 8)).decode(),
                "write .decode() before them",
            ),
        ] {
            let error = pipeline.check().expect_err("an order").to_string();
            assert!(error.contains(fix), "{error}");
        }
        assert!(late.misplaced.is_none());
    }

    #[test]
    fn a_typo_in_a_pipeline_file_is_named_with_its_line() {
        let text = "[source]\nkind = \"folder\"\npath = \"x\"\n\n[shufle]\nseed = 1\n";

        let error = Pipeline::from_toml(text).expect_err("a typo").to_string();

        assert!(
            error.contains("shufle") && error.contains("line 5"),
            "{error}"
        );
    }

    #[test]
    fn a_tail_is_in_the_file_only_where_it_was_given() {
        let plain = Pipeline::new(SourceSpec::folder("x")).batch(4);
        let old = plain.to_toml().expect("plain data");
        assert!(!old.contains("tail"), "{old}");

        let wrapped = plain.clone().tail(Tail::Wrap);
        let text = wrapped.to_toml().expect("plain data");
        assert!(text.contains("tail = \"wrap\""), "{text}");
        assert_eq!(Pipeline::from_toml(&text).expect("its own form"), wrapped);

        let both = plain.clone().drop_last().tail(Tail::Drop);
        assert_eq!(both.batch.settled_tail().expect("the same"), Tail::Drop);
        let error = plain.drop_last().tail(Tail::Pad).batch.settled_tail();
        let error = error.expect_err("a contradiction").to_string();
        assert!(error.contains("tail=\"pad\" does not"), "{error}");
    }

    #[test]
    fn arrays_in_memory_are_refused_by_name_when_saving() {
        let field = MemoryField::array("image", "image", DType::UInt8, vec![2, 2, 3], 0);
        let pipeline = Pipeline::new(SourceSpec::Memory {
            fields: vec![field],
        });

        let error = pipeline.to_toml().expect_err("handles").to_string();

        assert!(error.contains("image"), "{error}");
    }
}
