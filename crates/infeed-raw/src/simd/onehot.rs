//! Converts class indices to one-hot masks: one element per class and pixel, 1 if the pixel has the
//! class.
//!
//! The output is up to 48 times as large as the input, so the pass is mostly a fill of memory. It
//! uses no intrinsics: compilers vectorise a comparison and a selection per element well with the
//! level's instructions.

use super::{Dtype, Layout, Level};

/// Writes 1 in the channel of each pixel's index and 0 in all others, and returns how many
/// indices were not below `classes`; their pixels are all zeros.
///
/// # Shape
///
/// `indices` is `[height, width]`; `out` is `[height, width, classes]` or `[classes,
/// height, width]`, elements in native byte order, without gaps, at any alignment.
///
/// # Panics
///
/// If `indices` or `out` does not have exactly this length.
///
/// # Cost
///
/// No allocation; takes about as long as zeroing `out`.
#[allow(
    clippy::too_many_arguments,
    reason = "an image and its conversion, at one level"
)]
pub fn one_hot(
    level: Level,
    indices: &[u8],
    classes: usize,
    dtype: Dtype,
    layout: Layout,
    width: usize,
    height: usize,
    flip_x: bool,
    flip_y: bool,
    out: &mut [u8],
) -> u64 {
    let pixels = width.checked_mul(height);
    assert_eq!(
        Some(indices.len()),
        pixels,
        "there must be an index for every pixel"
    );
    let out_bytes = indices
        .len()
        .checked_mul(classes)
        .and_then(|n| n.checked_mul(dtype.bytes()));
    assert_eq!(
        Some(out.len()),
        out_bytes,
        "the row must hold an element per class and pixel"
    );
    if out.is_empty() {
        return indices.len() as u64;
    }

    let job = OneHotJob {
        indices,
        classes,
        layout,
        width,
        flip_x,
        flip_y,
    };
    match dtype {
        Dtype::U8 => at_level(level, job, 1_u8.to_ne_bytes(), out),
        Dtype::F32 => at_level(level, job, 1_f32.to_ne_bytes(), out),
        Dtype::F16 => at_level(level, job, half::f16::ONE.to_ne_bytes(), out),
        Dtype::BF16 => at_level(level, job, half::bf16::ONE.to_ne_bytes(), out),
    }
}

struct OneHotJob<'a> {
    indices: &'a [u8],
    classes: usize,
    layout: Layout,
    width: usize,
    flip_x: bool,
    flip_y: bool,
}

/// Runs at `level` if the processor supports it, else with plain code; `one` is the element 1.
fn at_level<const N: usize>(level: Level, job: OneHotJob<'_>, one: [u8; N], out: &mut [u8]) -> u64 {
    let (out, _) = out.as_chunks_mut::<N>();
    match level {
        // SAFETY: the processor supports the level, checked in the guard.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 if level.is_available() => unsafe { run_avx512(job, one, out) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 if level.is_available() => unsafe { run_avx2(job, one, out) },
        // The other levels have no instructions for this that the target's baseline lacks.
        _ => run(job, one, out),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn run_avx2<const N: usize>(job: OneHotJob<'_>, one: [u8; N], out: &mut [[u8; N]]) -> u64 {
    run(job, one, out)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2")]
fn run_avx512<const N: usize>(job: OneHotJob<'_>, one: [u8; N], out: &mut [[u8; N]]) -> u64 {
    run(job, one, out)
}

#[inline(always)]
fn run<const N: usize>(job: OneHotJob<'_>, one: [u8; N], out: &mut [[u8; N]]) -> u64 {
    match job.layout {
        Layout::Chw => planes(&job, one, out),
        Layout::Hwc => pixels(&job, one, out),
    }
    let in_range = u8::try_from(job.classes - 1).unwrap_or(u8::MAX);
    // Lines are short enough for a 32-bit count, which vectorises better.
    let lines = job.indices.chunks(1 << 20);
    lines
        .map(|line| u64::from(line.iter().map(|&i| u32::from(i > in_range)).sum::<u32>()))
        .sum()
}

/// Returns the indices of output line `y`, before `flip_x`.
#[inline(always)]
fn line_for<'a>(job: &OneHotJob<'a>, y: usize) -> &'a [u8] {
    let height = job.indices.len() / job.width;
    let from = if job.flip_y { height - 1 - y } else { y };
    &job.indices[from * job.width..][..job.width]
}

/// Writes one plane after another: each is a stream of stores, and the indices, read once per
/// class, stay in the cache.
#[inline(always)]
fn planes<const N: usize>(job: &OneHotJob<'_>, one: [u8; N], out: &mut [[u8; N]]) {
    for (class, plane) in out.chunks_exact_mut(job.indices.len()).enumerate() {
        // No index is above 255, so a class above 255 has no pixels.
        let Ok(class) = u8::try_from(class) else {
            plane.fill([0; N]);
            continue;
        };
        for (y, to) in plane.chunks_exact_mut(job.width).enumerate() {
            let from = line_for(job, y);
            if job.flip_x {
                select(from.iter().rev(), class, one, to);
            } else {
                select(from.iter(), class, one, to);
            }
        }
    }
}

#[inline(always)]
fn select<'a, const N: usize>(
    indices: impl Iterator<Item = &'a u8>,
    class: u8,
    one: [u8; N],
    out: &mut [[u8; N]],
) {
    for (to, &index) in out.iter_mut().zip(indices) {
        let mask = if index == class { 0xff } else { 0 };
        for (to, one) in to.iter_mut().zip(one) {
            *to = one & mask;
        }
    }
}

/// Writes pixel by pixel: zeros for a line, which stays in the cache, then the ones.
#[inline(always)]
fn pixels<const N: usize>(job: &OneHotJob<'_>, one: [u8; N], out: &mut [[u8; N]]) {
    for (y, to) in out.chunks_exact_mut(job.width * job.classes).enumerate() {
        let from = line_for(job, y);
        to.fill([0; N]);
        for (x, pixel) in to.chunks_exact_mut(job.classes).enumerate() {
            let from_x = if job.flip_x { job.width - 1 - x } else { x };
            if let Some(element) = pixel.get_mut(usize::from(from[from_x])) {
                *element = one;
            }
        }
    }
}
