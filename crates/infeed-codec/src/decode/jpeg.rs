//! JPEG: `jpeg_frame` reads the segments, libjpeg-turbo decodes the pixels.
//!
//! Source: ITU-T T.81, Annex B (markers, segments); EXIF 2.32, 4.7 (APP1). A region is decoded with a margin, which is cut off afterwards. libjpeg smooths subsampled chroma
//! across columns and rows, but has no neighbours at the edge of its output. Without the margin,
//! the outermost columns differ from a full decode by up to 35 levels.
//!
//! If a file has restart markers, only the tiles of a region are decoded, see `restart`.

mod restart;

use infeed_raw::jpeg::{JpegDecoder, JpegError, JpegTask, PixelFormat, Window};

use super::color::{ColorMode, SampleLayout, convert, luma};
use super::error::DecodeError;
use super::format::Format;
use super::header::{Detail, Header, Request};
use super::jpeg_frame::{Frame, RegionDecode, frame_header, next_marker, segment, window};
use super::scratch::Scratch;
use super::{exif, orient};
use infeed_core::sample::{Depth, Image};

/// Most scans of a progressive file. Encoders write about 10, optimizers up to 30. Each scan costs
/// a pass over all coefficients, so a small file with thousands of scans would keep a worker busy
/// for hours.
const MAX_SCANS: u16 = 100;

/// Bytes that libjpeg-turbo needs for any image, in addition to memory that grows with the image.
const FIXED_BYTES: u64 = 1 << 20;

/// Reads the segments up to the first scan.
pub(super) fn header(bytes: &[u8], orient: bool) -> Result<Header, DecodeError> {
    let (mut metadata, mut xmp) = (None, None);
    let mut frame: Option<Frame> = None;
    let mut interval = 0;
    let mut at = 2;
    loop {
        let (marker, body) = next_marker(bytes, at).ok_or(DecodeError::Truncated)?;
        at = body;
        match marker {
            0x01 | 0xD0..=0xD7 => continue,
            0xD8 => return Err(DecodeError::from_damage("a second start of image")),
            0xD9 => return Err(DecodeError::from_damage("an end of image before any scan")),
            _ => {}
        }
        let segment = segment(bytes, at)?;
        match marker {
            0xC0..=0xCF if !matches!(marker, 0xC4 | 0xC8 | 0xCC) => {
                if frame.is_some() {
                    return Err(DecodeError::from_damage("a second frame header"));
                }
                frame = Some(frame_header(marker, segment)?);
            }
            0xDA => {
                let mut frame = frame.ok_or(DecodeError::from_damage("a scan before its frame"))?;
                frame.holds_coefficients |= segment.first() != Some(&frame.components);
                frame.scan = at;
                frame.encoded = bytes.len();
                if restart::is_possible(&frame) {
                    frame.interval = interval;
                }
                return Ok(Header {
                    format: Format::Jpeg,
                    size: frame.size,
                    channels: usize::from(frame.components),
                    depth: Depth::U8,
                    orientation: exif::orientation(metadata, xmp),
                    coded: frame.size,
                    detail: Detail::Jpeg(frame),
                });
            }
            // If there are several, the last one applies.
            0xDD => {
                let found = segment.try_into().map(u16::from_be_bytes);
                interval = found.unwrap_or(0);
            }
            0xE1 if orient => {
                if segment.starts_with(b"Exif\0\0") {
                    metadata = metadata.or(Some(segment));
                }
                xmp = segment
                    .strip_prefix(b"http://ns.adobe.com/xap/1.0/\0")
                    .or(xmp);
            }
            _ => {}
        }
        at += 2 + segment.len();
    }
}

