//! Records made by many threads and taken by one, in order.
//!
//! Threads claim runs of places in order and hand over record by record. A record that is made too
//! early waits with its thread while those that wait to be taken hold more than their share of
//! memory; the one that is taken next never waits, so there is always one that goes on.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::PackError;
use super::form::{Form, Made};
use super::make::{Bench, Maker};
use super::run::{CLAIM, Chosen, Cores, ROOM_BYTES};
use crate::error::Error;
use crate::order::Epoch;
use crate::source::{Found, Read, Source, damaged};

/// Bytes of records that were made and not taken yet; each thread may hold one beyond it.
const WAITING_BYTES: u64 = 64 << 20;

/// Which record stands at which place of the packed order.
pub(super) struct Places<'a> {
    pub(super) chosen: &'a Chosen,
    pub(super) order: &'a Epoch,
    /// Records of the source that can only be read together: claims end where these do.
    pub(super) ends: Vec<u64>,
}

impl Places<'_> {
    fn record(&self, place: u64) -> u64 {
        self.chosen.at(self.order.get(place) as usize)
    }

    fn len(&self) -> u64 {
        self.chosen.len()
    }

    /// The end of a claim that begins at a place.
    fn claim_end(&self, from: u64) -> u64 {
        let group = self.ends.partition_point(|&end| end <= from);
        match self.ends.get(group) {
            Some(&end) => end,
            None => (from + CLAIM as u64).min(self.len()),
        }
    }
}

/// A record that was made, or why it was not.
pub(super) type Outcome = Result<Made, Error>;

struct State {
    /// First place that nobody claimed.
    next: u64,
    /// Place that is taken next.
    taken: u64,
    ready: BTreeMap<u64, Outcome>,
    held_bytes: u64,
    makers: usize,
    stopped: bool,
}

/// The records on their way.
pub(super) struct Sequence<'a> {
    maker: &'a Maker<'a>,
    form: &'a dyn Form,
    places: Places<'a>,
    cores: Cores,
    state: Mutex<State>,
    changed: Condvar,
}

impl<'a> Sequence<'a> {
    /// From a place on; `makers` threads will call [`Sequence::work`].
    pub(super) fn new(
        maker: &'a Maker<'a>,
        form: &'a dyn Form,
        places: Places<'a>,
        from: u64,
        makers: usize,
        cores: Cores,
    ) -> Sequence<'a> {
        Sequence {
            maker,
            form,
            places,
            cores,
            state: Mutex::new(State {
                next: from,
                taken: from,
                ready: BTreeMap::new(),
                held_bytes: 0,
                makers,
                stopped: false,
            }),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends all threads soon.
    pub(super) fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }

