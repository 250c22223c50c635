//! Pixels of warped images.
//!
//! Source: `grid_sample` of PyTorch: weights in f32, the fill blended by the share of the four
//! neighbours inside the image, and values rounded to the nearest even.

use super::error::TransformError;
use super::params::Filter;
use super::view::PixelView;
use super::warp::{PixelGrid, Warp, WarpMap, floor};
use infeed_core::sample::{Depth, Image, Size};
use infeed_raw::simd::{self, Level, SourcePixels};

/// Buffers that a worker keeps between warps: positions in the image for one row of the result.
#[derive(Debug, Default)]
pub(super) struct WarpScratch {
    x: Vec<f32>,
    y: Vec<f32>,
    /// Columns whose neighbours are not all inside the image.
    rest: Vec<u32>,
}

/// Warps a view that has pixels. Masks use `Nearest`, whatever the filter.
pub(super) fn warp(
    input: PixelView<'_>,
    warp: &Warp,
    is_mask: bool,
    out: &mut Image,
    scratch: &mut WarpScratch,
) -> Result<(), TransformError> {
    let (parameter, values) = match is_mask {
        true => ("mask_fill", &warp.mask_fill),
        false => ("fill", &warp.fill),
    };
    let fill = fill_values(warp.map.name(), parameter, values, &input)?;
    let region = warp.computed_region();
    let mut shifts = match &warp.map {
        WarpMap::Elastic(field) => {
            field.check(input.size())?;
            Some(field.rows(input.size(), region))
        }
        _ => None,
    };
    out.reset(region.size, input.channels(), input.depth());
    let source = WarpInput {
        view: input,
        fill,
        blends: !values.is_empty(),
    };
    let nearest = is_mask || warp.filter == Filter::Nearest;
    let run = match (input.depth(), input.channels(), nearest) {
        (Depth::U8, 1, false) => WarpInput::bilinear_bytes::<1>,
        (Depth::U8, 2, false) => WarpInput::bilinear_bytes::<2>,
        (Depth::U8, 3, false) => WarpInput::bilinear_bytes::<3>,
        (Depth::U8, _, false) => WarpInput::bilinear_bytes::<4>,
        (Depth::U16, 1, false) => WarpInput::bilinear_words::<1>,
        (Depth::U16, 2, false) => WarpInput::bilinear_words::<2>,
        (Depth::U16, 3, false) => WarpInput::bilinear_words::<3>,
        (Depth::U16, _, false) => WarpInput::bilinear_words::<4>,
        (Depth::U8, 1, true) => WarpInput::nearest::<1, 1>,
        (Depth::U8, 2, true) => WarpInput::nearest::<2, 1>,
        (Depth::U8, 3, true) => WarpInput::nearest::<3, 1>,
        (Depth::U8, _, true) => WarpInput::nearest::<4, 1>,
        (Depth::U16, 1, true) => WarpInput::nearest::<1, 2>,
        (Depth::U16, 2, true) => WarpInput::nearest::<2, 2>,
        (Depth::U16, 3, true) => WarpInput::nearest::<3, 2>,
        (Depth::U16, _, true) => WarpInput::nearest::<4, 2>,
    };
    let grid = PixelGrid::new(warp, input.size());
    let WarpScratch { x, y, rest } = scratch;
    x.resize(region.size.width as usize, 0.0);
    y.resize(region.size.width as usize, 0.0);
    let level = Level::detect();
    for row in 0..region.size.height {
        let positions = grid.row(region.left, region.top + row);
        simd::warp_positions(level, &positions, x, y);
        if let Some(shifts) = &mut shifts {
            shifts.add(region.top + row, x, y);
        }
        run(&source, (&x[..], &y[..]), rest, out.row_mut(row as usize));
    }
    Ok(())
}

/// Returns the fill by channel; 0 without values.
fn fill_values(
    transform: &'static str,
    parameter: &'static str,
    values: &[f64],
    input: &PixelView<'_>,
) -> Result<[f32; 4], TransformError> {
    let channels = input.channels();
    if values.len() > 1 && values.len() != channels {
        return Err(TransformError::Values {
            transform,
            parameter,
            found: values.len(),
            channels,
        });
    }
    let value = |at: usize| values.get(at).or(values.first()).copied().unwrap_or(0.0);
    Ok(std::array::from_fn(|at| value(at) as f32))
}

/// The image that is warped.
struct WarpInput<'a> {
    view: PixelView<'a>,
    fill: [f32; 4],
    /// Whether the fill is blended by the share of the neighbours outside the image.
    blends: bool,
}

