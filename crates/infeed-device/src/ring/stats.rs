//! Counters of a ring, and their totals over several rings.

use super::gaps::GapTotals;
use super::times::SentTimes;

/// Counters of a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingStats {
    /// Batches sent.
    pub batches: u64,
    /// Copies from the host to the device.
    pub transfers: u64,
    /// Bytes of these copies.
    pub bytes: u64,
    /// JPEGs that the device decodes.
    pub jpegs: u64,
    /// Number of slots.
    pub slots: usize,
    /// Slots that hold a batch ahead of the consumer.
    pub ahead: usize,
    /// Unused slots.
    pub free: usize,
    /// Number of slots made because the consumer kept all others.
    pub overflow: u64,
    /// Bytes of host memory for batches that the driver could not pin. Copies from it are slower
    /// and block the sender.
    pub unpinned: u64,
    /// Time for which the device waited for requested batches.
    pub gaps: GapTotals,
    /// Time for which consumers waited for batches without a request. Measured on the device's
    /// clock from the first stream that used the batch, or on the host's clock if the host waited
    /// first.
    pub late: GapTotals,
    /// Duration of copies and kernels.
    pub times: SentTimes,
}

impl RingStats {
    /// Combines the counters of all rings of a loader. Transfers are added. Waits and times are
    /// those of the slowest ring, because a step waits for its last part. The rings share the host
    /// memory. None if there are no rings.
    pub fn together(each: &[RingStats]) -> Option<RingStats> {
        let (first, others) = each.split_first()?;
        let mut all = *first;
        for other in others {
            all.transfers += other.transfers;
            all.bytes += other.bytes;
            all.jpegs += other.jpegs;
            all.slots += other.slots;
            all.overflow += other.overflow;
            all.unpinned = all.unpinned.max(other.unpinned);
            all.gaps = longer(all.gaps, other.gaps);
            all.late = longer(all.late, other.late);
            all.times = all.times.combine(&other.times);
        }
        Some(all)
    }
}

fn longer(one: GapTotals, other: GapTotals) -> GapTotals {
    match one.waited < other.waited {
        true => other,
        false => one,
    }
}
