//! The threads of a run. They claim records in order, then read, make and write them. The calling
//! thread reports progress.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::count::{PackProgress, RunningTotals, Totals};
use super::make::{Maker, PackScratch};
use super::product::Product;
use super::selection::{CLAIM, ROOM_BYTES, RecordSelection};
use infeed_core::error::Error;
use infeed_core::sample::Record;
use infeed_source::walk::{Claims, WalkBudget};
use infeed_source::{RecordResult, damage_error};

/// Time between two calls of `progress`.
const TICK: Duration = Duration::from_millis(100);

/// Time between two checkpoints, which make written data durable.
const CHECKPOINT: Duration = Duration::from_secs(2);

/// Threads in addition to the workers, so that some can wait for storage while others decode.
pub(super) const READERS: usize = 4;

/// Bytes of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RecordBytes {
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
}

/// Destination of finished records. Called by all threads.
pub(super) trait Writer: Sync {
    /// Returns the bytes of a record if it is already complete.
    fn complete_record(&self, position: usize, record: u64) -> Option<RecordBytes>;

    /// Removes the earlier output of a record that is now bad.
    fn leave_out(&self, position: usize, record: u64) -> Result<(), Error>;

    /// Writes the output of a record.
    fn write(&self, position: usize, record: &Record, products: &[Product]) -> Result<u64, Error>;

    /// Makes sure that written data is found after this process has ended.
    fn checkpoint(&self) -> Result<(), Error>;
}

struct RunState {
    next: usize,
    threads: usize,
    counted: RunningTotals,
    stopped: bool,
    /// The failure with the lowest position.
    failed: Option<(usize, Error)>,
    /// Bad records that were left out, by position.
    bad: BTreeMap<usize, Error>,
}

struct SharedRun<'a> {
    maker: &'a Maker<'a>,
    chosen: &'a RecordSelection,
    writer: &'a dyn Writer,
    state: Mutex<RunState>,
    ended: Condvar,
    cores: CorePermits,
    claims: Claims,
    room: WalkBudget,
    max_bad: Option<u64>,
}

/// Result of a run.
pub(super) struct RunResult {
    pub(super) totals: Totals,
    /// Bad records that were left out, by position.
    pub(super) bad: BTreeMap<usize, Error>,
}

/// Packs all chosen records.
///
/// # Errors
///
/// Returns the failure with the lowest position, whatever the timing of the threads. All records
/// before it are finished. Bad records are no failure, unless there are more than `max_bad`.
pub(super) fn run(
    maker: &Maker<'_>,
    chosen: &RecordSelection,
    writer: &dyn Writer,
    (workers, max_bad): (usize, Option<u64>),
    progress: &(dyn Fn(&PackProgress) -> bool + Sync),
) -> Result<RunResult, Error> {
    let total = chosen.len();
    let threads = (workers + workers.min(READERS))
        .min(total.div_ceil(CLAIM) as usize)
        .max(1);
    if !progress(&RunningTotals::default().progress(total)) {
        return Err(Error::Interrupted { done: 0, total });
    }
    let shared = SharedRun {
        maker,
        chosen,
        writer,
        state: Mutex::new(RunState {
            next: 0,
            threads,
            counted: RunningTotals::default(),
            stopped: false,
            failed: None,
            bad: BTreeMap::new(),
        }),
        ended: Condvar::new(),
        cores: CorePermits::new(workers),
        claims: Claims::of(maker.source, CLAIM),
        room: WalkBudget::default(),
        max_bad,
    };
    thread::scope(|scope| {
        let mut started = Vec::with_capacity(threads);
        for number in 0..threads {
            let thread = thread::Builder::new().name(format!("infeed-pack-{number}"));
            match thread.spawn_scoped(scope, || shared.work()) {
                Ok(thread) => started.push(thread),
                Err(error) => {
                    shared.lock().stopped = true;
                    return Err(Error::Thread {
                        source: Arc::new(error),
                    });
                }
            }
        }
        shared.watch(total, progress)?;
        for thread in started {
            thread.join().map_err(|_| Error::Panicked {
                text: "infeed-pack".to_owned(),
            })?;
        }
        Ok(())
    })?;
    let state = shared
        .state
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    writer.checkpoint()?;
    let totals = state.counted.totals;
    match state.failed {
        Some((_, error)) => Err(error),
        None if totals.done < total => Err(Error::Interrupted {
            done: totals.done,
            total,
        }),
        None => {
            progress(&state.counted.progress(total));
            Ok(RunResult {
                totals,
                bad: state.bad,
            })
        }
    }
}

