//! The threads: records are claimed in order, read, made and written; the calling thread tells of
//! the progress.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::chosen::{CLAIM, Chosen, ROOM_BYTES};
use super::count::{Counted, Progress, Totals};
use super::make::{Bench, Maker, Product};
use crate::error::Error;
use crate::sample::Record;
use crate::source::walk::{Claims, Room};
use crate::source::{Found, damaged};

/// Time between two calls of `progress`.
const TICK: Duration = Duration::from_millis(100);

/// Time between two moments at which what was written is made durable.
const CHECKPOINT: Duration = Duration::from_secs(2);

/// Threads beyond the workers, so that some wait for storage while others decode.
pub(super) const READERS: usize = 4;

/// Bytes of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Moved {
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
}

/// Where finished records go; called by all threads.
pub(super) trait Writer: Sync {
    /// What there is of a record already, if that is all of it.
    fn found(&self, place: usize, record: u64) -> Option<Moved>;

    /// Removes what an earlier run wrote of a record that is bad now.
    fn leave_out(&self, place: usize, record: u64) -> Result<(), Error>;

    /// Writes what was made of a record.
    fn write(&self, place: usize, record: &Record, products: &[Product]) -> Result<u64, Error>;

    /// Makes sure that what was written is found again after this process has ended.
    fn checkpoint(&self) -> Result<(), Error>;
}

struct State {
    next: usize,
    threads: usize,
    counted: Counted,
    stopped: bool,
    /// The first that failed, by place.
    failed: Option<(usize, Error)>,
    /// Those that were left out, by place.
    bad: BTreeMap<usize, Error>,
}

struct Shared<'a> {
    maker: &'a Maker<'a>,
    chosen: &'a Chosen,
    writer: &'a dyn Writer,
    state: Mutex<State>,
    ended: Condvar,
    cores: Cores,
    claims: Claims,
    room: Room,
    max_bad: Option<u64>,
}

/// What became of the records.
pub(super) struct Ran {
    pub(super) totals: Totals,
    /// Those that were left out, by place.
    pub(super) bad: BTreeMap<usize, Error>,
}

/// Packs all chosen records.
///
/// # Errors
///
/// Of all records that fail the first, whatever the threads' timing: those before it are finished
/// when it is told. Bad records do not fail, unless there are more than `max_bad`.
pub(super) fn run(
    maker: &Maker<'_>,
    chosen: &Chosen,
    writer: &dyn Writer,
    (workers, max_bad): (usize, Option<u64>),
    progress: &(dyn Fn(&Progress) -> bool + Sync),
) -> Result<Ran, Error> {
    let total = chosen.len();
    let threads = (workers + workers.min(READERS))
        .min(total.div_ceil(CLAIM) as usize)
        .max(1);
    if !progress(&Counted::default().progress(total)) {
        return Err(Error::Interrupted { done: 0, total });
    }
    let shared = Shared {
        maker,
        chosen,
        writer,
        state: Mutex::new(State {
            next: 0,
            threads,
            counted: Counted::default(),
            stopped: false,
            failed: None,
            bad: BTreeMap::new(),
        }),
        ended: Condvar::new(),
        cores: Cores::new(workers),
        claims: Claims::of(maker.source, CLAIM),
        room: Room::default(),
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
            Ok(Ran {
                totals,
                bad: state.bad,
            })
        }
    }
}

impl Shared<'_> {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells of the progress until all threads have ended.
    fn watch(
        &self,
        total: u64,
        progress: &(dyn Fn(&Progress) -> bool + Sync),
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
        // Counted also when this thread panics, so that nobody waits for it.
        let _leaving = Leaving(self);
        let mut bench = Bench::default();
        while let Some(places) = self.claim() {
            if let Err(failed) = self.pack(places, &mut bench) {
                let (place, error) = *failed;
                let mut state = self.lock();
                if state
                    .failed
                    .as_ref()
                    .is_none_or(|(first, _)| place < *first)
                {
                    state.failed = Some((place, error));
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
        let record = |place| self.chosen.at(place as usize);
        state.next = self.claims.end(from as u64, end as u64, record) as usize;
        Some(from..state.next)
    }

    /// Packs the records of a claim. One that fails ends the claim; those of other claims that
    /// were begun are finished, and so all before the first failure.
    fn pack(
        &self,
        places: std::ops::Range<usize>,
        bench: &mut Bench,
    ) -> Result<(), Box<(usize, Error)>> {
        let mut missing = Vec::new();
        for place in places {
            let record = self.chosen.at(place);
            match self.writer.found(place, record) {
                Some(moved) => self.count(moved, true),
                None => missing.push((place, record)),
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
            let mut records: Vec<(usize, Found)> = Vec::with_capacity(read.records.len());
            // Until the records of this read are written; nobody waits for another while it holds.
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
                let (place, record) = missing[at];
                let outcome = found
                    .map_err(|cause| damaged(source, record, cause))
                    .and_then(|record| self.one(place, &record, bench));
                if let Err(error) = outcome {
                    self.bad(place, record, error)
                        .map_err(|error| Box::new((place, error)))?;
                }
            }
            read.map_err(|error| Box::new((missing[first].0, error.about(source))))?;
        }
        Ok(())
    }

    fn one(&self, place: usize, record: &Record, bench: &mut Bench) -> Result<(), Error> {
        let core = self.cores.take();
        let products = self.maker.make(record, bench)?;
        drop(core);
        let bytes_out = self.writer.write(place, record, &products)?;
        let bytes_in = record.fields.iter().map(|bytes| bytes.len() as u64).sum();
        let moved = Moved {
            bytes_in,
            bytes_out,
        };
        self.count(moved, false);
        Ok(())
    }

    fn count(&self, moved: Moved, reused: bool) {
        let mut state = self.lock();
        state.counted.one(moved.bytes_in, moved.bytes_out);
        state.counted.totals.reused += u64::from(reused);
    }

    /// Leaves a bad record out, if that is what it is and there are not too many.
    fn bad(&self, place: usize, record: u64, error: Error) -> Result<(), Error> {
        if !error.is_bad_record() {
            return Err(error);
        }
        self.lock().counted.bad(&error, self.max_bad)?;
        self.writer.leave_out(place, record)?;
        self.lock().bad.insert(place, error);
        Ok(())
    }
}

/// A thread that is about to end.
struct Leaving<'a>(&'a Shared<'a>);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.threads -= 1;
        state.stopped |= thread::panicking();
        self.0.ended.notify_all();
    }
}

/// As many threads at a time as there are workers; the others wait for storage.
pub(super) struct Cores {
    free: Mutex<usize>,
    changed: Condvar,
}

/// A core that goes back when dropped.
pub(super) struct Core<'a>(&'a Cores);

impl Cores {
    pub(super) fn new(workers: usize) -> Cores {
        Cores {
            free: Mutex::new(workers),
            changed: Condvar::new(),
        }
    }

    pub(super) fn take(&self) -> Core<'_> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free = self
            .changed
            .wait_while(free, |free| *free == 0)
            .unwrap_or_else(PoisonError::into_inner);
        *free -= 1;
        Core(self)
    }
}

impl Drop for Core<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.changed.notify_one();
    }
}
