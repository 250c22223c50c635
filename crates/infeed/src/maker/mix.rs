//! `MixUp` and `CutMix`: mixes two finished rows of images, masks and labels into one.
//!
//! Each record is drawn and arranged as at its own position. Both samples are written as rows, so flips,
//! normalization and layout are done, and one pass over the row mixes them.

use half::{bf16, f16};

use super::sample_maker::{SampleMaker, SampleRecord};
use crate::fields::cells::bytes_of;
use crate::fields::failure::{PartFailure, SampleError, StageFailure};
use crate::plan::SamplePlan;
use crate::plan::mix::MixPlan;
use infeed_codec::transform::Mixing;
use infeed_core::batch::BatchRow;
use infeed_core::counters::Stage;
use infeed_core::sample::{DType, Region, Size};

impl SampleMaker<'_> {
    /// Makes the sample of two records, whose rows are mixed.
    pub(super) fn fill_mixed(
        &mut self,
        records: &[SampleRecord<'_>],
        (own, drawn): (&MixPlan, &Mixing),
        row: &mut BatchRow,
    ) -> Result<(), PartFailure> {
        let plan = self.plan;
        let mut samples = Vec::with_capacity(records.len());
        for (part, of) in records.iter().enumerate() {
            let arranged = self.arrange(*of, row.layout);
            samples.push(arranged.map_err(|failure| PartFailure { part, failure })?);
        }
        let [first, second] = &samples[..] else {
            unreachable!("two samples are mixed");
        };
        // The rows are made one after the other.
        let largest = usize::from(second.bytes > first.bytes);
        self.reserve(largest, first.bytes.max(second.bytes))?;
        self.write(first, row)?;
        let mut partner = self.take_row();
        self.scratch.counted = 0;
        let made = self.write(second, &mut partner);
        let mixed = made.and_then(|()| mix(plan, (own, drawn), &mut partner, row));
        self.scratch.lap(Stage::Write);
        self.row = partner;
        mixed.map_err(|failure| PartFailure { part: 1, failure })
    }
}

/// Mixes images, masks and labels of a finished partner into a finished row. Other fields keep the
/// row's own values.
///
/// # Errors
///
/// If the partner's shape differs.
pub(super) fn mix(
    plan: &SamplePlan,
    (own, drawn): (&MixPlan, &Mixing),
    partner: &mut BatchRow,
    row: &mut BatchRow,
) -> Result<(), StageFailure> {
    let cells = row.cells.iter_mut().zip(&mut partner.cells);
    for (field, (pixels, (to, from))) in plan.pixels.iter().zip(cells).enumerate() {
        let (to, from) = (bytes_of(to), bytes_of(from));
        let is_label = own.label == Some(field);
        if !is_label && pixels.is_none() {
            continue;
        }
        if to.len() != from.len() {
            let error = SampleError::Shape {
                found: format!("{} bytes", from.len()),
                expected: format!("{}", to.len()),
                fix: "all samples must have the same shape to be mixed",
            };
            return Err(error.in_field(field));
        }
        match pixels {
            Some(plan) => {
                let size = plan.size.unwrap_or(own.size);
                match drawn.blend.region(size) {
                    Some(region) => {
                        paste(to, from, size, plan.planes(size), region);
                    }
                    None => blend(plan.dtype(), drawn.blend.share(size), to, from),
                }
            }
            None => labels_of(drawn.blend.share(own.size), to, from),
        }
    }
    Ok(())
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
pub(super) fn blend(dtype: DType, share: f64, own: &mut [u8], other: &[u8]) {
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