impl SharedRun<'_> {
    fn lock(&self) -> MutexGuard<'_, RunState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports progress until all threads have ended.
    fn watch(
        &self,
        total: u64,
        progress: &(dyn Fn(&PackProgress) -> bool + Sync),
    ) -> Result<(), Error> {
        let mut durable = Instant::now();
        loop {
            let state = self.lock();
            let (mut state, _) = self
                .ended
                .wait_timeout_while(state, TICK, |state| state.threads > 0)
                .unwrap_or_else(PoisonError::into_inner);
            if state.threads == 0 {
                return Ok(());
            }
            let now = state.counted.progress(total);
            drop(state);
            let go_on = progress(&now);
            let due = durable.elapsed() >= CHECKPOINT;
            let kept = if due {
                self.writer.checkpoint()
            } else {
                Ok(())
            };
            if due {
                durable = Instant::now();
            }
            state = self.lock();
            state.stopped |= !go_on || kept.is_err();
            drop(state);
            kept?;
        }
    }

    fn work(&self) {
        // Decrements the count even if this thread panics, so that no thread waits for it.
        let _leaving = RunThreadGuard(self);
        let mut scratch = PackScratch::default();
        while let Some(places) = self.claim() {
            if let Err(failed) = self.pack(places, &mut scratch) {
                let (position, error) = *failed;
                let mut state = self.lock();
                if state
                    .failed
                    .as_ref()
                    .is_none_or(|(first, _)| position < *first)
                {
                    state.failed = Some((position, error));
                }
            }
        }
    }

    fn claim(&self) -> Option<std::ops::Range<usize>> {
        let mut state = self.lock();
        let end = self.chosen.len() as usize;
        if state.stopped || state.failed.is_some() || state.next >= end {
            return None;
        }
        let from = state.next;
        let record = |position| self.chosen.at(position as usize);
        state.next = self.claims.end(from as u64, end as u64, record) as usize;
        Some(from..state.next)
    }

    /// Packs the records of a claim. A failure ends the claim. Claims in progress are finished, and
    /// so are all records before the first failure.
    fn pack(
        &self,
        places: std::ops::Range<usize>,
        scratch: &mut PackScratch,
    ) -> Result<(), Box<(usize, Error)>> {
        let mut missing = Vec::new();
        for position in places {
            let record = self.chosen.at(position);
            match self.writer.complete_record(position, record) {
                Some(moved) => self.count(moved, true),
                None => missing.push((position, record)),
            }
        }
        let source = self.maker.source;
        let run: Vec<u64> = missing.iter().map(|&(_, record)| record).collect();
        let mut reads = source.plan(&run, ROOM_BYTES);
        reads.sort_by_key(|read| read.records.iter().map(|&(at, _)| at).min());
        for read in &reads {
            if self.lock().stopped {
                return Ok(());
            }
            let first = read.records.iter().map(|&(at, _)| at).min().unwrap_or(0);
            let mut records: Vec<(usize, RecordResult)> = Vec::with_capacity(read.records.len());
            // Holds the memory until the records of this read are written. No thread waits for more
            // while it holds.
            let mut held = Vec::new();
            let mut admit = |bytes| self.room.admit(bytes, || false).map(|one| held.push(one));
            let read = source.read(read, &mut admit, &mut |at, found| {
                records.push((at, found));
            });
            records.sort_by_key(|&(at, _)| at);
            for (at, found) in records {
                if self.lock().stopped {
                    return Ok(());
                }
                let (position, record) = missing[at];
                let outcome = found
                    .map_err(|cause| damage_error(source, record, cause))
                    .and_then(|record| self.one(position, &record, scratch));
                if let Err(error) = outcome {
                    self.bad(position, record, error)
                        .map_err(|error| Box::new((position, error)))?;
                }
            }
            read.map_err(|error| Box::new((missing[first].0, error.about(source))))?;
        }
        Ok(())
    }

    fn one(
        &self,
        position: usize,
        record: &Record,
        scratch: &mut PackScratch,
    ) -> Result<(), Error> {
        let core = self.cores.take();
        let products = self.maker.make(record, scratch)?;
        drop(core);
        let bytes_out = self.writer.write(position, record, &products)?;
        let bytes_in = record.fields.iter().map(|bytes| bytes.len() as u64).sum();
        let moved = RecordBytes {
            bytes_in,
            bytes_out,
        };
        self.count(moved, false);
        Ok(())
    }

    fn count(&self, moved: RecordBytes, reused: bool) {
        let mut state = self.lock();
        state.counted.one(moved.bytes_in, moved.bytes_out);
        state.counted.totals.reused += u64::from(reused);
    }

    /// Leaves out a bad record, unless there are too many or the error is not about a record.
    fn bad(&self, position: usize, record: u64, error: Error) -> Result<(), Error> {
        if !error.is_bad_record() {
            return Err(error);
        }
        self.lock().counted.bad(&error, self.max_bad)?;
        self.writer.leave_out(position, record)?;
        self.lock().bad.insert(position, error);
        Ok(())
    }
}

/// Decrements the thread count when a thread ends.
struct RunThreadGuard<'a>(&'a SharedRun<'a>);

impl Drop for RunThreadGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.threads -= 1;
        state.stopped |= thread::panicking();
        self.0.ended.notify_all();
    }
}

/// A semaphore with one permit per worker. The other threads wait for storage.
pub(super) struct CorePermits {
    free: Mutex<usize>,
    changed: Condvar,
}

/// A permit that is returned on drop.
pub(super) struct HeldPermit<'a>(&'a CorePermits);

impl CorePermits {
    pub(super) fn new(workers: usize) -> CorePermits {
        CorePermits {
            free: Mutex::new(workers),
            changed: Condvar::new(),
        }
    }

    pub(super) fn take(&self) -> HeldPermit<'_> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free = self
            .changed
            .wait_while(free, |free| *free == 0)
            .unwrap_or_else(PoisonError::into_inner);
        *free -= 1;
        HeldPermit(self)
    }
}

impl Drop for HeldPermit<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.changed.notify_one();
    }
}