    /// The outcome at the next place; None at the end, or when it was stopped.
    pub(super) fn take(&self) -> Option<Outcome> {
        let mut state = self.lock();
        loop {
            let place = state.taken;
            if state.stopped || place >= self.places.len() {
                return None;
            }
            if let Some(outcome) = state.ready.remove(&place) {
                state.taken += 1;
                state.held_bytes -= bytes(&outcome);
                drop(state);
                self.changed.notify_all();
                return Some(outcome);
            }
            if state.makers == 0 {
                return None;
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Makes records until there are no more.
    pub(super) fn work(&self) {
        let _leaving = Leaving(self);
        let mut bench = Bench::default();
        while let Some(places) = self.claim() {
            if !self.make(places, &mut bench) {
                return;
            }
        }
    }

    fn claim(&self) -> Option<Range<u64>> {
        let mut state = self.lock();
        if state.stopped || state.next >= self.places.len() {
            return None;
        }
        let from = state.next;
        state.next = self.places.claim_end(from);
        Some(from..state.next)
    }

    /// Makes the records of a claim; false when it was stopped or the storage failed.
    fn make(&self, places: Range<u64>, bench: &mut Bench) -> bool {
        let source = self.maker.source;
        let from = places.start;
        let run: Vec<u64> = places.map(|place| self.places.record(place)).collect();
        let mut reads = source.plan(&run, ROOM_BYTES);
        reads.sort_by_key(|read| span(read).start);
        // Where reads bring neighbours, each is used before the next is made.
        let apart = reads
            .windows(2)
            .all(|two| span(&two[0]).end <= span(&two[1]).start);
        let at_once = if apart { 1 } else { reads.len().max(1) };
        reads
            .chunks(at_once)
            .all(|reads| self.make_read(from, reads, bench))
    }

    /// Makes the records of some reads, in order; false as [`Sequence::make`].
    fn make_read(&self, from: u64, reads: &[Read], bench: &mut Bench) -> bool {
        let source = self.maker.source;
        let mut found: BTreeMap<usize, Found> = BTreeMap::new();
        let mut failed = None;
        for read in reads {
            let mut sink = |at, one| drop(found.insert(at, one));
            if let Err(error) = source.read(read, &mut |_| Ok(()), &mut sink) {
                failed = Some(error.about(source));
                break;
            }
        }
        let mut wanted: Vec<(usize, u64)> =
            reads.iter().flat_map(|read| read.records.clone()).collect();
        wanted.sort_unstable();
        for (at, record) in wanted {
            let outcome = match found.remove(&at) {
                Some(Ok(record)) => {
                    let _core = self.cores.take();
                    self.one(&record, bench)
                }
                Some(Err(cause)) => Err(damaged(source, record, cause)),
                None => Err(failed.take().unwrap_or_else(|| Error::Panicked {
                    text: format!("the source brought no {}", source.id(record, None)),
                })),
            };
            let is_over = outcome.as_ref().is_err_and(|error| !error.is_bad_record());
            if !self.deliver(from + at as u64, outcome) || is_over {
                return false;
            }
        }
        true
    }

    fn one(&self, record: &crate::sample::Record, bench: &mut Bench) -> Outcome {
        let products = self.maker.make(record, bench)?;
        let made = made(self.maker.source, record, products);
        self.form
            .check(&made)
            .map_err(|error| unfit(self.maker.source, record.index, error))?;
        Ok(made)
    }

    /// Hands a record over; false when nobody wants it any more.
    fn deliver(&self, place: u64, outcome: Outcome) -> bool {
        let bytes = bytes(&outcome);
        let state = self.lock();
        let waits = |state: &mut State| {
            !state.stopped && state.taken != place && state.held_bytes + bytes > WAITING_BYTES
        };
        let mut state = self
            .changed
            .wait_while(state, waits)
            .unwrap_or_else(PoisonError::into_inner);
        if state.stopped {
            return false;
        }
        state.held_bytes += bytes;
        state.ready.insert(place, outcome);
        drop(state);
        self.changed.notify_all();
        true
    }
}

/// What is written of a record.
fn made(
    source: &dyn Source,
    record: &crate::sample::Record,
    products: Vec<super::make::Product>,
) -> Made {
    let files = source.files(record.index);
    let file = files.first().and_then(|path| path.file_name());
    Made {
        record: record.index,
        file: file.map(|name| name.to_string_lossy().into_owned()),
        bytes_in: record.bytes(),
        products,
    }
}

/// The error of a record that the format cannot hold.
fn unfit(source: &dyn Source, record: u64, error: PackError) -> Error {
    Error::Transform {
        record: source.id(record, None),
        transform: "pack",
        source: std::sync::Arc::new(error),
    }
}

/// The places in a run that a read reaches over.
fn span(read: &Read) -> Range<usize> {
    let places = read.records.iter().map(|&(at, _)| at);
    let first = places.clone().min().unwrap_or(0);
    first..places.max().map_or(first, |last| last + 1)
}

fn bytes(outcome: &Outcome) -> u64 {
    outcome.as_ref().map_or(0, Made::bytes)
}

/// A thread that is about to end.
struct Leaving<'a, 'b>(&'a Sequence<'b>);

impl Drop for Leaving<'_, '_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.makers -= 1;
        state.stopped |= std::thread::panicking();
        drop(state);
        self.0.changed.notify_all();
    }
}
