//! The conveyor: positions in order to filled batches in order, on threads.
//!
//! It knows positions and slots, not samples: what a read brings and how a row is filled is the
//! [`Job`]'s. I/O threads read and may block on storage; workers fill rows and never do. The
//! protocol (turns, trays, what may wait for what) is in this folder's README.

pub mod budget;
mod cores;
pub mod lend;
mod readers;
mod state;
#[cfg(test)]
mod tests;
mod workers;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use budget::{Budget, Permit, Pool, Refused};

use crate::stop::Stop;

/// Number of a position in the order of this rank, counted on from epoch to epoch.
pub type Ticket = u64;

/// What a conveyor carries. The loader implements it with records; the tests, with integers.
///
/// Methods run on any thread, several at once; none may depend on which came first.
pub trait Job: Send + Sync + Sized + 'static {
    /// One read to be issued; it may bring several tickets.
    type Read: Send;
    /// What a read brings for one ticket. Holds its permit, so that dropping it frees the bytes.
    type Parcel: Send;
    /// A batch being filled. Dropping it once its rows are dropped must free or recycle its memory.
    type Tray: Send;
    /// A ticket's own place in a tray.
    type Row: Send;
    /// What filling a row leaves besides the row.
    type Done: Send;
    /// A finished batch.
    type Batch: Send;
    /// Working memory of one worker.
    type Scratch;
    /// Why a ticket or tray failed.
    type Fault: Send + Clone;

    /// The tray that holds a ticket, and its row there.
    fn place(&self, ticket: Ticket) -> Place;

    /// First ticket of a tray.
    fn first(&self, tray: u64) -> Ticket;

    /// Plans the reads of the next run of tickets, beginning with `from` and of none from `until` on.
    ///
    /// # Errors
    ///
    /// A fault is given to the consumer when it comes to this ticket; nothing later is planned.
    fn plan(&self, from: Ticket, until: Ticket) -> Result<Run<Self::Read>, Self::Fault>;

    /// Performs a read, on an I/O thread. Bytes are asked of the gate before they are allocated.
    /// A refusal because the gate closed may return whatever is at hand; it is thrown away.
    fn read(&self, read: Self::Read, gate: Gate<'_>) -> Vec<(Ticket, Self::Parcel)>;

    /// Puts together what several reads brought for one ticket: `waiting` came before and was not
    /// all of it. Neither is dropped here.
    fn join(&self, waiting: Option<Self::Parcel>, come: Self::Parcel) -> Joined<Self::Parcel> {
        drop(waiting);
        Joined::Whole(come)
    }

    /// Begins a tray: its memory and one row for each of its tickets.
    ///
    /// # Errors
    ///
    /// A fault becomes the tray's result.
    fn open(&self, tray: u64) -> Result<Opened<Self>, Self::Fault>;

    /// Makes a worker's working memory.
    fn scratch(&self) -> Self::Scratch;

    /// Fills one row, on a worker.
    fn fill(
        &self,
        ticket: Ticket,
        parcel: Self::Parcel,
        row: &mut Self::Row,
        scratch: &mut Self::Scratch,
    ) -> Filled<Self>;

    /// Makes the batch of a tray whose rows are filled or failed (in row order) and dropped.
    ///
    /// # Errors
    ///
    /// A fault is given to the consumer in the batch's place, each time it asks.
    fn close(
        &self,
        tray: Self::Tray,
        rows: Vec<Result<Self::Done, Self::Fault>>,
    ) -> Result<Self::Batch, Self::Fault>;
}

/// A tray just begun, and a row for each of its tickets.
pub type Opened<J> = (<J as Job>::Tray, Vec<<J as Job>::Row>);

/// Where a ticket goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number of the tray, counted on from epoch to epoch.
    pub tray: u64,
    /// Row in the tray.
    pub row: usize,
}

/// A run of planned tickets.
#[derive(Debug)]
pub struct Run<R> {
    /// One past the last ticket of the run.
    pub end: Ticket,
    /// Its reads with the first ticket each brings, in the order of those.
    pub reads: Vec<(Ticket, R)>,
}

