//! Parts that the threads of an executor share.

use std::sync::Condvar;

use super::budget::{Budget, BytePool};
use super::config::Config;
use super::job::Job;
use super::lock::{Lock, LockGuard};
use super::state::ExecutorState;
use super::totals::{WaitTimes, WorkerTotals};
use crate::panics::panic_text;
use crate::stop::Stop;

pub(super) struct ExecutorShared<J: Job> {
    pub(super) job: J,
    pub(super) config: Config,
    pub(super) budget: Budget,
    pub(super) spare: BytePool,
    pub(super) waits: WaitTimes,
    pub(super) work: WorkerTotals,
    /// Stops reads that wait for storage when their results are no longer needed.
    pub(super) stop: Stop,
    pub(super) state: Lock<ExecutorState<J>>,
    pub(super) reads_wanted: Condvar,
    pub(super) work_wanted: Condvar,
    /// Workers without permission to work wait here, not at `work_wanted`. Otherwise a wake-up for
    /// one worker could reach a worker that may not work.
    pub(super) parked: Condvar,
    pub(super) settled: Condvar,
    /// Threads that lease batches wait here.
    pub(super) leasable: Condvar,
}

impl<J: Job> ExecutorShared<J> {
    pub(super) fn lock(&self) -> LockGuard<'_, ExecutorState<J>> {
        self.state.lock()
    }

    /// Unlocks the state, then wakes all threads that wait for the front to move.
    pub(super) fn unlock_and_wake_all(&self, state: LockGuard<'_, ExecutorState<J>>) {
        let (idle_workers, idle_readers) = (state.idle_workers, state.idle_readers);
        drop(state);
        if idle_workers > 0 {
            self.work_wanted.notify_all();
        }
        if idle_readers > 0 {
            self.reads_wanted.notify_all();
        }
        self.leasable.notify_all();
    }

    /// Locks the state after job code. The flag is false if a reset came or the executor ended in
    /// the meantime: the caller must discard its result.
    pub(super) fn lock_after_job(
        &self,
        generation: u64,
    ) -> (LockGuard<'_, ExecutorState<J>>, bool) {
        let mut state = self.lock();
        let current = self.leave_job(&mut state, generation);
        (state, current)
    }

    /// Counts a thread as outside job code again. Returns the flag of `lock_after_job`.
    pub(super) fn leave_job(&self, state: &mut ExecutorState<J>, generation: u64) -> bool {
        state.busy -= 1;
        if state.paused && state.busy == 0 {
            self.settled.notify_all();
        }
        state.generation == generation && state.running
    }

    /// Like `lock_after_job`, but still counts as inside job code, because the worker may have to finish
    /// batches.
    pub(super) fn lock_within_job(
        &self,
        generation: u64,
    ) -> (LockGuard<'_, ExecutorState<J>>, bool) {
        let state = self.lock();
        let current = state.generation == generation && state.running;
        (state, current)
    }

    /// Records that job code panicked and wakes the consumer.
    pub(super) fn report_panic(&self, panic: &(dyn std::any::Any + Send)) {
        let text = panic_text(panic);
        let mut state = self.lock();
        state.broken = Some(text);
        self.settled.notify_all();
    }
}
