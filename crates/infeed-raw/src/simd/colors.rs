//! Changes of the colours of 8-bit pixels, and weighted sums of rows.
//!
//! Products and sums are f32, rounded one by one, so that all levels give the same bits. It uses no
//! intrinsics: compilers vectorise loops over the planes of a block of pixels well with the level's
//! instructions.

use super::Level;
use super::warp::at_levels;

/// Pixels that are split into planes at once.
const BLOCK: usize = 64;

/// Adding it to a number up to 255 rounds to the nearest even integer, in the low byte: 1.5 * 2^23
/// leaves no bits for fractions.
const ROUND: f32 = 12_582_912.0;

/// A change of the colour of each pixel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ColorChange {
    /// Turns the hue by this share of the circle, from -0.5 to 0.5, through HSV.
    Hue(f32),
    /// Turns the hue by the first number, from -1 to 1 in shares of the circle, and multiplies
    /// saturation and value in HSV by the others, which are not negative. Clips both.
    Hsv([f32; 3]),
    /// Sums the colour and its luma with these weights, and clips.
    Saturation([f32; 2]),
    /// Replaces the three channels by the luma.
    Gray,
    /// Replaces each channel by the weighted sum of the three, plus the last number, and rounds.
    Linear([[f32; 4]; 3]),
}

at_levels! {
    /// Changes the colours of RGB pixels.
    ///
    /// # Shape
    ///
    /// `pixels` is `[pixels, 3]`; a part of a pixel at the end is ignored.
    change_colors, change_by_planes(change: ColorChange, pixels: &mut [u8])
}

at_levels! {
    /// Replaces each value by `value * scale + bias`, clipped to 0 to 255 and truncated.
    scale_samples, scale_all(scale: f32, bias: f32, samples: &mut [u8])
}

at_levels! {
    /// Writes the lumas of RGB pixels, 0.2989 R + 0.587 G + 0.114 B, rounded down.
    ///
    /// # Shape
    ///
    /// `pixels` is `[pixels, 3]` and `out` is `[pixels]`; the longer one keeps its end.
    lumas, lumas_of(pixels: &[u8], out: &mut [u8])
}

at_levels! {
    /// Returns the sum of the lumas of RGB pixels.
    sum_lumas, sum(pixels: &[u8]) -> u64
}

at_levels! {
    /// Returns the sum of each channel of RGB pixels.
    ///
    /// # Shape
    ///
    /// `pixels` is `[pixels, 3]`; a part of a pixel at the end is ignored.
    channel_sums, sum_channels(pixels: &[u8]) -> [u64; 3]
}

at_levels! {
    /// Adds `from * weight` to each number.
    ///
    /// # Shape
    ///
    /// Both are `[numbers]`; the longer one keeps its end.
    add_weighted, add(to: &mut [f32], from: &[f32], weight: f32)
}

at_levels! {
    /// Writes the blend of a row of pixels with the means of 3 x 3 pixels, in which the centre counts
    /// five times: `own + (mean - own) * other`, clipped to 0 to 255 and truncated. Leaves the first
    /// and the last pixel as they are.
    ///
    /// # Shape
    ///
    /// `rows` are the row above, the row and the row below, all `[pixels, channels]` like `out`; the
    /// shortest one ends the row.
    sharpen_row, sharpen(rows: [&[u8]; 3], channels: usize, other: f32, out: &mut [u8])
}

at_levels! {
    /// Rounds numbers from 0 to 255 to the nearest even integer.
    ///
    /// # Shape
    ///
    /// Both are `[numbers]`; the longer one keeps its end.
    round_samples, round(from: &[f32], to: &mut [u8])
}

/// The channels of a block of pixels.
type ColorPlanes = [[u8; BLOCK]; 3];

/// Changes pixels by planes. A block that is not full has some pixels of the block before.
///
/// This is a macro and not a function that takes a closure: the compiler need not inline a closure,
/// and then compiles it without the instructions of the level.
macro_rules! by_planes {
    ($pixels:ident, |$planes:ident| $change:expr) => {{
        let mut planes = [[0; BLOCK]; 3];
        for block in $pixels.chunks_mut(BLOCK) {
            split(block, &mut planes);
            let $planes = &mut planes;
            $change;
            let [r, g, b] = &planes;
            for (pixel, ((r, g), b)) in block.iter_mut().zip(r.iter().zip(g).zip(b)) {
                *pixel = [*r, *g, *b];
            }
        }
    }};
}