/// A parcel after another read brought something for its ticket.
pub enum Joined<P> {
    /// The row can be filled.
    Whole(P),
    /// Another read has to come.
    Part(P),
}

/// What became of a row.
pub enum Filled<J: Job> {
    /// It is filled.
    Done(J::Done),
    /// It needs another read first; the ticket comes back with what that brings.
    Again(J::Read),
    /// It failed.
    Failed(J::Fault),
}

/// Leave to hold bytes, to be asked for once a read knows how many.
#[derive(Debug)]
pub struct Gate<'a> {
    way: Way<'a>,
}

#[derive(Debug)]
enum Way<'a> {
    InTurn {
        budget: &'a Budget,
        turn: Option<u64>,
    },
    Spare(&'a Pool),
}

impl Gate<'_> {
    /// Waits until `bytes` may be held.
    ///
    /// # Errors
    ///
    /// As [`Budget::admit`].
    pub fn admit(mut self, bytes: u64) -> Result<Permit, Refused> {
        match &mut self.way {
            Way::Spare(pool) => pool.take(bytes),
            Way::InTurn { budget, turn } => {
                let number = turn.take().expect("a gate is consumed by its only use");
                let answer = budget.admit(number, bytes);
                if answer.is_err() {
                    budget.pass(number);
                }
                answer
            }
        }
    }
}

impl Drop for Gate<'_> {
    fn drop(&mut self) {
        if let Way::InTurn {
            budget,
            turn: Some(turn),
        } = self.way
        {
            budget.pass(turn);
        }
    }
}

/// Sizes of a conveyor.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Worker threads there are: the most that may ever work at once.
    pub workers: usize,
    /// Of them, those that work from the start; see [`Conveyor::set_workers`].
    pub working: usize,
    /// Reads in order that may be under way at once. There is one I/O thread more, which is never
    /// among those that wait for the budget.
    pub readers: usize,
    /// Trays between the first row begun and the consumer, at least 2.
    pub trays: usize,
    /// Tickets beyond the front of the oldest tray that may be read.
    pub ahead: u64,
    /// Bytes of parcels at rest, granted in turn.
    pub parcel_bytes: u64,
    /// Bytes set aside for reads out of turn ([`Filled::Again`]).
    pub spare_bytes: u64,
    /// Which trays its own threads fill.
    pub taking: Taking,
}

/// Which trays the threads of a conveyor fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taking {
    /// All, one after the other, for ever.
    All,
    /// As many as were asked for, see [`Conveyor::ask`].
    Asked,
    /// Those that nobody else took before, see [`lend::Lender`]: at most so many at once.
    Shared {
        /// How many; none is allowed.
        own: usize,
    },
}

/// Time threads spent blocked, in nanoseconds, summed over the threads of a kind.
#[derive(Debug, Default)]
pub struct Waits {
    /// Workers without a parcel: reading is behind.
    pub starved_ns: AtomicU64,
    /// Workers with parcels but no tray to fill: the consumer is behind.
    pub blocked_ns: AtomicU64,
    /// I/O threads with nothing to read: far enough ahead.
    pub readers_idle_ns: AtomicU64,
}

/// What workers did, summed over all of them.
#[derive(Debug, Default)]
pub struct Work {
    /// Rows filled or failed.
    pub rows: AtomicU64,
    /// Time inside [`Job::fill`] and [`Job::close`], in nanoseconds.
    pub busy_ns: AtomicU64,
}

/// Who is at work and who waits, at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Situation {
    /// Workers that may work.
    pub workers: usize,
    /// Of them, those that have nothing to do.
    pub idle_workers: usize,
    /// Reads in order under way.
    pub reading: usize,
    /// What was read and not begun.
    pub parcels: usize,
    /// Trays that are being filled elsewhere.
    pub away: usize,
}

/// What the consumer got.
#[derive(Debug)]
pub enum Next<B, F> {
    /// The next batch.
    Batch(B),
    /// The fault in its place; it stays there until a reset.
    Fault(F),
    /// Nothing yet.
    Timeout,
    /// A thread of the conveyor panicked; the text says where.
    Broken(String),
    /// This process is a fork of the one that opened the conveyor: its threads are not here.
    Forked,
}