/// Checks that an end-of-image marker follows the start of the first scan.
///
/// Searches from the end of the file, where the marker usually is. Thumbnails precede the first
/// scan. Data that some cameras append (a film, a second image) may contain other end-of-image
/// markers. A truncated file with appended data passes this check, but libjpeg-turbo then finds the
/// foreign marker in the scan and reports a premature end.
pub(super) fn check(bytes: &[u8], frame: &Frame) -> Result<(), DecodeError> {
    let scans = bytes.get(frame.scan..).ok_or(DecodeError::Truncated)?;
    if scans.windows(2).rev().any(|pair| pair == [0xFF, 0xD9]) {
        Ok(())
    } else {
        Err(DecodeError::Truncated)
    }
}

fn pixel_format(frame: &Frame, mode: ColorMode) -> PixelFormat {
    match (frame.components, mode) {
        (4, _) => PixelFormat::Cmyk,
        (_, ColorMode::Gray) | (1, ColorMode::Stored | ColorMode::Stored16) => PixelFormat::Gray,
        (_, ColorMode::Rgba) => PixelFormat::Rgba,
        (_, _) => PixelFormat::Rgb,
    }
}

/// Returns the bytes of all coefficients, padded to whole iMCUs. 0 if libjpeg holds one iMCU row at
/// a time.
fn coefficient_bytes(frame: &Frame) -> u64 {
    if !frame.holds_coefficients {
        return 0;
    }
    let across = u64::from(frame.size.width.div_ceil(8 * frame.across));
    let down = u64::from(frame.size.height.div_ceil(8 * frame.down));
    // Add one iMCU per side, because libjpeg rounds up each component separately.
    (across + 1) * (down + 1) * u64::from(frame.blocks) * 64 * 2
}

/// Returns the bytes of a few iMCU rows of samples, before and after upsampling.
fn strip_bytes(frame: &Frame) -> u64 {
    u64::from(frame.size.width + 64) * u64::from(frame.down) * 8 * 4 * 4
}

pub(super) fn scratch_bytes(frame: &Frame, header: &Header, request: &Request) -> u64 {
    let shown = request.region;
    let region = if header.orientation == 1 || !shown.fits(header.scaled_size(request.scale)) {
        shown
    } else {
        orient::coded_region(header.orientation, shown, header.coded_at(request.scale))
    };
    if !region.fits(request.scale.apply(frame.size)) {
        return FIXED_BYTES;
    }
    let window = window(frame, region, request.scale);
    let format = pixel_format(frame, request.mode);
    // With tiles, one more row is decoded, see `restart::TileFile::window`.
    let (tiles, below) = match frame.interval {
        0 => (0, 0),
        _ => (frame.encoded as u64, 1),
    };
    let rows = u64::from(window.height) + below;
    let wide = rows * u64::from(window.width) * format.bytes() as u64;
    wide + tiles + coefficient_bytes(frame) + strip_bytes(frame) + FIXED_BYTES
}

pub(super) fn decode(
    jpeg: &mut JpegDecoder,
    bytes: &[u8],
    job: &RegionDecode<'_>,
    scratch: &mut Scratch,
    out: &mut Image,
) -> Result<u32, DecodeError> {
    let mut tiles = std::mem::take(&mut scratch.tiles);
    let done = restart::assemble(bytes, job, &mut tiles).and_then(|part| {
        let job = RegionDecode {
            frame: &part.frame,
            region: part.region,
            ..*job
        };
        let mut pixels = |task: &JpegTask, out: &mut [u8]| jpeg.decode(&tiles, task, out);
        decode_window(&mut pixels, &job, part.window(job.scale), scratch, out).ok()
    });
    scratch.tiles = tiles;
    // If tiles fail or give a warning, decode the whole file, so that tiles never change an error.
    if done == Some(0) {
        return Ok(0);
    }
    scratch.tiles.clear();
    let window = window(job.frame, job.region, job.scale);
    let mut pixels = |task: &JpegTask, out: &mut [u8]| jpeg.decode(bytes, task, out);
    decode_window(&mut pixels, job, window, scratch, out)
}

/// Decodes a window of a JPEG; returns the number of harmless warnings.
pub(super) type DecodeWindow<'a> = dyn FnMut(&JpegTask, &mut [u8]) -> Result<u32, JpegError> + 'a;

