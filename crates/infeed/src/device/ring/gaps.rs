//! How long the device waited for each batch, on its own clock; of batches that nobody asked for in a
//! stream, how long they were waited for by whoever took them over.

use std::collections::VecDeque;
use std::time::Duration;

use crate::device::{Device, DeviceError};

use super::sync::Arc;

/// Steps whose gap is not known yet, and known ones not asked for, that are kept at most. A consumer
/// that enqueues further ahead than this loses the oldest.
const KEPT: usize = 4096;

/// A consumer's question for a batch: a mark behind what its stream had to do at that moment, if the step
/// is timed.
#[derive(Debug)]
pub struct Asked<D: Device> {
    pub(super) event: Option<Arc<D::Event>>,
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

/// Sum of all gaps that are known: those of timed steps, and of batches that were ready in time, which have
/// none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GapTotals {
    /// How many batches were asked for and are known.
    pub batches: u64,
    /// Sum of their gaps.
    pub waited: Duration,
    /// The longest of them.
    pub longest: Duration,
    /// That of the first batch, which every consumer waits for.
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

/// The mark in a consumer's stream, and the event behind the batch.
type Marks<D> = (Arc<<D as Device>::Event>, Arc<<D as Device>::Event>);

#[derive(Debug)]
struct Pending<D: Device> {
    /// None if the batch was ready in time.
    marks: Option<Marks<D>>,
    /// Epoch and step, where the mark is of the question.
    asked: Option<(u64, u64)>,
}

#[derive(Debug)]
pub(super) struct Gaps<D: Device> {
    pending: VecDeque<Pending<D>>,
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

    /// A batch was given to the consumer that had asked for it, as this epoch and step; or was taken over,
    /// without having been asked for, in a stream behind a mark.
    pub(super) fn timed(
        &mut self,
        from: Arc<D::Event>,
        ready: Arc<D::Event>,
        asked: Option<(u64, u64)>,
    ) {
        let marks = Some((from, ready));
        self.push(Pending { marks, asked });
    }

    /// The same of a batch that was ready before.
    pub(super) fn none(&mut self, asked: Option<(u64, u64)>) {
        let marks = None;
        self.push(Pending { marks, asked });
    }

    /// A batch that was not asked for in a stream was waited for on the host.
    pub(super) fn awaited(&mut self, waited: Duration) {
        self.late.add(waited);
    }

    fn push(&mut self, pending: Pending<D>) {
        if self.pending.len() == KEPT {
            self.pending.pop_front();
        }
        self.pending.push_back(pending);
    }

    /// Works out the gaps of batches that have come.
    ///
    /// # Errors
    ///
    /// What the device failed with meanwhile.
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
            let asked = first.asked;
            self.pending.pop_front();
            let Some((epoch, step)) = asked else {
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

    /// Of batches that nobody asked for in a stream.
    pub(super) fn late(&self) -> GapTotals {
        self.late
    }

    /// Those that became known since the last call.
    pub(super) fn take(&mut self) -> Vec<Gap> {
        self.known.drain(..).collect()
    }
}
