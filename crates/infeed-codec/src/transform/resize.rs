//! Resizes images and masks.
//!
//! Source: torchvision.transforms.v2.Resize for sizes, Pillow's `Image.resize` for pixels: a
//! separable filter that widens as the image shrinks. Alpha is treated like the other channels.
//! Pillow up to version 12 resizes rows before columns; later versions choose the order by the
//! sizes. The order is visible where a filter overshoots.

use infeed_resize::{FilterType, PixelType, ResizeAlg, Resizer, RowPart};
use serde::{Deserialize, Serialize};

use super::crop::copy;
use super::effect::Effect;
use super::error::Result;
use super::operation::Operation;
use super::params::{Check, MAX_PIXELS};
use super::view::Strides;
use super::{Filter, PixelView, Rng, Sides, Step, TransformError};
use infeed_core::sample::{Depth, Image, Size};

/// Resizes to a size, or so that the shorter side has a given length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resize {
    /// Length of the shorter side, with the aspect kept; or exact height and width.
    pub size: Sides,
    /// Interpolation of images; masks use `Nearest`.
    #[serde(default)]
    pub interpolation: Filter,
    /// Maximum length of the longer side if only the shorter side is given. The shorter side
    /// becomes shorter if needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_size: Option<u32>,
    /// Whether the filter becomes wider as the image shrinks. If not, a new pixel is made of the
    /// few source pixels next to its centre, as in TensorFlow and OpenCV.
    #[serde(default = "default_antialias", skip_serializing_if = "Clone::clone")]
    pub antialias: bool,
}

pub(super) fn default_antialias() -> bool {
    true
}

impl Resize {
    /// Resizes bilinearly to this size or shorter side.
    pub fn new(size: impl Into<Sides>) -> Resize {
        Resize {
            size: size.into(),
            interpolation: Filter::default(),
            max_size: None,
            antialias: true,
        }
    }

    /// Returns the size of the result. Unlike torchvision's, each side has at least one pixel.
    pub(super) fn output_size(&self, image: Size) -> Result<Size> {
        let Sides::One(wanted) = self.size else {
            return Ok(self.size.square());
        };
        let (short, long) = (image.width.min(image.height), image.width.max(image.height));
        // Like torchvision: true division, then truncation.
        let scaled =
            |a: u32, b: u32, c: u32| ((u64::from(a) * u64::from(b)) as f64 / f64::from(c)) as u32;
        let (mut new_short, mut new_long) = (wanted, scaled(wanted, long, short));
        if let Some(max_size) = self.max_size.filter(|&most| new_long > most) {
            (new_short, new_long) = (scaled(max_size, new_short, new_long).max(1), max_size);
        }
        let size = if image.width <= image.height {
            Size {
                height: new_long,
                width: new_short,
            }
        } else {
            Size {
                height: new_short,
                width: new_long,
            }
        };
        if size.pixels() > MAX_PIXELS {
            let transform = "Resize";
            return Err(TransformError::TooLarge {
                transform,
                found: image,
                limit: MAX_PIXELS,
            });
        }
        Ok(size)
    }
}

impl Operation for Resize {
    fn effect(&self) -> Effect {
        Effect::Resize
    }

    fn fixed_size(&self) -> Option<Size> {
        match self.size {
            Sides::Both(_) => Some(self.size.square()),
            Sides::One(_) => None,
        }
    }

    fn filter(&self) -> Option<Filter> {
        Some(self.interpolation)
    }

    fn is_antialiased(&self) -> bool {
        self.antialias
    }

    fn validate(&self) -> Result<()> {
        let check = Check("Resize");
        check.size("size", self.size.square())?;
        let Some(max_size) = self.max_size else {
            return Ok(());
        };
        let fits = match self.size {
            Sides::One(short) => short < max_size,
            Sides::Both(_) => false,
        };
        let allowed =
            "absent if size is [height, width], and greater than size if it is one number";
        check.holds(fits, "max_size", max_size, allowed)
    }