/// A running conveyor. Dropping it joins its threads.
pub struct Conveyor<J: Job> {
    shared: Arc<Shared<J>>,
    threads: Vec<JoinHandle<()>>,
    process: u32,
    cores: cores::Registration,
}

struct Shared<J: Job> {
    job: J,
    config: Config,
    budget: Budget,
    spare: Pool,
    waits: Waits,
    work: Work,
    /// Ends reads that wait for a storage when their results are not wanted any more.
    stop: Stop,
    state: Mutex<State<J>>,
    reads_wanted: Condvar,
    work_wanted: Condvar,
    /// Where workers wait that may not work. They are never among those that `work_wanted` wakes,
    /// so that a call for one worker does not go to one that has to decline.
    parked: Condvar,
    settled: Condvar,
    /// Where those wait who fill trays elsewhere.
    lend_wanted: Condvar,
}

struct State<J: Job> {
    /// False once the conveyor is dropped.
    running: bool,
    /// True while a reset waits for threads to come back from job code.
    paused: bool,
    /// Raised by every reset; work of an older one is thrown away.
    generation: u64,
    /// Threads inside job code.
    busy: usize,
    /// First ticket not planned yet.
    planned: Ticket,
    /// Ends what the own threads took and have to plan. Beyond all tickets where they fill all.
    until: Ticket,
    /// First tray that nobody took, where trays are taken one by one.
    untaken: u64,
    /// Trays from here on are not asked for.
    asked: u64,
    /// Trays that were taken to be filled elsewhere and came back, and whether the own threads alone
    /// may have them.
    returned: BTreeMap<u64, bool>,
    /// Trays that the own threads took and have not finished, and how many those may be.
    own: usize,
    own_most: usize,
    planning: bool,
    plan_fault: Option<(Ticket, J::Fault)>,
    /// Reads planned and not begun, by first ticket.
    reads: VecDeque<(Ticket, J::Read)>,
    /// Reads out of turn.
    urgent: VecDeque<J::Read>,
    /// Turn of the next read in order.
    turn: u64,
    /// Reads in order under way.
    in_turn: usize,
    /// Read and not begun.
    parcels: BTreeMap<Ticket, J::Parcel>,
    /// Those of which another read has not come yet.
    parts: HashMap<Ticket, J::Parcel>,
    /// Number of the oldest tray, `trays[0]`.
    front: u64,
    trays: VecDeque<TrayState<J>>,
    broken: Option<String>,
    /// Workers of a lower number may work.
    working: usize,
    idle_workers: usize,
    idle_readers: usize,
}

enum TrayState<J: Job> {
    /// The own threads will begin it.
    Waiting,
    /// It is filled elsewhere, see [`lend`].
    Away(lend::Away),
    Filling(Filling<J>),
    /// A worker is making the batch.
    Closing,
    Ready(Result<J::Batch, J::Fault>),
}

struct Filling<J: Job> {
    tray: J::Tray,
    /// Rows nobody works on.
    rows: Vec<Option<J::Row>>,
    outcomes: Vec<Option<Result<J::Done, J::Fault>>>,
    missing: usize,
}

impl<J: Job> Conveyor<J> {
    /// Starts the threads; the first tray is `tray`.
    ///
    /// # Errors
    ///
    /// If a thread cannot be started; those that were are joined.
    pub fn start(job: J, config: Config, tray: u64) -> std::io::Result<Conveyor<J>> {
        let first = job.first(tray);
        let own_most = match config.taking {
            Taking::All | Taking::Asked => usize::MAX,
            Taking::Shared { own } => own,
        };
        let working = config.working.clamp(1, config.workers.max(1));
        let shared = Arc::new(Shared {
            budget: Budget::new(config.parcel_bytes),
            spare: Pool::new(config.spare_bytes),
            waits: Waits::default(),
            work: Work::default(),
            stop: Stop::default(),
            state: Mutex::new(State::new(tray, first, own_most, config.taking, working)),
            reads_wanted: Condvar::new(),
            work_wanted: Condvar::new(),
            parked: Condvar::new(),
            settled: Condvar::new(),
            lend_wanted: Condvar::new(),
            job,
            config,
        });
        let mut conveyor = Conveyor {
            shared,
            threads: Vec::new(),
            process: std::process::id(),
            cores: cores::Registration::new(working),
        };
        // One more than may read in order: see "Admission" in the README.
        for n in 0..=config.readers {
            conveyor.spawn(format!("infeed-read-{n}"), n, |shared, _| {
                readers::run(shared);
            })?;
        }
        for n in 0..config.workers {
            conveyor.spawn(format!("infeed-work-{n}"), n, workers::run)?;
        }
        Ok(conveyor)
    }

