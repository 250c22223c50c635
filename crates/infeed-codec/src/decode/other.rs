//! BMP and PNM through the `image` crate. Images are decoded whole, then cut.

use std::io::Cursor;

use image::codecs::bmp::BmpDecoder;
use image::codecs::pnm::PnmDecoder;
use image::error::UnsupportedErrorKind;
use image::{ColorType, ImageDecoder, ImageError};

use super::color::{ColorMode, SampleLayout, convert};
use super::error::DecodeError;
use super::format::Format;
use super::header::{Detail, Header};
use super::loss::NarrowedSamples;
use super::scratch::Scratch;
use infeed_core::sample::{Depth, Image, Region, Size};

/// Bytes that the decoders need in addition to pixels: tables, directories, one strip or tile.
const FIXED_BYTES: u64 = 4 << 20;

const SAVE_AGAIN: &str =
    "save it again as PNG, for example with ImageMagick: convert 'in[0]' out.png";

/// Reads the tables at the beginning of a file, but no pixels.
fn open<'a>(format: Format, bytes: &'a [u8]) -> Result<Box<dyn ImageDecoder + 'a>, DecodeError> {
    let cursor = Cursor::new(bytes);
    Ok(match format {
        Format::Pnm => Box::new(PnmDecoder::new(cursor).map_err(error)?),
        _ => Box::new(BmpDecoder::new(cursor).map_err(error)?),
    })
}

fn layout(color: ColorType) -> Result<SampleLayout, DecodeError> {
    let (channels, depth) = match color {
        ColorType::L8 => (1, Depth::U8),
        ColorType::La8 => (2, Depth::U8),
        ColorType::Rgb8 => (3, Depth::U8),
        ColorType::Rgba8 => (4, Depth::U8),
        ColorType::L16 => (1, Depth::U16),
        ColorType::La16 => (2, Depth::U16),
        ColorType::Rgb16 => (3, Depth::U16),
        ColorType::Rgba16 => (4, Depth::U16),
        _ => {
            return Err(DecodeError::Unsupported {
                what: "an image of floating-point samples".into(),
                fix: SAVE_AGAIN,
            });
        }
    };
    Ok(SampleLayout {
        channels,
        depth,
        is_big_endian: cfg!(target_endian = "big"),
    })
}

pub(super) fn header(format: Format, bytes: &[u8], orient: bool) -> Result<Header, DecodeError> {
    let mut decoder = open(format, bytes)?;
    let (width, height) = decoder.dimensions();
    let size = Size { height, width };
    let layout = layout(decoder.color_type())?;
    let orientation = match decoder.orientation() {
        Ok(found) if orient => found.to_exif(),
        _ => 1,
    };
    Ok(Header {
        format,
        size,
        channels: layout.channels,
        depth: layout.depth,
        orientation,
        coded: size,
        detail: Detail::Whole,
    })
}

/// Returns the bytes for formats that are decoded whole: the image, and the same again for the
/// decoder.
pub(super) fn scratch_bytes(header: &Header) -> u64 {
    let pixel = header.channels.max(4) * header.depth.bytes();
    3 * header.coded.pixels() * pixel as u64 + FIXED_BYTES
}

pub(super) fn decode(
    bytes: &[u8],
    header: &Header,
    mode: ColorMode,
    region: Region,
    scratch: &mut Scratch,
    out: &mut Image,
) -> Result<(), DecodeError> {
    let mut decoder = open(header.format, bytes)?;
    let limit = scratch_bytes(header);
    let error = |failed: ImageError| match failed {
        ImageError::Limits(_) => DecodeError::Unsupported {
            what: format!(
                "a {} that needs more than {limit} bytes, the fixed limit for its number of \
                 pixels,",
                header.format.name()
            )
            .into(),
            fix: SAVE_AGAIN,
        },
        failed => error(failed),
    };
    let mut limits = image::Limits::no_limits();
    limits.max_alloc = Some(limit);
    decoder.set_limits(limits).map_err(error)?;
    let layout = layout(decoder.color_type())?;
    let length = header.coded.pixels() * layout.pixel_bytes() as u64;
    if decoder.total_bytes() != length {
        return Err(DecodeError::from_damage("the header contradicts itself"));
    }
    let length = usize::try_from(length).map_err(|_| DecodeError::NoMemory)?;
    scratch.wide.resize(length, 0);
    decoder.read_image(&mut scratch.wide).map_err(error)?;
    if header.format == Format::Pnm {
        rescale(bytes, layout, mode, &mut scratch.wide)?;
    }
    let Scratch { wide, narrowed, .. } = scratch;
    cut((wide, narrowed), layout, header.coded, mode, region, out);
    Ok(())
}

/// Replaces the samples of a PNM whose maximum is not that of their depth. The `image` crate scales
/// them and rounds halves up, but Pillow rounds halves to even. Stored samples are not scaled.
fn rescale(
    bytes: &[u8],
    layout: SampleLayout,
    mode: ColorMode,
    samples: &mut [u8],
) -> Result<(), DecodeError> {
    let decoder = PnmDecoder::new(Cursor::new(bytes)).map_err(error)?;
    let maximum = decoder.header().maximal_sample();
    let full = match layout.depth {
        Depth::U8 => u32::from(u8::MAX),
        Depth::U16 => u32::from(u16::MAX),
    };
    if maximum == full {
        return Ok(());
    }
    let is_stored = matches!(mode, ColorMode::Stored | ColorMode::Stored16);
    let (maximum, full) = (f64::from(maximum), f64::from(full));
    let value = |scaled: f64| {
        let stored = (scaled * maximum / full).round();
        match is_stored {
            true => stored,
            false => (stored / maximum * full).round_ties_even(),
        }
    };
    match layout.depth {
        Depth::U8 => {
            let table: [u8; 256] = std::array::from_fn(|scaled| value(scaled as f64) as u8);
            for sample in samples {
                *sample = table[usize::from(*sample)];
            }
        }
        Depth::U16 => {
            for sample in samples.as_chunks_mut::<2>().0 {
                let scaled = f64::from(u16::from_ne_bytes(*sample));
                *sample = (value(scaled) as u16).to_ne_bytes();
            }
        }
    }
    Ok(())
}

/// Converts the region of a whole image in `layout` into `out`, and notes the samples that lose
/// their low bytes.
pub(super) fn cut(
    (whole, narrowed): (&[u8], &mut NarrowedSamples),
    layout: SampleLayout,
    size: Size,
    mode: ColorMode,
    region: Region,
    out: &mut Image,
) {
    let pixel = layout.pixel_bytes();
    let row = size.width as usize * pixel;
    let columns = region.left as usize * pixel..region.right() as usize * pixel;
    for y in 0..out.height() {
        let from = &whole[(region.top as usize + y) * row..][columns.clone()];
        narrowed.add(from, layout, mode);
        convert(from, layout, mode, out.row_mut(y));
    }
}

fn error(error: ImageError) -> DecodeError {
    match error {
        ImageError::IoError(error) => DecodeError::from_io(&error),
        ImageError::Unsupported(error) => {
            let what = match error.kind() {
                UnsupportedErrorKind::Color(color) => format!("an image of {color:?} pixels"),
                UnsupportedErrorKind::GenericFeature(feature) => format!("an image ({feature})"),
                _ => "this kind of file".to_owned(),
            };
            DecodeError::Unsupported {
                what: what.into(),
                fix: SAVE_AGAIN,
            }
        }
        other => DecodeError::from_damage(other.to_string()),
    }
}