    fn draw(&self, image: Size, _rng: &mut Rng, steps: &mut Vec<Step>) -> Result<()> {
        let size = self.output_size(image)?;
        if size != image {
            steps.push(Step::Resize {
                size,
                filter: self.interpolation,
                antialias: self.antialias,
            });
        }
        Ok(())
    }
}

/// Buffers that a worker keeps between resizes.
#[derive(Debug, Default)]
pub(super) struct ResizeScratch {
    resizer: Resizer,
    /// Copy of source pixels whose rows cannot be read in place.
    copied: Image,
    /// Aligned 16-bit samples.
    from: Vec<u16>,
    to: Vec<u16>,
    /// Offset in the source row of the pixel for each column.
    columns: Vec<usize>,
}

/// Resizes a view to a size, with or without antialiasing. Both must have pixels.
pub(super) fn resize(
    input: PixelView<'_>,
    size: Size,
    (filter, antialias): (Filter, bool),
    out: &mut Image,
    scratch: &mut ResizeScratch,
) -> Result<()> {
    let weights = match filter {
        _ if size == input.size() => {
            copy(input, out);
            return Ok(());
        }
        Filter::Nearest => {
            nearest(input, size, out, &mut scratch.columns);
            return Ok(());
        }
        Filter::Bilinear => FilterType::Bilinear,
        Filter::Bicubic => FilterType::CatmullRom,
        Filter::Lanczos => lanczos(),
    };
    let weights = if antialias {
        ResizeAlg::Convolution(weights)
    } else {
        ResizeAlg::Interpolation(weights)
    };
    out.reset(size, input.channels(), input.depth());
    // In 8 bits the resizer processes columns before rows and rounds coefficients to 15 bits. Both
    // are visible with a filter that overshoots: the intermediate result is clipped, by up to 50
    // levels at hard edges, and the rounding of many coefficients adds up to 2. In 16 bits it
    // processes rows first, with enough precision.
    match input.depth() {
        Depth::U8 if filter == Filter::Bilinear => resize_u8(input, out, weights, scratch),
        Depth::U8 | Depth::U16 => resize_u16(input, out, weights, scratch),
    }
    .ok_or(TransformError::Pixels {
        transform: "Resize",
        channels: input.channels(),
        depth: input.depth(),
        allowed: "1 to 4 channels of 8 or 16 bits",
    })
}

fn resize_u8(
    input: PixelView<'_>,
    out: &mut Image,
    filter: ResizeAlg,
    scratch: &mut ResizeScratch,
) -> Option<()> {
    let ResizeScratch {
        resizer, copied, ..
    } = scratch;
    let rows = match input.strides() {
        Some(rows) => rows,
        None => {
            copy(input, copied);
            PixelView::from(&*copied).strides()?
        }
    };
    let (from, to) = ((rows, input.size()), (&mut out.data[..], out.size));
    let kind = match input.channels() {
        1 => PixelType::U8,
        2 => PixelType::U8x2,
        3 => PixelType::U8x3,
        _ => PixelType::U8x4,
    };
    resample(resizer, (kind, filter), from, to)
}

/// Resizes with aligned copies, because the bytes of an image or a mapped file may be unaligned.
/// Scales 8-bit samples to 16 bits: 255 becomes 65535.
fn resize_u16(
    input: PixelView<'_>,
    out: &mut Image,
    filter: ResizeAlg,
    scratch: &mut ResizeScratch,
) -> Option<()> {
    scratch.from.clear();
    for y in 0..input.height() {
        let row = input.row(y);
        match input.depth() {
            Depth::U8 => scratch.from.extend(row.iter().map(|&v| u16::from(v) * 257)),
            Depth::U16 => {
                let (samples, _) = row.as_chunks::<2>();
                scratch
                    .from
                    .extend(samples.iter().map(|&bytes| u16::from_ne_bytes(bytes)));
            }
        }
    }
    scratch.to.resize(out.data.len() / input.depth().bytes(), 0);
    let ResizeScratch {
        resizer, from, to, ..
    } = scratch;
    let data = bytemuck::cast_slice(from);
    let (width, left) = (input.size().width, 0);
    let from = (Strides { data, width, left }, input.size());
    let target = (bytemuck::cast_slice_mut(to), out.size);
    let kind = match input.channels() {
        1 => PixelType::U16,
        2 => PixelType::U16x2,
        3 => PixelType::U16x3,
        _ => PixelType::U16x4,
    };
    resample(resizer, (kind, filter), from, target)?;
    match input.depth() {
        Depth::U8 => {
            for (to, &v) in out.data.iter_mut().zip(to.iter()) {
                *to = ((u32::from(v) + 128) / 257) as u8;
            }
        }
        Depth::U16 => out.data.copy_from_slice(bytemuck::cast_slice(to)),
    }
    Some(())
}

