//! TIFF and BigTIFF through the `tiff` crate. This module assembles strips or tiles to a whole
//! image, then cuts it.
//!
//! Source: TIFF 6.0, 2 (directories), 3 to 6 (bilevel, gray, palette, RGB), 15 (tiles), 16 (CMYK);
//! the BigTIFF design of libtiff. Only the first page is used; a stack of pages is an error. The crate does not support palettes,
//! so this module makes it read a palette image as gray, which gives the indices. The crate reads
//! whole planar images wrongly, so this module reads the chunks one by one.

use std::io::{self, Cursor, Read, Seek, SeekFrom};

use tiff::decoder::{ChunkType, Decoder, Limits};
use tiff::tags::Tag;
use tiff::{ColorType, TiffError};

use super::color::{ColorMode, SampleLayout, convert};
use super::error::DecodeError;
use super::format::Format;
use super::header::{Detail, Header};
use super::loss::Loss;
use super::scratch::Scratch;
use super::tiff_directories::{FurtherPages, further_pages, photometric};
use super::{exif, other};
use infeed_core::sample::{Depth, Image, Region, Size};

/// Maximum bytes of one tag's values: the strip table of an image of 131 072 strips.
const MAX_TAG_BYTES: usize = 1 << 20;

const SAVE_AGAIN: &str = "save it again as an 8-bit or 16-bit gray or RGB file, for example with \
    ImageMagick: convert 'in.tif[0]' -colorspace sRGB -depth 8 out.png";

/// Stands for a missing ExtraSamples tag; no file has this number.
const MISSING: u64 = u64::MAX;

const SAVE_PAGES: &str = "save each page as a file, for example with ImageMagick: convert in.tif \
    page-%03d.tif";

const SCALE_FLOATS: &str = "scale its values to 8 or 16 bits, because their range is not known \
    here, or store them as arrays (`npy` in shards, `sources.Memory`)";

fn unsupported_error(what: String) -> DecodeError {
    DecodeError::Unsupported {
        what: what.into(),
        fix: SAVE_AGAIN,
    }
}

/// Bytes of a file. The crate reads the byte at `gray` as 1, the PhotometricInterpretation of gray.
struct TiffBytes<'a> {
    bytes: Cursor<&'a [u8]>,
    gray: Option<u64>,
}

impl Read for TiffBytes<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let from = self.bytes.position();
        let count = self.bytes.read(buffer)?;
        if let Some(at) = self.gray.and_then(|gray| gray.checked_sub(from))
            && at < count as u64
        {
            buffer[at as usize] = 1;
        }
        Ok(count)
    }
}

impl Seek for TiffBytes<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.bytes.seek(to)
    }
}

/// Meaning of the samples of a pixel.
enum Photometric {
    /// Gray or RGB, with or without alpha.
    Channels,
    /// Indices into these colours.
    Palette(Vec<[u8; 3]>),
    /// Cyan, magenta, yellow and black; 0 is no ink.
    Inks,
}

/// An open file of a supported kind.
struct File<'a> {
    decoder: Decoder<TiffBytes<'a>>,
    size: Size,
    pixels: Photometric,
    /// Bits of a sample: 1, 2, 4, 8 or 16.
    bits: usize,
    /// Samples of a pixel that `read` keeps.
    kept: usize,
    /// Samples of a pixel in the chunks that the crate returns.
    chunk_samples: usize,
    /// Whether each sample of a pixel is in the chunks of a separate plane.
    is_planar: bool,
    /// Samples of a pixel in the file.
    samples: u64,
    /// Whether channels after the colours are left out that are not alpha.
    has_further_channels: bool,
    /// Whether other pages have other sizes.
    has_other_pages: bool,
}

