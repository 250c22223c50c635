//! PNG: reads rows from the `png` crate, only as far as the region needs.
//!
//! Source: W3C PNG (Third Edition), 5 (chunks), 8 (interlace), 11.2 (IHDR, PLTE), 11.3 (tRNS). The
//! crate's own checksums are disabled: `check` verifies the CRC of every chunk. It covers the
//! compressed bytes, so the Adler-32 of the same data is redundant. This module converts the
//! samples itself, so that only the columns of the region are converted.

use std::io::Cursor;

use png::{BitDepth, ColorType, DecodeOptions, DecodingError};

use super::color::{ColorMode, SampleLayout, convert, luma};
use super::error::DecodeError;
use super::format::Format;
use super::header::{Detail, Header};
use super::loss::{Loss, NarrowedSamples};
use super::png_chunks::{Chunk, Ihdr, Metadata, SIGNATURE, ihdr_of};
use super::scratch::Scratch;
use infeed_core::sample::{Depth, Image, Region, Size};

/// Bytes that the crate needs for its inflate window and row buffer, in addition to the rows.
const FIXED_BYTES: u64 = 512 << 10;

/// Reads IHDR. With `orient`, also searches all chunks for an orientation.
pub(super) fn header(bytes: &[u8], orient: bool) -> Result<Header, DecodeError> {
    let ihdr = ihdr_of(bytes)?;
    let mut metadata = Metadata::default();
    if orient {
        metadata.search(bytes, SIGNATURE);
    }
    let depth = if ihdr.bits == BitDepth::Sixteen {
        Depth::U16
    } else {
        Depth::U8
    };
    Ok(Header {
        format: Format::Png,
        size: ihdr.size,
        channels: ihdr.color.samples(),
        depth,
        orientation: metadata.orientation(),
        coded: ihdr.size,
        detail: Detail::Png(ihdr),
    })
}

/// Checks that the chunks continue up to IEND and, with `verify`, that their checksums match.
pub(super) fn check(bytes: &[u8], verify: bool) -> Result<(), DecodeError> {
    let mut has_pixels = false;
    let mut at = SIGNATURE;
    loop {
        let chunk = Chunk::at(bytes, at).ok_or(DecodeError::Truncated)?;
        if verify && crc32fast::hash(chunk.covered) != chunk.crc {
            let kind = chunk.kind.escape_ascii();
            // Without transparency, an ancillary chunk changes no pixel.
            let is_needed = chunk.kind[0].is_ascii_uppercase() || &chunk.kind == b"tRNS";
            let fix = match is_needed {
                true => "",
                false => "; the chunk has no pixels, so .decode(verify=False) reads the image",
            };
            return Err(DecodeError::from_damage(format!(
                "the checksum of the {kind} chunk at byte {at} is wrong{fix}"
            )));
        }
        match &chunk.kind {
            b"IEND" if has_pixels => return Ok(()),
            b"IEND" => return Err(DecodeError::from_damage("no IDAT chunk")),
            b"IDAT" => has_pixels = true,
            _ => {}
        }
        at = chunk.end;
    }
}

/// Returns the bytes of one unfiltered row.
fn row_bytes(ihdr: &Ihdr) -> usize {
    let bits = ihdr.color.samples() * ihdr.bits as usize * ihdr.size.width as usize;
    bits.div_ceil(8)
}

pub(super) fn scratch_bytes(ihdr: &Ihdr, coded: Size) -> u64 {
    // The crate holds up to four rows and moves them in steps. This module holds one row, and a
    // converted row of at most four 16-bit samples per pixel.
    8 * (row_bytes(ihdr) as u64 + 1) + 8 * u64::from(coded.width) + FIXED_BYTES
}

pub(super) fn decode(
    bytes: &[u8],
    ihdr: &Ihdr,
    mode: ColorMode,
    region: Region,
    scratch: &mut Scratch,
    out: &mut Image,
) -> Result<(), DecodeError> {
    let mut options = DecodeOptions::default();
    options.set_ignore_checksums(true);
    options.set_ignore_text_chunk(true);
    options.set_ignore_iccp_chunk(true);
    let mut decoder = png::Decoder::new_with_options(Cursor::new(bytes), options);
    // The crate's data from other chunks cannot exceed the file.
    decoder.set_limits(png::Limits {
        bytes: bytes.len().saturating_add(64 << 10),
    });
    let mut reader = decoder.read_info().map_err(error)?;
    let info = reader.info();
    if let Some(frame) = &info.frame_control
        && (frame.width, frame.height) != (ihdr.size.width, ihdr.size.height)
    {
        return Err(DecodeError::from_damage(
            "the first frame is smaller than the image",
        ));
    }
    if (info.width, info.height, info.color_type, info.bit_depth)
        != (ihdr.size.width, ihdr.size.height, ihdr.color, ihdr.bits)
    {
        return Err(DecodeError::from_damage("a second IHDR"));
    }
    // Without a frame control before it, the image of IDAT is not among the frames.
    let used = u32::from(info.frame_control.is_some());
    if let Some(animation) = info.animation_control
        && animation.num_frames > used
    {
        scratch.losses.push(Loss::Frames);
    }
    let palette = info.palette.as_deref().unwrap_or_default();
    let trns = info.trns.as_deref().unwrap_or_default();
    let samples = Samples::new(ihdr, palette, trns, mode)?;
    let Scratch {
        wide: row,
        narrow,
        narrowed,
        ..
    } = scratch;
    row.resize(row_bytes(ihdr), 0);
    if ihdr.is_interlaced {
        let buffers = (&mut row[..], narrow, narrowed);
        return decode_interlaced(&mut reader, ihdr, &samples, region, buffers, out);
    }

    let is_direct = region.size.width == ihdr.size.width && samples.need_no_conversion();
    let (first, count) = (region.left as usize, region.size.width as usize);
    let mut read = |buffer: &mut [u8]| match reader.read_row(buffer) {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(DecodeError::Truncated),
        Err(failed) => Err(error(failed)),
    };
    for _ in 0..region.top {
        read(row)?;
    }
    for y in 0..out.height() {
        let to = out.row_mut(y);
        if is_direct {
            read(to)?;
        } else {
            read(row)?;
            samples.convert(row, first, count, to, narrowed)?;
        }
    }
    Ok(())
}

