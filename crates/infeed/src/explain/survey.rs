//! A first look at the records: how large, of which kind, in how many files. Reading them also
//! brings them into memory, so that trials on them meet no storage.

use super::case::Case;
use super::remedies::Records;
use super::trial::median;
use crate::decode::{Decoder, Format, Limits};
use crate::error::Error;
use crate::sample::{FieldKind, Pixels};
use crate::source::read_one;

/// Records looked at before their number is settled.
const FIRST_LOOK: usize = 16;

/// What was seen.
pub(super) struct Survey {
    /// Records for trials, all of them readable.
    pub(super) sample: Vec<u64>,
    pub(super) records: Records,
    /// Encoded bytes of a record, and files it lies in.
    pub(super) record_bytes: f64,
}

/// Looks at a few hundred records, or as many as 40 MB hold.
///
/// # Errors
///
/// [`Error::Read`] for a record that cannot be read.
pub(super) fn survey(case: &Case) -> Result<Survey, Error> {
    let images = |kind: &FieldKind| matches!(kind, FieldKind::Image(Pixels::Encoded));
    let fields = case.own.fields();
    let image = fields.iter().position(|field| images(&field.kind));
    let mut records = Records::default();
    let mut short_sides: Vec<f64> = Vec::new();
    let mut sample = case.sample(0.0);
    let mut decoder = Decoder::new();
    let (mut bytes, mut looked) = (0_u64, 0_usize);
    while looked < sample.len() {
        let number = sample[looked];
        looked += 1;
        let record = match read_one(&*case.own, number) {
            Err(error) if error.is_bad_record() => continue,
            record => record?,
        };
        bytes += record.bytes();
        let encoded = image.and_then(|at| record.fields.get(at));
        let header =
            encoded.and_then(|bytes| decoder.header(bytes, false, &Limits::default()).ok());
        if let Some(header) = header {
            records.png += usize::from(header.format == Format::Png);
            records.jpeg += usize::from(header.format == Format::Jpeg);
            let short = header.size.height.min(header.size.width);
            short_sides.push(f64::from(short));
        }
        if looked == FIRST_LOOK {
            let wanted = case.sample(bytes as f64 / looked as f64).len();
            sample.truncate(wanted.max(looked));
        }
    }
    records.short_side = median(&short_sides) as u32;
    // The packer writes records in ascending order, and a trial compares equal places.
    sample.sort_unstable();
    Ok(Survey {
        record_bytes: bytes as f64 / looked.max(1) as f64,
        sample,
        records,
    })
}
