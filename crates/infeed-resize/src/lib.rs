//! The resizer, compiled once.
//!
//! `fast_image_resize` is generic over pixels and over views of pixels. Each crate that calls it
//! compiles its kernels at all SIMD levels, and so does each of its test builds, which takes
//! minutes in total. [`resize`] is not generic, and it is the only caller.

#![forbid(unsafe_code)]

use fast_image_resize::images::{TypedCroppedImage, TypedImage, TypedImageRef};
use fast_image_resize::pixels::{U8, U8x2, U8x3, U8x4, U16, U16x2, U16x3, U16x4};
use fast_image_resize::{PixelTrait, ResizeOptions};

pub use fast_image_resize::{CpuExtensions, Filter, FilterType, PixelType, ResizeAlg, Resizer};

/// A part of consecutive rows: all rows, from one column to another.
#[derive(Clone, Copy, Debug)]
pub struct RowPart<'a> {
    /// Bytes of the rows, aligned like samples.
    pub data: &'a [u8],
    /// Pixels of a whole row.
    pub row: u32,
    /// First column of the part.
    pub left: u32,
    /// Number of columns of the part.
    pub width: u32,
    /// Number of rows.
    pub height: u32,
}

impl<'a> RowPart<'a> {
    /// Returns the part that is a whole image.
    pub fn whole(data: &'a [u8], width: u32, height: u32) -> RowPart<'a> {
        let (row, left) = (width, 0);
        RowPart {
            data,
            row,
            left,
            width,
            height,
        }
    }
}

/// Filters a part of some rows and fills `to`, which has `to_size` (width, height) pixels. Pixels
/// outside the part do not contribute. Alpha is treated like the other channels. None if pixels do
/// not have 1 to 4 channels of 8 or 16 bits, or if lengths do not match.
pub fn resize(
    resizer: &mut Resizer,
    kind: PixelType,
    filter: ResizeAlg,
    from: &RowPart<'_>,
    to: &mut [u8],
    to_size: (u32, u32),
) -> Option<()> {
    let resize = match kind {
        PixelType::U8 => resize_pixels::<U8>,
        PixelType::U8x2 => resize_pixels::<U8x2>,
        PixelType::U8x3 => resize_pixels::<U8x3>,
        PixelType::U8x4 => resize_pixels::<U8x4>,
        PixelType::U16 => resize_pixels::<U16>,
        PixelType::U16x2 => resize_pixels::<U16x2>,
        PixelType::U16x3 => resize_pixels::<U16x3>,
        PixelType::U16x4 => resize_pixels::<U16x4>,
        _ => return None,
    };
    let options = ResizeOptions::new().resize_alg(filter).use_alpha(false);
    resize(resizer, from, to, to_size, &options)
}

/// The typed form of the resizer. Its dynamic form would compile all thirteen kinds of pixel.
fn resize_pixels<P: PixelTrait>(
    resizer: &mut Resizer,
    from: &RowPart<'_>,
    to: &mut [u8],
    (width, height): (u32, u32),
    options: &ResizeOptions,
) -> Option<()> {
    let pixels = (from.row as usize).checked_mul(from.height as usize)?;
    let data = from.data.get(..pixels.checked_mul(P::size())?)?;
    let whole = TypedImageRef::<P>::from_buffer(from.row, from.height, data).ok()?;
    // Crop with a view, not with the crop of the options: that crop lets pixels outside of it
    // contribute to its border.
    let part = TypedCroppedImage::from_ref(&whole, from.left, 0, from.width, from.height).ok()?;
    let mut target = TypedImage::<P>::from_buffer(width, height, to).ok()?;
    resizer.resize_typed(&part, &mut target, options).ok()
}
