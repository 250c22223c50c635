//! Makes records from files and files from records, and verifies both with the decoder.

use infeed_core::sample::{Depth, Image};

use crate::decode::lossless::jpeg::{self, JpegParts, JpegRecordScratch};
use crate::decode::lossless::keep_reason::KeepReason;
use crate::decode::lossless::plane_writer;
use crate::decode::lossless::planes::PlaneParts;
use crate::decode::lossless::record::{LosslessRecord, RecordKind};
use crate::decode::png_chunks::has_colors_beyond_samples;
use crate::decode::{ColorMode, DecodeError, Decoder, Format, Limits, Request};

/// A record made from a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedRecord {
    /// The record.
    pub bytes: Vec<u8>,
    /// Whether [`restore`] returns the bytes of the original. Otherwise it returns a file with the
    /// same pixels and metadata.
    pub restores_bytes: bool,
}

/// A file made from a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoredFile {
    /// The file.
    pub bytes: Vec<u8>,
    /// Whether the bytes are those of the original.
    pub is_original: bool,
}

/// Encodes a file without loss, and verifies the result: the record decodes to the pixels of the
/// file and restores what it promises.
///
/// A record that restores a JPEG byte for byte is verified by its coefficients and segments, from
/// which both the bytes and the pixels follow; other records by their pixels.
///
/// # Errors
///
/// The reason why the file is better kept as it is.
pub fn encode(file: &[u8], decoder: &mut Decoder) -> Result<EncodedRecord, KeepReason> {
    let (bytes, restores_bytes) = match Format::of(file) {
        Some(Format::Jpeg) => {
            let (bytes, restores_bytes) = jpeg::encode(file)?;
            // The first rows show whether the decoder accepts the file.
            let rows = if restores_bytes { FIRST_ROWS } else { u32::MAX };
            let before = pixels(file, None, rows, decoder)?;
            if bytes.len() <= file.len() && pixels(&bytes, None, rows, decoder)? != before {
                return Err(KeepReason::OtherPixels);
            }
            (bytes, restores_bytes)
        }
        Some(Format::Png) => {
            let image = pixels(file, None, u32::MAX, decoder)?;
            let bytes = plane_writer::encode(file, &image)?;
            if bytes.len() <= file.len() && !has_pixels_of_png(&bytes, file, &image, decoder)? {
                return Err(KeepReason::OtherPixels);
            }
            (bytes, false)
        }
        _ => return Err(KeepReason::Unsupported),
    };
    if bytes.len() > file.len() {
        return Err(KeepReason::Larger);
    }
    Ok(EncodedRecord {
        bytes,
        restores_bytes,
    })
}

/// Rows that are compared if all coefficients are equal.
const FIRST_ROWS: u32 = 16;

/// Whether a record has the samples of a PNG, which are `image`, and its palette and transparent
/// colour. Restoring writes these samples.
fn has_pixels_of_png(
    record: &[u8],
    file: &[u8],
    image: &Image,
    decoder: &mut Decoder,
) -> Result<bool, KeepReason> {
    let is_same = pixels(record, None, u32::MAX, decoder)? == *image;
    // `Rgba` shows the palette and the transparent colour. Without them, it follows from the
    // samples.
    let colors = Some(ColorMode::Rgba);
    Ok(is_same
        && (!has_colors_beyond_samples(file)
            || pixels(record, colors, u32::MAX, decoder)?
                == pixels(file, colors, u32::MAX, decoder)?))
}

/// Decodes the samples of the first rows in a mode; by default, as they are stored.
pub(super) fn pixels(
    bytes: &[u8],
    mode: Option<ColorMode>,
    rows: u32,
    decoder: &mut Decoder,
) -> Result<Image, KeepReason> {
    let damaged = |error: DecodeError| KeepReason::Damaged(error.to_string());
    let header = decoder
        .header(bytes, false, &Limits::default())
        .map_err(damaged)?;
    decoder.check(bytes, &header, true).map_err(damaged)?;
    let mut out = Image::default();
    let stored = match header.depth {
        Depth::U8 => ColorMode::Stored,
        Depth::U16 => ColorMode::Stored16,
    };
    let mut request = Request::whole(&header, mode.unwrap_or(stored));
    request.region.size.height = rows.min(request.region.size.height);
    decoder
        .decode(bytes, &header, &request, &mut out)
        .map_err(damaged)?;
    Ok(out)
}

/// Restores the file of a record.
///
/// # Errors
///
/// `Damaged` if the bytes are no intact record.
pub fn restore(record: &[u8]) -> Result<RestoredFile, DecodeError> {
    let record = LosslessRecord::read(record).map_err(DecodeError::from_damage)?;
    if !record.is_intact() {
        return Err(DecodeError::from_damage("a checksum that does not match"));
    }
    match record.kind {
        RecordKind::Jpeg => {
            let parts = JpegParts::read(record.flags, record.body)
                .ok_or(DecodeError::from_damage("a record that ends early"))?;
            let mut scratch = JpegRecordScratch::default();
            let (bytes, is_original) = parts
                .restore(&mut scratch)
                .map_err(DecodeError::from_damage)?;
            Ok(RestoredFile { bytes, is_original })
        }
        RecordKind::Planes => {
            let parts = PlaneParts::read(record.body).ok_or(DecodeError::Truncated)?;
            Ok(RestoredFile {
                bytes: parts.restore()?,
                is_original: false,
            })
        }
    }
}