/// First row and first column of each of the seven passes, and the steps to the next row and
/// column.
const PASSES: [(u32, u32, u32, u32); 7] = [
    (0, 0, 8, 8),
    (0, 4, 8, 8),
    (4, 0, 8, 4),
    (0, 2, 4, 4),
    (2, 0, 4, 2),
    (0, 1, 2, 2),
    (1, 0, 2, 1),
];

/// Decodes an interlaced image: converts each row of a pass and scatters it into `out`, without
/// another copy of the image.
fn decode_interlaced(
    reader: &mut png::Reader<Cursor<&[u8]>>,
    ihdr: &Ihdr,
    samples: &Samples,
    region: Region,
    (row, narrow, narrowed): (&mut [u8], &mut Vec<u8>, &mut NarrowedSamples),
    out: &mut Image,
) -> Result<(), DecodeError> {
    let pixel = out.pixel_bytes();
    let last_pass = PASSES.len() - 1;
    for (number, (y0, x0, dy, dx)) in PASSES.into_iter().enumerate() {
        let count = ihdr.size.width.saturating_sub(x0).div_ceil(dx) as usize;
        if count == 0 {
            continue;
        }
        narrow.resize(count * pixel, 0);
        for y in (y0..ihdr.size.height).step_by(dy as usize) {
            if number == last_pass && u64::from(y) >= region.bottom() {
                break;
            }
            reader
                .read_row(row)
                .map_err(error)?
                .ok_or(DecodeError::Truncated)?;
            if y < region.top || u64::from(y) >= region.bottom() {
                continue;
            }
            samples.convert(row, 0, count, narrow, narrowed)?;
            let to = out.row_mut((y - region.top) as usize);
            for (i, from) in narrow.chunks_exact(pixel).enumerate() {
                let x = u64::from(x0) + i as u64 * u64::from(dx);
                if x >= u64::from(region.left) && x < region.right() {
                    let at = (x - u64::from(region.left)) as usize * pixel;
                    to[at..at + pixel].copy_from_slice(from);
                }
            }
        }
    }
    Ok(())
}

/// Conversion of the unfiltered rows of one file to pixels of one mode.
pub(super) struct Samples {
    mode: ColorMode,
    /// Bits of a sample in a row.
    bits: usize,
    /// Factor of gray of fewer than 8 bits, otherwise 1.
    factor: u8,
    layout: SampleLayout,
    /// RGBA colour of each index. Empty without a palette, or if the mode stores indices.
    palette: Vec<[u8; 4]>,
    /// The transparent colour, as samples in the file's layout. Set only for RGBA.
    key: Vec<u8>,
}

impl Samples {
    /// Creates the conversion. `trns` has one byte for each sample of up to 8 bits.
    fn new(
        ihdr: &Ihdr,
        colors: &[u8],
        trns: &[u8],
        mode: ColorMode,
    ) -> Result<Samples, DecodeError> {
        let bits = ihdr.bits as usize;
        let depth = if bits == 16 { Depth::U16 } else { Depth::U8 };
        let layout = SampleLayout {
            channels: ihdr.color.samples(),
            depth,
            is_big_endian: true,
        };
        let mut palette = Vec::new();
        let mut key = Vec::new();
        let is_stored = matches!(mode, ColorMode::Stored | ColorMode::Stored16);
        if ihdr.color == ColorType::Indexed {
            if colors.len() < 3 {
                return Err(DecodeError::from_damage(
                    "palette colours without a palette",
                ));
            }
            if !is_stored {
                let alpha = trns.iter().copied().chain(std::iter::repeat(255));
                palette.extend(
                    colors
                        .chunks_exact(3)
                        .take(256)
                        .zip(alpha)
                        .map(|(c, a)| [c[0], c[1], c[2], a]),
                );
            }
        } else if mode == ColorMode::Rgba && trns.len() == layout.pixel_bytes() {
            key = trns.to_vec();
        }
        let factor = match bits {
            1 | 2 | 4 if !is_stored => 255 / ((1_u16 << bits) - 1) as u8,
            _ => 1,
        };
        Ok(Samples {
            mode,
            bits,
            factor,
            layout,
            palette,
            key,
        })
    }