/// Decodes a window that covers the job's region with `pixels`, and copies the region.
pub(super) fn decode_window(
    pixels: &mut DecodeWindow<'_>,
    job: &RegionDecode<'_>,
    window: Window,
    scratch: &mut Scratch,
    out: &mut Image,
) -> Result<u32, DecodeError> {
    let &RegionDecode {
        frame,
        mode,
        region,
        scale,
    } = job;
    let format = pixel_format(frame, mode);
    let memory = (coefficient_bytes(frame) + strip_bytes(frame) + FIXED_BYTES).div_ceil(1 << 20);
    let task = JpegTask {
        width: frame.size.width,
        height: frame.size.height,
        eighths: scale.eighths() as u8,
        window,
        format,
        max_scans: MAX_SCANS,
        max_memory_mib: u16::try_from(memory).unwrap_or(u16::MAX),
    };
    let is_direct = (window.top, window.left) == (region.top, region.left)
        && (window.height, window.width) == (region.size.height, region.size.width)
        && format != PixelFormat::Cmyk
        && mode != ColorMode::Stored16;
    if is_direct {
        return pixels(&task, &mut out.data).map_err(error);
    }

    let wide_row = window.width as usize * format.bytes();
    let wide = &mut scratch.wide;
    wide.resize(window.height as usize * wide_row, 0);
    let warnings = pixels(&task, wide).map_err(error)?;

    let above = (region.top - window.top) as usize;
    let before = (region.left - window.left) as usize * format.bytes();
    let columns = before..before + region.size.width as usize * format.bytes();
    for y in 0..out.height() {
        let row = &wide[(above + y) * wide_row..][columns.clone()];
        match format {
            PixelFormat::Cmyk => convert_cmyk(row, mode, out.row_mut(y)),
            // Gray, RGB and RGBA are decoded to the mode, or widened.
            _ if mode == ColorMode::Stored16 => {
                convert(
                    row,
                    SampleLayout::of_u8(format.bytes()),
                    mode,
                    out.row_mut(y),
                );
            }
            _ => out.row_mut(y).copy_from_slice(row),
        }
    }
    Ok(warnings)
}

/// Returns `a * b / 255`, rounded to nearest. A tie cannot occur.
fn product(a: u8, b: u8) -> u8 {
    let sum = u32::from(a) * u32::from(b) + 128;
    (((sum >> 8) + sum) >> 8) as u8
}

/// Converts inverted inks, where 255 is no ink, to light.
fn convert_cmyk(row: &[u8], mode: ColorMode, out: &mut [u8]) {
    let rgb = |p: &[u8]| {
        [
            product(p[0], p[3]),
            product(p[1], p[3]),
            product(p[2], p[3]),
        ]
    };
    let size = match mode {
        ColorMode::Gray => 1,
        ColorMode::Rgb | ColorMode::Stored => 3,
        ColorMode::Rgba => 4,
        ColorMode::Stored16 => 6,
    };
    for (from, to) in row.chunks_exact(4).zip(out.chunks_exact_mut(size)) {
        let [r, g, b] = rgb(from);
        match mode {
            ColorMode::Gray => to[0] = luma(r, g, b),
            ColorMode::Rgb | ColorMode::Stored => to.copy_from_slice(&[r, g, b]),
            ColorMode::Rgba => to.copy_from_slice(&[r, g, b, 255]),
            ColorMode::Stored16 => convert(&[r, g, b], SampleLayout::of_u8(3), mode, to),
        }
    }
}

/// Converts an error of libjpeg-turbo.
pub(super) fn error(error: JpegError) -> DecodeError {
    match error {
        JpegError::NoDecoder => DecodeError::NoMemory,
        JpegError::PrematureEnd { .. } => DecodeError::Truncated,
        other => DecodeError::from_damage(other.to_string()),
    }
}
