//! The first frame of a GIF, as Pillow reads it.
//!
//! Source: GIF89a, 18 (logical screen), 20 (image descriptor), 23 (transparent colour). A frame
//! larger than the screen enlarges it. Pixels outside a smaller frame have the transparent index,
//! or 0 without one. Transparent pixels keep the colour of their index, and alpha is 0.

use std::io::Cursor;

use gif::{ColorOutput, DecodeOptions, Decoder, DecodingError, Frame};

use super::color::{ColorMode, SampleLayout, convert};
use super::error::DecodeError;
use super::format::Format;
use super::header::{Detail, Header};
use super::loss::Loss;
use super::scratch::Scratch;
use infeed_core::sample::{Depth, Image, Region, Size};

/// Bytes that the decoder needs in addition to pixels: its buffers and code table.
const FIXED_BYTES: u64 = 1 << 20;

type Reader<'a> = Decoder<Cursor<&'a [u8]>>;

/// Properties of the first frame.
struct GifFrame {
    size: Size,
    frame: Region,
    transparent: Option<u8>,
}

/// Reads up to the pixels of the first frame.
fn open(bytes: &[u8]) -> Result<(Reader<'_>, GifFrame), DecodeError> {
    let mut options = DecodeOptions::new();
    options.set_color_output(ColorOutput::Indexed);
    let mut reader = options.read_info(Cursor::new(bytes)).map_err(error)?;
    let (height, width) = (reader.height(), reader.width());
    let frame: &Frame<'_> = reader
        .next_frame_info()
        .map_err(error)?
        .ok_or(DecodeError::Truncated)?;
    let side = |offset: u16, length: u16, screen: u16| {
        (u32::from(offset) + u32::from(length)).max(screen.into())
    };
    let first = GifFrame {
        size: Size {
            height: side(frame.top, frame.height, height),
            width: side(frame.left, frame.width, width),
        },
        frame: Region {
            top: frame.top.into(),
            left: frame.left.into(),
            size: Size {
                height: frame.height.into(),
                width: frame.width.into(),
            },
        },
        transparent: frame.transparent,
    };
    Ok((reader, first))
}

pub(super) fn header(bytes: &[u8]) -> Result<Header, DecodeError> {
    let (_, GifFrame { size, .. }) = open(bytes)?;
    Ok(Header {
        format: Format::Gif,
        size,
        channels: 4,
        depth: Depth::U8,
        orientation: 1,
        coded: size,
        detail: Detail::Whole,
    })
}

/// Returns the bytes for the indices of the frame and a row of colours.
pub(super) fn scratch_bytes(header: &Header) -> u64 {
    header.coded.pixels() + 4 * u64::from(header.coded.width) + FIXED_BYTES
}

pub(super) fn decode(
    bytes: &[u8],
    mode: ColorMode,
    region: Region,
    scratch: &mut Scratch,
    out: &mut Image,
) -> Result<(), DecodeError> {
    let (mut reader, first) = open(bytes)?;
    let colors = reader.palette().map_err(error)?;
    let mut palette = [[0, 0, 0, 255]; 256];
    for (to, color) in palette.iter_mut().zip(colors.as_chunks::<3>().0) {
        to[..3].copy_from_slice(color);
    }
    if let Some(index) = first.transparent {
        palette[usize::from(index)][3] = 0;
    }
    let around = palette[usize::from(first.transparent.unwrap_or(0))];
    let Scratch {
        wide: indices,
        narrow,
        losses,
        ..
    } = scratch;
    let Region { top, left, size } = first.frame;
    let length = usize::try_from(size.pixels()).map_err(|_| DecodeError::NoMemory)?;
    indices.resize(length, 0);
    reader.read_into_buffer(indices).map_err(error)?;
    // Damage after the first frame does not concern it.
    if let Ok(Some(_)) = reader.next_frame_info() {
        losses.push(Loss::Frames);
    }
    for y in 0..out.height() {
        let row = (region.top as usize + y).checked_sub(top as usize);
        let width = size.width as usize;
        let row = row.and_then(|row| indices.get(row * width..(row + 1) * width));
        narrow.clear();
        narrow.extend(
            (region.left..region.left + region.size.width).flat_map(|x| {
                let column = x.checked_sub(left).map(|column| column as usize);
                let index = row.zip(column).and_then(|(row, column)| row.get(column));
                index.map_or(around, |index| palette[usize::from(*index)])
            }),
        );
        convert(narrow, SampleLayout::of_u8(4), mode, out.row_mut(y));
    }
    Ok(())
}

fn error(error: DecodingError) -> DecodeError {
    match error {
        DecodingError::Io(error) => DecodeError::from_io(&error),
        DecodingError::UnexpectedEof => DecodeError::Truncated,
        DecodingError::OutOfMemory => DecodeError::NoMemory,
        other => DecodeError::from_damage(other.to_string()),
    }
}
