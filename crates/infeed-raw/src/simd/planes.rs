//! Merges planes of 8-bit samples to pixels, and undoes a colour transform.
//!
//! It uses no intrinsics: compilers vectorise the sums and the interleaving well with the level's
//! instructions.

use super::Level;

/// Colour transform of the first three of the planes. All sums are modulo 256.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlaneColors {
    /// Red, green and blue as they are.
    Stored,
    /// `r - g`, `g`, `b - g`.
    MinusGreen,
    /// `co = r - b`, `y = t + cg / 2`, `cg = g - t`, with `t = b + co / 2`. The halves are signed
    /// and rounded down.
    YCoCg,
}

/// Writes pixels whose channels are the samples of `planes`.
///
/// # Shape
///
/// `planes` is 1 to 4 planes of `[pixels]`; `out` is `[pixels, planes]`. Additional samples or
/// pixels are ignored.
///
/// # Panics
///
/// If there are more than 4 planes, or fewer than 3 with a colour transform.
pub fn merge_planes(level: Level, colors: PlaneColors, planes: &[&[u8]], out: &mut [u8]) {
    match level {
        // SAFETY: the processor supports the level, checked in the guard.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 if level.is_available() => unsafe { run_avx512(colors, planes, out) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 if level.is_available() => unsafe { run_avx2(colors, planes, out) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Sse41 if level.is_available() => unsafe { run_sse41(colors, planes, out) },
        _ => run(colors, planes, out),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "ssse3,sse4.1")]
fn run_sse41(colors: PlaneColors, planes: &[&[u8]], out: &mut [u8]) {
    run(colors, planes, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn run_avx2(colors: PlaneColors, planes: &[&[u8]], out: &mut [u8]) {
    run(colors, planes, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2")]
fn run_avx512(colors: PlaneColors, planes: &[&[u8]], out: &mut [u8]) {
    run(colors, planes, out);
}

#[inline(always)]
fn run(colors: PlaneColors, planes: &[&[u8]], out: &mut [u8]) {
    match (colors, planes) {
        (PlaneColors::Stored, [a]) => merge([a], out, |p| p),
        (PlaneColors::Stored, [a, b]) => merge([a, b], out, |p| p),
        (PlaneColors::Stored, [a, b, c]) => merge([a, b, c], out, |p| p),
        (PlaneColors::Stored, [a, b, c, d]) => merge([a, b, c, d], out, |p| p),
        (PlaneColors::MinusGreen, [a, b, c]) => merge([a, b, c], out, plus_green),
        (PlaneColors::MinusGreen, [a, b, c, d]) => merge([a, b, c, d], out, |[a, b, c, d]| {
            let [r, g, b] = plus_green([a, b, c]);
            [r, g, b, d]
        }),
        (PlaneColors::YCoCg, [a, b, c]) => merge([a, b, c], out, from_ycocg),
        (PlaneColors::YCoCg, [a, b, c, d]) => merge([a, b, c, d], out, |[a, b, c, d]| {
            let [r, g, b] = from_ycocg([a, b, c]);
            [r, g, b, d]
        }),
        _ => panic!("pixels have 1 to 4 channels, and colours at least 3"),
    }
}

#[inline(always)]
fn plus_green([r, g, b]: [u8; 3]) -> [u8; 3] {
    [r.wrapping_add(g), g, b.wrapping_add(g)]
}

#[inline(always)]
fn from_ycocg([co, y, cg]: [u8; 3]) -> [u8; 3] {
    let half = |value: u8| (value as i8 >> 1) as u8;
    let t = y.wrapping_sub(half(cg));
    let b = t.wrapping_sub(half(co));
    [b.wrapping_add(co), cg.wrapping_add(t), b]
}

#[inline(always)]
fn merge<const N: usize>(planes: [&[u8]; N], out: &mut [u8], colors: impl Fn([u8; N]) -> [u8; N]) {
    let (pixels, _) = out.as_chunks_mut::<N>();
    let length = planes
        .iter()
        .fold(pixels.len(), |n, plane| n.min(plane.len()));
    let planes = planes.map(|plane| &plane[..length]);
    for (at, pixel) in pixels[..length].iter_mut().enumerate() {
        *pixel = colors(planes.map(|plane| plane[at]));
    }
}
