//! Rows that other processes make for a loader, and rows that this process makes for others.
//!
//! A batch is a function of its request (epoch, step, rank, world size), the description and the
//! data, so any process can make it. This module knows no network: an implementation of
//! [`RemoteRows`] takes batches from the loader ([`RemoteBatches`]) and fills their rows with the
//! bytes that another process made. The other process makes them with a [`BatchMaker`]. Batches
//! that no remote worker delivers are made by local threads, from the same records to the same
//! bits.

mod leased_batches;
mod maker;
pub(super) mod requests;
mod run;

use std::fmt::Debug;
use std::time::Duration;

use infeed_core::error::Error;

pub use super::assemble::FilledRows;
pub use super::rules::{BatchRules, RecordLimits};
pub use leased_batches::{RemoteBatch, RemoteBatches};
pub(crate) use maker::IN_TRANSFER;
pub use maker::{BatchMaker, UnassembledBatch, UnassembledRows};
pub use requests::BatchRequest;
pub use run::RunDescription;

/// Remote workers of a loader: other processes that make batches too.
pub trait RemoteRows: Debug + Send + Sync {
    /// Number of remote workers. It never changes, because a loader divides its memory once.
    fn workers(&self) -> usize;

    /// Maximum number of batches that remote workers make at once. Memory for them is added to
    /// that of the local threads.
    fn in_flight_batches(&self) -> usize;

    /// Starts to fill batches of a run. Local threads make no batch until
    /// [`RemoteBatches::let_local_threads_make`] allows it.
    ///
    /// # Errors
    ///
    /// If remote workers cannot make equal rows, or reject the run. A worker that cannot be reached
    /// is no error, because it may come later.
    fn start(
        &self,
        run: &RunDescription,
        batches: RemoteBatches,
    ) -> Result<Box<dyn RemoteWorkers>, Error>;
}

/// Running remote workers. Dropping it disconnects them and ends their threads in this process.
pub trait RemoteWorkers: Debug + Send {
    /// Returns the statistics of each worker.
    fn stats(&self) -> Vec<RemoteWorkerStats>;

    /// Returns the time during which any worker sent bytes; overlaps count once.
    fn receiving(&self) -> Duration;
}

/// Statistics of one remote worker for this loader.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemoteWorkerStats {
    /// `host:port` as given; empty while the address is unknown.
    pub host: String,
    /// Name of its machine, if known; else empty.
    pub node: String,
    /// Whether the worker is connected and answers in time.
    pub connected: bool,
    /// Batches that it made.
    pub batches: u64,
    /// Bytes of those batches.
    pub bytes: u64,
    /// Time from request to complete batch, summed over batches.
    pub wait: Duration,
    /// Time during which bytes of its batches arrived.
    pub receiving: Duration,
    /// CPU time of this machine for receiving its batches.
    pub cpu: Duration,
    /// Batches that were requested from it but made elsewhere, because it was lost or late.
    pub redone: u64,
    /// Batches that it declined, for example because a bad record stops the run.
    pub declined: u64,
    /// Batches with corrupt bytes.
    pub corrupt: u64,
    /// Number of lost connections.
    pub lost: u64,
    /// Number of times that it refused this run.
    pub refused: u64,
    /// The last problem.
    pub problem: Option<String>,
}
