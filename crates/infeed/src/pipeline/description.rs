//! The description of a pipeline, and the methods that only read or change it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::batch::{BatchSpec, RaggedLayout};
use super::boxes::BoxesSpec;
use super::declared_kind::DeclaredKind;
use super::filter::RecordFilter;
use super::function::FunctionSpec;
use super::memory_field::{Handle, MemoryField};
use super::points::PointsSpec;
use super::shuffle::Shuffle;
use super::source::SourceSpec;
use super::split::RecordSplit;
use super::weights::Weights;
use crate::function::FunctionScope;
use infeed_codec::decode::{ColorMode, Limits};
use infeed_codec::transform::Transform;
use infeed_core::error::Error;
use infeed_core::order::partition::Tail;
use infeed_core::sample::DType;

/// Version of the description format.
pub const VERSION: u32 = 1;

/// Description of a pipeline: data source, order of records, decoding, transforms and batches.
///
/// It is plain data, and this file has all methods that only read or change it. All methods that
/// check, plan, open or replay a pipeline are in `open.rs`. That file lists the steps from a
/// description to a running loader, each with its file.
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
    /// Format version, 1.
    #[serde(default = "version")]
    pub version: u32,
    /// Keeps only the first `take` records that filter and split leave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub take: Option<u64>,
    /// Passes over the records in an epoch, each in a different order. Absent: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeat: Option<u64>,
    /// Fields that stay unchanged when transforms move or mix pixels, although their values may be
    /// coordinates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keep: Vec<String>,
    /// Whether chains of random transforms run as one step where possible, which changes pixels: see
    /// [`infeed_codec::transform::fuse`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fuse: bool,
    /// Data source.
    pub source: SourceSpec,
    /// Filters on records. A record stays if every filter keeps it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filter: Vec<RecordFilter>,
    /// Part of the filtered records to keep. Absent: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<RecordSplit>,
    /// Sampling weights of the remaining records. Absent: each record occurs once per pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<Weights>,
    /// Order of records. Absent: the source's own order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shuffle: Option<Shuffle>,
    /// Decoding of images. Absent: batches contain the encoded bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decode: Option<Decode>,
    /// Fields with boxes, which move with their image.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub boxes: Vec<BoxesSpec>,
    /// Fields with points, which move with their image.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub points: Vec<PointsSpec>,
    /// Kinds of data in fields that the source stores as bytes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub declare: BTreeMap<String, DeclaredKind>,
    /// Transforms, applied in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub transforms: Vec<Transform>,
    /// Layout of pixels in a batch.
    #[serde(default)]
    pub output: PixelOutput,
    /// Batch size and padding. Absent: one sample per batch.
    #[serde(default)]
    pub batch: BatchSpec,
    /// Number of the group of each record of the source, including records that are not selected.
    /// Batches have records of one group, except the last ones of an epoch. Absent: batches have any
    /// records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_groups: Option<MemoryField>,
    /// Length of each record of the source, including records that are not selected, for batches with
    /// `max_tokens`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_lengths: Option<MemoryField>,
    /// User functions. Functions on samples run first, then functions on batches, each in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub python: Vec<FunctionSpec>,
    /// First builder call that cannot run in the order in which the calls were written. It is not
    /// part of a description: there, the order of stages is fixed.
    #[serde(skip)]
    pub misplaced: Option<MisplacedCall>,
}

/// A builder call that follows a call that it has to precede.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MisplacedCall {
    /// Name of the part in errors.
    pub part: &'static str,
    /// The problem, with the order that works.
    pub problem: &'static str,
}

/// How encoded images become pixels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Decode {
    /// Rotate and flip pixels as the EXIF orientation says.
    pub orient: bool,
    /// Verify checksums where the format has them.
    pub verify: bool,
    /// Allow a JPEG to be decoded at a reduced DCT scale if a large downscale follows. The pixels
    /// differ from those of a full decode, and the gain is small: entropy coding takes most of the
    /// time.
    ///
    /// Measured with `examples/dct_scale.rs` on one core of an AMD EPYC, Zen 4; PSNR in dB against
    /// the pixels of a full decode:
    ///
    /// | images | transform | reduced | mean | worst | faster epoch |
    /// |---|---|--:|--:|--:|--:|
    /// | 300 ImageNet JPEGs | `Resize(256), CenterCrop(224)` | 14 | 38.9 | 30.9 | 2 % |
    /// | 300 ImageNet JPEGs | one `RandomResizedCrop(224)` | 7 | 38.0 | 28.6 | 2 % |
    /// | 46 street scenes, 960x720 | `Resize(256), CenterCrop(224)` | 46 | 47.9 | 44.2 | 23 % |
    /// | 46 street scenes, 960x720 | one `RandomResizedCrop(224)` | 33 | 34.7 | 25.8 | 19 % |
    pub dct_scale: bool,
    /// Largest number of pixels in an image; larger images are bad records. Checked before any
    /// allocation.
    #[serde(skip_serializing_if = "is_default_limit")]
    pub max_pixels: u64,
    /// Color mode by field. Default: RGB for images; for masks RGB if a palette names colors, else
    /// the stored 8-bit samples.
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
pub struct PixelOutput {
    /// Order of the axes of images and one-hot masks.
    pub layout: Layout,
    /// Element type of images. Absent: float32 after `ToFloat` or `Normalize`, else the decoded
    /// type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dtype: Option<DType>,
}

