//! The pass that writes a row of a batch: flip, layout, normalize and cast in one read of the
//! pixels and one write of the row; and the pass for one-hot masks.
//!
//! All levels and processors compute one formula to the same bits: `y = f32(v) * scale + bias`,
//! rounded after the product and after the sum, never fused; float16 and bfloat16 are that `y`,
//! rounded to nearest, ties to even.
//!
//! The level is selected once per image. Everything below that call is `#[inline(always)]` into a
//! function compiled for the level: an intrinsic that is not inlined is a call per 16 bytes and
//! costs seven times the whole pass.

mod blocks;
mod colors;
mod convert;
mod isa;
mod level;
#[cfg(target_arch = "aarch64")]
mod neon;
mod onehot;
mod planes;
mod streams;
#[cfg(test)]
mod tests;
mod warp;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use blocks::{BlockCursor, BlockExpander, BlockSymbols, ESCAPE, LONG, PADDING, ZIGZAG};
pub use colors::{
    ColorChange, add_weighted, change_colors, channel_sums, lumas, round_samples, sharpen_row,
};
pub use colors::{scale_samples, sum_lumas};
pub use convert::convert;
pub use level::Level;
pub use onehot::one_hot;
pub use planes::{PlaneColors, merge_planes};
pub use streams::{MAX_BITS, STREAMS, StreamReader, SymbolTable};
pub use warp::{PositionRow, blend_row, nearest_row, warp_positions};

/// Element type of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dtype {
    /// Unchanged bytes.
    U8,
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// The upper half of a binary32.
    BF16,
}

impl Dtype {
    /// Bytes of one element.
    pub fn bytes(self) -> usize {
        match self {
            Dtype::U8 => 1,
            Dtype::F16 | Dtype::BF16 => 2,
            Dtype::F32 => 4,
        }
    }
}

/// Order of an image's axes in memory, slowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Layout {
    /// Rows, columns, channels: the order of decoded images.
    Hwc,
    /// Channels, rows, columns: the order for convolutions.
    Chw,
}

/// Pixels to read: uint8, HWC, rows `row_bytes` apart.
#[derive(Debug, Clone, Copy)]
pub struct SourcePixels<'a> {
    /// Bytes from the first byte of the first row; bytes after the last row are ignored.
    pub data: &'a [u8],
    /// Pixels in a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Bytes of a pixel, at least 1. Fast for 1, 3 and 4.
    pub channels: usize,
    /// Bytes from the start of a row to the start of the next, at least `width * channels`.
    pub row_bytes: usize,
}

/// Conversion of the pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Convert {
    /// Type of the elements written.
    pub dtype: Dtype,
    /// Order in which they are written.
    pub layout: Layout,
    /// Mirrors left and right.
    pub flip_x: bool,
    /// Mirrors top and bottom.
    pub flip_y: bool,
    /// Factor of each channel, finite; the last one also applies to channels beyond the fourth. Not
    /// used for [`Dtype::U8`].
    pub scale: [f32; 4],
    /// Summand of each channel, likewise.
    pub bias: [f32; 4],
}
