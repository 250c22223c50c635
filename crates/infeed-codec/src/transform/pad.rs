//! Adds pixels around an image.
//!
//! Source: torchvision.transforms.v2.Pad; the modes beyond one reflection are those of `numpy.pad`.

use serde::{Deserialize, Serialize};

use super::effect::Effect;
use super::error::Result;
use super::operation::Operation;
use super::params::{Check, MAX_PIXELS};
use super::{ChannelValues, PadMode, Padding, PixelView, Rng, Step, TransformError};
use infeed_core::sample::{Depth, Image, Size};

/// Adds pixels at the sides of an image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pad {
    /// Number of pixels on each side.
    pub padding: Padding,
    /// Fill for images.
    #[serde(default)]
    pub fill: ChannelValues,
    /// Fill for masks.
    #[serde(default)]
    pub mask_fill: ChannelValues,
    /// Content of the added pixels.
    #[serde(default)]
    pub padding_mode: PadMode,
}

impl Pad {
    /// Adds zeros.
    pub fn new(padding: impl Into<Padding>) -> Pad {
        Pad {
            padding: padding.into(),
            fill: ChannelValues::default(),
            mask_fill: ChannelValues::default(),
            padding_mode: PadMode::default(),
        }
    }
}

impl Operation for Pad {
    fn effect(&self) -> Effect {
        Effect::Pad
    }

    fn moves_points(&self) -> bool {
        self.padding_mode == PadMode::Constant
    }

    fn check_pixels(&self, channels: usize, depth: Depth) -> Result<()> {
        check_fill("Pad", &self.fill, channels, depth)
    }

    fn mask_fill(&self) -> Option<ChannelValues> {
        Some(self.mask_fill.clone())
    }

    fn validate(&self) -> Result<()> {
        Check("Pad").fills(&self.fill, &self.mask_fill)
    }

    fn draw(&self, image: Size, _rng: &mut Rng, steps: &mut Vec<Step>) -> Result<()> {
        let sides = self.padding.sides();
        let step = Step::pad(sides, &self.fill, &self.mask_fill, self.padding_mode);
        push_pad("Pad", image, sides, step, steps).map(|_| ())
    }
}

/// Appends a padding unless it adds nothing. Returns the padded size.
pub(super) fn push_pad(
    transform: &'static str,
    image: Size,
    [left, top, right, bottom]: [u32; 4],
    step: Step,
    steps: &mut Vec<Step>,
) -> Result<Size, TransformError> {
    let grown = |side: u32, before: u32, after: u32| {
        u32::try_from(u64::from(side) + u64::from(before) + u64::from(after)).ok()
    };
    let size = grown(image.height, top, bottom)
        .zip(grown(image.width, left, right))
        .map(|(height, width)| Size { height, width })
        .filter(|size| size.pixels() <= MAX_PIXELS)
        .ok_or(TransformError::TooLarge {
            transform,
            found: image,
            limit: MAX_PIXELS,
        })?;
    if size != image {
        steps.push(step);
    }
    Ok(size)
}

/// Checks that a fill is valid for images with these channels and this depth.
///
/// # Errors
///
/// As [`pixel_from_values`].
pub(super) fn check_fill(
    transform: &'static str,
    fill: &ChannelValues,
    channels: usize,
    depth: Depth,
) -> Result<()> {
    pixel_from_values(transform, "fill", fill.as_slice(), channels, depth).map(|_| ())
}

/// Returns the bytes of one pixel with `values`: one number for all channels, or one per channel.
/// Fractions are truncated.
///
/// # Errors
///
/// `Values` if the number of values is neither 1 nor `channels`; `Pixels` if a number does not fit
/// the depth.
pub(super) fn pixel_from_values(
    transform: &'static str,
    parameter: &'static str,
    values: &[f64],
    channels: usize,
    depth: Depth,
) -> Result<Vec<u8>> {
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
            let allowed = "fills from 0 to the largest value of a sample";
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

/// Writes `input` with pixels added on the `[left, top, right, bottom]` sides.
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
                if mode == PadMode::Constant {
                    fill_row(&mut row[..inner.start], fill);
                    fill_row(&mut row[inner.end..], fill);
                    continue;
                }
                let border = (0..left).chain(left + width..size.width);
                for x in border {
                    let from = source(i64::from(x) - i64::from(left), width, mode);
                    let at = x as usize * pixel;
                    match from.map(|from| inner.start + from * pixel) {
                        Some(from) => row.copy_within(from..from + pixel, at),
                        None => row[at..at + pixel].copy_from_slice(fill),
                    }
                }
            }
            None => fill_row(row, fill),
        }
    }
}

/// Writes the same pixel over a row.
pub(super) fn fill_row(row: &mut [u8], pixel: &[u8]) {
    let is_even = pixel.iter().all(|byte| Some(byte) == pixel.first());
    match pixel.first() {
        Some(first) if is_even => row.fill(*first),
        _ => {
            let first = pixel.len().min(row.len());
            row[..first].copy_from_slice(&pixel[..first]);
            // Each copy doubles the part that is filled.
            let mut filled = first;
            while filled > 0 && filled < row.len() {
                let more = filled.min(row.len() - filled);
                row.copy_within(..more, filled);
                filled += more;
            }
        }
    }
}

/// Returns the row or column of the image to copy to position `at`, counted from the image's first.
/// None for the fill.
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
