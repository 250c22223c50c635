//! Rows of samples from a file's layout into a colour mode's; the formulas of `ColorMode`.

use super::ColorMode;
use crate::sample::Depth;

/// How the samples of a decoded row lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// 1 (gray), 2 (gray, alpha), 3 (RGB) or 4 (RGBA).
    pub(super) channels: usize,
    pub(super) depth: Depth,
    /// Byte order of 16-bit samples.
    pub(super) is_big_endian: bool,
}

impl Layout {
    /// Channels of 8 bits.
    pub(super) fn of_u8(channels: usize) -> Layout {
        Layout {
            channels,
            depth: Depth::U8,
            is_big_endian: false,
        }
    }

    pub(super) fn pixel_bytes(self) -> usize {
        self.channels * self.depth.bytes()
    }

    /// Whether a row in this layout is a row in the mode already.
    pub(super) fn is(self, mode: ColorMode) -> bool {
        self.depth == Depth::U8
            && match mode {
                ColorMode::Rgb => self.channels == 3,
                ColorMode::Gray => self.channels == 1,
                ColorMode::Rgba => self.channels == 4,
                ColorMode::Stored => true,
                ColorMode::Stored16 => false,
            }
    }
}

/// ITU-R 601-2 luma in 16 fractional bits.
pub(super) fn luma(r: u8, g: u8, b: u8) -> u8 {
    let sum = 19595 * u32::from(r) + 38470 * u32::from(g) + 7471 * u32::from(b) + 0x8000;
    // The weights sum to 65536, so the quotient is at most 255.
    (sum >> 16) as u8
}

/// Converts pixels one after another: `src` in `layout`, `dst` as the mode wants it.
///
/// Both hold the same number of pixels; a 16-bit `src` with mode `Stored` is refused earlier.
pub(super) fn convert(src: &[u8], layout: Layout, mode: ColorMode, dst: &mut [u8]) {
    if layout.is(mode) {
        dst.copy_from_slice(src);
        return;
    }
    if mode == ColorMode::Stored16 {
        return widen(src, layout, dst);
    }
    // Index of the byte of sample 0 that is kept, and the distance to the next sample.
    let (high, step) = match layout.depth {
        Depth::U8 => (0, 1),
        Depth::U16 if layout.is_big_endian => (0, 2),
        Depth::U16 => (usize::from(cfg!(target_endian = "little")), 2),
    };
    let size = layout.pixel_bytes();
    let (r, g, b, a) = (high, high + step, high + 2 * step, high + 3 * step);
    match (mode, layout.channels) {
        (ColorMode::Rgb, 1) => map(src, size, dst, |p| [p[r]; 3]),
        (ColorMode::Rgb, 2) => map(src, size, dst, |p| [p[r]; 3]),
        (ColorMode::Rgb, _) => map(src, size, dst, |p| [p[r], p[g], p[b]]),
        (ColorMode::Rgba, 1) => map(src, size, dst, |p| [p[r], p[r], p[r], 255]),
        (ColorMode::Rgba, 2) => map(src, size, dst, |p| [p[r], p[r], p[r], p[g]]),
        (ColorMode::Rgba, 3) => map(src, size, dst, |p| [p[r], p[g], p[b], 255]),
        (ColorMode::Rgba, _) => map(src, size, dst, |p| [p[r], p[g], p[b], p[a]]),
        (_, 1 | 2) => map(src, size, dst, |p| [p[r]]),
        (_, _) => map(src, size, dst, |p| [luma(p[r], p[g], p[b])]),
    }
}

fn map<const N: usize>(src: &[u8], size: usize, dst: &mut [u8], f: impl Fn(&[u8]) -> [u8; N]) {
    for (from, to) in src.chunks_exact(size).zip(dst.chunks_exact_mut(N)) {
        to.copy_from_slice(&f(from));
    }
}

fn widen(src: &[u8], layout: Layout, dst: &mut [u8]) {
    match layout.depth {
        Depth::U8 => {
            for (&from, to) in src.iter().zip(dst.chunks_exact_mut(2)) {
                to.copy_from_slice(&u16::from(from).to_ne_bytes());
            }
        }
        Depth::U16 => {
            for (from, to) in src.chunks_exact(2).zip(dst.chunks_exact_mut(2)) {
                let sample = [from[0], from[1]];
                let is_native = layout.is_big_endian == cfg!(target_endian = "big");
                let bytes = if layout.is_big_endian && !is_native {
                    u16::from_be_bytes(sample).to_ne_bytes()
                } else {
                    sample
                };
                to.copy_from_slice(&bytes);
            }
        }
    }
}
