//! Files that a device decodes: their choice, and their rows.
//!
//! Only the decoding moves. The host still reads headers, checks limits, checks that records are
//! complete, and draws crops and flips. So the decoder does not affect whether a record is bad or
//! which part of it is used.

use std::collections::HashSet;
use std::sync::{PoisonError, RwLock};

use infeed_raw::jpeg_batch::Baseline;

use super::header::VisualField;
use crate::fields::steps::FoldedSteps;
use infeed_codec::decode::{DctScale, Format, Request};
use infeed_core::random;
use infeed_core::sample::Size;
use infeed_device::ring::files::{ImageCrop, MAX_PIXELS};

/// Separates this hash from the random draws.
const DECODING: u64 = 0x6465_636f_6465_7273;

/// Records that a device decodes.
#[derive(Debug)]
pub(crate) struct Devices {
    /// Number of records in 16.
    share: u8,
    /// Records that the device could not decode. The host decodes them from then on and reports
    /// errors.
    kept: RwLock<HashSet<u64>>,
}

impl Devices {
    /// Creates a choice of `share` records in 16.
    pub(crate) fn with_share(share: u8) -> Devices {
        Devices {
            share,
            kept: RwLock::default(),
        }
    }

    /// Describes the decoding for the plan.
    pub(crate) fn describe(&self) -> String {
        match self.share {
            16.. => "baseline JPEGs on the device".to_owned(),
            share => format!("baseline JPEGs of {share} in 16 records on the device"),
        }
    }

    /// Whether the device decodes the files of a record. `seed` is that of the random draws.
    pub(crate) fn takes(&self, seed: u64, record: u64) -> bool {
        // Depends only on the record: not on its position, its batch or the load.
        let drawn = random::hash(&[DECODING, seed, record]) % 16;
        let kept = self.kept.read().unwrap_or_else(PoisonError::into_inner);
        drawn < u64::from(self.share) && !kept.contains(&record)
    }

    /// Lets the host decode a record's files from now on.
    pub(crate) fn keep_on_host(&self, record: u64) {
        let kept = self.kept.write();
        kept.unwrap_or_else(PoisonError::into_inner).insert(record);
    }
}

/// Writes the file into the row and returns its bytes, if a device can decode and resize it.
/// Else the row's content is unspecified.
pub(super) fn leave_file(
    field: &VisualField<'_>,
    folded: &FoldedSteps,
    request: &Request,
    row: &mut [u8],
) -> Option<u64> {
    let (header, to) = (field.header.as_ref()?, field.plan.size?);
    let is_plain = field.is_devices
        && header.format == Format::Jpeg
        && header.orientation == 1
        && request.scale == DctScale::Full;
    let cut = ImageCrop {
        image: header.size,
        region: folded.region,
        flips: (folded.flips.x, folded.flips.y),
    };
    let keeps = folded.middle.is_empty() && folded.region.size == to;
    let is_resize = folded.is_resize(to) || (keeps && folded.view == to.whole());
    if !is_plain || !is_resize || !cut.is_for_device(to) {
        return None;
    }
    let file = Baseline::read(field.bytes, MAX_PIXELS).ok()?;
    let Size { height, width } = header.size;
    let bytes = field.bytes.get(..file.len)?;
    let is_one =
        (file.height, file.width) == (height, width) && cut.write(bytes, file.subsampling, row);
    is_one.then_some(bytes.len() as u64)
}
