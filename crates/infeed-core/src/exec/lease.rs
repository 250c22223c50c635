//! Leases: in-flight batches that remote workers fill instead of the executor's threads.
//!
//! A remote worker takes the next batch that is not taken, as the local threads do. The first
//! remote worker that delivers rows fills the batch; later rows for it are rejected. A returned
//! batch goes to the next taker. After two tries, it goes to the local threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::executor_shared::ExecutorShared;
use super::job::Job;
use super::state::{ExecutorState, InFlightState, LeaseState};

/// Number of leases of a batch before only the local threads may take it.
const TRIES: u32 = 2;

/// Handle that leases batches of an executor. It keeps the executor's memory alive, not its
/// threads.
pub struct BatchLeases<J: Job> {
    shared: Arc<ExecutorShared<J>>,
}

/// The right to fill one in-flight batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lease {
    generation: u64,
    in_flight: u64,
}

/// Result of [`BatchLeases::take`].
#[derive(Debug, PartialEq, Eq)]
pub enum LeaseOutcome {
    /// The lease of a batch.
    Batch(Lease),
    /// No batch became available in time.
    Timeout,
    /// The executor has ended.
    Ended,
}

/// Reason for returning a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReturnReason {
    /// The remote worker is gone or slow: anyone may fill the batch.
    Lost,
    /// Only the local threads can fill the batch.
    Declined,
}

/// The rows of a leased batch. Dropping them unfinished returns the batch.
pub struct LeasedRows<'a, J: Job> {
    leases: &'a BatchLeases<J>,
    lease: Lease,
    in_flight: Option<J::InFlight>,
    /// The rows, in order.
    pub rows: Vec<J::Row>,
}

impl Lease {
    /// Number of the in-flight batch.
    pub fn in_flight(self) -> u64 {
        self.in_flight
    }
}

impl<J: Job> BatchLeases<J> {
    pub(super) fn new(shared: Arc<ExecutorShared<J>>) -> BatchLeases<J> {
        BatchLeases { shared }
    }

    /// Returns the job of the executor.
    pub fn job(&self) -> &J {
        &self.shared.job
    }

    /// Whether to stop: a reset waits for the rows, or the executor ends.
    pub fn is_stopping(&self) -> bool {
        self.shared.stop.is_requested()
    }

    /// Takes the next available batch. Waits for one at most `timeout`.
    pub fn take(&self, timeout: Duration) -> LeaseOutcome {
        let shared = &*self.shared;
        let begun = Instant::now();
        let mut state = shared.lock();
        loop {
            if !state.running || state.broken.is_some() {
                return LeaseOutcome::Ended;
            }
            if let Some(in_flight) = next(shared, &mut state) {
                let generation = state.generation;
                return LeaseOutcome::Batch(Lease {
                    generation,
                    in_flight,
                });
            }
            let left = timeout.checked_sub(begun.elapsed());
            let Some(left) = left.filter(|left| !left.is_zero()) else {
                return LeaseOutcome::Timeout;
            };
            state = state.wait_timeout(&shared.leasable, left);
        }
    }

    /// Whether the batch of this lease still needs its rows.
    pub fn is_wanted(&self, lease: Lease) -> bool {
        leased_state(&mut self.shared.lock(), lease).is_some_and(|leased| !leased.filling)
    }

    /// Opens the leased batch. None if its rows are no longer needed.
    pub fn begin(&self, lease: Lease) -> Option<LeasedRows<'_, J>> {
        let shared = &*self.shared;
        let mut state = shared.lock();
        if state.paused || !state.running {
            return None;
        }
        let leased = leased_state(&mut state, lease).filter(|leased| !leased.filling)?;
        leased.filling = true;
        state.returned.remove(&lease.in_flight);
        state.busy += 1;
        drop(state);
        let opened = catch_unwind(AssertUnwindSafe(|| shared.job.open(lease.in_flight)));
        let fault = match opened {
            Ok(Ok((in_flight, rows))) => {
                return Some(LeasedRows {
                    leases: self,
                    lease,
                    in_flight: Some(in_flight),
                    rows,
                });
            }
            Ok(Err(fault)) => fault,
            Err(panic) => {
                drop(shared.lock_after_job(lease.generation));
                shared.report_panic(&*panic);
                return None;
            }
        };
        let (mut state, current) = shared.lock_after_job(lease.generation);
        if current {
            *state.in_flight_mut(lease.in_flight) = InFlightState::Ready(Err(fault));
            shared.settled.notify_all();
        }
        None
    }

    /// Returns a batch so that others fill it.
    pub fn give_back(&self, lease: Lease, why: ReturnReason) {
        let shared = &*self.shared;
        let mut state = shared.lock();
        if leased_state(&mut state, lease).is_some_and(|leased| !leased.filling) {
            give_back(shared, &mut state, lease.in_flight, why);
        }
    }

    /// Sets the most batches that the local threads may have at once.
    pub fn set_own(&self, in_flight_batches: usize) {
        let mut state = self.shared.lock();
        if std::mem::replace(&mut state.own_most, in_flight_batches) < in_flight_batches {
            self.shared.reads_wanted.notify_all();
        }
    }
}

