//! Batches of a loader that remote workers fill.

use std::sync::Arc;
use std::time::Duration;

use crate::loader::assemble::FilledRows;
use crate::loader::digest::DigestScope;
use crate::loader::records::RecordJob;
use infeed_core::batch::BatchRow;
use infeed_core::exec::Job;
use infeed_core::exec::lease::{BatchLeases, Lease, LeaseOutcome, LeasedRows, ReturnReason};
use infeed_core::order::partition::Partition;
use infeed_source::Source;

/// Leases batches of a running loader to remote workers.
#[derive(Clone, Debug)]
pub struct RemoteBatches {
    leases: BatchLeases<RecordJob>,
    /// Maximum number of in-flight batches of local threads.
    local: usize,
}

/// A leased batch whose rows can be written. Dropping it unfinished returns the batch.
pub struct RemoteBatch<'a>(LeasedRows<'a, RecordJob>);

impl RemoteBatches {
    pub(in crate::loader) fn new(leases: BatchLeases<RecordJob>, local: usize) -> RemoteBatches {
        RemoteBatches { leases, local }
    }

    /// Division of an epoch into batches.
    pub fn partition(&self) -> &Partition {
        self.leases.job().partition()
    }

    /// The records.
    pub fn source(&self) -> &Arc<dyn Source> {
        self.leases.job().source()
    }

    /// Content of row digests.
    pub fn digest_scope(&self) -> DigestScope {
        self.leases.job().schedule().digest_scope()
    }

    /// Returns the position in its epoch of a row of an in-flight batch.
    pub fn position(&self, in_flight: u64, row: usize) -> u64 {
        let job = self.leases.job();
        job.row_position(job.first(in_flight) + row as u64).position
    }

    /// Takes the next available batch. Waits for one at most `timeout`.
    pub fn take(&self, timeout: Duration) -> LeaseOutcome {
        self.leases.take(timeout)
    }

    /// Returns the rows of a leased batch to be written. None if they are no longer needed.
    pub fn begin(&self, lease: Lease) -> Option<RemoteBatch<'_>> {
        self.leases.begin(lease).map(RemoteBatch)
    }

    /// Returns a batch so that others fill it.
    pub fn give_back(&self, lease: Lease, why: ReturnReason) {
        self.leases.give_back(lease, why);
    }

    /// Whether writing has to stop: a reset waits for the rows, or the loader closes.
    pub fn is_stopping(&self) -> bool {
        self.leases.is_stopping()
    }

    /// Sets whether local threads take batches that no remote worker has returned.
    pub fn let_local_threads_make(&self, is_allowed: bool) {
        let local = if is_allowed { self.local } else { 0 };
        self.leases.set_own(local);
    }
}

impl RemoteBatch<'_> {
    /// Returns the rows, in order.
    pub fn rows(&mut self) -> &mut [BatchRow] {
        &mut self.0.rows
    }

    /// Finishes the batch with the result of each row.
    pub fn finish(self, rows: Vec<FilledRows>) {
        self.0.finish(rows.into_iter().map(Ok).collect());
    }
}