#[inline(always)]
fn change_by_planes(change: ColorChange, pixels: &mut [u8]) {
    let (pixels, _) = pixels.as_chunks_mut::<3>();
    match change {
        ColorChange::Hue(turn) => by_planes!(pixels, |planes| turn_hues(planes, turn)),
        ColorChange::Hsv(change) => by_planes!(pixels, |planes| change_hsv(planes, change)),
        ColorChange::Saturation(weights) => by_planes!(pixels, |planes| saturate(planes, weights)),
        ColorChange::Gray => by_planes!(pixels, |planes| {
            let grays = plane_lumas(planes).map(|gray| gray as u8);
            *planes = [grays; 3];
        }),
        ColorChange::Linear(rows) => by_planes!(pixels, |planes| sum_linearly(planes, rows)),
    }
}

#[inline(always)]
fn saturate(planes: &mut ColorPlanes, [own, other]: [f32; 2]) {
    let grays = plane_lumas(planes);
    for plane in planes {
        for (v, gray) in plane.iter_mut().zip(grays) {
            *v = truncate(f32::from(*v) * own + gray as f32 * other);
        }
    }
}

#[inline(always)]
fn sum_linearly(planes: &mut ColorPlanes, rows: [[f32; 4]; 3]) {
    let [r, g, b] = *planes;
    for (plane, [of_r, of_g, of_b, add]) in planes.iter_mut().zip(rows) {
        // Truncation rounds, with one half more.
        let add = add + 0.5;
        for (((v, r), g), b) in plane.iter_mut().zip(r).zip(g).zip(b) {
            let sum = f32::from(r) * of_r + f32::from(g) * of_g + f32::from(b) * of_b;
            *v = truncate(sum + add);
        }
    }
}

#[inline(always)]
fn split(block: &[[u8; 3]], planes: &mut ColorPlanes) {
    let [r, g, b] = planes;
    for (((r, g), b), pixel) in r.iter_mut().zip(g).zip(b).zip(block) {
        [*r, *g, *b] = *pixel;
    }
}

#[inline(always)]
#[allow(
    clippy::needless_range_loop,
    reason = "one index for several arrays vectorises"
)]
fn plane_lumas([r, g, b]: &ColorPlanes) -> [i32; BLOCK] {
    let mut lumas = [0; BLOCK];
    for at in 0..BLOCK {
        lumas[at] = luma([r[at], g[at], b[at]]);
    }
    lumas
}

#[inline(always)]
fn luma([r, g, b]: [u8; 3]) -> i32 {
    i32::from(truncate(
        f32::from(r) * 0.2989 + f32::from(g) * 0.587 + f32::from(b) * 0.114,
    ))
}

/// Clips to 0 to 255 and truncates, as a cast does, which is not vectorised.
#[inline(always)]
fn truncate(value: f32) -> u8 {
    let value = if value > 0.0 { value } else { 0.0 };
    let value = if value < 255.0 { value } else { 255.0 };
    // SAFETY: the number is between 0 and 255.
    let cut: i32 = unsafe { value.to_int_unchecked() };
    cut as u8
}

#[inline(always)]
fn lumas_of(pixels: &[u8], out: &mut [u8]) {
    let (pixels, _) = pixels.as_chunks::<3>();
    let mut planes = [[0; BLOCK]; 3];
    for (block, out) in pixels.chunks(BLOCK).zip(out.chunks_mut(BLOCK)) {
        split(block, &mut planes);
        for (to, gray) in out.iter_mut().zip(plane_lumas(&planes)).take(block.len()) {
            *to = gray as u8;
        }
    }
}

#[inline(always)]
fn sum(pixels: &[u8]) -> u64 {
    let (pixels, _) = pixels.as_chunks::<3>();
    let (blocks, last) = pixels.as_chunks::<BLOCK>();
    let mut planes = [[0; BLOCK]; 3];
    let mut sum = 0;
    for block in blocks {
        split(block, &mut planes);
        // At most 64 * 255.
        sum += plane_lumas(&planes).iter().sum::<i32>() as u64;
    }
    sum + last.iter().map(|&pixel| luma(pixel) as u64).sum::<u64>()
}

