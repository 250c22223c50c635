//! `MixUp` and `CutMix`: mixes two finished rows of images, masks and labels into one.
//!
//! Both samples are written as rows first, so flips, normalization and layout are done, and one
//! pass over the row suffices.

use std::fmt;
use std::ops::Range;

use half::{bf16, f16};

use super::failure::{SampleError, StageFailure};
use super::sample::Position;
use super::{FieldPlan, PixelPlan, Plan, RowPass, place};
use crate::pipeline::{Layout, Pipeline};
use infeed_codec::transform::{MixChoice, MixSettings, Mixing, Rng, Transform};
use infeed_core::batch::{BatchRow, ColumnKind, RowCell};
use infeed_core::error::Error;
use infeed_core::sample::{DType, Field, FieldKind, Region, Size};
use infeed_source::Source;

/// Field of the labels if the transform names none.
pub(super) const DEFAULT_LABEL: &str = "label";

/// Mixing of a pipeline.
#[derive(Debug)]
pub(super) struct Mixer {
    choices: Vec<MixChoice>,
    /// Index of the first mixing transform; keys the draws.
    number: usize,
    /// Index of the label field, if there is one.
    label: Option<usize>,
    /// Size of the finished images, for drawing rectangles.
    size: Size,
}

/// Conversion of class numbers to soft labels.
#[derive(Clone, Copy, Debug)]
pub(super) struct SoftLabel {
    dtype: DType,
    classes: usize,
}

/// Returns the mixing transforms with their indices.
fn asked(pipeline: &Pipeline) -> impl Iterator<Item = (usize, &Transform, MixSettings<'_>)> {
    let all = pipeline.transforms.iter().enumerate();
    all.filter_map(|(at, transform)| Some((at, transform, transform.mixing()?)))
}

/// Returns the label field of a mixing pipeline, and the conversion of its class numbers to soft
/// labels. Without a source, accepts what only the source could check.
pub(super) fn labels(
    pipeline: &Pipeline,
    fields: &[Field],
    source: Option<&dyn Source>,
) -> Result<Option<(usize, Option<SoftLabel>)>, Error> {
    let Some((at, transform, first)) = asked(pipeline).next() else {
        return Ok(None);
    };
    let wrong = |problem: String| Err(Error::config(place(at, transform), problem));
    let mut whole = 0.0;
    for (at, transform, other) in asked(pipeline) {
        whole += other.choice.p;
        if (other.field, other.classes) != (first.field, first.classes) {
            return wrong(format!(
                "its field and classes differ from those of {}; use the same for both",
                place(at, transform)
            ));
        }
    }
    if whole > 1.0 + 1e-9 {
        return wrong(format!(
            "the p of MixUp and CutMix add up to {whole}, more than 1; a sample gets at most one \
             of them: lower p, such as p=0.5"
        ));
    }
    let name = first.field.unwrap_or(DEFAULT_LABEL);
    let Some(at) = fields.iter().position(|field| field.name == name) else {
        let masks = fields
            .iter()
            .any(|field| matches!(field.kind, FieldKind::Mask(_)));
        if source.is_none() || (masks && first.field.is_none()) {
            return Ok(None);
        }
        let names: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
        return wrong(format!(
            "no label field `{name}`; set the label field, as in field=\"...\" (fields: {names:?})"
        ));
    };
    let kind = &fields[at].kind;
    match kind {
        FieldKind::Tensor { dtype, shape } if shape.is_empty() && dtype.is_integer() => {
            let named = source.and_then(|source| source.classes()).map(<[_]>::len);
            let classes = first.classes.map(|n| n as usize).or(named);
            match classes {
                Some(classes) => Ok(Some((
                    at,
                    Some(SoftLabel {
                        dtype: *dtype,
                        classes,
                    }),
                ))),
                None if source.is_none() => Ok(None),
                None => wrong(format!(
                    "the number of classes of `{name}` is unknown; set it, as in classes=10"
                )),
            }
        }
        FieldKind::Tensor {
            dtype: DType::Float32,
            ..
        } if first.classes.is_none() => Ok(Some((at, None))),
        FieldKind::Tensor {
            dtype: DType::Float32,
            ..
        } => wrong(format!(
            "`{name}` is float32, which needs no classes; remove classes"
        )),
        _ => wrong(format!(
            "`{name}` is neither a class number nor float32, so it cannot be mixed; set another \
             label field, as in field=\"...\""
        )),
    }
}

