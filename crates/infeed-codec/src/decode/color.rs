//! Colour modes, and the conversion of rows of samples from a file's layout to them.

use serde::{Deserialize, Serialize};

use infeed_core::sample::Depth;

/// Meaning of the samples of a decoded image.
///
/// Conversions (`/` rounds to nearest):
/// - 16-bit samples keep their high byte in 8-bit modes;
/// - PNM of a maximum below 255 or 65535 is scaled to it, as Pillow does;
/// - alpha is dropped, not blended; a palette is looked up; 1, 2 and 4-bit gray is scaled to
///   0..=255; TIFF gray whose 0 is white is inverted, in every mode;
/// - colours become gray by ITU-R 601-2 luma, `(19595 r + 38470 g + 7471 b + 32768) >> 16`; a YCbCr
///   JPEG becomes gray by its Y channel as stored, which differs from that formula by rounding and
///   clamping;
/// - CMYK of a JPEG is assumed to be inverted, as Adobe writes it and Pillow reads it: `r = c k /
///   255`; CMYK of a TIFF is not inverted: `r = (255 - c) (255 - k) / 255`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ColorMode {
    /// Three channels of 8 bits.
    #[default]
    Rgb,
    /// One channel of 8 bits.
    Gray,
    /// Four channels of 8 bits. Alpha is not premultiplied; it is 255 if the file has none.
    Rgba,
    /// The samples as stored in the file, 8 bits: palette indices, class numbers, gray of 1, 2 and
    /// 4 bits without scaling. A file with several channels keeps them; a 16-bit file is an error.
    /// JPEG gives gray or RGB, BMP with a palette gives RGB, and GIF gives RGBA.
    Stored,
    /// Like `Stored`, in 16 bits. Samples of fewer bits keep their value.
    Stored16,
}

impl ColorMode {
    /// Returns the name in descriptions, such as `stored16`.
    pub fn name(self) -> &'static str {
        match self {
            ColorMode::Rgb => "rgb",
            ColorMode::Gray => "gray",
            ColorMode::Rgba => "rgba",
            ColorMode::Stored => "stored",
            ColorMode::Stored16 => "stored16",
        }
    }
}

/// Layout of the samples of a decoded row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SampleLayout {
    /// 1 (gray), 2 (gray, alpha), 3 (RGB) or 4 (RGBA).
    pub(super) channels: usize,
    pub(super) depth: Depth,
    /// Byte order of 16-bit samples.
    pub(super) is_big_endian: bool,
}

impl SampleLayout {
    /// Layout with channels of 8 bits.
    pub(super) fn of_u8(channels: usize) -> SampleLayout {
        SampleLayout {
            channels,
            depth: Depth::U8,
            is_big_endian: false,
        }
    }

    pub(super) fn pixel_bytes(self) -> usize {
        self.channels * self.depth.bytes()
    }

    /// Whether a row in this layout needs no conversion to the mode.
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

/// Converts pixels one after another, from `src` in `layout` to `dst` in the mode.
///
/// `src` and `dst` must hold the same number of pixels. An earlier check rejects a 16-bit `src`
/// with mode `Stored`.
pub(super) fn convert(src: &[u8], layout: SampleLayout, mode: ColorMode, dst: &mut [u8]) {
    if layout.is(mode) {
        dst.copy_from_slice(src);
        return;
    }
    if mode == ColorMode::Stored16 {
        return widen(src, layout, dst);
    }
    match (layout.depth, layout.is_big_endian) {
        (Depth::U8, _) => narrow::<1, 0>(src, layout.channels, mode, dst),
        (Depth::U16, true) => narrow::<2, 0>(src, layout.channels, mode, dst),
        (Depth::U16, false) => narrow::<2, 1>(src, layout.channels, mode, dst),
    }
}

/// Converts samples of `BYTES` bytes to an 8-bit mode. Keeps the byte at `HIGH` of each sample.
fn narrow<const BYTES: usize, const HIGH: usize>(
    src: &[u8],
    channels: usize,
    mode: ColorMode,
    dst: &mut [u8],
) {
    let s = |pixel: &[u8], channel: usize| pixel[channel * BYTES + HIGH];
    // With a literal pixel size, the compiler removes the bounds checks and vectorises the loop.
    match (mode, channels) {
        (ColorMode::Rgb, 1) => map(src.chunks_exact(BYTES), dst, |p| [s(p, 0); 3]),
        (ColorMode::Rgb, 2) => map(src.chunks_exact(2 * BYTES), dst, |p| [s(p, 0); 3]),
        (ColorMode::Rgb, 3) => {
            map(src.chunks_exact(3 * BYTES), dst, |p| {
                [s(p, 0), s(p, 1), s(p, 2)]
            });
        }
        (ColorMode::Rgb, _) => {
            map(src.chunks_exact(4 * BYTES), dst, |p| {
                [s(p, 0), s(p, 1), s(p, 2)]
            });
        }
        (ColorMode::Rgba, 1) => {
            map(src.chunks_exact(BYTES), dst, |p| {
                [s(p, 0), s(p, 0), s(p, 0), 255]
            });
        }
        (ColorMode::Rgba, 2) => {
            map(src.chunks_exact(2 * BYTES), dst, |p| {
                [s(p, 0), s(p, 0), s(p, 0), s(p, 1)]
            });
        }
        (ColorMode::Rgba, 3) => {
            map(src.chunks_exact(3 * BYTES), dst, |p| {
                [s(p, 0), s(p, 1), s(p, 2), 255]
            });
        }
        (ColorMode::Rgba, _) => {
            map(src.chunks_exact(4 * BYTES), dst, |p| {
                [s(p, 0), s(p, 1), s(p, 2), s(p, 3)]
            });
        }
        (_, 1) => map(src.chunks_exact(BYTES), dst, |p| [s(p, 0)]),
        (_, 2) => map(src.chunks_exact(2 * BYTES), dst, |p| [s(p, 0)]),
        (_, 3) => {
            map(src.chunks_exact(3 * BYTES), dst, |p| {
                [luma(s(p, 0), s(p, 1), s(p, 2))]
            });
        }
        (_, _) => {
            map(src.chunks_exact(4 * BYTES), dst, |p| {
                [luma(s(p, 0), s(p, 1), s(p, 2))]
            });
        }
    }
}

fn map<'a, const N: usize>(
    pixels: impl Iterator<Item = &'a [u8]>,
    dst: &mut [u8],
    f: impl Fn(&[u8]) -> [u8; N],
) {
    for (from, to) in pixels.zip(dst.chunks_exact_mut(N)) {
        to.copy_from_slice(&f(from));
    }
}

fn widen(src: &[u8], layout: SampleLayout, dst: &mut [u8]) {
    match layout.depth {
        Depth::U8 => {
            for (&from, to) in src.iter().zip(dst.chunks_exact_mut(2)) {
                to.copy_from_slice(&u16::from(from).to_ne_bytes());
            }
        }
        Depth::U16 => {
            for (from, to) in src.chunks_exact(2).zip(dst.chunks_exact_mut(2)) {
                let sample = [from[0], from[1]];
                let sample = match layout.is_big_endian {
                    true => u16::from_be_bytes(sample),
                    false => u16::from_le_bytes(sample),
                };
                to.copy_from_slice(&sample.to_ne_bytes());
            }
        }
    }
}