#[inline(always)]
fn sum_channels(pixels: &[u8]) -> [u64; 3] {
    let (pixels, _) = pixels.as_chunks::<3>();
    let (blocks, last) = pixels.as_chunks::<BLOCK>();
    let mut planes = [[0; BLOCK]; 3];
    let mut sums = [0; 3];
    for block in blocks {
        split(block, &mut planes);
        for (sum, plane) in sums.iter_mut().zip(&planes) {
            // At most 64 * 255.
            *sum += u64::from(plane.iter().map(|&v| u16::from(v)).sum::<u16>());
        }
    }
    for pixel in last {
        sums.iter_mut()
            .zip(pixel)
            .for_each(|(sum, &v)| *sum += u64::from(v));
    }
    sums
}

#[inline(always)]
fn scale_all(scale: f32, bias: f32, samples: &mut [u8]) {
    for v in samples {
        *v = truncate(f32::from(*v) * scale + bias);
    }
}

#[inline(always)]
fn sharpen(rows: [&[u8]; 3], channels: usize, other: f32, out: &mut [u8]) {
    let length = rows.iter().map(|row| row.len()).fold(out.len(), usize::min);
    let Some(inner) = length.checked_sub(2 * channels) else {
        return;
    };
    let out = &mut out[channels..][..inner];
    let [above, own, below] = rows.map(|row| [0, 1, 2].map(|at| &row[at * channels..][..inner]));
    for at in 0..inner {
        let sum = |row: [&[u8]; 3]| -> u16 {
            let [left, middle, right] = row.map(|part| u16::from(part[at]));
            left + middle + right
        };
        let centre = own[1][at];
        let sum = sum(above) + sum(own) + sum(below) + 4 * u16::from(centre);
        // Thirteenths are never halfway between two integers.
        let mean = f32::from((2 * sum + 13) / 26);
        let value = f32::from(centre);
        out[at] = truncate(value + (mean - value) * other);
    }
}

#[inline(always)]
fn add(to: &mut [f32], from: &[f32], weight: f32) {
    for (to, from) in to.iter_mut().zip(from) {
        *to += from * weight;
    }
}

#[inline(always)]
fn round(from: &[f32], to: &mut [u8]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = (from + ROUND).to_bits() as u8;
    }
}

/// The channels of a block of pixels by size, and what a hue needs of their order.
struct ChannelOrder {
    most: [u8; BLOCK],
    /// The channel behind the largest one on the circle of hues.
    behind: [u8; BLOCK],
    /// The channel before the largest one.
    before: [u8; BLOCK],
    /// Hue of the largest channel, in sixths of the circle. 0 is red.
    middle: [u8; BLOCK],
}

/// Separate loops select bytes, because a vector holds four times as many of them as of f32.
#[inline(always)]
#[allow(
    clippy::needless_range_loop,
    reason = "one index for several arrays vectorises"
)]
fn order_channels([reds, greens, blues]: &ColorPlanes) -> ChannelOrder {
    let (mut most, mut behind, mut before) = ([0; BLOCK], [0; BLOCK], [0; BLOCK]);
    let mut middle = [0_u8; BLOCK];
    for at in 0..BLOCK {
        let (r, g, b) = (reds[at], greens[at], blues[at]);
        let largest = r.max(g).max(b);
        let (is_red, is_green) = (largest == r, largest == g);
        most[at] = largest;
        behind[at] = select(is_red, b, select(is_green, r, g));
        before[at] = select(is_red, g, select(is_green, b, r));
        middle[at] = select(is_red, 0, select(is_green, 2, 4));
    }
    ChannelOrder {
        most,
        behind,
        before,
        middle,
    }
}

impl ChannelOrder {
    /// Returns the largest channel of a pixel, the lowest and the other one.
    #[inline(always)]
    fn sizes(&self, at: usize) -> [f32; 3] {
        let (behind, before) = (self.behind[at], self.before[at]);
        [self.most[at], behind.min(before), behind.max(before)].map(f32::from)
    }

    /// Returns the sixth of the circle in which the turned hue of a pixel lies, and the share of the
    /// sixth that is below the hue. `share` is the distance of the other channel to the largest one,
    /// in units of that of the lowest.
    #[inline(always)]
    fn turn(&self, at: usize, share: f32, turn: f32) -> (u8, f32) {
        // Of the two distances to the largest channel, one is the whole range.
        let behind_is_low = self.behind[at] <= self.before[at];
        let (far, near) = if behind_is_low {
            (1.0, share)
        } else {
            (share, 1.0)
        };
        let sixths = (far + f32::from(self.middle[at])) - near;
        let hue = wrap(sixths * (1.0 / 6.0) + 1.0);
        let sixths = wrap(hue + turn) * 6.0;
        let sector = truncate(sixths);
        (sector, sixths - f32::from(sector))
    }
}

