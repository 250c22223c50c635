//! The executor: turns positions in order into filled batches in order, on threads.
//!
//! It knows positions and rows, not samples. The [`Job`] defines how a read runs and how a row is
//! filled. I/O threads perform reads and may block on storage; workers fill rows and never wait for
//! storage. The protocol (turns, in-flight batches, waits) is described in this folder's README.

pub mod budget;
mod cores;
pub mod lease;
mod readers;
mod state;
#[cfg(test)]
mod tests;
mod workers;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use budget::{Budget, BudgetError, BytePool, Permit};

use crate::stop::Stop;

/// Sequence number of a position in the order of this rank. It continues across epochs.
pub type Sequence = u64;

/// The work of an executor. The loader implements it with records, the tests with integers.
///
/// Threads call the methods concurrently and in any order, so no method may depend on the order of
/// calls.
pub trait Job: Send + Sync + Sized + 'static {
    /// One read to perform. It can fetch the data of several sequence numbers.
    type Read: Send;
    /// Data that a read returns for one sequence number. It owns the permit for its bytes, so
    /// dropping it releases them.
    type Fetched: Send;
    /// A batch being filled. Dropping it after its rows must free or recycle its memory.
    type InFlight: Send;
    /// The row of one sequence number in an in-flight batch.
    type Row: Send;
    /// Result of filling a row, in addition to the bytes in the row.
    type Done: Send;
    /// A finished batch.
    type Batch: Send;
    /// Scratch of one worker.
    type Scratch;
    /// Reason why a sequence number or an in-flight batch failed.
    type Fault: Send + Clone;

    /// Returns the in-flight batch and the row of a sequence number.
    fn place(&self, sequence: Sequence) -> RowLocation;

    /// Returns the first sequence number of an in-flight batch.
    fn first(&self, in_flight: u64) -> Sequence;

    /// Plans reads for the next sequence numbers, from `from` up to at most `until` (exclusive).
    ///
    /// # Errors
    ///
    /// The consumer receives the fault when it reaches this sequence number. Nothing later is
    /// planned.
    fn plan(&self, from: Sequence, until: Sequence) -> Result<ReadRun<Self::Read>, Self::Fault>;

    /// Performs a read, on an I/O thread. It must reserve bytes with `gate` before it allocates
    /// them. If the reservation fails because the budget is closed, it may return any result: the
    /// executor discards it.
    fn read(&self, read: Self::Read, gate: MemoryReservation<'_>)
    -> Vec<(Sequence, Self::Fetched)>;

    /// Combines the results of several reads for one sequence number. `waiting` arrived earlier and
    /// was incomplete; `arrived` is new. Runs under the executor's lock, so it must not drop either
    /// of them (dropping a permit takes another lock).
    fn join(
        &self,
        waiting: Option<Self::Fetched>,
        arrived: Self::Fetched,
    ) -> JoinedReads<Self::Fetched> {
        drop(waiting);
        JoinedReads::Whole(arrived)
    }

    /// Whether a row is expected to take much longer than others. Workers fill such rows first, so
    /// that a batch does not wait for its last row. Runs under the executor's lock.
    fn is_expensive(&self, _fetched: &Self::Fetched) -> bool {
        false
    }

    /// Opens an in-flight batch: its memory and one row for each of its sequence numbers.
    ///
    /// # Errors
    ///
    /// The fault becomes the result of the in-flight batch.
    fn open(&self, in_flight: u64) -> Result<OpenedBatch<Self>, Self::Fault>;

    /// Creates the scratch of a worker.
    fn scratch(&self) -> Self::Scratch;

    /// Fills one row, on a worker.
    fn fill(
        &self,
        sequence: Sequence,
        fetched: Self::Fetched,
        row: &mut Self::Row,
        scratch: &mut Self::Scratch,
    ) -> FillOutcome<Self>;

    /// Finishes a batch. Its rows are filled or failed and already dropped; `rows` holds their
    /// results in row order.
    ///
    /// # Errors
    ///
    /// The consumer receives the fault instead of the batch, on every call until a reset.
    fn close(
        &self,
        in_flight: Self::InFlight,
        rows: Vec<Result<Self::Done, Self::Fault>>,
    ) -> Result<Self::Batch, Self::Fault>;
}

/// A newly opened in-flight batch and one row for each of its sequence numbers.
pub type OpenedBatch<J> = (<J as Job>::InFlight, Vec<<J as Job>::Row>);

/// Location of a sequence number's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowLocation {
    /// Number of the in-flight batch. It continues across epochs.
    pub in_flight: u64,
    /// Row in the in-flight batch.
    pub row: usize,
}

/// A run of planned sequence numbers and their reads.
#[derive(Debug)]
pub struct ReadRun<R> {
    /// One past the last sequence number of the run.
    pub end: Sequence,
    /// Reads with the first sequence number that each fetches, sorted by it.
    pub reads: Vec<(Sequence, R)>,
}

