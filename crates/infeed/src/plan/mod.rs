//! Planning: checks a description against the source's fields, infers shapes and arranges the work.
//!
//! Planning finds all errors in a description before the first record is read, and names the
//! transform to add.

mod added;
pub mod box_check;
mod boxes;
mod classes;
mod computed;
pub mod coordinates;
mod copy_paste;
mod describe;
pub mod device;
mod devices;
pub mod failure;
mod fold;
pub(crate) mod function;
pub(crate) mod headers;
pub mod joined;
mod masks;
mod mix;
mod modes;
pub mod mosaic;
mod moved;
pub(crate) mod needs;
mod points;
pub mod prepared;
pub mod preview;
pub mod sample;
pub(crate) mod shared_tiles;
mod turned;
pub(crate) mod warnings;
mod write;

use crate::function::FunctionScope;
use crate::pipeline::{Decode, Layout, Pipeline};
use infeed_codec::decode::{ColorMode, Limits};
use infeed_codec::transform::{Affine, Effect, MaskClasses, Step, Transform};
use infeed_core::batch::{ColumnKind, ColumnSpec};
use infeed_core::error::Error;
use infeed_core::sample::{DType, Depth, Field, FieldKind, Pixels, Size};
use infeed_source::Source;

pub use added::VALID;
use classes::ClassMap;
use fold::{FieldStep, FoldedSteps, StepStage};
pub use modes::color_mode;

/// A pipeline ready to run.
#[derive(Debug)]
pub struct Plan {
    fields: Vec<FieldPlan>,
    columns: Vec<ColumnSpec>,
    /// Fields and columns of further batch layouts, in which the host does more or less of the
    /// row's work.
    others: Vec<(Vec<FieldPlan>, Vec<ColumnSpec>)>,
    transforms: Vec<Transform>,
    /// Index of the first transform whose steps are fused with later ones; `None` without fusion.
    fuses_from: Option<usize>,
    decode: Decode,
    limits: Limits,
    seed: u64,
    /// `None` if samples are not mixed.
    mixer: Option<mix::Mixer>,
    /// `None` if each sample has one image.
    join: Option<joined::JoinPlan>,
    /// `None` if the host decodes all files.
    devices: Option<devices::Devices>,
    /// User functions, those on samples first.
    calls: Vec<function::FunctionCall>,
    /// Row columns after the last sample function, with the lengths of lists and the `valid` mask.
    /// Functions do not see these.
    marked: Option<Vec<ColumnSpec>>,
    /// Lists that are padded.
    lists: Vec<added::PaddedList>,
    boxes: Vec<boxes::BoxesPlan>,
    /// Points that are not in the columns of boxes.
    points: Vec<points::PointsPlan>,
}

/// Processing of one field.
#[derive(Clone, Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "there is one per field, not per record"
)]
enum FieldPlan {
    Pixels(PixelPlan),
    /// Numbers of fixed shape, copied.
    Copy,
    /// Boxes, a field with one row per box, or points.
    Boxed,
    /// A class number, written as a soft label.
    Soft(mix::SoftLabel),
    /// Stored per row.
    Own,
}

/// Processing of an image or mask.
#[derive(Clone, Debug)]
struct PixelPlan {
    name: String,
    is_mask: bool,
    stored: Pixels,
    mode: ColorMode,
    /// Channels and depth after decoding, equal for all records.
    channels: usize,
    depth: Depth,
    /// Channels after the last transform.
    out_channels: usize,
    /// Size after the last transform; `None` if rows differ and are padded.
    size: Option<Size>,
    /// Parts of the transforms, in the order of the work.
    steps: Vec<FieldStep>,
    finish: RowPass,
    /// Layout and column on a device that does part of the writing.
    on_device: Option<(Option<Layout>, ColumnKind)>,
    /// Row bytes if a device resizes. The host writes the unresized crop if it fits.
    crop_bytes: Option<usize>,
    /// Whether rows may contain files for a device that decodes.
    leaves_files: bool,
}

/// The pass that writes the row.
#[derive(Clone, Debug)]
enum RowPass {
    /// Flip, cast, scale, layout.
    Convert {
        dtype: DType,
        layout: Layout,
        scale: [f32; 4],
        bias: [f32; 4],
    },
    /// One channel per class.
    OneHot {
        classes: ClassMap,
        dtype: DType,
        layout: Layout,
    },
    /// Class numbers; `none` for pixels of unknown class.
    Classes {
        classes: ClassMap,
        dtype: DType,
        none: i64,
    },
}

