//! Starts the threads of an executor, hands batches to the consumer, resets and ends.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::budget::{Budget, BytePool};
use super::config::{BatchChoice, Config};
use super::executor_shared::ExecutorShared;
use super::job::Job;
use super::lock::Lock;
use super::state::{ExecutorState, InFlightState};
use super::totals::{WaitTimes, WorkerTotals};
use super::{cores, lease, lock_times, readers, workers};
use crate::stop::Stop;

/// State of the threads at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecutorSnapshot {
    /// Number of workers that may work.
    pub workers: usize,
    /// Number of these workers that wait.
    pub idle_workers: usize,
    /// Reads in order in progress.
    pub reading: usize,
    /// Fetched records that no worker has claimed.
    pub fetched_records: u64,
    /// Leased batches that are not finished.
    pub leased: usize,
}

/// Result of [`Executor::next`].
#[derive(Debug)]
pub enum NextBatch<B, F> {
    /// The next batch.
    Batch(B),
    /// The fault of the next batch. Every call returns it until a reset or [`Executor::pass_over`].
    Fault(F),
    /// The next batch is not ready.
    Timeout,
    /// A thread of the executor panicked; the text names the thread and the panic message.
    Broken(String),
    /// The executor was shut down.
    Closed,
    /// This process is a fork of the one that opened the executor. The threads are in the parent.
    Forked,
}

/// A running executor. Dropping it joins its threads.
pub struct Executor<J: Job> {
    pub(super) shared: Arc<ExecutorShared<J>>,
    /// Threads that are not joined yet.
    threads: Mutex<Vec<JoinHandle<()>>>,
    process: u32,
    cores: cores::Registration,
}

impl<J: Job> Executor<J> {
    /// Starts the threads. `in_flight` is the number of the first batch.
    ///
    /// # Errors
    ///
    /// If a thread cannot be started. The threads started so far are joined.
    pub fn start(job: J, config: Config, in_flight: u64) -> std::io::Result<Executor<J>> {
        let first = job.first(in_flight);
        let own_most = match config.taking {
            BatchChoice::All | BatchChoice::Requested => usize::MAX,
            BatchChoice::Shared { own } => own,
        };
        let working = config.working.clamp(1, config.workers.max(1));
        let shared = Arc::new(ExecutorShared {
            budget: Budget::new(config.fetched_bytes),
            spare: BytePool::new(config.spare_bytes),
            waits: WaitTimes::default(),
            work: WorkerTotals::default(),
            stop: Stop::default(),
            state: Lock::new(
                ExecutorState::new(in_flight, first, own_most, config.taking, working),
                &lock_times::STATE,
            ),
            reads_wanted: Condvar::new(),
            work_wanted: Condvar::new(),
            parked: Condvar::new(),
            settled: Condvar::new(),
            leasable: Condvar::new(),
            job,
            config,
        });
        let executor = Executor {
            shared,
            threads: Mutex::default(),
            process: std::process::id(),
            cores: cores::Registration::new(working),
        };
        // One thread more than reads in order: see "Admission" in the README.
        for n in 0..=config.readers {
            executor.spawn(format!("infeed-read-{n}"), n, |shared, _| {
                readers::run(shared);
            })?;
        }
        for n in 0..config.workers {
            executor.spawn(format!("infeed-work-{n}"), n, workers::run)?;
        }
        Ok(executor)
    }