/// Result of combining the reads of one sequence number.
pub enum JoinedReads<P> {
    /// Complete: the row can be filled.
    Whole(P),
    /// Incomplete: the result of another read is missing.
    Part(P),
}

/// Result of filling a row.
pub enum FillOutcome<J: Job> {
    /// The row is filled.
    Done(J::Done),
    /// The row needs another read. The sequence number is filled again with its result.
    Again(J::Read),
    /// The row failed.
    Failed(J::Fault),
}

/// Memory reservation of a read, requested once the read knows its size.
#[derive(Debug)]
pub struct MemoryReservation<'a> {
    way: ReservationSource<'a>,
}

#[derive(Debug)]
enum ReservationSource<'a> {
    InTurn {
        budget: &'a Budget,
        turn: Option<u64>,
    },
    Spare(&'a BytePool),
}

impl MemoryReservation<'_> {
    /// Waits until `bytes` are reserved.
    ///
    /// # Errors
    ///
    /// As [`Budget::admit`].
    pub fn admit(mut self, bytes: u64) -> Result<Permit, BudgetError> {
        match &mut self.way {
            ReservationSource::Spare(pool) => pool.take(bytes),
            ReservationSource::InTurn { budget, turn } => {
                let number = turn.take().expect("a reservation is used once");
                let answer = budget.admit(number, bytes);
                if answer.is_err() {
                    budget.pass(number);
                }
                answer
            }
        }
    }
}

impl Drop for MemoryReservation<'_> {
    fn drop(&mut self) {
        if let ReservationSource::InTurn {
            budget,
            turn: Some(turn),
        } = self.way
        {
            budget.pass(turn);
        }
    }
}

/// Limits of an executor.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Number of worker threads, which is the most that can ever work at once.
    pub workers: usize,
    /// Number of workers that work from the start; see [`Executor::set_workers`].
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
    /// Bytes reserved for reads out of turn ([`FillOutcome::Again`]).
    pub spare_bytes: u64,
    /// In-flight batches that the local threads fill.
    pub taking: BatchChoice,
}

/// Selects the in-flight batches that the local threads of an executor fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchChoice {
    /// All, in order, without end.
    All,
    /// The number requested with [`Executor::ask`].
    Asked,
    /// Those that no lease took first, see [`lease::BatchLeases`].
    Shared {
        /// Most batches of the local threads at once; can be 0.
        own: usize,
    },
}

/// Time that threads spent blocked, in nanoseconds, summed over the threads of a kind.
#[derive(Debug, Default)]
pub struct WaitTimes {
    /// Workers waited for a fetched record: reading is the limit.
    pub starved_ns: AtomicU64,
    /// Workers had fetched records but no batch that may be open: the consumer is the limit.
    pub blocked_ns: AtomicU64,
    /// I/O threads had nothing to read: they are far enough ahead.
    pub readers_idle_ns: AtomicU64,
}

/// Work of the workers, summed over all of them.
#[derive(Debug, Default)]
pub struct WorkerTotals {
    /// Rows filled or failed.
    pub rows: AtomicU64,
    /// Time inside [`Job::fill`] and [`Job::close`], in nanoseconds.
    pub busy_ns: AtomicU64,
}

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
    pub fetched_records: usize,
    /// Leased batches that are not finished.
    pub away: usize,
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
    shared: Arc<ExecutorShared<J>>,
    /// Threads that are not joined yet.
    threads: Mutex<Vec<JoinHandle<()>>>,
    process: u32,
    cores: cores::Registration,
}

struct ExecutorShared<J: Job> {
    job: J,
    config: Config,
    budget: Budget,
    spare: BytePool,
    waits: WaitTimes,
    work: WorkerTotals,
    /// Stops reads that wait for storage when their results are no longer needed.
    stop: Stop,
    state: Mutex<ExecutorState<J>>,
    reads_wanted: Condvar,
    work_wanted: Condvar,
    /// Workers without permission to work wait here, not at `work_wanted`. Otherwise a wake-up for
    /// one worker could reach a worker that may not work.
    parked: Condvar,
    settled: Condvar,
    /// Threads that lease batches wait here.
    lend_wanted: Condvar,
}