    /// Creates the conversion of rows with at least one byte per sample, for a file with the chunks
    /// of `head`.
    pub(super) fn of_whole_bytes(
        ihdr: &Ihdr,
        head: &[u8],
        mode: ColorMode,
    ) -> Result<Samples, DecodeError> {
        let palette = Chunk::find(head, b"PLTE").unwrap_or_default();
        let trns = Chunk::find(head, b"tRNS").unwrap_or_default();
        let low_bytes: Vec<u8>;
        let trns = match ihdr.color {
            ColorType::Grayscale | ColorType::Rgb if ihdr.bits != BitDepth::Sixteen => {
                let samples = trns.chunks_exact(2).take(ihdr.color.samples());
                low_bytes = samples.map(|sample| sample[1]).collect();
                &low_bytes
            }
            _ => trns,
        };
        let mut samples = Samples::new(ihdr, palette, trns, mode)?;
        samples.bits = samples.bits.max(8);
        Ok(samples)
    }

    /// Number of values of a sample that is looked up or scaled. None for other conversions.
    pub(super) fn values(&self) -> Option<usize> {
        match (self.palette.len(), self.factor) {
            (0, 1) => None,
            (0, factor) => Some(1 + 255 / usize::from(factor)),
            (colors, _) => Some(colors),
        }
    }

    /// Returns the bytes of a pixel in a row with at least one byte per sample.
    pub(super) fn pixel_bytes(&self) -> usize {
        self.layout.pixel_bytes()
    }

    /// Whether an unfiltered row needs no conversion.
    pub(super) fn need_no_conversion(&self) -> bool {
        self.bits == 8 && self.factor == 1 && self.layout.is(self.mode) && self.palette.is_empty()
    }

    /// Converts `count` pixels of an unfiltered row, from pixel `first`. Notes the samples that lose
    /// their low bytes.
    pub(super) fn convert(
        &self,
        row: &[u8],
        first: usize,
        count: usize,
        to: &mut [u8],
        narrowed: &mut NarrowedSamples,
    ) -> Result<(), DecodeError> {
        if !self.palette.is_empty() {
            return self.look_up(row, first, count, to);
        }
        if self.bits < 8 || self.factor > 1 {
            return self.spread(row, first, count, to);
        }
        let pixel = self.layout.pixel_bytes();
        let from = &row[first * pixel..(first + count) * pixel];
        narrowed.add(from, self.layout, self.mode);
        convert(from, self.layout, self.mode, to);
        if !self.key.is_empty() {
            for (from, to) in from.chunks_exact(pixel).zip(to.chunks_exact_mut(4)) {
                if from == self.key {
                    to[3] = 0;
                }
            }
        }
        Ok(())
    }

    /// Returns the sample of pixel `at` in a row of up to 8 bits per pixel.
    fn sample(&self, row: &[u8], at: usize) -> u8 {
        let bit = at * self.bits;
        let mask = (1_u16 << self.bits).wrapping_sub(1) as u8;
        row[bit / 8] >> (8 - self.bits - bit % 8) & mask
    }

    fn look_up(
        &self,
        row: &[u8],
        first: usize,
        count: usize,
        to: &mut [u8],
    ) -> Result<(), DecodeError> {
        let indices = (first..first + count).map(|at| usize::from(self.sample(row, at)));
        let entry = |index: usize| {
            self.palette
                .get(index)
                .copied()
                .ok_or(DecodeError::from_damage(
                    "a pixel's index is not in the palette",
                ))
        };
        match self.mode {
            ColorMode::Gray => {
                for (index, to) in indices.zip(to) {
                    let [r, g, b, _] = entry(index)?;
                    *to = luma(r, g, b);
                }
            }
            ColorMode::Rgba => {
                for (index, to) in indices.zip(to.chunks_exact_mut(4)) {
                    to.copy_from_slice(&entry(index)?);
                }
            }
            _ => {
                for (index, to) in indices.zip(to.chunks_exact_mut(3)) {
                    to.copy_from_slice(&entry(index)?[..3]);
                }
            }
        }
        Ok(())
    }

    /// Converts gray of 1, 2 or 4 bits, or copies palette indices.
    fn spread(
        &self,
        row: &[u8],
        first: usize,
        count: usize,
        to: &mut [u8],
    ) -> Result<(), DecodeError> {
        let size = to.len() / count.max(1);
        for (i, to) in to.chunks_exact_mut(size).enumerate() {
            let sample = self.sample(row, first + i);
            convert(
                &[sample * self.factor],
                SampleLayout::of_u8(1),
                self.mode,
                to,
            );
            if self.key.first() == Some(&sample) {
                to[3] = 0;
            }
        }
        Ok(())
    }
}

fn error(error: DecodingError) -> DecodeError {
    match error {
        DecodingError::IoError(error) => DecodeError::from_io(&error),
        other => DecodeError::from_damage(other.to_string()),
    }
}