/// Checks that finished rows can be mixed.
pub(super) fn mixer(
    pipeline: &Pipeline,
    plans: &[FieldPlan],
    label: Option<usize>,
) -> Result<Option<Mixer>, Error> {
    let Some((number, first, _)) = asked(pipeline).next() else {
        return Ok(None);
    };
    let pixels = plans.iter().filter_map(|plan| match plan {
        FieldPlan::Pixels(plan) => Some(plan),
        _ => None,
    });
    let mut size = None;
    for plan in pixels {
        let wrong = |problem| Err(Error::config(place(number, first), problem));
        let Some(own) = plan.size else {
            return wrong(format!(
                "the size of `{}` differs by record; add a transform that gives one size before it, \
                 such as RandomResizedCrop(224)",
                plan.name
            ));
        };
        size = size.or(Some(own));
        let blended = asked(pipeline).find(|(_, _, settings)| !settings.choice.cuts);
        if let Some((at, transform, _)) = blended
            && plan.is_mask
            && !plan.is_shares()
        {
            let problem = format!(
                "class numbers in `{}` cannot be averaged; add OneHot(\"{}\", ...) with a float \
                 dtype before it, or use CutMix",
                plan.name, plan.name
            );
            return Err(Error::config(place(at, transform), problem));
        }
    }
    let Some(size) = size else {
        return Ok(None);
    };
    Ok(Some(Mixer {
        number,
        choices: asked(pipeline).map(|(_, _, of)| of.choice).collect(),
        label,
        size,
    }))
}

impl PixelPlan {
    /// Whether every number is the share of a class, so that averages are meaningful.
    fn is_shares(&self) -> bool {
        matches!(&self.finish, RowPass::OneHot { dtype, .. } if *dtype != DType::UInt8)
    }

    /// Planes of a row, and bytes of a plane's element (a pixel, or one channel of it).
    fn planes(&self, size: Size) -> (usize, usize) {
        let bytes = self.dtype().bytes();
        let layout = self.finish.layout().unwrap_or(Layout::Hwc);
        let shape = self.shape(size);
        match (layout, shape[..].len()) {
            (_, 0..=2) => (1, bytes),
            (Layout::Hwc, _) => (1, shape[2] * bytes),
            (Layout::Chw, _) => (shape[0], bytes),
        }
    }
}

impl SoftLabel {
    /// Returns the column of soft labels.
    pub(super) fn column(&self) -> ColumnKind {
        ColumnKind::Fixed {
            dtype: DType::Float32,
            shape: vec![self.classes],
        }
    }

    /// Writes a class number as a soft label with all weight on that class.
    pub(super) fn write(&self, number: &[u8], cell: &mut RowCell) -> Result<(), SampleError> {
        let class = integer(self.dtype, number);
        let Some(class) = class
            .and_then(|class| usize::try_from(class).ok())
            .filter(|&class| class < self.classes)
        else {
            return Err(SampleError::Shape {
                found: match class {
                    Some(class) => format!("label {class}"),
                    None => format!("{} bytes", number.len()),
                },
                expected: format!("labels of {} classes, from 0", self.classes),
                fix: "set the number of classes of MixUp and CutMix, as in classes=1000",
            });
        };
        if let RowCell::Own { bytes, .. } = cell {
            bytes.resize(self.classes * 4, 0);
        }
        let out = bytes_of(cell);
        out.fill(0);
        if let Some(share) = out.get_mut(class * 4..class * 4 + 4) {
            share.copy_from_slice(&1.0_f32.to_ne_bytes());
        }
        Ok(())
    }
}

/// Reads an integer of a type from its bytes.
fn integer(dtype: DType, bytes: &[u8]) -> Option<i128> {
    macro_rules! read {
        ($of:ty) => {
            <$of>::from_le_bytes(bytes.try_into().ok()?).into()
        };
    }
    Some(match dtype {
        DType::UInt8 => read!(u8),
        DType::UInt16 => read!(u16),
        DType::UInt32 => read!(u32),
        DType::UInt64 => read!(u64),
        DType::Int8 => read!(i8),
        DType::Int16 => read!(i16),
        DType::Int32 => read!(i32),
        DType::Int64 => read!(i64),
        _ => return None,
    })
}

fn bytes_of(cell: &mut RowCell) -> &mut [u8] {
    match cell {
        RowCell::Slab(row) => row.bytes_mut(),
        RowCell::Own { bytes, .. } => bytes,
    }
}

impl Plan {
    /// Whether samples are mixed with others.
    pub fn mixes(&self) -> bool {
        self.mixer.is_some()
    }

    /// Draws the partner of a position and the mixing: a function of the seed, epoch, position and
    /// the positions in `near`. `None` if the sample is not mixed.
    pub fn mixing(&self, at: Position, near: impl FnOnce() -> Range<u64>) -> Option<Mixing> {
        let mixer = self.mixer.as_ref()?;
        let mut rng = Rng::new(self.seed, at.epoch, at.position, mixer.number as u64);
        Mixing::draw(&mixer.choices, at.position, near, &mut rng)
    }

    /// Creates a row with its own memory, for the partner.
    pub fn spare_row(&self) -> BatchRow {
        let cell = |_| RowCell::Own {
            shape: Vec::new(),
            bytes: Vec::new(),
        };
        BatchRow {
            cells: self.columns.iter().map(cell).collect(),
            ..BatchRow::default()
        }
    }

