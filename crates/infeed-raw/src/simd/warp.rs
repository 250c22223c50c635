//! Bilinear samples of 8-bit pixels at computed positions.
//!
//! Products and sums are f32, rounded one by one, so that all levels give the same bits. It uses no
//! intrinsics: compilers vectorise the loop over positions, and the channels of a pixel, well with
//! the level's instructions.

use super::{Level, SourcePixels};

/// Positions that are split into pixels and shares at once.
const BLOCK: usize = 64;

/// Adding it to a number up to 255 rounds to the nearest even integer, in the low byte: 1.5 * 2^23
/// leaves no bits for fractions.
const ROUND: f32 = 12_582_912.0;

/// A row of the positions that a map gives to pixels: `x = (ax * column + b + c + 1) * half - 0.5`,
/// each operation rounded.
#[derive(Debug, Clone, Copy)]
pub struct PositionRow {
    /// Column of the first pixel.
    pub column: u32,
    /// Added to a column and to a row.
    pub first: [f32; 2],
    /// Row of the pixels.
    pub row: u32,
    /// Rows of the matrix.
    pub matrix: [f32; 9],
    /// Whether the last row of the matrix divides.
    pub is_projective: bool,
    /// Half the width and height of the image.
    pub half: [f32; 2],
}

/// Compiles a function for each level: `$run` is `#[inline(always)]`.
macro_rules! at_levels {
    ($(#[$doc:meta])* $name:ident, $run:ident($($arg:ident: $kind:ty),*) $(-> $out:ty)?) => {
        $(#[$doc])*
        pub fn $name(level: Level, $($arg: $kind),*) $(-> $out)? {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "ssse3,sse4.1")]
                fn run_sse41($($arg: $kind),*) $(-> $out)? {
                $run($($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2")]
                fn run_avx2($($arg: $kind),*) $(-> $out)? {
                $run($($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2")]
                fn run_avx512($($arg: $kind),*) $(-> $out)? {
                $run($($arg),*)
            }
            match level {
                // SAFETY: the processor supports the level, checked in the guard.
                #[cfg(target_arch = "x86_64")]
                Level::Avx512 if level.is_available() => unsafe { run_avx512($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                Level::Avx2 if level.is_available() => unsafe { run_avx2($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                Level::Sse41 if level.is_available() => unsafe { run_sse41($($arg),*) },
                _ => $run($($arg),*),
            }
        }
    };
}

pub(super) use at_levels;

at_levels! {
    /// Writes columns and rows of an image, from 0 at the centre of the first pixel, for a row of the
    /// result of a warp. Infinity where a projective map has no value.
    ///
    /// # Shape
    ///
    /// `x` and `y` are `[pixels]`; the longer one keeps its end.
    warp_positions, positions(row: &PositionRow, x: &mut [f32], y: &mut [f32])
}

at_levels! {
    /// Blends the four neighbours of each position, and appends to `rest` the indices of positions
    /// whose neighbours are not all inside the image. Their pixels are unspecified.
    ///
    /// # Shape
    ///
    /// `x` and `y` are `[pixels]`, in pixels from the centre of the first one; `out` is
    /// `[pixels, channels]`.
    ///
    /// # Panics
    ///
    /// If lengths differ, if there are not 1 to 4 channels, or if the data ends before the last row.
    blend_row, blend(
        source: &SourcePixels<'_>,
        x: &[f32],
        y: &[f32],
        out: &mut [u8],
        rest: &mut Vec<u32>
    )
}

at_levels! {
    /// Copies the pixel nearest to each position, ties to the even one, and appends to `rest` the
    /// indices of positions outside the image. Their pixels are unspecified.
    ///
    /// # Shape
    ///
    /// As [`blend_row`], with pixels of `source.channels` bytes: 1, 2, 3, 4, 6 or 8.
    ///
    /// # Panics
    ///
    /// If lengths differ, if pixels have another number of bytes, or if the data ends before the last
    /// row.
    nearest_row, nearest(
        source: &SourcePixels<'_>,
        x: &[f32],
        y: &[f32],
        out: &mut [u8],
        rest: &mut Vec<u32>
    )
}

#[inline(always)]
fn nearest(source: &SourcePixels<'_>, x: &[f32], y: &[f32], out: &mut [u8], rest: &mut Vec<u32>) {
    assert_eq!(x.len(), y.len(), "a position has a column and a row");
    match source.channels {
        1 => nearest_pixels::<1>(source, x, y, out, rest),
        2 => nearest_pixels::<2>(source, x, y, out, rest),
        3 => nearest_pixels::<3>(source, x, y, out, rest),
        4 => nearest_pixels::<4>(source, x, y, out, rest),
        6 => nearest_pixels::<6>(source, x, y, out, rest),
        8 => nearest_pixels::<8>(source, x, y, out, rest),
        _ => panic!("pixels have 1 to 4 channels of 1 or 2 bytes"),
    }
}

#[inline(always)]
fn nearest_pixels<const BYTES: usize>(
    source: &SourcePixels<'_>,
    x: &[f32],
    y: &[f32],
    out: &mut [u8],
    rest: &mut Vec<u32>,
) {
    let (out, end) = out.as_chunks_mut::<BYTES>();
    assert!(
        out.len() == x.len() && end.is_empty(),
        "the row must be as long as the positions"
    );
    let (mut columns, mut rows) = ([0; BLOCK], [0; BLOCK]);
    let side = |side: usize| u32::try_from(side).unwrap_or(u32::MAX >> 1);
    let (width, height) = (side(source.width), side(source.height));
    let blocks = x
        .chunks(BLOCK)
        .zip(y.chunks(BLOCK))
        .zip(out.chunks_mut(BLOCK));
    for (number, ((x, y), out)) in blocks.enumerate() {
        for (((column, row), x), y) in columns.iter_mut().zip(&mut rows).zip(x).zip(y) {
            *column = nearest_index(*x);
            *row = nearest_index(*y);
        }
        for (at, ((to, &column), &row)) in out.iter_mut().zip(&columns).zip(&rows).enumerate() {
            if ((column as u32) < width) & ((row as u32) < height) {
                let from = row as usize * source.row_bytes + column as usize * BYTES;
                to.copy_from_slice(&source.data[from..from + BYTES]);
            } else {
                rest.push((number * BLOCK + at) as u32);
            }
        }
    }
}

/// Rounds to the nearest integer, ties to the even one.
#[inline(always)]
fn nearest_index(at: f32) -> i32 {
    let low = floor(at);
    let share = at - low as f32;
    let up = (share > 0.5) | ((share == 0.5) & (low & 1 != 0));
    low.wrapping_add(i32::from(up))
}

#[inline(always)]
fn positions(row: &PositionRow, x: &mut [f32], y: &mut [f32]) {
    let [a, b, c, d, e, f, g, h, i] = row.matrix;
    let at_y = row.row as f32 + row.first[1];
    let [half_x, half_y] = row.half;
    let pixels = x.iter_mut().zip(y);
    // Signed columns have a vector instruction.
    let at_x =
        |number: usize| (row.column as i32).wrapping_add(number as i32) as f32 + row.first[0];
    if !row.is_projective {
        let (by, ey) = (at_y * b, at_y * e);
        for (number, (x, y)) in pixels.enumerate() {
            let at_x = at_x(number);
            *x = number_or_infinity((at_x * a + by + c + 1.0) * half_x - 0.5);
            *y = number_or_infinity((at_x * d + ey + f + 1.0) * half_y - 0.5);
        }
        return;
    }
    for (number, (x, y)) in pixels.enumerate() {
        let at_x = at_x(number);
        let by = at_x * g + at_y * h + i;
        let to = [at_x * a + at_y * b + c, at_x * d + at_y * e + f].map(|v| v / by - 1.0);
        let at = [(to[0] + 1.0) * half_x - 0.5, (to[1] + 1.0) * half_y - 0.5];
        [*x, *y] = at.map(number_or_infinity);
    }
}

#[inline(always)]
fn number_or_infinity(v: f32) -> f32 {
    if v.is_nan() { f32::INFINITY } else { v }
}

/// Positions of a block, split.
struct SplitPositions {
    left: [i32; BLOCK],
    top: [i32; BLOCK],
    shares: [[f32; BLOCK]; 4],
    is_inside: [bool; BLOCK],
}

#[inline(always)]
fn blend(source: &SourcePixels<'_>, x: &[f32], y: &[f32], out: &mut [u8], rest: &mut Vec<u32>) {
    assert_eq!(x.len(), y.len(), "a position has a column and a row");
    assert_eq!(
        Some(out.len()),
        x.len().checked_mul(source.channels),
        "the row must be as long as the positions"
    );
    match source.channels {
        1 => blend_channels::<1, 1>(source, x, y, out, rest),
        2 => blend_channels::<2, 2>(source, x, y, out, rest),
        3 => blend_channels::<3, 4>(source, x, y, out, rest),
        4 => blend_channels::<4, 4>(source, x, y, out, rest),
        _ => panic!("pixels have 1 to 4 channels"),
    }
}

/// Blends pixels of some channels, `LANES` numbers at once. Numbers beyond the channels belong to
/// the next pixel and are overwritten by it.
#[inline(always)]
fn blend_channels<const CHANNELS: usize, const LANES: usize>(
    source: &SourcePixels<'_>,
    x: &[f32],
    y: &[f32],
    out: &mut [u8],
    rest: &mut Vec<u32>,
) {
    let mut split = SplitPositions {
        left: [0; BLOCK],
        top: [0; BLOCK],
        shares: [[0.0; BLOCK]; 4],
        is_inside: [false; BLOCK],
    };
    let last = |side: usize| u32::try_from(side.saturating_sub(1)).unwrap_or(u32::MAX >> 1);
    let size = [last(source.width), last(source.height)];
    let mut corners = [[[0; LANES]; BLOCK]; 4];
    let (out, _) = out.as_chunks_mut::<CHANNELS>();
    let blocks = x.chunks(BLOCK).zip(y.chunks(BLOCK));
    for (number, (x, y)) in blocks.enumerate() {
        split.fill(x, y, size);
        let out = &mut out[number * BLOCK..];
        for at in 0..x.len() {
            if !split.is_inside[at] {
                rest.push((number * BLOCK + at) as u32);
                continue;
            }
            let (top, left) = (split.top[at] as usize, split.left[at] as usize);
            let above = top * source.row_bytes + left * CHANNELS;
            let pixels = neighbours::<CHANNELS, LANES>(source.data, above, source.row_bytes);
            for (corner, pixel) in corners.iter_mut().zip(pixels) {
                corner[at] = pixel;
            }
        }
        let blended = blend_corners(&corners, &split.shares);
        for (to, from) in out.iter_mut().zip(&blended).take(x.len()) {
            to.copy_from_slice(&from[..CHANNELS]);
        }
    }
}

/// Blends the four neighbours of each pixel, one operation for all channels of a pixel.
#[inline(always)]
#[allow(
    clippy::needless_range_loop,
    reason = "one index for several arrays vectorises"
)]
fn blend_corners<const LANES: usize>(
    [a, b, c, d]: &[[[u8; LANES]; BLOCK]; 4],
    [s0, s1, s2, s3]: &[[f32; BLOCK]; 4],
) -> [[u8; LANES]; BLOCK] {
    let mut blended = [[0; LANES]; BLOCK];
    for at in 0..BLOCK {
        for lane in 0..LANES {
            let value = f32::from(a[at][lane]) * s0[at]
                + f32::from(b[at][lane]) * s1[at]
                + f32::from(c[at][lane]) * s2[at]
                + f32::from(d[at][lane]) * s3[at];
            blended[at][lane] = (value + ROUND).to_bits() as u8;
        }
    }
    blended
}

/// Returns the pixel at a byte, the next one, and those below them. Bytes after the end of the data
/// are 0.
#[inline(always)]
fn neighbours<const CHANNELS: usize, const LANES: usize>(
    data: &[u8],
    above: usize,
    row_bytes: usize,
) -> [[u8; LANES]; 4] {
    let below = above + row_bytes;
    if let Some(data) = data.get(above..below + CHANNELS + LANES)
        && let Some(a) = data.first_chunk()
        && let Some(b) = data[CHANNELS..].first_chunk()
        && let Some(c) = data[row_bytes..].first_chunk()
        && let Some(d) = data[row_bytes + CHANNELS..].first_chunk()
    {
        return [*a, *b, *c, *d];
    }
    [above, above + CHANNELS, below, below + CHANNELS].map(|from| {
        let mut pixel = [0; LANES];
        pixel[..CHANNELS].copy_from_slice(&data[from..from + CHANNELS]);
        pixel
    })
}

impl SplitPositions {
    /// Splits positions into the pixel to the upper left and the shares of the four neighbours.
    /// `last` is the number of the last column and row.
    #[inline(always)]
    #[allow(
        clippy::needless_range_loop,
        reason = "one index for several arrays vectorises"
    )]
    fn fill(&mut self, x: &[f32], y: &[f32], last: [u32; 2]) {
        let count = x.len().min(y.len()).min(BLOCK);
        let (x, y) = (&x[..count], &y[..count]);
        let (left, top) = (&mut self.left[..count], &mut self.top[..count]);
        let is_inside = &mut self.is_inside[..count];
        let [s0, s1, s2, s3] = &mut self.shares;
        let (s0, s1) = (&mut s0[..count], &mut s1[..count]);
        let (s2, s3) = (&mut s2[..count], &mut s3[..count]);
        for at in 0..count {
            let (column, row) = (floor(x[at]), floor(y[at]));
            let (right, below) = (x[at] - column as f32, y[at] - row as f32);
            let (other_x, other_y) = (1.0 - right, 1.0 - below);
            left[at] = column;
            top[at] = row;
            s0[at] = other_x * other_y;
            s1[at] = right * other_y;
            s2[at] = other_x * below;
            s3[at] = right * below;
            is_inside[at] = ((column as u32) < last[0]) & ((row as u32) < last[1]);
        }
    }
}

/// Rounds down. Numbers beyond a thousand million become that, and no number its negative: no image
/// is that large.
#[inline(always)]
fn floor(at: f32) -> i32 {
    let at = if at > -1e9 { at } else { -1e9 };
    let at = if at < 1e9 { at } else { 1e9 };
    // SAFETY: the number is between -1e9 and 1e9.
    let cut: i32 = unsafe { at.to_int_unchecked() };
    cut - i32::from(at < cut as f32)
}

#[cfg(test)]
#[allow(clippy::needless_range_loop, reason = "one index for several arrays")]
mod tests {
    use super::*;

    /// Returns numbers from 0 to 1 that look random.
    fn noise(count: usize) -> Vec<f32> {
        let mut state = 1_u32;
        let next = |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 24) as f32
        };
        (0..count).map(next).collect()
    }

    #[test]
    fn blends_are_equal_at_all_levels_and_to_the_formula() {
        let (width, height) = (23, 9);
        for channels in 1..=4 {
            let row_bytes = width * channels + 5;
            let data: Vec<u8> = noise(row_bytes * (height - 1) + width * channels)
                .iter()
                .map(|v| (v * 256.0) as u8)
                .collect();
            let source = SourcePixels {
                data: &data,
                width,
                height,
                channels,
                row_bytes,
            };
            let mut x: Vec<f32> = noise(300).iter().map(|v| v * 27.0 - 2.0).collect();
            let mut y: Vec<f32> = noise(301)[1..].iter().map(|v| v * 13.0 - 2.0).collect();
            (x[3], y[4], x[5]) = (f32::INFINITY, f32::NEG_INFINITY, -1e30);
            // The last pixels of the image.
            (x[6], y[6]) = (21.999, 7.999);
            for level in Level::available() {
                let (mut out, mut rest) = (vec![0; 300 * channels], Vec::new());

                blend_row(level, &source, &x, &y, &mut out, &mut rest);

                for at in 0..300 {
                    let (left, top) = (x[at].floor(), y[at].floor());
                    let is_inside = (0.0..22.0).contains(&left) && (0.0..8.0).contains(&top);
                    assert_eq!(!is_inside, rest.contains(&(at as u32)), "{level:?} {at}");
                    if !is_inside {
                        continue;
                    }
                    let (right, below) = (x[at] - left, y[at] - top);
                    let first = top as usize * row_bytes + left as usize * channels;
                    for channel in 0..channels {
                        let sample = |from: usize| f32::from(data[first + from + channel]);
                        let value = sample(0) * ((1.0 - right) * (1.0 - below))
                            + sample(channels) * (right * (1.0 - below))
                            + sample(row_bytes) * ((1.0 - right) * below)
                            + sample(row_bytes + channels) * (right * below);
                        let expected = value.round_ties_even() as u8;
                        assert_eq!(out[at * channels + channel], expected, "{level:?} {at}");
                    }
                }
            }
        }
    }

    #[test]
    fn nearest_pixels_are_equal_at_all_levels_and_ties_go_to_the_even_one() {
        let (width, height, bytes) = (5, 3, 3);
        let data: Vec<u8> = (0..width * height * bytes).map(|v| v as u8).collect();
        let source = SourcePixels {
            data: &data,
            width,
            height,
            channels: bytes,
            row_bytes: width * bytes,
        };
        let halves: Vec<f32> = (-4..13).map(|v| v as f32 / 2.0).collect();
        let x: Vec<f32> = halves.iter().cycle().take(170).copied().collect();
        let y: Vec<f32> = (0..170).map(|at| halves[at / 17]).collect();
        for level in Level::available() {
            let (mut out, mut rest) = (vec![0; 170 * bytes], Vec::new());

            nearest_row(level, &source, &x, &y, &mut out, &mut rest);

            for at in 0..170 {
                let (column, row) = (x[at].round_ties_even(), y[at].round_ties_even());
                let is_inside = (0.0..5.0).contains(&column) && (0.0..3.0).contains(&row);
                assert_eq!(!is_inside, rest.contains(&(at as u32)), "{level:?} {at}");
                if is_inside {
                    let first = (row as usize * width + column as usize) * bytes;
                    assert_eq!(out[at * bytes..][..bytes], data[first..][..bytes]);
                }
            }
        }
    }

    #[test]
    fn positions_are_equal_at_all_levels() {
        for is_projective in [false, true] {
            let row = PositionRow {
                column: 7,
                first: [-100.5, -50.5],
                row: 31,
                matrix: [0.011, -0.002, 0.03, 0.0021, 0.009, -0.2, 1e-3, 2e-3, 1.0],
                is_projective,
                half: [60.0, 40.5],
            };
            let at = |level| {
                let (mut x, mut y) = (vec![0.0; 101], vec![0.0; 101]);
                warp_positions(level, &row, &mut x, &mut y);
                [x, y]
                    .concat()
                    .iter()
                    .map(|v| v.to_bits())
                    .collect::<Vec<_>>()
            };
            for level in Level::available() {
                assert_eq!(at(level), at(Level::Scalar), "{level:?}");
            }
        }
    }
}