    fn spawn(
        &mut self,
        name: String,
        number: usize,
        body: fn(&Shared<J>, usize),
    ) -> std::io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let thread = thread::Builder::new().name(name);
        self.threads.push(thread.spawn(move || {
            infeed_raw::machine::never_preempt();
            shared.stop.watch_here();
            body(&shared, number);
        })?);
        Ok(())
    }

    /// How many workers may work.
    pub fn workers(&self) -> usize {
        self.shared.lock().working
    }

    /// Lets `workers` work from now on, at least one and at most [`Config::workers`]. One that
    /// has to stop finishes its rows before, so for their length there may be more.
    ///
    /// Changes nothing about order or bits: which worker fills a row never does.
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
            // Those that wait for work and may not have any go and park, see `parked`.
            self.shared.work_wanted.notify_all();
        }
    }

    /// What it carries.
    pub fn job(&self) -> &J {
        &self.shared.job
    }

    /// Its sizes.
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// Time its threads and its consumer spent blocked.
    pub fn waits(&self) -> &Waits {
        &self.shared.waits
    }

    /// What its workers did.
    pub fn work(&self) -> &Work {
        &self.shared.work
    }

    /// Bytes of parcels held now, and the most that ever were.
    pub fn parcel_bytes(&self) -> (u64, u64) {
        (
            self.shared.budget.used_bytes(),
            self.shared.budget.peak_bytes(),
        )
    }

    /// Batches that are ready and not taken.
    pub fn ready(&self) -> usize {
        let state = self.shared.lock();
        state
            .trays
            .iter()
            .filter(|tray| matches!(tray, TrayState::Ready(Ok(_))))
            .count()
    }

    /// Who is at work and who waits.
    pub fn situation(&self) -> Situation {
        let state = self.shared.lock();
        Situation {
            workers: state.working,
            idle_workers: state.idle_workers,
            reading: state.in_turn,
            parcels: state.parcels.len(),
            away: state
                .trays
                .iter()
                .filter(|tray| matches!(tray, TrayState::Away(_)))
                .count(),
        }
    }

    /// Asks for so many trays more, where it fills those that are asked for.
    pub fn ask(&self, trays: u64) {
        let mut state = self.shared.lock();
        state.asked = state.asked.saturating_add(trays);
        self.shared.reads_wanted.notify_all();
    }

    /// Leaves out the front tray where it has a fault, and goes on behind it.
    pub fn pass_over(&self) {
        let mut state = self.shared.lock();
        if let Some(fault) = state
            .trays
            .pop_front_if(|tray| matches!(tray, TrayState::Ready(Err(_))))
        {
            state.front += 1;
            self.shared.wake_all(&state);
            drop(state);
            drop(fault);
        }
    }

    /// For those who fill trays of it elsewhere.
    pub fn lender(&self) -> lend::Lender<J> {
        lend::Lender::new(Arc::clone(&self.shared))
    }

    /// Number of the tray that the consumer gets next.
    pub fn front(&self) -> u64 {
        self.shared.lock().front
    }

    /// The next batch, in order; waits for it at most `patience`.
    pub fn next(&self, patience: Duration) -> Next<J::Batch, J::Fault> {
        if self.is_forked() {
            return Next::Forked;
        }
        let shared = &*self.shared;
        let begun = Instant::now();
        let mut state = shared.lock();
        let next = loop {
            if let Some(text) = &state.broken {
                break Next::Broken(text.clone());
            }
            match state.trays.front() {
                Some(TrayState::Ready(Err(fault))) => break Next::Fault(fault.clone()),
                Some(TrayState::Ready(Ok(_))) => {
                    let Some(TrayState::Ready(Ok(batch))) = state.trays.pop_front() else {
                        unreachable!("matched above, under the same lock");
                    };
                    state.front += 1;
                    break Next::Batch(batch);
                }
                _ => {}
            }
            if let Some((ticket, fault)) = &state.plan_fault
                && shared.job.place(*ticket).tray == state.front
            {
                break Next::Fault(fault.clone());
            }
            let Some(left) = patience
                .checked_sub(begun.elapsed())
                .filter(|t| !t.is_zero())
            else {
                break Next::Timeout;
            };
            let woken = shared.settled.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        };
        if matches!(next, Next::Batch(_)) {
            shared.wake_all(&state);
        }
        next
    }

    /// Throws away what is under way and goes on at `tray`. When it returns, nothing of the old
    /// work is held any more.
    pub fn reset(&self, tray: u64) {
        if self.is_forked() {
            return;
        }
        let shared = &*self.shared;
        let mut state = shared.lock();
        state.generation += 1;
        state.paused = true;
        state.reads.clear();
        state.urgent.clear();
        let parcels = state.take_parcels();
        shared.budget.close();
        shared.stop.wish();
        drop(state);
        drop(parcels);

        let mut state = shared.lock();
        while state.busy > 0 {
            state = shared
                .settled
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        let trays = std::mem::take(&mut state.trays);
        drop(state);
        drop(trays);

        let mut state = shared.lock();
        state.begin_at(tray, shared.job.first(tray), shared.config.taking);
        state.turn = 0;
        shared.budget.reopen(0);
        shared.stop.withdraw();
        state.paused = false;
        shared.work_wanted.notify_all();
        shared.reads_wanted.notify_all();
        shared.lend_wanted.notify_all();
    }

    /// Whether this process is a fork of the one that started the threads.
    pub fn is_forked(&self) -> bool {
        std::process::id() != self.process
    }
}