/// The channels of a block of pixels in HSV's formula for RGB, with the sixths of the circle.
struct Sectors {
    number: [u8; BLOCK],
    v: [u8; BLOCK],
    p: [u8; BLOCK],
    q: [u8; BLOCK],
    t: [u8; BLOCK],
}

impl Sectors {
    #[inline(always)]
    fn new() -> Sectors {
        let zeros = [0; BLOCK];
        Sectors {
            number: zeros,
            v: zeros,
            p: zeros,
            q: zeros,
            t: zeros,
        }
    }

    /// Replaces the pixels of which these are the sectors. Gray ones become `v` in each channel.
    #[inline(always)]
    #[allow(
        clippy::needless_range_loop,
        reason = "one index for several arrays vectorises"
    )]
    fn write(&self, planes: &mut ColorPlanes) {
        let [reds, greens, blues] = planes;
        for at in 0..BLOCK {
            let (v, p, q, t) = (self.v[at], self.p[at], self.q[at], self.t[at]);
            // 6 equals 0: a turn that ends just before red can round up to 6.
            let is = |number: u8| self.number[at] == number;
            let red = select(is(2) | is(3), p, select(is(4), t, v));
            let red = select(is(1), q, red);
            let green = select(is(3), q, select(is(4) | is(5), p, t));
            let green = select(is(1) | is(2), v, green);
            let blue = select(is(3) | is(4), v, select(is(5), q, p));
            let blue = select(is(2), t, blue);
            let is_gray = (reds[at] == greens[at]) & (greens[at] == blues[at]);
            reds[at] = select(is_gray, v, red);
            greens[at] = select(is_gray, v, green);
            blues[at] = select(is_gray, v, blue);
        }
    }
}

/// Turns hues through HSV.
#[inline(always)]
fn turn_hues(planes: &mut ColorPlanes, turn: f32) {
    let order = order_channels(planes);
    let mut sectors = Sectors::new();
    // torchvision's factor from [0, 1] to uint8: every level gets an equal part of the range.
    let level = |c: f32| truncate(c * (256.0 - 1e-3));
    for at in 0..BLOCK {
        let [value, low, other] = order.sizes(at).map(|v| v / 255.0);
        let range = value - low;
        let share = (value - other) / range;
        let (sector, part) = order.turn(at, share, turn);
        let saturation = range / value;
        let within = saturation * part;
        let rest = 1.0 - saturation;
        sectors.number[at] = sector;
        sectors.v[at] = level(value);
        sectors.p[at] = level(rest * value);
        sectors.q[at] = level((1.0 - within) * value);
        sectors.t[at] = level((within + rest) * value);
    }
    sectors.write(planes);
}

/// Added to the channels below the largest one before they are truncated. OpenCV truncates them,
/// and the saturation before, which makes them lighter. This number has the lowest mean difference
/// to its results over photographs and random pixels.
const LIFT: f32 = 0.25;

/// Changes hues, saturations and values.
#[inline(always)]
fn change_hsv(planes: &mut ColorPlanes, [turn, saturate, brighten]: [f32; 3]) {
    let order = order_channels(planes);
    let mut sectors = Sectors::new();
    for at in 0..BLOCK {
        let [most, low, other] = order.sizes(at);
        let range = most - low;
        let (sector, part) = order.turn(at, (most - other) / range, turn);
        let saturation = range / most * saturate;
        let saturation = select(saturation < 1.0, saturation, 1.0);
        let v = truncate(most * brighten);
        let value = f32::from(v);
        let within = saturation * part;
        let rest = 1.0 - saturation;
        sectors.number[at] = sector;
        sectors.v[at] = v;
        sectors.p[at] = truncate(rest * value + LIFT);
        sectors.q[at] = truncate((1.0 - within) * value + LIFT);
        sectors.t[at] = truncate((within + rest) * value + LIFT);
    }
    sectors.write(planes);
}

#[inline(always)]
fn select<T>(condition: bool, yes: T, no: T) -> T {
    if condition { yes } else { no }
}

