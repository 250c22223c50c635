//! Requests for batches, by name instead of in order.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::loader::rules::BatchRules;
use infeed_core::exec::{RowLocation, Sequence};
use infeed_core::order::partition::{Partition, RowPosition};

/// Location of a row whose batch is no longer requested.
const NOWHERE: RowPosition = RowPosition {
    epoch: 0,
    step: 0,
    row: 0,
    position: 0,
    taken_from: None,
};

/// A requested batch.
#[derive(Clone, Debug)]
pub struct BatchRequest {
    /// Partition of the requesting rank.
    pub partition: Partition,
    /// Epoch of the batch.
    pub epoch: u64,
    /// Step of the batch.
    pub step: u64,
    /// Rules of the batch.
    pub rules: BatchRules,
    /// Number that identifies the requester.
    pub by: u64,
}

impl BatchRequest {
    /// Whether the order has such a batch.
    pub fn is_there(&self) -> bool {
        // Sequence numbers continue over all epochs.
        let countable = u64::MAX / 2 / self.partition.rows_per_epoch().max(1);
        self.step < self.partition.steps() && self.epoch < countable
    }
}

/// Request of each in-flight batch.
#[derive(Debug)]
pub(in crate::loader) struct RequestedBatches {
    /// Sequence numbers per in-flight batch: rows of a full batch.
    stride: u64,
    state: Mutex<RequestQueue>,
}

#[derive(Debug, Default)]
struct RequestQueue {
    /// Number of the oldest in-flight batch.
    front: u64,
    batches: VecDeque<BatchRequest>,
}

impl RequestedBatches {
    /// Creates an empty queue for batches of at most `stride` rows.
    pub(in crate::loader) fn new(stride: u64) -> RequestedBatches {
        RequestedBatches {
            stride,
            state: Mutex::default(),
        }
    }

    /// Appends a batch as the next in-flight batch.
    pub(in crate::loader) fn push(&self, request: BatchRequest) {
        self.lock().batches.push_back(request);
    }

    /// Removes the oldest in-flight batch and returns its request.
    pub(in crate::loader) fn pop(&self) -> Option<BatchRequest> {
        let mut queue = self.lock();
        queue.front += 1;
        queue.batches.pop_front()
    }

    fn lock(&self) -> MutexGuard<'_, RequestQueue> {
        // No code panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the request of an in-flight batch.
    pub(in crate::loader) fn get(&self, in_flight: u64) -> Option<BatchRequest> {
        let queue = self.lock();
        let at = usize::try_from(in_flight.checked_sub(queue.front)?).ok()?;
        queue.batches.get(at).cloned()
    }

    /// Returns the request that a sequence number belongs to.
    pub(in crate::loader) fn at(&self, sequence: Sequence) -> Option<BatchRequest> {
        self.get(sequence / self.stride)
    }

    pub(in crate::loader) fn place(&self, sequence: Sequence) -> RowLocation {
        RowLocation {
            in_flight: sequence / self.stride,
            row: (sequence % self.stride) as usize,
        }
    }

    pub(in crate::loader) fn first(&self, in_flight: u64) -> Sequence {
        in_flight.saturating_mul(self.stride)
    }

    /// Returns the location of a sequence number's row in the order; [`NOWHERE`] if its batch is
    /// not in flight.
    pub(in crate::loader) fn row_position(&self, sequence: Sequence) -> RowPosition {
        let Some(BatchRequest {
            partition,
            epoch,
            step,
            ..
        }) = self.at(sequence)
        else {
            return NOWHERE;
        };
        partition.row_position(partition.sequence(epoch, step) + sequence % self.stride)
    }

    /// Returns the sequence number after the last row of a batch. All partitions differ only in
    /// rank.
    pub(in crate::loader) fn rows_end(
        &self,
        sequence: Sequence,
        partition: &Partition,
    ) -> Sequence {
        let rows = match self.at(sequence) {
            Some(request) => partition.rows_at(request.step),
            None => self.stride,
        };
        self.first(sequence / self.stride) + rows
    }
}
