//! WebP through `image-webp`: decodes the whole image, then cuts it.
//!
//! Source: RFC 9649, 2 (container), 2.5 (VP8), 2.6 (VP8L). Only the first frame of an animation is
//! used.

use std::io::Cursor;

use image_webp::{DecodingError, WebPDecoder};

use super::color::{ColorMode, SampleLayout};
use super::error::DecodeError;
use super::format::Format;
use super::header::{Detail, Header};
use super::loss::Loss;
use super::scratch::Scratch;
use super::{exif, other};
use infeed_core::sample::{Depth, Image, Region, Size};

const RIFF_HEADER: usize = 12;

/// Returns the kind and payload of each complete chunk, in order.
fn chunks(bytes: &[u8], from: usize) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut at = from;
    std::iter::from_fn(move || {
        let rest = bytes.get(at..)?;
        let length = u32::from_le_bytes(rest.get(4..8)?.try_into().ok()?) as usize;
        let payload = rest.get(8..length.checked_add(8)?)?;
        at = at.checked_add(8 + length + length % 2)?;
        Some((&rest[..4], payload))
    })
}

/// Returns the size that a VP8 or VP8L bitstream claims. The decoder allocates memory for it.
fn bitstream_size(kind: &[u8], payload: &[u8]) -> Option<Size> {
    let short = |at: usize| {
        Some(u32::from(u16::from_le_bytes(
            payload.get(at..at + 2)?.try_into().ok()?,
        )))
    };
    match kind {
        b"VP8 " => Some(Size {
            width: short(6)? & 0x3FFF,
            height: short(8)? & 0x3FFF,
        }),
        b"VP8L" => {
            let bits = u32::from_le_bytes(payload.get(1..5)?.try_into().ok()?);
            Some(Size {
                width: (bits & 0x3FFF) + 1,
                height: (bits >> 14 & 0x3FFF) + 1,
            })
        }
        _ => None,
    }
}

pub(super) fn header(bytes: &[u8], orient: bool) -> Result<Header, DecodeError> {
    let decoder = WebPDecoder::new(Cursor::new(bytes)).map_err(error)?;
    let (width, height) = decoder.dimensions();
    let size = Size { height, width };
    // The decoder would allocate memory for a bitstream larger than the canvas before rejecting it.
    let fits = |(kind, payload): (&[u8], &[u8])| {
        bitstream_size(kind, payload).is_none_or(|inner| inner.whole().fits(size))
    };
    let is_within = chunks(bytes, RIFF_HEADER).all(|(kind, payload)| match kind {
        b"ANMF" => chunks(payload, 16).all(fits),
        _ => fits((kind, payload)),
    });
    if !is_within {
        return Err(DecodeError::from_damage("a frame is larger than the image"));
    }
    let mut orientation = 1;
    if orient {
        let find = |wanted: &[u8]| {
            let mut chunks = chunks(bytes, RIFF_HEADER);
            chunks.find_map(|(kind, payload)| (kind == wanted).then_some(payload))
        };
        orientation = exif::orientation(find(b"EXIF"), find(b"XMP "));
    }
    Ok(Header {
        format: Format::WebP,
        size,
        channels: if decoder.has_alpha() { 4 } else { 3 },
        depth: Depth::U8,
        orientation,
        coded: size,
        detail: Detail::Whole,
    })
}

/// Checks that the bytes of the container are complete.
pub(super) fn check(bytes: &[u8]) -> Result<(), DecodeError> {
    let length = bytes
        .get(4..8)
        .and_then(|b| b.try_into().ok())
        .map(u32::from_le_bytes);
    match length {
        Some(length) if length as usize <= bytes.len() - 8 => Ok(()),
        _ => Err(DecodeError::Truncated),
    }
}

pub(super) fn decode(
    bytes: &[u8],
    header: &Header,
    mode: ColorMode,
    region: Region,
    scratch: &mut Scratch,
    out: &mut Image,
) -> Result<(), DecodeError> {
    let mut decoder = WebPDecoder::new(Cursor::new(bytes)).map_err(error)?;
    let layout = SampleLayout::of_u8(header.channels);
    let length = decoder.output_buffer_size().ok_or(DecodeError::Truncated)?;
    if length as u64 != header.coded.pixels() * layout.pixel_bytes() as u64 {
        return Err(DecodeError::from_damage("the container contradicts itself"));
    }
    scratch.wide.resize(length, 0);
    decoder.read_image(&mut scratch.wide).map_err(error)?;
    if decoder.is_animated() && decoder.num_frames() > 1 {
        scratch.losses.push(Loss::Frames);
    }
    let Scratch { wide, narrowed, .. } = scratch;
    other::cut((wide, narrowed), layout, header.coded, mode, region, out);
    Ok(())
}

fn error(error: DecodingError) -> DecodeError {
    match error {
        DecodingError::IoError(error) => DecodeError::from_io(&error),
        other => DecodeError::from_damage(other.to_string()),
    }
}
