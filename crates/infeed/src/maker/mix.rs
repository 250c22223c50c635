//! `MixUp` and `CutMix`: mixes two finished rows of images, masks and labels into one.
//!
//! Both samples are written as rows first, so flips, normalization and layout are done, and one
//! pass over the row suffices.

use half::{bf16, f16};

use crate::fields::cells::bytes_of;
use crate::fields::failure::{SampleError, StageFailure};
use crate::plan::SamplePlan;
use infeed_codec::transform::Mixing;
use infeed_core::batch::BatchRow;
use infeed_core::sample::{DType, Region, Size};

impl SamplePlan {
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
        for (field, (pixels, (own, other))) in self.pixels.iter().zip(cells).enumerate() {
            let (own, other) = (bytes_of(own), bytes_of(other));
            let is_label = mixer.label == Some(field);
            if !is_label && pixels.is_none() {
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
            match pixels {
                Some(plan) => {
                    let size = plan.size.unwrap_or(mixer.size);
                    match mixing.blend.region(size) {
                        Some(region) => {
                            paste(own, other, size, plan.planes(size), region);
                        }
                        None => blend(plan.dtype(), mixing.blend.share(size), own, other),
                    }
                }
                None => labels_of(mixing.blend.share(mixer.size), own, other),
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