/// Rows of a batch whose size nothing but `max_tokens` limits, where tokens do not count.
const PLAIN_ROWS: u64 = 32;

fn version() -> u32 {
    VERSION
}

fn is_default_limit(pixels: &u64) -> bool {
    *pixels == Limits::DEFAULT_MAX_PIXELS
}

impl Pipeline {
    /// Creates a description of a source's records in the source's order, one record per batch.
    pub fn new(source: SourceSpec) -> Pipeline {
        Pipeline {
            version: VERSION,
            take: None,
            repeat: None,
            keep: Vec::new(),
            fuse: false,
            source,
            filter: Vec::new(),
            split: None,
            weights: None,
            shuffle: None,
            decode: None,
            boxes: Vec::new(),
            points: Vec::new(),
            declare: BTreeMap::new(),
            transforms: Vec::new(),
            output: PixelOutput::default(),
            batch: BatchSpec::default(),
            batch_groups: None,
            batch_lengths: None,
            python: Vec::new(),
            misplaced: None,
        }
    }

    /// Records a call that cannot run where it was written. The planner reports only the first one.
    fn note_misplaced(&mut self, condition: bool, part: &'static str, problem: &'static str) {
        if condition && self.misplaced.is_none() {
            self.misplaced = Some(MisplacedCall { part, problem });
        }
    }

    /// Shuffles the records again in each epoch.
    pub fn shuffle(mut self, seed: u64) -> Pipeline {
        self.shuffle = Some(Shuffle { seed, window: None });
        self
    }

    /// Samples records by weight.
    pub fn weights(mut self, weights: Weights) -> Pipeline {
        self.weights = Some(weights);
        self
    }

    /// Batches records of one group, by the number of the group of each record. See
    /// [`infeed_core::order::similar`].
    pub fn batch_groups(mut self, groups: MemoryField) -> Pipeline {
        self.batch_groups = Some(groups);
        self
    }

    /// Sets the number of passes in an epoch. Each pass has a different order.
    pub fn repeat(mut self, passes: u64) -> Pipeline {
        self.repeat = Some(passes);
        self
    }

    /// Decodes images with the default settings; set [`Pipeline::decode`] for others.
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

    /// Runs chains of random transforms as one step where possible, which changes pixels: see
    /// [`infeed_codec::transform::fuse`].
    pub fn fuse(mut self) -> Pipeline {
        self.fuse = true;
        self
    }

    /// Declares a field of boxes, which move with their image.
    pub fn boxes(mut self, boxes: BoxesSpec) -> Pipeline {
        self.boxes.push(boxes);
        self
    }

    /// Declares a field of points, which move with their image.
    pub fn points(mut self, points: PointsSpec) -> Pipeline {
        self.points.push(points);
        self
    }

    /// Declares the kind of data in a field of bytes.
    #[must_use]
    pub fn declare(mut self, field: impl Into<String>, kind: DeclaredKind) -> Pipeline {
        self.declare.insert(field.into(), kind);
        self
    }

    /// Lets transforms that move or mix pixels leave these fields unchanged: coordinates that stay
    /// valid, or numbers that only look like coordinates.
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

    /// Sets the number of rows of the global batch.
    pub fn batch(mut self, rows: u64) -> Pipeline {
        self.batch.size = Some(rows);
        self.batch.per_rank = None;
        self
    }

    /// Drops an incomplete last batch.
    pub fn drop_last(mut self) -> Pipeline {
        self.batch.drop_last = true;
        self
    }

    /// Sets the handling of an incomplete last batch.
    pub fn tail(mut self, tail: Tail) -> Pipeline {
        self.batch.tail = Some(tail);
        self
    }

    /// Pads samples of different sizes to the largest sample of their batch.
    pub fn pad(mut self) -> Pipeline {
        self.batch.pad = true;
        self
    }

    /// Sets the layout of lists of different lengths in a batch.
    pub fn ragged(mut self, layout: RaggedLayout) -> Pipeline {
        self.batch.ragged = layout;
        self
    }

    /// Adds a filter. A record stays if every filter keeps it.
    pub fn filter(mut self, filter: RecordFilter) -> Pipeline {
        self.filter.push(filter);
        self
    }

    /// Keeps one part of the records, counted from 0. The sum of the shares is 1.
    pub fn split(mut self, shares: &[f64], part: usize, seed: u64) -> Pipeline {
        let shares = shares.to_vec();
        self.split = Some(RecordSplit { shares, part, seed });
        self
    }