impl Plan {
    /// Checks a description against the fields of its source.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] that names the part of the description and the fix.
    pub fn new(pipeline: &Pipeline, fields: &[Field]) -> Result<Plan, Error> {
        Plan::build(pipeline, fields, None, true)
    }

    /// Checks a description against its source.
    ///
    /// # Errors
    ///
    /// As [`Plan::new`].
    pub fn over(pipeline: &Pipeline, source: &dyn Source) -> Result<Plan, Error> {
        Plan::build(pipeline, source.fields(), Some(source), true)
    }

    /// As [`Plan::new`], up to the first function with an unknown output.
    pub(crate) fn as_far_as_known(
        pipeline: &Pipeline,
        fields: &[Field],
        source: Option<&dyn Source>,
    ) -> Result<Plan, Error> {
        Plan::build(pipeline, fields, source, false)
    }

    fn build(
        pipeline: &Pipeline,
        fields: &[Field],
        source: Option<&dyn Source>,
        strict: bool,
    ) -> Result<Plan, Error> {
        in_order(pipeline)?;
        let checked = CheckedTransforms::new(pipeline, fields, source)?;
        let all = strict || source.is_some();
        let points = points::plans(pipeline, fields, all)?;
        let (mut boxes, points) = boxes::plans(pipeline, fields, points, all)?;
        coordinates::check(pipeline, &pipeline.transforms, fields, all)?;
        let labels = mix::labels(pipeline, fields, source)?;
        let decode = pipeline.decode.clone().unwrap_or_default();
        let mut plans = Vec::with_capacity(fields.len());
        let mut columns = Vec::with_capacity(fields.len());
        for (at, field) in fields.iter().enumerate() {
            let moved = boxes::kind_of(&boxes, at).or_else(|| points::kind_of(&points, at));
            let (plan, kind) = match (labels, moved) {
                (_, Some(kind)) => (FieldPlan::Boxed, kind),
                (Some((label, Some(soft))), _) if label == at => {
                    (FieldPlan::Soft(soft), soft.column())
                }
                _ => checked.field((at, field))?,
            };
            plans.push(plan);
            columns.push(ColumnSpec {
                name: field.name.clone(),
                kind,
            });
        }
        masks::set_size(&mut boxes, &plans, &mut columns);
        let adds = added::check(pipeline)?;
        let mixer = mix::mixer(pipeline, &plans, labels.map(|(at, _)| at))?;
        if mixer.is_some() {
            function::refuse_after_mixing(pipeline)?;
        }
        let join = joined::plan(pipeline, &boxes, &points)?;
        // Without a source, fields and function outputs may be unknown.
        let calls = match source {
            None if !strict => Vec::new(),
            _ => function::calls(pipeline, &columns, strict)?,
        };
        let mut lists = Vec::new();
        let mut marked = None;
        if let Some(call) = calls.last().filter(|_| adds) {
            let columns = marked.insert(call.columns.clone());
            lists = added::add(pipeline, columns, &call.name)?;
        } else if adds && pipeline.python.is_empty() {
            lists = added::add(pipeline, &mut columns, "the source")?;
        }
        Ok(Plan {
            mixer,
            join,
            devices: None,
            calls,
            marked,
            lists,
            boxes,
            points,
            fields: plans,
            columns,
            others: Vec::new(),
            transforms: pipeline.transforms.clone(),
            fuses_from: fold::fuses_from(pipeline),
            limits: Limits {
                max_pixels: decode.max_pixels,
            },
            decode,
            seed: pipeline.shuffle.map_or(0, |shuffle| shuffle.seed),
        })
    }

    /// Columns of a batch while its rows are filled, in field order.
    pub fn columns(&self) -> &[ColumnSpec] {
        match (&self.marked, self.sample_calls().last()) {
            (Some(columns), _) => columns,
            (None, Some(call)) => &call.columns,
            (None, None) => &self.columns,
        }
    }

    /// Columns of a batch while its rows are filled, for each of its layouts.
    pub(crate) fn forms(&self) -> Vec<Vec<ColumnSpec>> {
        let others = self.others.iter().map(|(_, columns)| columns.clone());
        std::iter::once(self.columns().to_vec())
            .chain(others)
            .collect()
    }

