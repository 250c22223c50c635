//! Records that many threads make and one thread takes, in order.
//!
//! Threads claim runs of positions in order and deliver record by record. A thread with a record
//! that is early waits while the records in the queue hold more than their share of memory. A read
//! also waits if its bytes do not fit next to those of other reads. The next record to take, and
//! the read that brings it, never wait, so one thread always makes progress.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::error::PackError;
use super::fields::Work;
use super::make::{Maker, PackScratch};
use super::run::CorePermits;
use super::selection::{ROOM_BYTES, RecordSelection};
use super::shard_layout::{PackedRecord, ShardLayout};
use infeed_core::error::Error;
use infeed_core::order::Epoch;
use infeed_source::walk::{Claims, WalkBudget};
use infeed_source::{Read, RecordResult, Source, damage_error};

/// Maximum bytes of finished records in the queue. Each thread may hold one more record.
const WAITING_BYTES: u64 = 64 << 20;

/// Estimated bytes of a waiting record in addition to its data: list entries, a name, a tree node.
/// Labels and boxes are smaller than that.
const RECORD_BYTES: u64 = 256;

/// Maps positions of the packed order to records.
pub(super) struct Places<'a> {
    pub(super) chosen: &'a RecordSelection,
    pub(super) order: &'a Epoch,
    pub(super) claims: Claims,
    /// Whether records come from groups that are read as a whole.
    pub(super) whole: bool,
    /// One past the last position to make.
    pub(super) end: u64,
}

impl Places<'_> {
    fn record(&self, position: u64) -> u64 {
        self.chosen.at(self.order.get(position) as usize)
    }

    /// Returns the end of a claim that begins at a position.
    fn claim_end(&self, from: u64) -> u64 {
        let record = |position| self.record(position);
        self.claims.end(from, self.end, record)
    }
}

/// A finished record, or its error.
pub(super) type PackedResult = Result<PackedRecord, Error>;

struct SequenceState {
    /// First position that no thread has claimed.
    next: u64,
    /// The next position to take.
    taken: u64,
    ready: BTreeMap<u64, PackedResult>,
    held_bytes: u64,
    makers: usize,
    stopped: bool,
}

/// The records in progress.
pub(super) struct RecordsInProgress<'a> {
    maker: &'a Maker<'a>,
    layout: &'a dyn ShardLayout,
    places: Places<'a>,
    cores: CorePermits,
    room: WalkBudget,
    state: Mutex<SequenceState>,
    changed: Condvar,
}

