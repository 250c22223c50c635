//! Bytes of prepared records, which the cache of decoded records keeps.
//!
//! A prepared record is the number of fields and the length of each (u32), then the fields, each at
//! a multiple of 8. Visual fields have height, width, and height, width and EXIF orientation of the
//! image before any transform (u32), then their pixels without padding between rows. Others are as
//! the source stores them. All numbers are little-endian.

use bytes::Bytes;

use crate::fields::failure::SampleError;
use infeed_codec::decode::ImageFrame;
use infeed_core::sample::{Record, Size};

/// Version of the bytes of prepared records and of the pixels that the decoders give.
pub(crate) const VERSION: u64 = 1;

/// Alignment of fields.
const ALIGN: usize = 8;

/// Bytes of a visual field before its pixels: five numbers.
pub(crate) const SIZE_BYTES: usize = 20;

/// How a record holds its images and masks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PixelState {
    /// As the source stores them.
    Stored,
    /// Decoded and transformed up to the first random transform.
    Prepared,
    /// After user functions. All fields are columns.
    Computed,
}

/// Returns the offset of each field, and the bytes of all. `None` for a record of over 4 GiB.
pub(crate) fn layout(lengths: &[usize]) -> Option<(Vec<usize>, usize)> {
    let mut at = lengths.len().checked_mul(4)?.checked_add(4)?;
    let mut starts = Vec::with_capacity(lengths.len());
    for length in lengths {
        at = at.checked_next_multiple_of(ALIGN)?;
        starts.push(at);
        at = at.checked_add(*length)?;
    }
    u32::try_from(at).is_ok().then_some((starts, at))
}

/// Reads a prepared record, without copies. `None` if the bytes are not one.
pub(crate) fn read(index: u64, bytes: &Bytes) -> Option<Record> {
    let number = |at: usize| {
        let bytes = bytes.get(at..at.checked_add(4)?)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize)
    };
    let count = number(0)?;
    if count > bytes.len() / 4 {
        return None;
    }
    let lengths = (0..count).map(|field| number(4 + 4 * field));
    let lengths = lengths.collect::<Option<Vec<usize>>>()?;
    let (starts, total) = layout(&lengths)?;
    if total > bytes.len() {
        return None;
    }
    let fields = starts.iter().zip(&lengths);
    let fields = fields.map(|(&start, &length)| bytes.slice(start..start + length));
    Some(Record {
        index,
        fields: fields.collect(),
    })
}

/// Splits a prepared visual field into the size of its pixels, the image before any transform, and
/// the pixels.
pub(crate) fn pixels(bytes: &[u8], pixel_bytes: usize) -> Option<(Size, ImageFrame, &[u8])> {
    let (header, pixels) = bytes.split_at_checked(SIZE_BYTES)?;
    let number = |at: usize| {
        let bytes = header.get(4 * at..4 * at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    };
    let size = |at| {
        let (height, width) = (number(at)?, number(at + 1)?);
        Some(Size { height, width })
    };
    let frame = ImageFrame {
        size: size(2)?,
        orientation: number(4)?.try_into().ok()?,
    };
    let size = size(0)?;
    let expected = size.pixels().checked_mul(pixel_bytes as u64)?;
    (expected == pixels.len() as u64).then_some((size, frame, pixels))
}

/// Error of a prepared field whose bytes are not its pixels.
pub(crate) fn invalid_pixels_error() -> SampleError {
    SampleError::Shape {
        found: "other bytes in the cache".to_owned(),
        expected: "decoded pixels".to_owned(),
        fix: "open the pipeline without `cache`",
    }
}