impl<J: Job> std::fmt::Debug for Conveyor<J> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Conveyor")
            .field("config", &self.shared.config)
            .finish_non_exhaustive()
    }
}

impl<J: Job> Drop for Conveyor<J> {
    fn drop(&mut self) {
        if self.is_forked() {
            // The threads live in the parent; joining them here would wait for ever. A lock one
            // of them held at the fork stays locked, so nothing shared may be touched either.
            std::mem::forget(Arc::clone(&self.shared));
            self.threads.drain(..).for_each(std::mem::forget);
            return;
        }
        {
            let mut state = self.shared.lock();
            state.running = false;
            state.generation += 1;
            self.shared.budget.close();
            self.shared.stop.wish();
            self.shared.work_wanted.notify_all();
            self.shared.parked.notify_all();
            self.shared.reads_wanted.notify_all();
            self.shared.lend_wanted.notify_all();
        }
        // Threads waiting for spare bytes are let on when the parcels that hold them go.
        let parcels = self.shared.lock().take_parcels();
        drop(parcels);
        for thread in self.threads.drain(..) {
            // A panic was caught where it happened and reported to the consumer.
            let _ = thread.join();
        }
        let trays = std::mem::take(&mut self.shared.lock().trays);
        drop(trays);
    }
}

impl<J: Job> Shared<J> {
    fn lock(&self) -> MutexGuard<'_, State<J>> {
        // Job code runs outside the lock, and its panics are caught, so the state is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_all(&self, state: &State<J>) {
        if state.idle_workers > 0 {
            self.work_wanted.notify_all();
        }
        if state.idle_readers > 0 {
            self.reads_wanted.notify_all();
        }
        self.lend_wanted.notify_all();
    }

    /// Leaves job code: throws the result away if a reset came meanwhile.
    fn come_back(&self, generation: u64) -> (MutexGuard<'_, State<J>>, bool) {
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
        let text = told_by(panic);
        let mut state = self.lock();
        state.broken = Some(text);
        self.settled.notify_all();
    }
}

/// The calling thread, and what it panicked with.
pub(crate) fn told_by(panic: &(dyn std::any::Any + Send)) -> String {
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
