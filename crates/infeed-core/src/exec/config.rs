//! Limits of an executor.

/// Limits of an executor.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Number of worker threads, which is the most that can ever work at once.
    pub workers: usize,
    /// Number of workers that work from the start; see [`Executor::set_workers`](super::Executor::set_workers).
    pub working: usize,
    /// Most reads in order at once. There is one I/O thread more, so that at least one never waits
    /// for the budget.
    pub readers: usize,
    /// Most batches between the oldest one that the consumer has not taken and the newest open one,
    /// at least 2.
    pub in_flight_batches: usize,
    /// How far reads may run ahead, in sequence numbers from the first of the front batch.
    pub ahead: u64,
    /// Bytes of fetched records, granted in turn.
    pub fetched_bytes: u64,
    /// Bytes reserved for reads out of turn ([`FillOutcome::Again`](super::FillOutcome::Again)).
    pub spare_bytes: u64,
    /// In-flight batches that the local threads fill.
    pub taking: BatchChoice,
}

/// Selects the in-flight batches that the local threads of an executor fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchChoice {
    /// All, in order, without end.
    All,
    /// The number requested with [`Executor::ask`](super::Executor::ask).
    Requested,
    /// Those that no lease took first, see [`BatchLeases`](super::lease::BatchLeases).
    Shared {
        /// Most batches of the local threads at once; can be 0.
        own: usize,
    },
}