struct ExecutorState<J: Job> {
    /// False once the executor is dropped.
    running: bool,
    /// True while a reset waits for threads to leave job code.
    paused: bool,
    /// Incremented by every reset. Results of an older generation are discarded.
    generation: u64,
    /// Threads inside job code.
    busy: usize,
    /// First sequence number not planned yet.
    planned: Sequence,
    /// End of the sequence numbers that the local threads may plan. `Sequence::MAX` if they fill
    /// all batches.
    until: Sequence,
    /// First in-flight batch that neither the local threads nor a lease has taken. Unused with
    /// [`BatchChoice::All`].
    untaken: u64,
    /// End of the requested batches.
    asked: u64,
    /// Returned leases by batch number. True if only the local threads may take the batch.
    returned: BTreeMap<u64, bool>,
    /// Number of unfinished batches of the local threads, and the most allowed.
    own: usize,
    own_most: usize,
    planning: bool,
    plan_fault: Option<(Sequence, J::Fault)>,
    /// Planned reads that have not started, with the first sequence number of each.
    reads: VecDeque<(Sequence, J::Read)>,
    /// Reads out of turn.
    urgent: VecDeque<J::Read>,
    /// Turn of the next read in order.
    turn: u64,
    /// Reads in order in progress.
    in_turn: usize,
    /// Fetched records that no worker has claimed.
    fetched_records: BTreeMap<Sequence, J::Fetched>,
    /// Those whose rows are expensive.
    expensive: BTreeSet<Sequence>,
    /// Fetched records that wait for the result of another read.
    parts: HashMap<Sequence, J::Fetched>,
    /// Number of the oldest in-flight batch, `in_flight_batches[0]`.
    front: u64,
    in_flight_batches: VecDeque<InFlightState<J>>,
    broken: Option<String>,
    /// Workers with a lower number may work.
    working: usize,
    idle_workers: usize,
    idle_readers: usize,
}

enum InFlightState<J: Job> {
    /// The local threads will open it.
    Waiting,
    /// Leased, see [`lease`].
    Away(lease::LeaseState),
    Filling(BatchInWork<J>),
    /// A worker is finishing the batch.
    Closing,
    Ready(Result<J::Batch, J::Fault>),
}

struct BatchInWork<J: Job> {
    in_flight: J::InFlight,
    /// Rows that no worker has claimed.
    rows: Vec<Option<J::Row>>,
    outcomes: Vec<Option<Result<J::Done, J::Fault>>>,
    missing: usize,
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
            BatchChoice::All | BatchChoice::Asked => usize::MAX,
            BatchChoice::Shared { own } => own,
        };
        let working = config.working.clamp(1, config.workers.max(1));
        let shared = Arc::new(ExecutorShared {
            budget: Budget::new(config.fetched_bytes),
            spare: BytePool::new(config.spare_bytes),
            waits: WaitTimes::default(),
            work: WorkerTotals::default(),
            stop: Stop::default(),
            state: Mutex::new(ExecutorState::new(
                in_flight,
                first,
                own_most,
                config.taking,
                working,
            )),
            reads_wanted: Condvar::new(),
            work_wanted: Condvar::new(),
            parked: Condvar::new(),
            settled: Condvar::new(),
            lend_wanted: Condvar::new(),
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
        ExecutorSnapshot {
            workers: state.working,
            idle_workers: state.idle_workers,
            reading: state.in_turn,
            fetched_records: state.fetched_records.len(),
            away: state
                .in_flight_batches
                .iter()
                .filter(|in_flight| matches!(in_flight, InFlightState::Away(_)))
                .count(),
        }
    }

    /// Requests this number of additional batches. Only for [`BatchChoice::Asked`].
    pub fn ask(&self, in_flight_batches: u64) {
        let mut state = self.shared.lock();
        state.asked = state.asked.saturating_add(in_flight_batches);
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
            self.shared.wake_all(&state);
            drop(state);
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
            let woken = shared.settled.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        };
        if matches!(next, NextBatch::Batch(_)) {
            shared.wake_all(&state);
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
            state = shared
                .settled
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
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
        shared.lend_wanted.notify_all();
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
            self.shared.lend_wanted.notify_all();
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

impl<J: Job> ExecutorShared<J> {
    fn lock(&self) -> MutexGuard<'_, ExecutorState<J>> {
        // Job code runs outside the lock and its panics are caught, so the state is consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_all(&self, state: &ExecutorState<J>) {
        if state.idle_workers > 0 {
            self.work_wanted.notify_all();
        }
        if state.idle_readers > 0 {
            self.reads_wanted.notify_all();
        }
        self.lend_wanted.notify_all();
    }

    /// Locks the state after job code. The flag is false if a reset came or the executor ended in
    /// the meantime: the caller must discard its result.
    fn come_back(&self, generation: u64) -> (MutexGuard<'_, ExecutorState<J>>, bool) {
        let mut state = self.lock();
        state.busy -= 1;
        let current = state.generation == generation && state.running;
        if state.paused && state.busy == 0 {
            self.settled.notify_all();
        }
        (state, current)
    }

    /// Records that job code panicked and wakes the consumer.
    fn report_panic(&self, panic: &(dyn std::any::Any + Send)) {
        let text = panic_text(panic);
        let mut state = self.lock();
        state.broken = Some(text);
        self.settled.notify_all();
    }
}

/// Returns the name of the calling thread and its panic message.
pub fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned());
    let thread = thread::current();
    format!("{}: {text}", thread.name().unwrap_or("a thread"))
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
