//! Reads a sample of the records to find their size, format and number of files. This also brings
//! them into memory, so that trials on them do not read the storage.

use crate::case::Case;
use infeed::fields::failure::{SampleError, StageFailure};
use infeed::loader::sample_error;
use infeed_codec::decode::{Decoder, Format, Limits};
use infeed_core::compare::median;
use infeed_core::error::Error;
use infeed_core::sample::{FieldKind, Pixels};
use infeed_source::read_one;

/// Number of records to read before the size of the sample is fixed.
const FIRST_READS: usize = 16;

/// Channels of a decoded image.
const RGB: u64 = 3;

/// Facts about the records that decide which remedies make sense.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Records {
    /// Number of images of each format among those that were read.
    pub(crate) png: usize,
    pub(crate) jpeg: usize,
    /// Median of the shorter sides, in pixels.
    pub(crate) short_side: u32,
}

/// Results of the survey.
pub(crate) struct Survey {
    /// Records for trials. All are readable, because bad records are left out.
    pub(crate) sample: Vec<u64>,
    pub(crate) records: Records,
    /// Encoded bytes of a record.
    pub(crate) record_bytes: f64,
    /// Bytes of the image of a record as decoded RGB pixels. 0 without encoded images.
    pub(crate) pixel_bytes: f64,
}

/// Reads a few hundred records, or as many as 40 MB hold.
///
/// # Errors
///
/// [`Error::Read`] if a record cannot be read. If all records are bad, the error of the first.
pub(crate) fn survey(case: &Case) -> Result<Survey, Error> {
    let images = |kind: &FieldKind| matches!(kind, FieldKind::Image(Pixels::Encoded));
    let fields = case.own.fields();
    let image = fields.iter().position(|field| images(&field.kind));
    let mut records = Records::default();
    let mut short_sides: Vec<f64> = Vec::new();
    let mut picked = case.sample(0.0);
    let mut sample = Vec::with_capacity(picked.len());
    let mut decoder = Decoder::new();
    let limits = Limits {
        max_pixels: case.decode().max_pixels,
    };
    let (mut bytes, mut checked, mut pixels) = (0_u64, 0_usize, 0_u64);
    let mut first_bad = None;
    while checked < picked.len() {
        let number = picked[checked];
        checked += 1;
        let record = match read_one(&*case.own, number) {
            Err(error) if error.is_bad_record() => {
                first_bad.get_or_insert(error);
                continue;
            }
            record => record?,
        };
        let encoded = image.and_then(|at| record.fields.get(at));
        let header = encoded.map(|bytes| decoder.header(bytes, false, &limits));
        if let Some(Err(error)) = header {
            let failure = StageFailure {
                field: image.unwrap_or_default(),
                transform: None,
                error: SampleError::Decode(error),
            };
            first_bad.get_or_insert_with(|| sample_error(&*case.own, number, failure));
            continue;
        }
        bytes += record.bytes();
        sample.push(number);
        if let Some(Ok(header)) = header {
            records.png += usize::from(header.format == Format::Png);
            records.jpeg += usize::from(header.format == Format::Jpeg);
            let short = header.size.height.min(header.size.width);
            short_sides.push(f64::from(short));
            let pixel = RGB * header.depth.bytes() as u64;
            pixels += pixel * u64::from(header.size.height) * u64::from(header.size.width);
        }
        if checked == FIRST_READS {
            let wanted = case.sample(bytes as f64 / sample.len().max(1) as f64).len();
            picked.truncate(wanted.max(checked));
        }
    }
    if let (true, Some(bad)) = (sample.is_empty(), first_bad) {
        return Err(bad);
    }
    records.short_side = median(short_sides) as u32;
    // The packer writes records in ascending order, and a trial compares equal positions.
    sample.sort_unstable();
    Ok(Survey {
        record_bytes: bytes as f64 / sample.len().max(1) as f64,
        pixel_bytes: pixels as f64 / sample.len().max(1) as f64,
        sample,
        records,
    })
}