    fn spawn(
        &self,
        name: String,
        number: usize,
        body: fn(&ExecutorShared<J>, usize),
    ) -> std::io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let thread = thread::Builder::new().name(name);
        let thread = thread.spawn(move || {
            infeed_raw::machine::never_preempt();
            shared.stop.watch_here();
            body(&shared, number);
        })?;
        self.threads().push(thread);
        Ok(())
    }

    /// Returns the number of workers that may work.
    pub fn workers(&self) -> usize {
        self.shared.lock().working
    }

    /// Sets the number of workers that may work, from 1 to [`Config::workers`]. A worker that has
    /// to stop finishes its rows first, so more workers may run for a short time.
    ///
    /// Order and bytes of the batches do not depend on the number of workers.
    pub fn set_workers(&self, workers: usize) {
        if self.is_forked() {
            return;
        }
        let workers = workers.clamp(1, self.shared.config.workers);
        self.cores.set(workers);
        let mut state = self.shared.lock();
        let before = std::mem::replace(&mut state.working, workers);
        if workers > before {
            self.shared.parked.notify_all();
        } else if workers < before {
            // Waiting workers that may no longer work must move to `parked`.
            self.shared.work_wanted.notify_all();
        }
    }

    /// Returns the job.
    pub fn job(&self) -> &J {
        &self.shared.job
    }

    /// Returns the configuration.
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// Returns the time that the threads spent blocked.
    pub fn waits(&self) -> &WaitTimes {
        &self.shared.waits
    }

    /// Returns the totals of the workers.
    pub fn work(&self) -> &WorkerTotals {
        &self.shared.work
    }

    /// Returns the bytes of fetched records now and at the peak.
    pub fn fetched_bytes(&self) -> (u64, u64) {
        (
            self.shared.budget.used_bytes(),
            self.shared.budget.peak_bytes(),
        )
    }

    /// Returns the number of batches that are ready and not taken.
    pub fn ready(&self) -> usize {
        let state = self.shared.lock();
        state
            .in_flight_batches
            .iter()
            .filter(|in_flight| matches!(in_flight, InFlightState::Ready(Ok(_))))
            .count()
    }

    /// Returns the state of the threads.
    pub fn situation(&self) -> ExecutorSnapshot {
        let state = self.shared.lock();
        let fetched = state.fetched_records.keys();
        ExecutorSnapshot {
            workers: state.working,
            idle_workers: state.idle_workers,
            reading: state.in_turn,
            fetched_records: fetched
                .map(|sequence| self.shared.job.rows(*sequence))
                .sum(),
            leased: state
                .in_flight_batches
                .iter()
                .filter(|in_flight| matches!(in_flight, InFlightState::Leased(_)))
                .count(),
        }
    }

    /// Requests this number of additional batches. Only for [`BatchChoice::Requested`].
    pub fn ask(&self, in_flight_batches: u64) {
        let mut state = self.shared.lock();
        state.requested = state.requested.saturating_add(in_flight_batches);
        self.shared.reads_wanted.notify_all();
    }

    /// Removes the front batch if it has a fault, and continues with the next one.
    pub fn pass_over(&self) {
        let mut state = self.shared.lock();
        if let Some(fault) = state
            .in_flight_batches
            .pop_front_if(|in_flight| matches!(in_flight, InFlightState::Ready(Err(_))))
        {
            state.front += 1;
            self.shared.unlock_and_wake_all(state);
            drop(fault);
        }
    }

    /// Returns a handle for leasing batches of this executor.
    pub fn leases(&self) -> lease::BatchLeases<J> {
        lease::BatchLeases::new(Arc::clone(&self.shared))
    }

    /// Returns the number of the batch that the consumer gets next.
    pub fn front(&self) -> u64 {
        self.shared.lock().front
    }

    /// Returns the next batch in order. Waits for it at most `timeout`.
    pub fn next(&self, timeout: Duration) -> NextBatch<J::Batch, J::Fault> {
        if self.is_forked() {
            return NextBatch::Forked;
        }
        let shared = &*self.shared;
        let begun = Instant::now();
        let mut state = shared.lock();
        let next = loop {
            if !state.running {
                break NextBatch::Closed;
            }
            if let Some(text) = &state.broken {
                break NextBatch::Broken(text.clone());
            }
            match state.in_flight_batches.front() {
                Some(InFlightState::Ready(Err(fault))) => break NextBatch::Fault(fault.clone()),
                Some(InFlightState::Ready(Ok(_))) => {
                    let Some(InFlightState::Ready(Ok(batch))) = state.in_flight_batches.pop_front()
                    else {
                        unreachable!("matched above, under the same lock");
                    };
                    state.front += 1;
                    break NextBatch::Batch(batch);
                }
                _ => {}
            }
            if let Some((sequence, fault)) = &state.plan_fault
                && shared.job.place(*sequence).in_flight == state.front
            {
                break NextBatch::Fault(fault.clone());
            }
            let Some(left) = timeout
                .checked_sub(begun.elapsed())
                .filter(|t| !t.is_zero())
            else {
                break NextBatch::Timeout;
            };
            state = state.wait_timeout(&shared.settled, left);
        };
        if matches!(next, NextBatch::Batch(_)) {
            shared.unlock_and_wake_all(state);
        }
        next
    }

    /// Discards all work in progress and continues at batch `in_flight`. On return, nothing of the
    /// old work is held.
    pub fn reset(&self, in_flight: u64) {
        if self.is_forked() {
            return;
        }
        let shared = &*self.shared;
        let mut state = shared.lock();
        state.generation += 1;
        state.paused = true;
        state.reads.clear();
        state.urgent.clear();
        let fetched_records = state.take_fetched_records();
        shared.budget.close();
        shared.stop.request();
        drop(state);
        drop(fetched_records);

        let mut state = shared.lock();
        while state.busy > 0 {
            state = state.wait(&shared.settled);
        }
        let in_flight_batches = std::mem::take(&mut state.in_flight_batches);
        drop(state);
        drop(in_flight_batches);

        let mut state = shared.lock();
        state.begin_at(in_flight, shared.job.first(in_flight), shared.config.taking);
        state.turn = 0;
        shared.budget.reopen(0);
        shared.stop.withdraw();
        state.paused = false;
        shared.work_wanted.notify_all();
        shared.reads_wanted.notify_all();
        shared.leasable.notify_all();
    }

    /// Ends all threads and waits for them. A consumer that waits in [`next`](Executor::next) gets
    /// [`NextBatch::Closed`].
    pub fn shutdown(&self) {
        if self.is_forked() {
            return;
        }
        {
            let mut state = self.shared.lock();
            state.running = false;
            state.generation += 1;
            self.shared.budget.close();
            self.shared.stop.request();
            self.shared.work_wanted.notify_all();
            self.shared.parked.notify_all();
            self.shared.reads_wanted.notify_all();
            self.shared.leasable.notify_all();
            self.shared.settled.notify_all();
        }
        // Dropping fetched records frees the bytes that threads may be waiting for.
        let fetched_records = self.shared.lock().take_fetched_records();
        drop(fetched_records);
        let threads = std::mem::take(&mut *self.threads());
        for thread in threads {
            // The thread caught its panic and reported it to the consumer.
            let _ = thread.join();
        }
    }

    fn threads(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        // Nothing panics while it is locked.
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this process is a fork of the process that started the threads.
    pub fn is_forked(&self) -> bool {
        std::process::id() != self.process
    }
}

impl<J: Job> std::fmt::Debug for Executor<J> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Executor")
            .field("config", &self.shared.config)
            .finish_non_exhaustive()
    }
}

impl<J: Job> Drop for Executor<J> {
    fn drop(&mut self) {
        if self.is_forked() {
            // The threads live in the parent, so joining them here would never return. A lock that
            // one of them held at the fork stays locked, so nothing shared may be touched.
            std::mem::forget(Arc::clone(&self.shared));
            let threads = self.threads.get_mut();
            let threads = threads.unwrap_or_else(PoisonError::into_inner);
            threads.drain(..).for_each(std::mem::forget);
            return;
        }
        self.shutdown();
        let in_flight_batches = std::mem::take(&mut self.shared.lock().in_flight_batches);
        drop(in_flight_batches);
    }
}
