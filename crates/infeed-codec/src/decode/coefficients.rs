//! Lossless records of JPEGs: `lossless` decodes the coefficients, libjpeg-turbo the pixels.

use infeed_raw::jpeg::JpegTask;

use super::error::DecodeError;
use super::format::Format;
use super::header::{Coefficients, Detail, Header};
use super::jpeg;
use super::jpeg_frame::{RegionDecode, window};
use super::lossless::jpeg::JpegParts;
use super::lossless::record::LosslessRecord;
use super::scratch::Scratch;
use infeed_core::sample::Image;

fn parts(bytes: &[u8]) -> Result<JpegParts<'_>, DecodeError> {
    let record = LosslessRecord::read(bytes).map_err(DecodeError::from_damage)?;
    JpegParts::read(record.flags, record.body).ok_or(DecodeError::Truncated)
}

/// Reads the segments of the JPEG in a record.
pub(super) fn header(
    bytes: &[u8],
    orient: bool,
    scratch: &mut Scratch,
) -> Result<Header, DecodeError> {
    let parts = parts(bytes)?;
    let segments = &mut scratch.coefficients.segments;
    let head = parts.head(segments).map_err(DecodeError::from_damage)?;
    let mut header = jpeg::header(&head, orient)?;
    let Detail::Jpeg(frame) = header.detail else {
        return Err(DecodeError::from_damage("a record without a JPEG"));
    };
    header.format = Format::Coefficients;
    header.detail = Detail::Coefficients(Coefficients {
        frame: frame.without_scan(),
        strip_bytes: parts
            .scratch_bytes(&head)
            .map_err(DecodeError::from_damage)?,
        head: head.into_owned(),
    });
    Ok(header)
}

/// Verifies the checksum.
pub(super) fn check(bytes: &[u8], verify: bool) -> Result<(), DecodeError> {
    let record = LosslessRecord::read(bytes).map_err(DecodeError::from_damage)?;
    if verify && !record.is_intact() {
        return Err(DecodeError::from_damage("a checksum that does not match"));
    }
    Ok(())
}

/// Decodes a region.
pub(super) fn decode(
    bytes: &[u8],
    head: &[u8],
    job: &RegionDecode<'_>,
    scratch: &mut Scratch,
    out: &mut Image,
) -> Result<(), DecodeError> {
    let parts = parts(bytes)?;
    let mut record = std::mem::take(&mut scratch.coefficients);
    let window = window(job.frame, job.region, job.scale);
    let mut pixels = |task: &JpegTask, out: &mut [u8]| {
        parts
            .decode(head, task, &mut record.strips, out)
            .map(|()| 0)
    };
    let done = jpeg::decode_window(&mut pixels, job, window, scratch, out);
    scratch.coefficients = record;
    done.map(|_| ())
}