/// Returns the fractional part of a number between -1 and 2.
#[inline(always)]
fn wrap(x: f32) -> f32 {
    select(x >= 1.0, x - 1.0, select(x < 0.0, x + 1.0, x))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Turns the hue of a pixel as torchvision does.
    fn turn_hue(pixel: [u8; 3], turn: f32) -> [u8; 3] {
        let [r, g, b] = pixel.map(|v| f32::from(v) / 255.0);
        let value = r.max(g).max(b);
        let range = value - r.min(g).min(b);
        if range == 0.0 {
            return pixel;
        }
        let saturation = range / value;
        let [rc, gc, bc] = [r, g, b].map(|c| (value - c) / range);
        let sixths = if value == r {
            bc - gc
        } else if value == g {
            (rc + 2.0) - bc
        } else {
            (gc + 4.0) - rc
        };
        let hue = wrap(sixths * (1.0 / 6.0) + 1.0);
        let sixths = wrap(hue + turn) * 6.0;
        let sector = sixths.floor();
        let within = saturation * (sixths - sector);
        let rest = 1.0 - saturation;
        let p = rest * value;
        let q = (1.0 - within) * value;
        let t = (within + rest) * value;
        let turned = match sector as u32 {
            1 => [q, value, p],
            2 => [p, value, t],
            3 => [p, q, value],
            4 => [t, p, value],
            5 => [value, p, q],
            _ => [value, t, p],
        };
        turned.map(|c| (c * (256.0 - 1e-3)) as u8)
    }

    /// Changes hue, saturation and value of a pixel by OpenCV's formulas, without its rounding of hue
    /// and saturation.
    fn change_pixel(pixel: [u8; 3], [turn, saturate, brighten]: [f32; 3]) -> [u8; 3] {
        let [r, g, b] = pixel.map(f32::from);
        let most = r.max(g).max(b);
        let range = most - r.min(g).min(b);
        let value = (most * brighten).floor().min(255.0);
        if range == 0.0 {
            return [value as u8; 3];
        }
        let [rc, gc, bc] = [r, g, b].map(|c| (most - c) / range);
        let sixths = if most == r {
            bc - gc
        } else if most == g {
            (rc + 2.0) - bc
        } else {
            (gc + 4.0) - rc
        };
        let hue = wrap(sixths * (1.0 / 6.0) + 1.0);
        let sixths = wrap(hue + turn) * 6.0;
        let saturation = (range / most * saturate).min(1.0);
        let within = saturation * (sixths - sixths.floor());
        let rest = 1.0 - saturation;
        let [p, q, t] =
            [rest, 1.0 - within, within + rest].map(|share| (share * value + 0.25) as u8);
        let value = value as u8;
        match sixths as u32 {
            1 => [q, value, p],
            2 => [p, value, t],
            3 => [p, q, value],
            4 => [t, p, value],
            5 => [value, p, q],
            _ => [value, t, p],
        }
    }

    /// Pixels of all kinds: every fifth level of each channel, and a part of a block.
    fn pixels() -> Vec<u8> {
        let levels = || (0..=255_u8).step_by(5);
        levels()
            .flat_map(|r| levels().flat_map(move |g| levels().flat_map(move |b| [r, g, b])))
            .chain([1, 2, 3])
            .collect()
    }

    #[test]
    fn changes_are_equal_at_all_levels_and_to_the_formulas() {
        let pixels = pixels();
        let by_pixel = |change: &dyn Fn([u8; 3]) -> [u8; 3]| -> Vec<u8> {
            pixels
                .as_chunks::<3>()
                .0
                .iter()
                .flat_map(|&pixel| change(pixel))
                .collect()
        };
        let gray = |[r, g, b]: [u8; 3]| {
            (f32::from(r) * 0.2989 + f32::from(g) * 0.587 + f32::from(b) * 0.114).floor()
        };
        let turns = [-0.5, -0.31, -0.1, 0.0, 0.017, 0.2, 0.4999].map(|turn: f32| {
            let expected = by_pixel(&|pixel| turn_hue(pixel, turn));
            (ColorChange::Hue(turn), expected)
        });
        let saturated =
            by_pixel(&|pixel| pixel.map(|v| (f32::from(v) * 1.7 + gray(pixel) * -0.7) as u8));
        let rows = [
            [1.2, -0.3, 0.05, 7.25],
            [0.1, 0.8, 0.3, -20.0],
            [-1.0, 0.0, 0.0, 255.0],
        ];
        let linear = by_pixel(&|[r, g, b]| {
            rows.map(|[of_r, of_g, of_b, add]| {
                let sum = f32::from(r) * of_r + f32::from(g) * of_g + f32::from(b) * of_b;
                (sum + (add + 0.5)) as u8
            })
        });
        let others = [
            (ColorChange::Saturation([1.7, -0.7]), saturated),
            (ColorChange::Gray, by_pixel(&|pixel| [gray(pixel) as u8; 3])),
            (ColorChange::Linear(rows), linear),
        ];
        let hsv = [
            [0.0, 1.0, 1.0],
            [0.015, 1.7, 0.6],
            [-1.0, 0.3, 1.4],
            [1.0, 0.0, 2.0],
            [0.4, 2.0, 0.0],
        ]
        .map(|change| {
            let expected = by_pixel(&|pixel| change_pixel(pixel, change));
            (ColorChange::Hsv(change), expected)
        });
        assert!(hsv[0].1 == by_pixel(&|pixel| pixel), "no change");
        for (change, expected) in turns.iter().chain(&others).chain(&hsv) {
            for level in Level::available() {
                let mut found = pixels.clone();
                change_colors(level, *change, &mut found);
                assert!(found == *expected, "{level:?} {change:?}");
            }
        }
        let sum: u64 = pixels
            .as_chunks::<3>()
            .0
            .iter()
            .map(|&pixel| gray(pixel) as u64)
            .sum();
        let whole = pixels.as_chunks::<3>().0;
        let channel = |at: usize| whole.iter().map(|pixel| u64::from(pixel[at])).sum::<u64>();
        let sums = [0, 1, 2].map(channel);
        for level in Level::available() {
            let mut found = vec![0; pixels.len() / 3];
            lumas(level, &pixels, &mut found);
            assert_eq!(
                found,
                by_pixel(&|pixel| [gray(pixel) as u8; 3])
                    .into_iter()
                    .step_by(3)
                    .collect::<Vec<_>>()
            );
            assert_eq!(sum_lumas(level, &pixels), sum, "{level:?}");
            assert_eq!(channel_sums(level, &pixels), sums, "{level:?}");
        }
    }

    #[test]
    fn sharpened_rows_are_equal_at_all_levels() {
        let value = |at: usize| (at * at * 31 / 7 % 256) as u8;
        let rows: [Vec<u8>; 3] =
            [0, 1, 2].map(|row| (row * 999..row * 999 + 400).map(value).collect());
        let [above, own, below] = &rows;
        for level in Level::available() {
            for (channels, length, other) in
                [(1, 400, 0.6), (3, 399, -1.7), (3, 6, 1.0), (4, 5, 1.0)]
            {
                let mut found = vec![9; length];
                sharpen_row(level, [above, own, below], channels, other, &mut found);
                let mut expected = vec![9; length];
                for at in channels..length.saturating_sub(channels) {
                    let sum: u32 = [at - channels, at, at + channels]
                        .iter()
                        .map(|&at| {
                            [above, own, below]
                                .map(|row| u32::from(row[at]))
                                .iter()
                                .sum::<u32>()
                        })
                        .sum::<u32>()
                        + 4 * u32::from(own[at]);
                    let mean = (f64::from(sum) / 13.0).round() as f32;
                    let own = f32::from(own[at]);
                    expected[at] = (own + (mean - own) * other) as u8;
                }
                assert_eq!(found, expected, "{level:?} {channels} {length}");
            }
        }
    }

    #[test]
    fn scaled_and_rounded_samples_are_equal_at_all_levels() {
        let levels: Vec<u8> = (0..=255).collect();
        let numbers: Vec<f32> = (0..=510).map(|v| v as f32 / 2.0).collect();
        for level in Level::available() {
            for (scale, bias) in [(1.4, 0.0), (0.3, 90.2), (1.5, -60.0), (0.0, 300.0)] {
                let mut found = levels.clone();
                scale_samples(level, scale, bias, &mut found);
                let expected = levels.iter().map(|&v| (f32::from(v) * scale + bias) as u8);
                assert!(expected.eq(found), "{level:?} {scale} {bias}");
            }
            let mut found = vec![0; numbers.len()];
            round_samples(level, &numbers, &mut found);
            let expected = numbers.iter().map(|v| v.round_ties_even() as u8);
            assert!(expected.eq(found), "{level:?}");
            let mut sums = numbers.clone();
            add_weighted(level, &mut sums, &numbers, 0.3);
            let expected = numbers.iter().map(|v| v + v * 0.3);
            assert!(expected.eq(sums), "{level:?}");
        }
    }
}
