//! Pixels added around an image.
//!
//! Source: torchvision.transforms.v2.Pad; the modes beyond one reflection as `numpy.pad`.

use serde::{Deserialize, Serialize};

use super::crop::push_pad;
use super::params::Check;
use super::{PadMode, Padding, PixelView, Step, TransformError, Values};
use crate::sample::{Depth, Image, Size};

/// Adds pixels on the sides of an image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pad {
    /// How many, on which side.
    pub padding: Padding,
    /// What images are padded with.
    #[serde(default)]
    pub fill: Values,
    /// What masks are padded with.
    #[serde(default)]
    pub mask_fill: Values,
    /// How the added pixels are made.
    #[serde(default)]
    pub padding_mode: PadMode,
}

impl Pad {
    /// Adds zeros.
    pub fn new(padding: impl Into<Padding>) -> Pad {
        Pad {
            padding: padding.into(),
            fill: Values::default(),
            mask_fill: Values::default(),
            padding_mode: PadMode::default(),
        }
    }

    pub(super) fn validate(&self) -> Result<(), TransformError> {
        let check = Check("Pad");
        check.fill("fill", &self.fill)?;
        check.fill("mask_fill", &self.mask_fill)
    }

    pub(super) fn draw(&self, image: Size, steps: &mut Vec<Step>) -> Result<(), TransformError> {
        let sides = self.padding.sides();
        let step = Step::pad(sides, &self.fill, &self.mask_fill, self.padding_mode);
        push_pad("Pad", image, sides, step, steps).map(|_| ())
    }
}

/// The bytes of one pixel that holds `values`: one number for all channels, or one by channel.
/// Fractions are cut off, as a cast does.
///
/// # Errors
///
/// `Values` if there are neither one nor `channels`, `Pixels` if one does not fit the depth.
pub(super) fn pixel_from_values(
    transform: &'static str,
    parameter: &'static str,
    values: &[f64],
    channels: usize,
    depth: Depth,
) -> Result<Vec<u8>, TransformError> {
    if values.len() != 1 && values.len() != channels {
        return Err(TransformError::Values {
            transform,
            parameter,
            found: values.len(),
            channels,
        });
    }
    let most = match depth {
        Depth::U8 => f64::from(u8::MAX),
        Depth::U16 => f64::from(u16::MAX),
    };
    let mut pixel = Vec::with_capacity(channels * depth.bytes());
    for value in values.iter().cycle().take(channels) {
        if !(0.0..=most).contains(value) {
            let allowed = "fills from 0 to the greatest value of a sample";
            return Err(TransformError::Pixels {
                transform,
                channels,
                depth,
                allowed,
            });
        }
        match depth {
            Depth::U8 => pixel.push(*value as u8),
            Depth::U16 => pixel.extend_from_slice(&(*value as u16).to_ne_bytes()),
        }
    }
    Ok(pixel)
}

/// Writes `input` with pixels added on its `[left, top, right, bottom]` sides.
pub(super) fn pad(
    input: PixelView<'_>,
    [left, top, right, bottom]: [u32; 4],
    fill: &[u8],
    mode: PadMode,
    out: &mut Image,
) {
    let Size { height, width } = input.size();
    let size = Size {
        height: height + top + bottom,
        width: width + left + right,
    };
    out.reset(size, input.channels(), input.depth());
    let pixel = input.pixel_bytes();
    let inner = left as usize * pixel..(left + width) as usize * pixel;
    for y in 0..size.height {
        let row = out.row_mut(y as usize);
        match source(i64::from(y) - i64::from(top), height, mode) {
            Some(from) => {
                row[inner.clone()].copy_from_slice(input.row(from));
                let beside = (0..left).chain(left + width..size.width);
                for x in beside {
                    let from = source(i64::from(x) - i64::from(left), width, mode);
                    let at = x as usize * pixel;
                    match from.map(|from| inner.start + from * pixel) {
                        Some(from) => row.copy_within(from..from + pixel, at),
                        None => row[at..at + pixel].copy_from_slice(fill),
                    }
                }
            }
            None => row
                .chunks_exact_mut(pixel)
                .for_each(|p| p.copy_from_slice(fill)),
        }
    }
}

/// The row or column of the image that stands at `at`, counted from its first; none for the fill.
fn source(at: i64, side: u32, mode: PadMode) -> Option<usize> {
    let side = i64::from(side);
    if (0..side).contains(&at) {
        return Some(at as usize);
    }
    let from = match mode {
        PadMode::Constant => return None,
        PadMode::Edge => at.clamp(0, side - 1),
        PadMode::Reflect if side == 1 => 0,
        PadMode::Reflect => {
            let at = at.rem_euclid(2 * (side - 1));
            at.min(2 * (side - 1) - at)
        }
        PadMode::Symmetric => {
            let at = at.rem_euclid(2 * side);
            at.min(2 * side - 1 - at)
        }
    };
    Some(from as usize)
}