    /// Fields of a batch layout, 0 if there is only one.
    fn fields(&self, form: usize) -> &[FieldPlan] {
        let other = form.checked_sub(1).and_then(|at| self.others.get(at));
        other.map_or(&self.fields, |(fields, _)| fields)
    }

    /// Columns of a delivered batch: [`Plan::columns`] after the functions on batches.
    pub fn delivered(&self) -> &[ColumnSpec] {
        match self.batch_calls().last() {
            Some(call) => &call.columns,
            None => self.columns(),
        }
    }

    /// Columns of a sample before any function.
    pub(crate) fn decoded(&self) -> &[ColumnSpec] {
        &self.columns
    }

    /// Seed of the random draws.
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// Whether only a region of some encoded images is decoded.
    pub fn decodes_regions(&self) -> bool {
        self.fields.iter().any(|field| match field {
            FieldPlan::Pixels(plan) if plan.stored == Pixels::Encoded => plan
                .steps
                .iter()
                .any(|step| step.stage == StepStage::Decode),
            _ => false,
        })
    }

    /// Whether samples have no fixed size, so that rows are stored separately until the batch is
    /// full.
    pub fn has_own_cells(&self) -> bool {
        self.columns()
            .iter()
            .any(|column| column.kind.row_bytes().is_none())
    }
}

/// Checks a description as far as possible without reading its data. Palettes are read.
///
/// # Errors
///
/// As [`Plan::new`].
pub(crate) fn check(pipeline: &Pipeline) -> Result<(), Error> {
    pipeline.check_selection()?;
    match pipeline.source.known_fields()? {
        Some(fields) => Plan::as_far_as_known(pipeline, &fields, None).map(drop),
        // Only records show the fields; opening the source checks the rest.
        None => pipeline
            .batch
            .settled_tail()
            .and_then(|_| in_order(pipeline))
            .and_then(|()| CheckedTransforms::alone(pipeline)),
    }
}

/// Rejects calls that cannot run in the order in which they were written.
fn in_order(pipeline: &Pipeline) -> Result<(), Error> {
    match &pipeline.misplaced {
        Some(misplaced) => Err(Error::config(misplaced.part, misplaced.problem)),
        None => Ok(()),
    }
}

/// The transforms, checked before the individual fields.
struct CheckedTransforms<'a> {
    pipeline: &'a Pipeline,
    source: Option<&'a dyn Source>,
}

/// Names a transform by its position in the description.
fn place(at: usize, transform: &Transform) -> String {
    format!("transform {} ({})", at + 1, transform.name())
}