    /// Bytes of the partner's row.
    pub fn spare_row_bytes(&self) -> u64 {
        let bytes = self.columns.iter().filter_map(|c| c.kind.row_bytes());
        bytes.sum::<usize>() as u64
    }

    /// Mixes images, masks and labels of a finished partner into a finished row. Other fields keep
    /// the row's own values.
    ///
    /// # Errors
    ///
    /// If the partner's shape differs.
    pub fn mix(
        &self,
        mixing: &Mixing,
        partner: &mut BatchRow,
        row: &mut BatchRow,
    ) -> Result<(), StageFailure> {
        let Some(mixer) = &self.mixer else {
            return Ok(());
        };
        let cells = row.cells.iter_mut().zip(&mut partner.cells);
        for (field, (plan, (own, other))) in self.fields.iter().zip(cells).enumerate() {
            let (own, other) = (bytes_of(own), bytes_of(other));
            let is_label = mixer.label == Some(field);
            if !is_label && !matches!(plan, FieldPlan::Pixels(_)) {
                continue;
            }
            if own.len() != other.len() {
                let error = SampleError::Shape {
                    found: format!("{} bytes", other.len()),
                    expected: format!("{}", own.len()),
                    fix: "all samples must have the same shape to be mixed",
                };
                return Err(error.in_field(field));
            }
            match plan {
                FieldPlan::Pixels(plan) => {
                    let size = plan.size.unwrap_or(mixer.size);
                    match mixing.blend.region(size) {
                        Some(region) => {
                            paste(own, other, size, plan.planes(size), region);
                        }
                        None => blend(plan.dtype(), mixing.blend.share(size), own, other),
                    }
                }
                _ => labels_of(mixing.blend.share(mixer.size), own, other),
            }
        }
        Ok(())
    }
}

/// Mixes soft labels with one rounding, so that a class mixed with itself stays 1.
fn labels_of(share: f64, own: &mut [u8], other: &[u8]) {
    let pairs = own.as_chunks_mut::<4>().0.iter_mut();
    for (own, other) in pairs.zip(other.as_chunks::<4>().0) {
        let (a, b) = (f32::from_ne_bytes(*own), f32::from_ne_bytes(*other));
        let mixed = f64::from(a) * share + f64::from(b) * (1.0 - share);
        *own = (mixed as f32).to_ne_bytes();
    }
}

/// `share * own + (1 - share) * other`, in float32. Integers are rounded to nearest, halves up.
fn blend(dtype: DType, share: f64, own: &mut [u8], other: &[u8]) {
    let (a, b) = (share as f32, (1.0 - share) as f32);
    let mean = |own: f32, other: f32| own * a + other * b;
    /// Applies `mean` to numbers of `$size` bytes.
    macro_rules! each {
        ($size:literal, $from:expr, $to:expr) => {{
            let pairs = own.as_chunks_mut::<$size>().0.iter_mut();
            for (own, other) in pairs.zip(other.as_chunks::<$size>().0) {
                *own = $to(mean($from(*own), $from(*other)));
            }
        }};
    }
    match dtype {
        DType::Float32 => each!(4, f32::from_ne_bytes, f32::to_ne_bytes),
        DType::Float16 => each!(2, |bytes| f16::from_ne_bytes(bytes).to_f32(), |value| {
            f16::from_f32(value).to_ne_bytes()
        }),
        DType::BFloat16 => each!(2, |bytes| bf16::from_ne_bytes(bytes).to_f32(), |value| {
            bf16::from_f32(value).to_ne_bytes()
        }),
        DType::UInt16 => each!(
            2,
            |bytes| f32::from(u16::from_ne_bytes(bytes)),
            |value: f32| ((value + 0.5) as u16).to_ne_bytes()
        ),
        _ => each!(1, |bytes: [u8; 1]| f32::from(bytes[0]), |value: f32| [
            (value + 0.5) as u8
        ]),
    }
}

/// Copies a rectangle of one row's pixels to another row.
fn paste(
    own: &mut [u8],
    other: &[u8],
    size: Size,
    (planes, element): (usize, usize),
    region: Region,
) {
    let (width, height) = (size.width as usize, size.height as usize);
    let (left, length) = (region.left as usize, region.size.width as usize);
    for plane in 0..planes {
        for y in region.top as usize..region.bottom() as usize {
            let begin = ((plane * height + y) * width + left) * element;
            let line = begin..begin + length * element;
            own[line.clone()].copy_from_slice(&other[line]);
        }
    }
}

impl fmt::Display for Mixer {
    /// Writes the line of the plan.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let choices = self.choices.iter().map(|choice| {
            let name = choice.name();
            let often = match choice.p {
                p if p < 1.0 => format!(", {p} of the samples"),
                _ => String::new(),
            };
            format!("{name} (alpha {}{often})", choice.alpha)
        });
        let choices: Vec<String> = choices.collect();
        write!(
            f,
            "mix: {}, with the sample of another position, decoded for it",
            choices.join(" or ")
        )
    }
}
