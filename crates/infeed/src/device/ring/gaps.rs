//! How long the device waited for each batch, on its own clock.

use std::collections::VecDeque;
use std::time::Duration;

use crate::device::{Device, DeviceError};

use super::sync::Arc;

/// Steps whose gap is not known yet, and known ones not asked for, that are kept at most. A consumer
/// that enqueues further ahead than this loses the oldest.
const KEPT: usize = 4096;

/// A consumer's question for a batch: a mark behind what its stream had to do at that moment.
#[derive(Debug)]
pub struct Asked<D: Device> {
    pub(super) event: Arc<D::Event>,
}

/// Time for which a consumer's stream had nothing to do but wait for a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Epoch of the batch.
    pub epoch: u64,
    /// Step of the batch.
    pub step: u64,
    /// From the end of what the stream had to do when the consumer asked, to the batch being ready;
    /// zero if the batch was ready first.
    pub waited: Duration,
}

/// Sum of all gaps that are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GapTotals {
    /// How many batches were asked for and are known.
    pub batches: u64,
    /// Sum of their gaps.
    pub waited: Duration,
    /// The longest of them.
    pub longest: Duration,
}

#[derive(Debug)]
struct Pending<D: Device> {
    asked: Arc<D::Event>,
    ready: Arc<D::Event>,
    epoch: u64,
    step: u64,
}

#[derive(Debug)]
pub(super) struct Gaps<D: Device> {
    pending: VecDeque<Pending<D>>,
    known: VecDeque<Gap>,
    totals: GapTotals,
}

impl<D: Device> Gaps<D> {
    pub(super) fn new() -> Gaps<D> {
        Gaps {
            pending: VecDeque::new(),
            known: VecDeque::new(),
            totals: GapTotals::default(),
        }
    }

    /// A batch was given to the consumer that had asked.
    pub(super) fn given(&mut self, asked: Asked<D>, ready: Arc<D::Event>, epoch: u64, step: u64) {
        if self.pending.len() == KEPT {
            self.pending.pop_front();
        }
        self.pending.push_back(Pending {
            asked: asked.event,
            ready,
            epoch,
            step,
        });
    }

    /// Works out the gaps of batches that have come.
    ///
    /// # Errors
    ///
    /// What the device failed with meanwhile.
    pub(super) fn resolve(&mut self, device: &D) -> Result<(), DeviceError> {
        while let Some(first) = self.pending.front() {
            if !device.is_done(&first.asked)? || !device.is_done(&first.ready)? {
                break;
            }
            let waited = device.elapsed(&first.asked, &first.ready)?;
            let gap = Gap {
                epoch: first.epoch,
                step: first.step,
                waited,
            };
            self.pending.pop_front();
            self.totals.batches += 1;
            self.totals.waited += waited;
            self.totals.longest = self.totals.longest.max(waited);
            if self.known.len() == KEPT {
                self.known.pop_front();
            }
            self.known.push_back(gap);
        }
        Ok(())
    }

    pub(super) fn totals(&self) -> GapTotals {
        self.totals
    }

    /// Those that became known since the last call.
    pub(super) fn take(&mut self) -> Vec<Gap> {
        self.known.drain(..).collect()
    }
}
