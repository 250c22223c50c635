//! How long copies and kernels of the batches took, on the device's own clock, beside whatever else it
//! did meanwhile.

use std::collections::VecDeque;
use std::time::Duration;

use crate::device::{Device, DeviceError};

use super::sync::Arc;

/// Batches whose times are not known yet that are kept at most; beyond, the oldest is not counted.
const KEPT: usize = 256;

/// Times of the batches whose times are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentTimes {
    /// How many batches that are.
    pub batches: u64,
    /// Bytes of their copies.
    pub bytes: u64,
    /// From the beginning of each batch's first copy to the end of its last.
    pub copying: Duration,
    /// Batches among them that kernels worked on.
    pub expanded: u64,
    /// From the beginning of each batch's first kernel to the end of its last.
    pub expanding: Duration,
}

impl SentTimes {
    /// Of two rings that have a part each of every batch: bytes of both, over the longer times.
    pub(super) fn beside(&self, other: &SentTimes) -> SentTimes {
        SentTimes {
            batches: self.batches.min(other.batches),
            bytes: self.bytes + other.bytes,
            copying: self.copying.max(other.copying),
            expanded: self.expanded.min(other.expanded),
            expanding: self.expanding.max(other.expanding),
        }
    }
}

/// The marks before and behind some work.
pub(super) type Round<D> = (Arc<<D as Device>::Event>, Arc<<D as Device>::Event>);

/// Marks round a batch's copies, and round its kernels if there are any.
#[derive(Debug)]
pub(super) struct Marks<D: Device> {
    pub(super) copies: Round<D>,
    pub(super) kernels: Option<Round<D>>,
    pub(super) bytes: u64,
}

#[derive(Debug)]
pub(super) struct Times<D: Device> {
    /// In the order of their streams, so the first is done first.
    pending: VecDeque<Marks<D>>,
    totals: SentTimes,
}

impl<D: Device> Times<D> {
    pub(super) fn new() -> Times<D> {
        Times {
            pending: VecDeque::new(),
            totals: SentTimes::default(),
        }
    }

    pub(super) fn sent(&mut self, marks: Marks<D>) {
        if self.pending.len() == KEPT {
            self.pending.pop_front();
        }
        self.pending.push_back(marks);
    }

    /// Adds up the times of batches that have come.
    ///
    /// # Errors
    ///
    /// What the device failed with meanwhile.
    pub(super) fn resolve(&mut self, device: &D) -> Result<(), DeviceError> {
        while let Some(first) = self.pending.front() {
            // Not of the last alone: that kernels come after their copies is for the ring to see to.
            let ends = [Some(&first.copies), first.kernels.as_ref()];
            let mut are_done = true;
            for (_, end) in ends.into_iter().flatten() {
                are_done &= device.is_done(end)?;
            }
            if !are_done {
                break;
            }
            let between = |(from, to): &(Arc<D::Event>, Arc<D::Event>)| device.elapsed(from, to);
            let copying = between(&first.copies)?;
            let expanding = first.kernels.as_ref().map(between).transpose()?;
            self.totals.batches += 1;
            self.totals.bytes += first.bytes;
            self.totals.copying += copying;
            self.totals.expanded += u64::from(expanding.is_some());
            self.totals.expanding += expanding.unwrap_or_default();
            self.pending.pop_front();
        }
        Ok(())
    }

    pub(super) fn totals(&self) -> SentTimes {
        self.totals
    }
}
