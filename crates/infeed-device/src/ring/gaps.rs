//! Gaps: how long the device's streams waited for each batch. For batches without a request, the
//! wait of the first stream that used the batch.

use std::collections::VecDeque;
use std::time::Duration;

use crate::{Device, DeviceError};

use super::sync::Arc;

/// Most pending gaps, and most known gaps that are not taken yet. The oldest are dropped.
const KEPT: usize = 4096;

/// A consumer's request for a batch. If the step is timed, it has an event after the commands that
/// were in the consumer's stream at that moment.
#[derive(Debug)]
pub struct TimedRequest<D: Device> {
    pub(super) event: Option<Arc<D::Event>>,
}

/// Time for which a consumer's stream only waited for a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Epoch of the batch.
    pub epoch: u64,
    /// Step of the batch.
    pub step: u64,
    /// Time from the end of the stream's commands at the request until the batch was ready. Zero if
    /// the batch was ready first.
    pub waited: Duration,
}

/// Totals of the known gaps: gaps of timed steps, and zero gaps of batches that were ready in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GapTotals {
    /// Number of requested batches whose gap is known.
    pub batches: u64,
    /// Sum of their gaps.
    pub waited: Duration,
    /// The longest gap.
    pub longest: Duration,
    /// Gap of the first batch, which every consumer waits for.
    pub first: Duration,
}

impl GapTotals {
    fn add(&mut self, waited: Duration) {
        if self.batches == 0 {
            self.first = waited;
        }
        self.batches += 1;
        self.waited += waited;
        self.longest = self.longest.max(waited);
    }
}

/// An event in the consumer's stream, and the event after the batch.
type GapMarks<D> = (Arc<<D as Device>::Event>, Arc<<D as Device>::Event>);

#[derive(Debug)]
struct PendingGap<D: Device> {
    /// None if the batch was ready in time.
    marks: Option<GapMarks<D>>,
    /// Epoch and step, if the consumer requested the batch.
    request: Option<(u64, u64)>,
}

#[derive(Debug)]
pub(super) struct Gaps<D: Device> {
    pending: VecDeque<PendingGap<D>>,
    known: VecDeque<Gap>,
    totals: GapTotals,
    late: GapTotals,
}

impl<D: Device> Gaps<D> {
    pub(super) fn new() -> Gaps<D> {
        Gaps {
            pending: VecDeque::new(),
            known: VecDeque::new(),
            totals: GapTotals::default(),
            late: GapTotals::default(),
        }
    }

    /// Adds a timed batch. `request` is its epoch and step if the consumer requested it, and None if
    /// a stream used it without a request.
    pub(super) fn add_timed(
        &mut self,
        from: Arc<D::Event>,
        ready: Arc<D::Event>,
        request: Option<(u64, u64)>,
    ) {
        let marks = Some((from, ready));
        self.push(PendingGap { marks, request });
    }

    /// Adds a batch that was ready in time.
    pub(super) fn add_ready(&mut self, request: Option<(u64, u64)>) {
        let marks = None;
        self.push(PendingGap { marks, request });
    }

    /// Adds a batch without a request that the host waited for.
    pub(super) fn add_host_wait(&mut self, waited: Duration) {
        self.late.add(waited);
    }

    fn push(&mut self, pending: PendingGap<D>) {
        if self.pending.len() == KEPT {
            self.pending.pop_front();
        }
        self.pending.push_back(pending);
    }

    /// Computes the gaps of batches that are ready.
    ///
    /// # Errors
    ///
    /// An error of an earlier command.
    pub(super) fn resolve(&mut self, device: &D) -> Result<(), DeviceError> {
        while let Some(first) = self.pending.front() {
            let waited = match &first.marks {
                None => Duration::ZERO,
                Some((from, ready)) => {
                    if !device.is_done(from)? || !device.is_done(ready)? {
                        break;
                    }
                    device.elapsed(from, ready)?
                }
            };
            let request = first.request;
            self.pending.pop_front();
            let Some((epoch, step)) = request else {
                self.late.add(waited);
                continue;
            };
            self.totals.add(waited);
            let gap = Gap {
                epoch,
                step,
                waited,
            };
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

    /// Returns the totals of batches without a request.
    pub(super) fn late(&self) -> GapTotals {
        self.late
    }

    /// Takes the gaps that became known since the last call.
    pub(super) fn take(&mut self) -> Vec<Gap> {
        self.known.drain(..).collect()
    }
}
