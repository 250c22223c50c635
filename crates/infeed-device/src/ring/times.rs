//! Durations of copies and kernels on the device's clock. They include delays by other work of the
//! device.

use std::collections::VecDeque;
use std::time::Duration;

use crate::{Device, DeviceError};

use super::sync::Arc;

/// Most batches with pending times. Beyond it, the oldest is not counted.
const KEPT: usize = 256;

/// Times of the timed batches that are done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentTimes {
    /// Number of these batches.
    pub batches: u64,
    /// Bytes of their copies.
    pub bytes: u64,
    /// Sum of the times from the start of each batch's first copy to the end of its last.
    pub copying: Duration,
    /// Number of these batches that have kernels.
    pub expanded: u64,
    /// Sum of the times from the start of each batch's first kernel to the end of its last.
    pub expanding: Duration,
}

impl SentTimes {
    /// Combines the times of two rings that each have a part of every batch: adds the bytes, and
    /// takes the longer times.
    pub(super) fn combine(&self, other: &SentTimes) -> SentTimes {
        SentTimes {
            batches: self.batches.min(other.batches),
            bytes: self.bytes + other.bytes,
            copying: self.copying.max(other.copying),
            expanded: self.expanded.min(other.expanded),
            expanding: self.expanding.max(other.expanding),
        }
    }
}

/// Events before and after some work.
pub(super) type EventPair<D> = (Arc<<D as Device>::Event>, Arc<<D as Device>::Event>);

/// Events around a batch's copies, and around its kernels if there are any.
#[derive(Debug)]
pub(super) struct TimingMarks<D: Device> {
    pub(super) copies: EventPair<D>,
    pub(super) kernels: Option<EventPair<D>>,
    pub(super) bytes: u64,
}

#[derive(Debug)]
pub(super) struct CopyTimes<D: Device> {
    /// In the order of their streams, so the first entry is done first.
    pending: VecDeque<TimingMarks<D>>,
    totals: SentTimes,
}

impl<D: Device> CopyTimes<D> {
    pub(super) fn new() -> CopyTimes<D> {
        CopyTimes {
            pending: VecDeque::new(),
            totals: SentTimes::default(),
        }
    }

    pub(super) fn push(&mut self, marks: TimingMarks<D>) {
        if self.pending.len() == KEPT {
            self.pending.pop_front();
        }
        self.pending.push_back(marks);
    }

    /// Adds the times of batches that are done.
    ///
    /// # Errors
    ///
    /// An error of an earlier command.
    pub(super) fn resolve(&mut self, device: &D) -> Result<(), DeviceError> {
        while let Some(first) = self.pending.front() {
            // Check both events: this code does not rely on kernels running after their copies.
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