impl<'a> File<'a> {
    /// Reads the first directory, but no pixels.
    fn open(bytes: &'a [u8]) -> Result<File<'a>, DecodeError> {
        let (meaning, low) = photometric(bytes).unzip();
        let is_palette = meaning == Some(3);
        let source = TiffBytes {
            bytes: Cursor::new(bytes),
            gray: low.filter(|_| is_palette),
        };
        let mut decoder = Decoder::new(source).map_err(error)?;
        let mut number = |tag, default| -> Result<u64, DecodeError> {
            let values = decoder.find_tag_unsigned_vec::<u64>(tag).map_err(error)?;
            Ok(values.and_then(|v| v.first().copied()).unwrap_or(default))
        };
        let samples = number(Tag::SamplesPerPixel, 1)?;
        let bits = number(Tag::BitsPerSample, 1)?;
        let format = number(Tag::SampleFormat, 1)?;
        let compression = number(Tag::Compression, 1)?;
        let predictor = number(Tag::Predictor, 1)?;
        // Missing, although every channel after the colours needs a number, means alpha to Pillow.
        let extra = number(Tag::ExtraSamples, MISSING)?;
        let is_planar = number(Tag::PlanarConfiguration, 1)? == 2;
        let is_reversed = number(Tag::FillOrder, 1)? == 2;
        let name = match compression {
            1 | 4 | 5 | 7 | 8 | 32773 | 32946 => None,
            2 | 3 => Some("CCITT modified Huffman or Group 3".to_owned()),
            6 => Some("old-style JPEG".to_owned()),
            34925 => Some("LZMA".to_owned()),
            50000 => Some("Zstandard".to_owned()),
            50001 => Some("WebP".to_owned()),
            number => Some(format!("unknown ({number})")),
        };
        if let Some(name) = name {
            return Err(unsupported_error(format!("a TIFF with {name} compression")));
        }
        // JPEG data has no bit order.
        if is_reversed && compression != 7 {
            return Err(unsupported_error(
                "a TIFF with reversed bit order (FillOrder 2)".to_owned(),
            ));
        }
        let kind = match meaning {
            Some(0 | 1) => "gray",
            Some(2) => "RGB",
            Some(3) => "palette",
            Some(4) => "transparency mask",
            Some(5) => "CMYK",
            Some(6) => "YCbCr",
            Some(8..=10) => "Lab",
            _ => "unknown",
        };
        if format == 3 {
            return Err(DecodeError::Unsupported {
                what: format!("a {kind} TIFF of {bits}-bit floating-point samples").into(),
                fix: SCALE_FLOATS,
            });
        }
        let other = || {
            let sign = if format == 2 { "signed " } else { "" };
            unsupported_error(format!(
                "a {kind} TIFF with {samples} {sign}{bits}-bit samples per pixel"
            ))
        };
        let color = decoder.colortype().map_err(|_| other())?;
        let (bits, kept) = match (color, is_palette) {
            _ if format == 2 => return Err(other()),
            (ColorType::Gray(bits @ (1 | 2 | 4 | 8)), true) => (bits, 1),
            (_, true) => return Err(other()),
            (ColorType::Gray(bits @ (1 | 2 | 4 | 8 | 16)), _) => (bits, 1),
            (
                ColorType::Multiband {
                    bit_depth: bits @ (8 | 16),
                    num_samples: 2,
                },
                _,
            ) if matches!(extra, 1 | 2) => (bits, 2),
            (ColorType::RGB(bits @ (8 | 16)), _) => (bits, 3),
            (ColorType::RGBA(bits @ (8 | 16)) | ColorType::CMYK(bits @ (8 | 16)), _) => (bits, 4),
            _ => return Err(other()),
        };
        let chunk_samples = if is_planar {
            1
        } else {
            usize::from(color.num_samples())
        };
        if !is_planar && samples != chunk_samples as u64 && predictor != 1 {
            // The crate drops the extra samples before it reverses the predictor.
            return Err(unsupported_error(format!(
                "a {kind} TIFF with extra samples and a predictor"
            )));
        }
        let pixels = match color {
            ColorType::CMYK(_) => Photometric::Inks,
            _ if is_palette => Photometric::Palette(palette(&mut decoder, bits)?),
            _ => Photometric::Channels,
        };
        let is_alpha = matches!(extra, 1 | 2 | MISSING);
        let has_further_channels = match samples.saturating_sub(kept as u64) {
            0 => false,
            1 => !is_alpha || matches!(color, ColorType::RGBA(_)),
            _ => true,
        };
        let (width, height) = decoder.dimensions().map_err(error)?;
        let size = Size { height, width };
        let pages = further_pages(bytes, size);
        if pages == FurtherPages::OfSameSize {
            return Err(DecodeError::Unsupported {
                what: "a TIFF with several pages of one size".into(),
                fix: SAVE_PAGES,
            });
        }
        Ok(File {
            decoder,
            size,
            pixels,
            bits: usize::from(bits),
            kept,
            chunk_samples,
            is_planar,
            samples,
            has_further_channels,
            has_other_pages: pages == FurtherPages::OfOtherSizes,
        })
    }

    /// Returns the layout of the pixels after inks become RGB: gray, palette indices or RGB.
    fn layout(&self) -> SampleLayout {
        SampleLayout {
            channels: match self.pixels {
                Photometric::Inks => 3,
                _ => self.kept,
            },
            ..self.kept_layout()
        }
    }

    /// Returns the layout of the pixels that `read` writes.
    fn kept_layout(&self) -> SampleLayout {
        SampleLayout {
            channels: self.kept,
            depth: if self.bits == 16 {
                Depth::U16
            } else {
                Depth::U8
            },
            is_big_endian: cfg!(target_endian = "big"),
        }
    }

    /// Reads all strips or tiles into `whole`. Multiplies samples of fewer than 8 bits by `factor`.
    /// `chunk` holds one strip or tile of at most `limit` bytes.
    fn read(
        &mut self,
        whole: &mut [u8],
        chunk: &mut Vec<u8>,
        factor: u8,
        limit: u64,
    ) -> Result<(), DecodeError> {
        let Size { height, width } = self.size;
        let (chunk_width, chunk_height) = self.decoder.chunk_dimensions();
        let is_tiled = self.decoder.get_chunk_type() == ChunkType::Tile;
        let rows = if is_tiled {
            chunk_height
        } else {
            chunk_height.min(height)
        };
        let needed = u64::from(chunk_width)
            .saturating_mul(u64::from(rows))
            .saturating_mul(self.samples * self.bits as u64)
            .div_ceil(8);
        if needed > limit {
            return Err(over_limit(limit));
        }
        let pixel = self.kept_layout().pixel_bytes();
        let across = width.div_ceil(chunk_width);
        let count = across * height.div_ceil(chunk_height);
        let planes = if self.is_planar { self.kept } else { 1 };
        for plane in 0..planes {
            for n in 0..count {
                let index = (plane as u32)
                    .checked_mul(count)
                    .and_then(|first| first.checked_add(n))
                    .ok_or(DecodeError::Truncated)?;
                let shape = self
                    .decoder
                    .image_chunk_buffer_layout(index)
                    .map_err(error)?;
                chunk.resize(shape.len, 0);
                self.decoder
                    .read_chunk_bytes(index, chunk)
                    .map_err(|failed| match failed {
                        TiffError::LimitsExceeded => over_limit(limit),
                        failed => error(failed),
                    })?;
                let (x, y) = (n % across * chunk_width, n / across * chunk_height);
                let columns = chunk_width.min(width - x) as usize;
                let rows = chunk_height.min(height - y) as usize;
                let stride = shape.row_stride.map_or(shape.len, std::num::NonZero::get);
                for (row, from) in chunk.chunks(stride).take(rows).enumerate() {
                    let at = ((y as usize + row) * width as usize + x as usize) * pixel;
                    self.unpack(from, &mut whole[at..at + columns * pixel], plane, factor);
                }
            }
        }
        Ok(())
    }

    /// Copies one row of a chunk. In a planar file, the row has the samples of one plane.
    fn unpack(&self, from: &[u8], to: &mut [u8], plane: usize, factor: u8) {
        if self.bits < 8 {
            let mask = (1 << self.bits) - 1;
            for (column, sample) in to.iter_mut().enumerate() {
                let bit = column * self.bits;
                *sample = (from[bit / 8] >> (8 - self.bits - bit % 8) & mask) * factor;
            }
            return;
        }
        let bytes = self.bits / 8;
        if self.chunk_samples == self.kept {
            to.copy_from_slice(&from[..to.len()]);
            return;
        }
        let (first, count) = if self.is_planar {
            (plane * bytes, bytes)
        } else {
            (0, self.kept * bytes)
        };
        let pixels = from.chunks_exact(self.chunk_samples * bytes);
        for (from, to) in pixels.zip(to.chunks_exact_mut(self.kept * bytes)) {
            to[first..first + count].copy_from_slice(&from[..count]);
        }
    }
}

/// Returns the colours of a palette image: the high bytes of ColorMap, as Pillow reads them.
fn palette(decoder: &mut Decoder<TiffBytes<'_>>, bits: u8) -> Result<Vec<[u8; 3]>, DecodeError> {
    let map = decoder
        .find_tag_unsigned_vec::<u16>(Tag::ColorMap)
        .map_err(error)?
        .unwrap_or_default();
    let count = 1 << bits;
    if map.len() != 3 * count {
        return Err(DecodeError::from_damage(format!(
            "the palette has {} numbers where {bits}-bit indices need {}",
            map.len(),
            3 * count
        )));
    }
    let high = |at: usize| (map[at] >> 8) as u8;
    Ok((0..count)
        .map(|n| [high(n), high(n + count), high(n + 2 * count)])
        .collect())
}

/// Reads the properties of the first page. Its orientation always applies, because Pillow and
/// OpenCV return no TIFF without it.
pub(super) fn header(bytes: &[u8]) -> Result<Header, DecodeError> {
    let file = File::open(bytes)?;
    let layout = file.layout();
    Ok(Header {
        format: Format::Tiff,
        size: file.size,
        channels: layout.channels,
        depth: layout.depth,
        orientation: exif::orientation_of_tiff(bytes),
        coded: file.size,
        detail: Detail::Whole,
    })
}

pub(super) fn decode(
    bytes: &[u8],
    header: &Header,
    mode: ColorMode,
    region: Region,
    scratch: &mut Scratch,
    out: &mut Image,
) -> Result<(), DecodeError> {
    let mut file = File::open(bytes)?;
    let limit = other::scratch_bytes(header);
    let mut limits = Limits::default();
    limits.intermediate_buffer_size = usize::try_from(limit).unwrap_or(usize::MAX);
    limits.ifd_value_size = MAX_TAG_BYTES;
    file.decoder = file.decoder.with_limits(limits);
    let layout = file.kept_layout();
    let length = file.size.pixels() * layout.pixel_bytes() as u64;
    let length = usize::try_from(length).map_err(|_| DecodeError::NoMemory)?;
    let Scratch {
        wide,
        narrow,
        narrowed,
        losses,
        ..
    } = scratch;
    if file.has_other_pages {
        losses.push(Loss::Pages);
    }
    if file.has_further_channels {
        losses.push(Loss::FurtherChannels);
    }
    wide.resize(length, 0);
    let is_stored = matches!(mode, ColorMode::Stored | ColorMode::Stored16);
    let factor = match (&file.pixels, file.bits) {
        (Photometric::Channels, bits @ 1..8) if !is_stored => 255 / ((1 << bits) - 1),
        _ => 1,
    };
    file.read(wide, narrow, factor, limit)?;

    let width = file.size.width as usize;
    let rows = |y: usize| {
        let from =
            ((region.top as usize + y) * width + region.left as usize) * layout.pixel_bytes();
        &wide[from..from + region.size.width as usize * layout.pixel_bytes()]
    };
    match &file.pixels {
        Photometric::Palette(colors) if !is_stored => {
            for y in 0..out.height() {
                narrow.clear();
                narrow.extend(rows(y).iter().flat_map(|index| colors[usize::from(*index)]));
                convert(narrow, SampleLayout::of_u8(3), mode, out.row_mut(y));
            }
        }
        Photometric::Inks => {
            for y in 0..out.height() {
                narrow.clear();
                if layout.depth == Depth::U8 {
                    narrow.extend(rows(y).chunks_exact(4).flat_map(without_inks));
                } else {
                    narrow.extend(rows(y).chunks_exact(8).flat_map(without_wide_inks));
                }
                narrowed.add(narrow, file.layout(), mode);
                convert(narrow, file.layout(), mode, out.row_mut(y));
            }
        }
        _ => other::cut((wide, narrowed), layout, file.size, mode, region, out),
    }
    Ok(())
}

/// Converts 8-bit CMYK to RGB, with the rounding of Pillow.
fn without_inks(inks: &[u8]) -> [u8; 3] {
    let white = 255 - u32::from(inks[3]);
    [0, 1, 2].map(|n| {
        let product = u32::from(inks[n]) * white + 128;
        // At most `white`, so the difference is from 0 to 255.
        (white - (((product >> 8) + product) >> 8)) as u8
    })
}

/// Converts 16-bit CMYK to RGB, rounded to nearest. Samples are in native byte order.
fn without_wide_inks(inks: &[u8]) -> [u8; 6] {
    let ink = |n: usize| u64::from(u16::from_ne_bytes([inks[2 * n], inks[2 * n + 1]]));
    let white = 65_535 - ink(3);
    let mut rgb = [0; 6];
    for n in 0..3 {
        let sample = ((65_535 - ink(n)) * white + 32_767) / 65_535;
        rgb[2 * n..2 * n + 2].copy_from_slice(&(sample as u16).to_ne_bytes());
    }
    rgb
}

fn over_limit(limit: u64) -> DecodeError {
    unsupported_error(format!(
        "a TIFF with a strip or tile that needs more than {limit} bytes, the fixed limit for its \
         number of pixels,"
    ))
}

fn error(error: TiffError) -> DecodeError {
    match error {
        TiffError::IoError(error) => DecodeError::from_io(&error),
        TiffError::UnsupportedError(what) => unsupported_error(format!("a TIFF ({what})")),
        TiffError::LimitsExceeded => unsupported_error(format!(
            "a TIFF with a tag of more than {MAX_TAG_BYTES} bytes, the fixed limit,"
        )),
        other => DecodeError::from_damage(other.to_string()),
    }
}