impl<'a> RecordsInProgress<'a> {
    /// Starts at position `from`. `makers` threads must call [`RecordsInProgress::work`].
    pub(super) fn new(
        maker: &'a Maker<'a>,
        layout: &'a dyn ShardLayout,
        places: Places<'a>,
        from: u64,
        makers: usize,
        cores: CorePermits,
    ) -> RecordsInProgress<'a> {
        RecordsInProgress {
            maker,
            layout,
            places,
            cores,
            room: WalkBudget::default(),
            state: Mutex::new(SequenceState {
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

    fn lock(&self) -> MutexGuard<'_, SequenceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes all threads end soon.
    pub(super) fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
        self.room.close();
    }

    /// Waits for the outcome at the next position. None at the end, or after a stop.
    pub(super) fn take(&self) -> Option<PackedResult> {
        let mut state = self.lock();
        loop {
            let position = state.taken;
            if state.stopped || position >= self.places.end {
                return None;
            }
            if let Some(outcome) = state.ready.remove(&position) {
                state.taken += 1;
                state.held_bytes -= bytes(&outcome);
                drop(state);
                self.changed.notify_all();
                self.room.ask_again();
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
        let _leaving = SequenceThreadGuard(self);
        let mut scratch = PackScratch::default();
        while let Some(places) = self.claim() {
            if !self.make(places, &mut scratch) {
                return;
            }
        }
    }

    fn claim(&self) -> Option<Range<u64>> {
        let mut state = self.lock();
        if state.stopped || state.next >= self.places.end {
            return None;
        }
        let from = state.next;
        state.next = self.places.claim_end(from);
        Some(from..state.next)
    }

    /// Makes the records of a claim. Returns false after a stop or a failure of the storage.
    fn make(&self, places: Range<u64>, scratch: &mut PackScratch) -> bool {
        let source = self.maker.source;
        let from = places.start;
        let run: Vec<u64> = places
            .map(|position| self.places.record(position))
            .collect();
        let mut reads = source.plan(&run, ROOM_BYTES);
        reads.sort_by_key(|read| span(read).start);
        // If reads bring consecutive records, each read is used before the next one starts.
        let apart = reads
            .windows(2)
            .all(|two| span(&two[0]).end <= span(&two[1]).start);
        let at_once = if apart { 1 } else { reads.len().max(1) };
        reads
            .chunks(at_once)
            .all(|reads| self.make_read(from, reads, scratch))
    }

    /// Makes the records of several reads, in order. Returns false like
    /// [`RecordsInProgress::make`].
    fn make_read(&self, from: u64, reads: &[Read], scratch: &mut PackScratch) -> bool {
        let source = self.maker.source;
        let mut found: BTreeMap<usize, RecordResult> = BTreeMap::new();
        let mut failed = None;
        let first = from + reads.iter().map(|read| span(read).start).min().unwrap_or(0) as u64;
        // Holds the memory until the records are made. The queue counts waiting records separately.
        let mut held = Vec::new();
        for read in reads {
            let mut sink = |at, one| drop(found.insert(at, one));
            let is_next = || self.lock().taken >= first;
            let mut admit = |bytes| self.room.admit(bytes, is_next).map(|one| held.push(one));
            if let Err(error) = source.read(read, &mut admit, &mut sink) {
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
                    self.one(&record, scratch)
                }
                Some(Err(cause)) => Err(damage_error(source, record, cause)),
                None => Err(failed.take().unwrap_or_else(|| Error::Panicked {
                    text: format!("the source returned no {}", source.id(record, None)),
                })),
            };
            let is_over = outcome.as_ref().is_err_and(|error| !error.is_bad_record());
            if !self.deliver(from + at as u64, outcome) || is_over {
                return false;
            }
        }
        true
    }

    fn one(&self, record: &infeed_core::sample::Record, scratch: &mut PackScratch) -> PackedResult {
        let mut products = self.maker.make(record, scratch)?;
        if self.places.whole {
            // A slice would keep its whole group in memory as long as the record waits.
            for (field, product) in self.maker.fields.iter().zip(&mut products) {
                if !matches!(field.work, Work::Encode { .. } | Work::Pixels { .. }) {
                    product.bytes = Bytes::copy_from_slice(&product.bytes);
                }
            }
        }
        let made = build_record(self.maker.source, record, products);
        self.layout
            .check(&made)
            .map_err(|error| unfit(self.maker.source, record.index, error))?;
        Ok(made)
    }

    /// Delivers a record. Returns false after a stop.
    fn deliver(&self, position: u64, outcome: PackedResult) -> bool {
        let bytes = bytes(&outcome);
        let state = self.lock();
        let waits = |state: &mut SequenceState| {
            !state.stopped && state.taken != position && state.held_bytes + bytes > WAITING_BYTES
        };
        let mut state = self
            .changed
            .wait_while(state, waits)
            .unwrap_or_else(PoisonError::into_inner);
        if state.stopped {
            return false;
        }
        state.held_bytes += bytes;
        state.ready.insert(position, outcome);
        drop(state);
        self.changed.notify_all();
        true
    }
}

/// Builds the finished record from its products.
fn build_record(
    source: &dyn Source,
    record: &infeed_core::sample::Record,
    products: Vec<super::product::Product>,
) -> PackedRecord {
    let files = source.files(record.index);
    let file = files.first().and_then(|path| path.file_name());
    PackedRecord {
        record: record.index,
        file: file.map(|name| name.to_string_lossy().into_owned()),
        bytes_in: record.bytes(),
        products,
    }
}

/// Returns the error of a record that the format cannot hold.
fn unfit(source: &dyn Source, record: u64, error: PackError) -> Error {
    Error::Transform {
        record: source.id(record, None),
        transform: "pack".into(),
        source: std::sync::Arc::new(error),
    }
}

/// Returns the range of positions in a run that a read covers.
fn span(read: &Read) -> Range<usize> {
    let places = read.records.iter().map(|&(at, _)| at);
    let first = places.clone().min().unwrap_or(0);
    first..places.max().map_or(first, |last| last + 1)
}

fn bytes(outcome: &PackedResult) -> u64 {
    RECORD_BYTES + outcome.as_ref().map_or(0, PackedRecord::bytes)
}

/// Decrements the thread count when a thread ends.
struct SequenceThreadGuard<'a, 'b>(&'a RecordsInProgress<'b>);

impl Drop for SequenceThreadGuard<'_, '_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.makers -= 1;
        state.stopped |= std::thread::panicking();
        let stopped = state.stopped;
        drop(state);
        self.0.changed.notify_all();
        if stopped {
            self.0.room.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::FieldWork;
    use crate::targets::format::FormatWriter;
    use crate::{Target, fields};
    use infeed::loader::losses::LossLog;
    use infeed_core::order::Order;
    use infeed_core::order::window::Groups;
    use infeed_core::sample::{Field, FieldKind, Record, RecordId};
    use infeed_source::{Admission, ReadError, Sink};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
    use std::thread;
    use std::time::Duration;

    /// Groups of equal size that can only be read as a whole.
    #[derive(Debug)]
    struct Whole {
        groups: Arc<Groups>,
        /// Bytes that a read requests.
        asks: u64,
        /// Number of reads in progress, and its maximum.
        inside: Mutex<(usize, usize)>,
        another: Condvar,
        /// Number of group contents in memory.
        alive: Arc<AtomicUsize>,
    }

    /// The content of a group.
    struct Content {
        bytes: Vec<u8>,
        alive: Arc<AtomicUsize>,
    }

    impl AsRef<[u8]> for Content {
        fn as_ref(&self) -> &[u8] {
            &self.bytes
        }
    }

    impl Drop for Content {
        fn drop(&mut self) {
            self.alive.fetch_sub(1, Ordering::SeqCst);
        }
    }

    impl Whole {
        fn new(groups: u64, each: u64, asks: u64) -> Whole {
            let groups = Groups {
                ends: (1..=groups).map(|nth| nth * each).collect(),
                bytes: vec![asks; groups as usize],
                whole: true,
            };
            Whole {
                groups: Arc::new(groups),
                asks,
                inside: Mutex::default(),
                another: Condvar::new(),
                alive: Arc::default(),
            }
        }
    }

    impl Source for Whole {
        fn fields(&self) -> &[Field] {
            &[]
        }

        fn len(&self) -> u64 {
            self.groups.records()
        }

        fn id(&self, record: u64, _: Option<usize>) -> RecordId {
            RecordId {
                index: record,
                name: record.to_string(),
            }
        }

        fn groups(&self) -> Option<Arc<Groups>> {
            Some(Arc::clone(&self.groups))
        }

        fn plan(&self, run: &[u64], _: u64) -> Vec<Read> {
            vec![Read {
                records: run.iter().copied().enumerate().collect(),
                bytes: Some(self.asks),
                key: 0,
                draws: Vec::new(),
            }]
        }

        fn read(
            &self,
            read: &Read,
            admit: &mut Admission<'_>,
            sink: &mut Sink<'_>,
        ) -> Result<(), ReadError> {
            admit(self.asks).map_err(|refused| ReadError::Refused {
                record: read.records[0].1,
                bytes: self.asks,
                refused,
            })?;
            let mut inside = self.inside.lock().expect("no panic");
            inside.0 += 1;
            inside.1 = inside.1.max(inside.0);
            self.another.notify_all();
            // Gives another read time to enter, if it is admitted.
            let wait = Duration::from_millis(30);
            let alone = |inside: &mut (usize, usize)| inside.0 < 2;
            let waited = self.another.wait_timeout_while(inside, wait, alone);
            waited.expect("no panic").0.0 -= 1;
            self.alive.fetch_add(1, Ordering::SeqCst);
            let content = Bytes::from_owner(Content {
                bytes: vec![7; 64],
                alive: Arc::clone(&self.alive),
            });
            for &(at, index) in &read.records {
                let fields = vec![content.slice(0..8)];
                sink(at, Ok(Record { index, fields }));
            }
            Ok(())
        }
    }

    fn with_sequence(source: &Whole, makers: usize, body: impl FnOnce(&RecordsInProgress<'_>)) {
        let fields = [FieldWork {
            name: "box".to_owned(),
            is_mask: false,
            kind: FieldKind::Bytes,
            work: Work::Plain,
            stored_coordinates: None,
        }];
        let maker = Maker {
            source,
            fields: &fields,
            transforms: &[],
            decode: Default::default(),
            restart: None,
            unchanged: AtomicU64::new(0),
            verify: false,
            losses: LossLog::default(),
            has_lost_turn: AtomicBool::new(false),
        };
        let columns = fields::columns(&fields, &[None]);
        let FormatWriter::Shards(new_layout) = Target::TfRecord.format().writer else {
            panic!("shards expected");
        };
        let layout = new_layout(columns, None, 1).expect("a layout");
        let chosen = RecordSelection::new(None, source.len()).expect("all");
        let order = Order::new(source.len(), None).epoch(0);
        let places = Places {
            chosen: &chosen,
            order: &order,
            claims: Claims::of(source, 8),
            whole: true,
            end: chosen.len(),
        };
        let cores = CorePermits::new(makers);
        body(&RecordsInProgress::new(
            &maker, &*layout, places, 0, makers, cores,
        ));
    }

    #[test]
    fn groups_that_do_not_fit_together_are_read_one_after_another() {
        let source = Whole::new(6, 4, u64::MAX / 2);
        with_sequence(&source, 3, |sequence| {
            thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| sequence.work());
                }
                let taken = std::iter::from_fn(|| sequence.take());
                assert_eq!(taken.filter(Result::is_ok).count(), 24);
            });
        });

        // The previous read may still hold its memory when the next one has become the first in
        // line.
        assert!(source.inside.lock().expect("no panic").1 <= 2);
    }

    #[test]
    fn a_record_that_waits_does_not_keep_its_group_in_memory() {
        let source = Whole::new(1, 4, 64);
        with_sequence(&source, 1, |sequence| {
            sequence.work();
            let made = sequence.take().expect("a record").expect("good");

            assert_eq!(source.alive.load(Ordering::SeqCst), 0);
            assert_eq!(made.products[0].bytes[..], [7; 8]);
        });
    }

    #[test]
    fn many_small_records_also_wait() {
        let each = 2 * WAITING_BYTES / RECORD_BYTES;
        let source = Whole::new(1, each, 64);
        with_sequence(&source, 1, |sequence| {
            thread::scope(|scope| {
                let worker = scope.spawn(|| sequence.work());
                let is_full = || {
                    let state = sequence.lock();
                    state.held_bytes + RECORD_BYTES + 8 > WAITING_BYTES
                };
                while !is_full() && !worker.is_finished() {
                    thread::yield_now();
                }
                assert!(!worker.is_finished(), "it waits");
                assert!(sequence.lock().ready.len() as u64 <= WAITING_BYTES / RECORD_BYTES);
                sequence.stop();
            });
        });
    }
}
