//! Lossless records: the pixels of a file in fewer bytes, in a form that decodes several times
//! faster.
//!
//! [`encode`] makes a record from a file, [`restore`] makes the file from the record, and
//! [`crate::decode::Decoder`] decodes records as it does files. Each kind has a specification in
//! `docs/formats`.

mod coefficients;
mod huffman;
pub(crate) mod jpeg;
mod plane_writer;
pub(crate) mod planes;
pub(crate) mod record;
mod segments;
mod tables;
#[cfg(test)]
mod tests;
mod varint;

use infeed_core::sample::{Depth, Image};
use png::Compression;

use self::jpeg::JpegParts;
pub use self::jpeg::KeepReason;
use self::planes::PlaneParts;
use self::record::{LosslessRecord, RecordKind};
use crate::decode::{ColorMode, DecodeError, Decoder, Format, Limits, Request};

/// Buffers of a decoder, reused from record to record.
#[derive(Debug, Default)]
pub(crate) struct LosslessScratch {
    pub(crate) strips: coefficients::StripScratch,
    pub(crate) planes: planes::PlaneScratch,
}

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
/// # Errors
///
/// The reason why the file is better kept as it is.
pub fn encode(file: &[u8], decoder: &mut Decoder) -> Result<EncodedRecord, KeepReason> {
    let (bytes, restores_bytes) = match Format::of(file) {
        Some(Format::Jpeg) => jpeg::encode(file)?,
        Some(Format::Png) => {
            let image = pixels(file, None, decoder)?;
            (plane_writer::encode(file, &image)?, false)
        }
        _ => return Err(KeepReason::Unsupported),
    };
    if bytes.len() > file.len() {
        return Err(KeepReason::Larger);
    }
    let restored = restore_with(&bytes, Compression::Fast).map_err(|_| KeepReason::OtherPixels)?;
    if restores_bytes && restored.bytes != file {
        return Err(KeepReason::OtherPixels);
    }
    // `Rgba` shows the palette and the transparent colour of a PNG too.
    let modes: &[_] = match Format::of(file) {
        Some(Format::Png) => &[None, Some(ColorMode::Rgba)],
        _ => &[None],
    };
    for &mode in modes {
        let before = pixels(file, mode, decoder)?;
        let is_same = restored.bytes == file || pixels(&restored.bytes, mode, decoder)? == before;
        if !is_same || pixels(&bytes, mode, decoder)? != before {
            return Err(KeepReason::OtherPixels);
        }
    }
    Ok(EncodedRecord {
        bytes,
        restores_bytes,
    })
}

/// Decodes the samples in a mode; by default, as they are stored.
fn pixels(
    bytes: &[u8],
    mode: Option<ColorMode>,
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
    let request = Request::whole(&header, mode.unwrap_or(stored));
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
    restore_with(record, Compression::Balanced)
}

/// Restores the file of a record. `compression` is that of the pixels of a PNG.
fn restore_with(record: &[u8], compression: Compression) -> Result<RestoredFile, DecodeError> {
    let record = LosslessRecord::read(record).map_err(DecodeError::damaged)?;
    if !record.is_intact() {
        return Err(DecodeError::damaged("a checksum that does not match"));
    }
    match record.kind {
        RecordKind::Jpeg => {
            let parts = JpegParts::read(record.flags, record.body)
                .ok_or(DecodeError::damaged("a record that ends early"))?;
            let mut scratch = LosslessScratch::default();
            let (bytes, is_original) = parts
                .restore(&mut scratch.strips)
                .map_err(DecodeError::damaged)?;
            Ok(RestoredFile { bytes, is_original })
        }
        RecordKind::Planes => {
            let parts = PlaneParts::read(record.body).ok_or(DecodeError::Truncated)?;
            Ok(RestoredFile {
                bytes: parts.restore(compression)?,
                is_original: false,
            })
        }
    }
}