impl<J: Job> Clone for BatchLeases<J> {
    fn clone(&self) -> BatchLeases<J> {
        BatchLeases::new(Arc::clone(&self.shared))
    }
}

impl<J: Job> std::fmt::Debug for BatchLeases<J> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BatchLeases").finish_non_exhaustive()
    }
}

impl<J: Job> LeasedRows<'_, J> {
    /// Finishes the batch with the results of its rows.
    pub fn finish(mut self, rows: Vec<Result<J::RowOutput, J::Fault>>) {
        let (lease, shared) = (self.lease, &*self.leases.shared);
        self.rows.clear();
        let Some(in_flight) = self.in_flight.take() else {
            return;
        };
        let closed = catch_unwind(AssertUnwindSafe(|| shared.job.close(in_flight, rows)));
        let (mut state, current) = shared.lock_after_job(lease.generation);
        match closed {
            Ok(batch) if current => {
                *state.in_flight_mut(lease.in_flight) = InFlightState::Ready(batch);
                if lease.in_flight == state.front {
                    shared.settled.notify_all();
                }
            }
            Ok(batch) => {
                drop(state);
                drop(batch);
            }
            Err(panic) => {
                drop(state);
                shared.report_panic(&*panic);
            }
        }
    }
}

impl<J: Job> Drop for LeasedRows<'_, J> {
    fn drop(&mut self) {
        // An in-flight batch recycles its memory only after its rows are dropped.
        self.rows.clear();
        let Some(in_flight) = self.in_flight.take() else {
            return;
        };
        drop(in_flight);
        let shared = &*self.leases.shared;
        let (mut state, current) = shared.lock_after_job(self.lease.generation);
        if current {
            give_back(shared, &mut state, self.lease.in_flight, ReturnReason::Lost);
        }
    }
}

/// Takes the next batch for a lease: returned batches first.
fn next<J: Job>(shared: &ExecutorShared<J>, state: &mut ExecutorState<J>) -> Option<u64> {
    if state.paused {
        return None;
    }
    let returned = state.returned.iter().find(|(_, own)| !**own);
    let in_flight = match returned.map(|(&in_flight, _)| in_flight) {
        Some(in_flight) => {
            state.returned.remove(&in_flight);
            in_flight
        }
        None => {
            let in_flight = state.untaken;
            if in_flight >= state.front + shared.config.in_flight_batches as u64 {
                return None;
            }
            state.untaken += 1;
            *state.in_flight_mut(in_flight) = InFlightState::Leased(LeaseState::default());
            in_flight
        }
    };
    if let InFlightState::Leased(leased) = state.in_flight_mut(in_flight) {
        leased.tries += 1;
    }
    Some(in_flight)
}

/// Returns the state of a batch if it is leased, by this or by a later lease.
fn leased_state<J: Job>(state: &mut ExecutorState<J>, lease: Lease) -> Option<&mut LeaseState> {
    if state.generation != lease.generation || !state.running || lease.in_flight < state.front {
        return None;
    }
    match state.in_flight_mut(lease.in_flight) {
        InFlightState::Leased(leased) => Some(leased),
        _ => None,
    }
}

fn give_back<J: Job>(
    shared: &ExecutorShared<J>,
    state: &mut ExecutorState<J>,
    in_flight: u64,
    why: ReturnReason,
) {
    let InFlightState::Leased(leased) = state.in_flight_mut(in_flight) else {
        return;
    };
    leased.filling = false;
    let own = why == ReturnReason::Declined || leased.tries >= TRIES;
    let known = state.returned.entry(in_flight).or_insert(own);
    *known |= own;
    shared.leasable.notify_all();
    shared.reads_wanted.notify_all();
}