impl<'a> CheckedTransforms<'a> {
    fn new(
        pipeline: &'a Pipeline,
        fields: &[Field],
        source: Option<&'a dyn Source>,
    ) -> Result<CheckedTransforms<'a>, Error> {
        let visual =
            |field: &&Field| matches!(field.kind, FieldKind::Image(_) | FieldKind::Mask(_));
        let names: Vec<&str> = fields
            .iter()
            .filter(visual)
            .map(|f| f.name.as_str())
            .collect();
        let encoded = fields.iter().any(|field| {
            matches!(
                field.kind,
                FieldKind::Image(Pixels::Encoded) | FieldKind::Mask(Pixels::Encoded)
            )
        });
        if encoded && pipeline.decode.is_none() && !pipeline.transforms.is_empty() {
            let problem = "images are not decoded yet; put .decode() before .transform(...)";
            return Err(Error::config(place(0, &pipeline.transforms[0]), problem));
        }
        if let Some(decode) = &pipeline.decode {
            let unknown = decode
                .modes
                .keys()
                .find(|name| !names.contains(&name.as_str()));
            if let Some(name) = unknown {
                let problem = format!("no image or mask field `{name}`; use one of {names:?}");
                return Err(Error::config("decode", problem));
            }
        }
        let (mut finished, mut erased, mut mixed) = (false, false, false);
        for (at, transform) in pipeline.transforms.iter().enumerate() {
            let wrong = |problem: String| Error::config(place(at, transform), problem);
            transform
                .validate()
                .map_err(|error| wrong(error.to_string()))?;
            if names.is_empty() {
                return Err(wrong(
                    "the source has no image and no mask; remove the transform".to_owned(),
                ));
            }
            if transform.needs_boxes() && pipeline.declared_boxes().is_empty() {
                let problem = "it crops around boxes; declare them with .boxes(...)";
                return Err(wrong(problem.to_owned()));
            }
            if let Some(field) = transform.field()
                && !names.contains(&field)
            {
                return Err(wrong(format!(
                    "no image or mask field `{field}`; use one of {names:?}"
                )));
            }
            let resamples = transform.changes_geometry() && !transform.only_moves_pixels();
            if finished && (resamples || transform.effect() == Effect::Color) {
                let problem = "this transform needs uint8 pixels; put it before ToFloat, Normalize, \
                               OneHot and ClassIndex";
                return Err(wrong(problem.to_owned()));
            }
            if erased && transform.changes_geometry() {
                return Err(wrong(
                    "put it before RandomErasing, which must be last".to_owned(),
                ));
            }
            if mixed && !transform.mixes() {
                let problem = "put it before MixUp and CutMix, which mix finished samples";
                return Err(wrong(problem.to_owned()));
            }
            mixed |= transform.mixes();
            match transform.effect() {
                Effect::Scale | Effect::Classes => finished = true,
                Effect::Erase => erased = erased || finished,
                _ => {}
            }
        }
        Ok(CheckedTransforms { pipeline, source })
    }

    /// Rejects transforms that are invalid for any input.
    fn alone(pipeline: &Pipeline) -> Result<(), Error> {
        for (at, transform) in pipeline.transforms.iter().enumerate() {
            transform
                .validate()
                .map_err(|error| Error::config(place(at, transform), error.to_string()))?;
        }
        Ok(())
    }

    /// Plans one field and its column.
    fn field(&self, (at, field): (usize, &Field)) -> Result<(FieldPlan, ColumnKind), Error> {
        let (stored, is_mask) = match &field.kind {
            FieldKind::Image(stored) => (stored, false),
            FieldKind::Mask(stored) => (stored, true),
            FieldKind::Tensor { dtype, shape } => {
                let kind = ColumnKind::Fixed {
                    dtype: *dtype,
                    shape: shape.clone(),
                };
                return Ok((FieldPlan::Copy, kind));
            }
            FieldKind::Bytes => return Ok((FieldPlan::Own, ColumnKind::Bytes)),
            FieldKind::Text => return Ok((FieldPlan::Own, ColumnKind::Text)),
            FieldKind::Ragged { dtype } => {
                let (dtype, item) = (*dtype, Vec::new());
                return Ok((FieldPlan::Own, ColumnKind::Ragged { dtype, item }));
            }
        };
        if *stored == Pixels::Encoded && self.pipeline.decode.is_none() {
            return Ok((FieldPlan::Own, ColumnKind::Bytes));
        }
        let plan = self.pixels((at, field), stored, is_mask)?;
        let kind = self.column(&plan)?;
        Ok((FieldPlan::Pixels(plan), kind))
    }

    fn pixels(
        &self,
        (number, field): (usize, &Field),
        stored: &Pixels,
        is_mask: bool,
    ) -> Result<PixelPlan, Error> {
        let mode = color_mode(self.pipeline, &field.name, is_mask);
        let (mut size, channels, depth) = match stored {
            Pixels::Encoded => {
                let found = modes::decoded_pixels(mode, self.source, (number, field));
                let (channels, depth) = found?;
                (None, channels, depth)
            }
            Pixels::Raw {
                size,
                channels,
                depth,
            } => (Some(*size), *channels, *depth),
        };
        let mut out_channels = channels;
        let mut affine = Affine::identity(channels, depth);
        let mut class_finish = None;
        let (mut steps, mut finished) = (Vec::new(), false);
        for (at, transform) in self.pipeline.transforms.iter().enumerate() {
            finished |= matches!(transform.effect(), Effect::Scale | Effect::Classes);
            let wrong = |problem: String| Error::config(place(at, transform), problem);
            size = transform
                .output_size(size)
                .map_err(|error| wrong(error.to_string()))?;
            let named = transform.field().is_none_or(|name| name == field.name);
            if is_mask && named && !transform.applies_to_masks() && transform.field().is_some() {
                return Err(wrong(format!(
                    "`{}` is a mask, whose values are class numbers; set the field of an image",
                    field.name
                )));
            }
            let applies = if is_mask {
                transform.applies_to_masks()
            } else {
                transform.applies_to_images()
            };
            if !named || !applies {
                if named && transform.effect() == Effect::Classes {
                    return Err(wrong(format!(
                        "`{}` is an image; set the field of a mask",
                        field.name
                    )));
                }
                continue;
            }
            if !transform.mixes() {
                let parts = FieldStep::of(at, transform, finished);
                let runs = |step: &FieldStep| match is_mask {
                    true => step.effect.is_geometric() || step.effect == Effect::Classes,
                    false => step.effect != Effect::Classes,
                };
                steps.extend(parts.filter(runs));
            }
            if !is_mask {
                transform
                    .check_pixels(out_channels, depth)
                    .map_err(|error| {
                        wrong(modes::unsupported_pixels(&error, field, stored, depth))
                    })?;
                let before = out_channels;
                out_channels = transform.output_channels(out_channels);
                if before != out_channels {
                    affine = Affine::identity(out_channels, depth);
                }
            }
            transform
                .scale(&mut affine)
                .map_err(|error| wrong(error.to_string()))?;
            if transform.effect() == Effect::Classes && class_finish.is_some() {
                return Err(wrong(format!(
                    "an earlier transform already converts the classes of `{}`; remove one of the \
                     two",
                    field.name
                )));
            }
            if let Some(to) = transform.classes() {
                let classes = self.class_map(at, &to, depth)?;
                let dtype = to.dtype;
                class_finish = Some(match to.index {
                    Some(index) => {
                        index
                            .validate_count(classes.count())
                            .map_err(|error| wrong(error.to_string()))?;
                        let none = index.index_of_none();
                        RowPass::Classes {
                            classes,
                            dtype,
                            none,
                        }
                    }
                    None => RowPass::OneHot {
                        classes,
                        dtype,
                        layout: self.pipeline.output.layout,
                    },
                });
            }
        }
        let wants_rgb = match &class_finish {
            Some(RowPass::OneHot { classes, .. } | RowPass::Classes { classes, .. }) => {
                classes.takes_colours()
            }
            _ => false,
        };
        if class_finish.is_some()
            && (wants_rgb != (channels == 3) || (depth != Depth::U8 && wants_rgb))
        {
            let (wants, mode) = match wants_rgb {
                true => ("3 of 8 bits (colours)", "rgb"),
                false => ("1 (class numbers)", "stored"),
            };
            let problem = format!(
                "mask `{}` has {channels} channels of {} bits, but its classes need {wants}; use \
                 .decode({}=\"{mode}\") for image files",
                field.name,
                match depth {
                    Depth::U8 => 8,
                    Depth::U16 => 16,
                },
                field.name
            );
            return Err(Error::config("decode", problem));
        }
        let finish = match class_finish {
            Some(finish) => finish,
            None => self.convert(field, is_mask, depth, &affine)?,
        };
        fold::arrange(&mut steps);
        steps.sort_by_key(FieldStep::order);
        let (name, stored) = (field.name.clone(), stored.clone());
        Ok(PixelPlan {
            name,
            is_mask,
            stored,
            mode,
            channels,
            depth,
            out_channels,
            size,
            steps,
            finish,
            on_device: None,
            crop_bytes: None,
            leaves_files: false,
        })
    }

    /// Creates the class mapping of the mask that transform `at` reads.
    fn class_map(&self, at: usize, to: &MaskClasses<'_>, depth: Depth) -> Result<ClassMap, Error> {
        let (before, rest) = self.pipeline.transforms.split_at(at);
        let (transform, content) = (&rest[0], to.content.expect("validated with the transform"));
        ClassMap::new(content, to.accepted, transform, before, depth)
            .map_err(|error| Error::config(place(at, transform), failure::chain(&error)))
    }

    fn convert(
        &self,
        field: &Field,
        is_mask: bool,
        depth: Depth,
        affine: &Affine,
    ) -> Result<RowPass, Error> {
        let as_decoded = match depth {
            Depth::U8 => DType::UInt8,
            Depth::U16 => DType::UInt16,
        };
        let layout = self.pipeline.output.layout;
        let (scale, bias) = (affine.scale(), affine.bias());
        let four = |values: &[f32], rest: f32| {
            std::array::from_fn(|channel| values.get(channel).copied().unwrap_or(rest))
        };
        let (scale, bias) = (four(&scale, 1.0), four(&bias, 0.0));
        if is_mask {
            return Ok(RowPass::Convert {
                dtype: as_decoded,
                layout,
                scale,
                bias,
            });
        }
        let default = if affine.is_float() {
            DType::Float32
        } else {
            as_decoded
        };
        let dtype = self.pipeline.output.dtype.unwrap_or(default);
        let float = matches!(dtype, DType::Float32 | DType::Float16 | DType::BFloat16);
        if float != affine.is_float() || (!float && dtype != as_decoded) {
            let fix = if float {
                "add ToFloat or Normalize".to_owned()
            } else {
                format!(
                    "remove dtype, or use float32, float16 or bfloat16 (without: {})",
                    default.name()
                )
            };
            let problem = format!(
                "`{}` cannot be converted to {}; {fix}",
                field.name,
                dtype.name()
            );
            return Err(Error::config("output", problem));
        }
        write::check_range(dtype, affine, &field.name)?;
        Ok(RowPass::Convert {
            dtype,
            layout,
            scale,
            bias,
        })
    }

    fn column(&self, plan: &PixelPlan) -> Result<ColumnKind, Error> {
        let dtype = plan.dtype();
        if let Some(size) = plan.size {
            let shape = plan.shape(size);
            let bytes = shape
                .iter()
                .try_fold(dtype.bytes(), |bytes, &n| bytes.checked_mul(n));
            if bytes.is_none_or(|bytes| bytes > isize::MAX as usize / 2) {
                let problem = format!(
                    "a row of `{}` would be {shape:?}, which is too large; use a smaller size",
                    plan.name
                );
                return Err(Error::config("output", problem));
            }
            return Ok(ColumnKind::Fixed { dtype, shape });
        }
        // A function may make all rows one size.
        let goes_on = self
            .pipeline
            .python
            .iter()
            .any(|spec| spec.on == FunctionScope::Sample);
        if self.pipeline.batch.pad || self.pipeline.batch.is_of_one() || goes_on {
            return Ok(ColumnKind::Padded {
                dtype,
                rank: plan.rank(),
            });
        }
        Err(unsized_image(&plan.name))
    }
}

