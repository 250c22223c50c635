//! Files that a device decodes: their choice, and their rows.
//!
//! Only the decoding moves. The host still reads headers, checks limits, checks that records are
//! complete, and draws crops and flips. So the decoder does not affect whether a record is bad or
//! which part of it is used.

use std::collections::HashSet;
use std::sync::{PoisonError, RwLock};

use infeed_raw::jpeg_batch::Baseline;

use super::Plan;
use super::fold::FoldedSteps;
use super::sample::VisualField;
use infeed_codec::decode::{DctScale, Format, Request};
use infeed_core::random;
use infeed_core::sample::Size;
use infeed_device::ring::files::{ImageCrop, MAX_PIXELS};

/// Separates this hash from the random draws.
const DECODING: u64 = 0x6465_636f_6465_7273;

/// Records that a device decodes.
#[derive(Debug)]
pub(super) struct Devices {
    /// Number of records in 16.
    share: u8,
    /// Records that the device could not decode. The host decodes them from then on and reports
    /// errors.
    kept: RwLock<HashSet<u64>>,
}

impl Devices {
    /// Creates a choice of `share` records in 16.
    pub(super) fn with_share(share: u8) -> Devices {
        Devices {
            share,
            kept: RwLock::default(),
        }
    }

    /// Describes the decoding for the plan.
    pub(super) fn describe(&self) -> String {
        match self.share {
            16.. => "baseline JPEGs on the device".to_owned(),
            share => format!("baseline JPEGs of {share} in 16 records on the device"),
        }
    }
}

impl Plan {
    /// Whether a device decodes the files of a record.
    pub(super) fn is_devices(&self, record: u64) -> bool {
        self.devices.as_ref().is_some_and(|devices| {
            // Depends only on the record: not on its position, its batch or the load.
            let drawn = random::hash(&[DECODING, self.seed, record]) % 16;
            let kept = devices.kept.read().unwrap_or_else(PoisonError::into_inner);
            drawn < u64::from(devices.share) && !kept.contains(&record)
        })
    }

    /// Lets the host decode a record's files from now on.
    pub(crate) fn keep_on_host(&self, record: u64) {
        if let Some(devices) = &self.devices {
            let kept = devices.kept.write();
            kept.unwrap_or_else(PoisonError::into_inner).insert(record);
        }
    }
}

impl VisualField<'_> {
    /// Writes the file into the row and returns its bytes, if a device can decode and resize it.
    /// Else the row's content is unspecified.
    pub(super) fn leave_file(
        &self,
        folded: &FoldedSteps,
        request: &Request,
        row: &mut [u8],
    ) -> Option<u64> {
        let (header, to) = (self.header.as_ref()?, self.plan.size?);
        let is_plain = self.is_devices
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
        let file = Baseline::read(self.bytes, MAX_PIXELS).ok()?;
        let Size { height, width } = header.size;
        let bytes = self.bytes.get(..file.len)?;
        let is_one =
            (file.height, file.width) == (height, width) && cut.write(bytes, file.subsampling, row);
        is_one.then_some(bytes.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::{Pipeline, SourceSpec};
    use crate::plan::device::{DecodeBy, Placement};
    use infeed_codec::transform::RandomResizedCrop;

    fn plan(seed: u64, decode: DecodeBy) -> Plan {
        let pipeline = Pipeline::new(SourceSpec::folder("photos"))
            .shuffle(seed)
            .decode()
            .transform(RandomResizedCrop::new(224))
            .batch(4);
        let fields = pipeline.source.known_fields().expect("fields");
        let mut plan = Plan::new(&pipeline, &fields.expect("known")).expect("a plan");
        let forms = plan.for_device_by(decode, Placement::Resize, false);
        forms.expect("images that a device resizes");
        plan
    }

    fn of(plan: &Plan) -> Vec<u64> {
        (0..16_000)
            .filter(|&record| plan.is_devices(record))
            .collect()
    }

    #[test]
    fn seed_and_record_number_alone_choose_the_device() {
        for share in 1..16 {
            let found = of(&plan(3, DecodeBy::Mix(share)));
            let wanted = 1000 * usize::from(share);
            assert!(
                found.len().abs_diff(wanted) < 250,
                "{} of {wanted}",
                found.len()
            );
            assert_eq!(found, of(&plan(3, DecodeBy::Mix(share))));
            let more = of(&plan(3, DecodeBy::Mix(share + 1)));
            assert!(
                found
                    .iter()
                    .all(|record| more.binary_search(record).is_ok())
            );
            assert_ne!(found, of(&plan(4, DecodeBy::Mix(share))));
        }
        assert_eq!(of(&plan(3, DecodeBy::Gpu)).len(), 16_000);
        assert!(of(&plan(3, DecodeBy::Auto)).is_empty());
    }

    #[test]
    fn a_record_kept_on_the_host_stays_there() {
        let plan = plan(1, DecodeBy::Gpu);
        plan.keep_on_host(7);
        assert!(!plan.is_devices(7) && plan.is_devices(8));
    }
}