/// Filters a part of some rows. Pixels outside the part do not contribute.
fn resample(
    resizer: &mut Resizer,
    (kind, filter): (PixelType, ResizeAlg),
    (rows, size): (Strides<'_>, Size),
    (to, to_size): (&mut [u8], Size),
) -> Option<()> {
    let part = RowPart {
        data: rows.data,
        row: rows.width,
        left: rows.left,
        width: size.width,
        height: size.height,
    };
    let to_size = (to_size.width, to_size.height);
    infeed_resize::resize(resizer, kind, filter, &part, to, to_size)
}

/// Copies the pixel under the centre of each new pixel. Works for every kind of pixel.
///
/// Like Pillow, adds up the centres instead of multiplying. If a centre is on the border of two
/// pixels, the rounding decides, so it must be the same as Pillow's.
fn nearest(input: PixelView<'_>, size: Size, out: &mut Image, columns: &mut Vec<usize>) {
    let pixel = input.pixel_bytes();
    out.reset(size, input.channels(), input.depth());
    columns.clear();
    columns.extend(centres(input.size().width, size.width).map(|x| x * pixel));
    let mut above: Option<usize> = None;
    for (y, from) in centres(input.size().height, size.height).enumerate() {
        if above == Some(from) {
            let row = out.row_bytes();
            out.data.copy_within((y - 1) * row..y * row, y * row);
            continue;
        }
        above = Some(from);
        match pixel {
            1 => gather::<1>(input.row(from), columns, out.row_mut(y)),
            2 => gather::<2>(input.row(from), columns, out.row_mut(y)),
            3 => gather::<3>(input.row(from), columns, out.row_mut(y)),
            4 => gather::<4>(input.row(from), columns, out.row_mut(y)),
            6 => gather::<6>(input.row(from), columns, out.row_mut(y)),
            _ => gather::<8>(input.row(from), columns, out.row_mut(y)),
        }
    }
}

/// For each of `to` pixels, the index of the pixel of `from` under its centre.
fn centres(from: u32, to: u32) -> impl Iterator<Item = usize> {
    let scale = f64::from(from) / f64::from(to);
    let mut centre = scale * 0.5;
    (0..to).map(move |_| {
        let at = (centre as usize).min(from as usize - 1);
        centre += scale;
        at
    })
}

fn gather<const PIXEL: usize>(from: &[u8], columns: &[usize], to: &mut [u8]) {
    let (to, _) = to.as_chunks_mut::<PIXEL>();
    for (to, &at) in to.iter_mut().zip(columns) {
        to.copy_from_slice(&from[at..at + PIXEL]);
    }
}

/// The Lanczos filter with the sine of libm: the resizer's own uses the platform's, whose last bit
/// differs between platforms.
fn lanczos() -> FilterType {
    fn sinc(x: f64) -> f64 {
        if x == 0.0 {
            return 1.0;
        }
        let x = x * std::f64::consts::PI;
        libm::sin(x) / x
    }
    fn windowed_sinc(x: f64) -> f64 {
        if (-3.0..3.0).contains(&x) {
            sinc(x) * sinc(x / 3.0)
        } else {
            0.0
        }
    }
    infeed_resize::Filter::new("lanczos", windowed_sinc, 3.0)
        .map_or(FilterType::Lanczos3, FilterType::Custom)
}