/// Returns the error for rows of different sizes without padding.
fn unsized_image(name: &str) -> Error {
    let problem = format!(
        "the size of `{name}` differs by record; add a transform that gives one size, such as \
         RandomResizedCrop(224), Resize([256, 256]) or CenterCrop(224), or use \
         .batch(n, pad=True)"
    );
    Error::config("batch", problem)
}

impl RowPass {
    /// Layout of the channels. None for class numbers.
    fn layout(&self) -> Option<Layout> {
        match self {
            RowPass::Convert { layout, .. } | RowPass::OneHot { layout, .. } => Some(*layout),
            RowPass::Classes { .. } => None,
        }
    }
}

impl PixelPlan {
    /// Element type in the batch.
    fn dtype(&self) -> DType {
        match &self.finish {
            RowPass::Convert { dtype, .. }
            | RowPass::OneHot { dtype, .. }
            | RowPass::Classes { dtype, .. } => *dtype,
        }
    }

    /// Shape of a row of this size.
    fn shape(&self, size: Size) -> Vec<usize> {
        let (height, width) = (size.height as usize, size.width as usize);
        let (channels, layout) = match &self.finish {
            RowPass::OneHot {
                classes, layout, ..
            } => (classes.count(), *layout),
            RowPass::Convert { layout, .. } if !(self.is_mask && self.out_channels == 1) => {
                (self.out_channels, *layout)
            }
            _ => return vec![height, width],
        };
        match layout {
            Layout::Hwc => vec![height, width, channels],
            Layout::Chw => vec![channels, height, width],
        }
    }

    /// Whether positions in a table of pixels can take the place of the pixels: their classes are
    /// written, and all steps before that only move them.
    fn takes_positions(&self, folded: &FoldedSteps) -> bool {
        // Others may write the fill of a mask, which is a pixel.
        let moves = |step: &Step| {
            matches!(
                step,
                Step::Crop(_)
                    | Step::KeepCentres(_)
                    | Step::Resize { .. }
                    | Step::FlipX
                    | Step::FlipY
            )
        };
        matches!(
            self.finish,
            RowPass::OneHot { .. } | RowPass::Classes { .. }
        ) && folded.middle.iter().all(moves)
    }

    /// Bytes of a row of this size.
    fn row_bytes(&self, size: Size) -> u64 {
        let elements = self.shape(size).iter().product::<usize>();
        elements as u64 * self.dtype().bytes() as u64
    }

    fn rank(&self) -> usize {
        self.shape(Size {
            height: 1,
            width: 1,
        })
        .len()
    }
}