impl WarpInput<'_> {
    /// Takes the nearest pixels, or the fill outside the image.
    fn nearest<const CHANNELS: usize, const BYTES: usize>(
        &self,
        (x, y): (&[f32], &[f32]),
        rest: &mut Vec<u32>,
        to: &mut [u8],
    ) {
        let pixel = CHANNELS * BYTES;
        let mut fill = [0; 8];
        for (to, value) in fill.chunks_exact_mut(BYTES).zip(self.fill) {
            write::<BYTES>(value, to);
        }
        rest.clear();
        simd::nearest_row(Level::detect(), &self.source(), x, y, to, rest);
        for &at in &*rest {
            to[at as usize * pixel..][..pixel].copy_from_slice(&fill[..pixel]);
        }
    }

    fn source(&self) -> SourcePixels<'_> {
        let (data, row_bytes) = self.view.bytes_and_stride();
        SourcePixels {
            data,
            width: self.view.width(),
            height: self.view.height(),
            channels: self.view.pixel_bytes(),
            row_bytes,
        }
    }

    /// Blends the four neighbours in pixels of 8-bit samples.
    fn bilinear_bytes<const CHANNELS: usize>(
        &self,
        (x, y): (&[f32], &[f32]),
        rest: &mut Vec<u32>,
        to: &mut [u8],
    ) {
        rest.clear();
        simd::blend_row(Level::detect(), &self.source(), x, y, to, rest);
        for &at in &*rest {
            let at = at as usize;
            let to = &mut to[at * CHANNELS..][..CHANNELS];
            self.bilinear::<CHANNELS, 1>([x[at], y[at]], to);
        }
    }

    /// Blends the four neighbours in pixels of 16-bit samples.
    fn bilinear_words<const CHANNELS: usize>(
        &self,
        (x, y): (&[f32], &[f32]),
        _rest: &mut Vec<u32>,
        to: &mut [u8],
    ) {
        for (to, (&x, &y)) in to.chunks_exact_mut(2 * CHANNELS).zip(x.iter().zip(y)) {
            self.bilinear::<CHANNELS, 2>([x, y], to);
        }
    }

    /// Blends the four neighbours of a position, some of which may be outside the image.
    fn bilinear<const CHANNELS: usize, const BYTES: usize>(&self, [x, y]: [f32; 2], to: &mut [u8]) {
        let Size { height, width } = self.view.size();
        let (data, row_bytes) = self.view.bytes_and_stride();
        let pixel = CHANNELS * BYTES;
        let (left, top) = (floor(x), floor(y));
        let (right_share, below_share) = (x - left as f32, y - top as f32);
        let (left_share, above_share) = (1.0 - right_share, 1.0 - below_share);
        let shares = [
            left_share * above_share,
            right_share * above_share,
            left_share * below_share,
            right_share * below_share,
        ];
        let mut values = [0.0; CHANNELS];
        let is_near = |at: i64, side: u32| (-1..i64::from(side)).contains(&at);
        if !is_near(left, width) || !is_near(top, height) {
            if self.blends {
                values.copy_from_slice(&self.fill[..CHANNELS]);
            }
            for (to, value) in to.chunks_exact_mut(BYTES).zip(values) {
                write::<BYTES>(value, to);
            }
            return;
        }
        let mut share = 0.0;
        for (number, part) in shares.into_iter().enumerate() {
            let (x, y) = (left + number as i64 % 2, top + number as i64 / 2);
            if (0..i64::from(width)).contains(&x) && (0..i64::from(height)).contains(&y) {
                let from = &data[y as usize * row_bytes + x as usize * pixel..][..pixel];
                for (at, value) in values.iter_mut().enumerate() {
                    *value += read::<BYTES>(from, at) * part;
                }
                share += part;
            }
        }
        let is_inside =
            left >= 0 && top >= 0 && left < i64::from(width) - 1 && top < i64::from(height) - 1;
        if self.blends && !is_inside {
            for (value, fill) in values.iter_mut().zip(self.fill) {
                *value = (*value - fill) * share + fill;
            }
        }
        for (to, value) in to.chunks_exact_mut(BYTES).zip(values) {
            write::<BYTES>(value, to);
        }
    }
}

/// Reads a sample of 1 or 2 bytes.
fn read<const BYTES: usize>(from: &[u8], at: usize) -> f32 {
    match BYTES {
        1 => f32::from(from[at]),
        _ => f32::from(u16::from_ne_bytes([from[2 * at], from[2 * at + 1]])),
    }
}

/// Writes a sample of 1 or 2 bytes, rounded to the nearest even.
fn write<const BYTES: usize>(value: f32, to: &mut [u8]) {
    // Adding 1.5 * 2^23 leaves no bits for fractions; the addition itself rounds to even.
    const ROUND: f32 = 12_582_912.0;
    let rounded = (value + ROUND) - ROUND;
    match BYTES {
        1 => to[0] = rounded as u8,
        _ => to.copy_from_slice(&(rounded as u16).to_ne_bytes()),
    }
}
