//! Files that a device decodes: which those are, and the row of one.
//!
//! All but the decoding stays where it was: headers are read and held against limits, records are
//! checked to be whole, and crops and flips are drawn, before it is asked who decodes. So whether a
//! record is bad, and what is cut out of it, does not depend on that.

use std::collections::HashSet;
use std::sync::{PoisonError, RwLock};

use infeed_raw::jpeg_batch::Baseline;

use super::Plan;
use super::fold::Folded;
use super::sample::Looked;
use crate::decode::{DctScale, Format, Request};
use crate::device::ring::files::{Cut, MOST_PIXELS};
use crate::random;
use crate::sample::Size;
use crate::transform::{Filter, Step};

/// Keeps this hash apart from those that draw.
const DECODING: u64 = 0x6465_636f_6465_7273;

/// Which records a device may decode.
#[derive(Debug)]
pub(super) struct Devices {
    /// Of 16.
    share: u8,
    /// Records that it could not decode: from then on they are the host's, which says what is wrong.
    kept: RwLock<HashSet<u64>>,
}

impl Devices {
    /// So many records of 16.
    pub(super) fn with_share(share: u8) -> Devices {
        Devices {
            share,
            kept: RwLock::default(),
        }
    }

    /// What the plan says of the decoding.
    pub(super) fn told(&self) -> String {
        match self.share {
            16.. => "baseline JPEGs by the device".to_owned(),
            share => format!("baseline JPEGs of {share} records in 16 by the device"),
        }
    }
}

impl Plan {
    /// Whether a device decodes the files of a record.
    pub(super) fn is_devices(&self, record: u64) -> bool {
        self.devices.as_ref().is_some_and(|devices| {
            // By the record alone: neither its position, nor its batch, nor the load.
            let drawn = random::hash(&[DECODING, self.seed, record]) % 16;
            let kept = devices.kept.read().unwrap_or_else(PoisonError::into_inner);
            drawn < u64::from(devices.share) && !kept.contains(&record)
        })
    }

    /// Leaves the files of a record to the host from now on.
    pub(crate) fn keep_on_host(&self, record: u64) {
        if let Some(devices) = &self.devices {
            let kept = devices.kept.write();
            kept.unwrap_or_else(PoisonError::into_inner).insert(record);
        }
    }
}

impl Looked<'_> {
    /// Puts the file into the row and gives its bytes, if it is one that a device decodes and resizes;
    /// else the row may hold anything.
    pub(super) fn leave_file(
        &self,
        folded: &Folded,
        request: &Request,
        row: &mut [u8],
    ) -> Option<u64> {
        let (header, to) = (self.header.as_ref()?, self.plan.size?);
        let is_plain = self.is_devices
            && header.format == Format::Jpeg
            && header.orientation == 1
            && request.scale == DctScale::Full;
        let cut = Cut {
            image: header.size,
            region: folded.region,
            flips: (folded.flip_x, folded.flip_y),
        };
        if !is_plain || !is_resized(folded, to) || !cut.is_for_device(to) {
            return None;
        }
        let file = Baseline::read(self.bytes, MOST_PIXELS).ok()?;
        let Size { height, width } = header.size;
        let bytes = self.bytes.get(..file.len)?;
        let is_one =
            (file.height, file.width) == (height, width) && cut.write(bytes, file.subsampling, row);
        is_one.then_some(bytes.len() as u64)
    }
}

/// Whether all that becomes of the decoded region is that it gets this size, and is perhaps mirrored.
fn is_resized(folded: &Folded, to: Size) -> bool {
    let resize = Step::Resize {
        size: to,
        filter: Filter::Bilinear,
    };
    let keeps = folded.middle.is_empty() && folded.region.size == to;
    (keeps || folded.middle == [resize]) && folded.view == to.whole()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::{Pipeline, SourceSpec};
    use crate::plan::device::{DecodeBy, Placement};
    use crate::transform::RandomResizedCrop;

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
    fn a_record_is_the_devices_by_seed_and_number_alone() {
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
    fn a_record_that_is_kept_on_the_host_is_its_from_then_on() {
        let plan = plan(1, DecodeBy::Gpu);
        plan.keep_on_host(7);
        assert!(!plan.is_devices(7) && plan.is_devices(8));
    }
}