    /// Keeps the first `records` records that filter and split leave.
    pub fn take(mut self, records: u64) -> Pipeline {
        self.take = Some(records);
        self
    }

    /// Adds a function on samples or batches.
    pub fn function(mut self, function: FunctionSpec) -> Pipeline {
        self.python.push(function);
        self
    }

    /// Returns the declarations of boxes: those of the description, and that of a source that knows
    /// its boxes, unless the description declares them. Boxes next to encoded images do not move.
    pub fn declared_boxes(&self) -> Vec<BoxesSpec> {
        let mut declared = self.boxes.clone();
        let Some(own) = self.source.boxes().filter(|_| self.decode.is_some()) else {
            return declared;
        };
        match declared.iter_mut().find(|spec| spec.field == own.field) {
            // The format of masks is the source's.
            Some(spec) => {
                let masks = own
                    .masks
                    .filter(|name| spec.outlines.as_ref() != Some(name));
                spec.masks = spec.masks.take().or(masks);
                spec.oriented = spec.oriented.or(own.oriented);
            }
            None => declared.push(own),
        }
        declared
    }

    /// Returns the declarations of points: those of the description, and that of a source that knows
    /// its points, unless the description declares them.
    pub fn declared_points(&self) -> Vec<PointsSpec> {
        let mut declared = self.points.clone();
        let Some(mut own) = self.source.points().filter(|_| self.decode.is_some()) else {
            return declared;
        };
        // Points and boxes of a file refer to one image.
        let mut boxes = self.boxes.iter();
        let boxes = boxes.find(|spec| spec.columns.contains(&own.field));
        own.oriented = boxes.and_then(|spec| spec.oriented).or(own.oriented);
        match declared.iter_mut().find(|spec| spec.field == own.field) {
            Some(spec) => spec.oriented = spec.oriented.or(own.oriented),
            None => declared.push(own),
        }
        declared
    }

    /// Batches records of similar length, by the length of each record, with up to `max_tokens` in
    /// all rows together. See [`infeed_core::order::lengths`].
    pub fn batch_tokens(mut self, max_tokens: u64, lengths: MemoryField) -> Pipeline {
        self.batch_lengths = Some(lengths);
        self.batch = BatchSpec {
            size: None,
            max_tokens: Some(max_tokens),
            ..self.batch
        };
        self
    }

    /// Returns the description without selection, weights, repeat, groups and lengths of batches:
    /// each record of the source once per epoch, in batches of equal size.
    pub fn plain(&self) -> Pipeline {
        let mut batch = BatchSpec {
            max_tokens: None,
            multiple_of: None,
            ..self.batch
        };
        if self.batch.max_tokens.is_some() && self.batch.size.is_none() {
            batch.size = Some(PLAIN_ROWS);
        }
        Pipeline {
            batch,
            batch_lengths: None,
            filter: Vec::new(),
            split: None,
            take: None,
            weights: None,
            repeat: None,
            batch_groups: None,
            ..self.clone()
        }
    }

    /// Returns the description without functions on batches, which the trainer calls when it
    /// assembles a batch. The rows depend only on the remaining description.
    pub fn without_batch_functions(&self) -> Pipeline {
        let mut pipeline = self.clone();
        pipeline
            .python
            .retain(|spec| spec.on != FunctionScope::Batch);
        pipeline
    }

    /// Returns the description without functions that no file can contain.
    pub fn without_held_functions(&self) -> Pipeline {
        let mut pipeline = self.clone();
        pipeline.python.retain(|spec| spec.handle.is_none());
        pipeline
    }

    /// Whether any function is called with batches. Its rows then depend on the number of ranks.
    pub fn has_batch_functions(&self) -> bool {
        self.python
            .iter()
            .any(|spec| spec.on == FunctionScope::Batch)
    }

    /// Imports the functions whose names match one of the patterns in `allowed`. Other functions
    /// stay unbound, and opening the pipeline fails.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] that names an allowed function that cannot be imported.
    pub fn import_functions(&mut self, allowed: &[String]) -> Result<(), Error> {
        self.python
            .iter_mut()
            .try_for_each(|function| function.import(allowed))
    }

    /// Takes the functions of the description from `handles`.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] that names a function that is neither imported nor in `handles`.
    pub fn bind(&mut self, handles: &[Handle]) -> Result<(), Error> {
        self.python
            .iter_mut()
            .try_for_each(|function| function.bind(handles))
    }

    /// Whether the description selects only some records of the source.
    pub fn selects(&self) -> bool {
        !self.filter.is_empty() || self.split.is_some() || self.take.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infeed_codec::transform::Crop;

    #[test]
    fn calls_in_a_wrong_order_are_rejected_with_the_right_order() {
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
    fn a_tail_is_written_only_if_it_was_set() {
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
        assert!(error.contains("tail=\"pad\""), "{error}");
    }
}
