//! The executor with integers: the row of sequence number `t` holds `value(t)`.

mod clock;
mod lease;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;
use crate::exec::budget::Permit;

const ROWS: u64 = 4;
const LONG: Duration = Duration::from_secs(30);

type Log = Arc<Mutex<Vec<String>>>;

/// Integers on an executor. With `substitute`, every seventh sequence number requests another read.
struct Integers {
    bytes: u64,
    /// Sequence numbers per read.
    group: u64,
    substitute: bool,
    /// Every sequence number needs two reads: one of its group, and its own.
    paired: bool,
    fails_at: Option<Sequence>,
    panics_at: Option<Sequence>,
    plan_fails_at: Option<Sequence>,
    /// Batches alive; 0 at the end of each test.
    alive: Arc<AtomicUsize>,
    most_alive: Arc<AtomicUsize>,
    /// Workers that fill rows now.
    inside: AtomicUsize,
    most_inside: Arc<AtomicUsize>,
    log: Log,
}

impl Default for Integers {
    fn default() -> Integers {
        Integers {
            bytes: 10,
            group: 1,
            substitute: false,
            paired: false,
            fails_at: None,
            panics_at: None,
            plan_fails_at: None,
            alive: Arc::default(),
            most_alive: Arc::default(),
            inside: AtomicUsize::new(0),
            most_inside: Arc::default(),
            log: Arc::default(),
        }
    }
}

struct Read {
    sequences: Vec<Sequence>,
    again: bool,
}

struct FetchedInteger {
    value: u64,
    again: bool,
    /// Number of reads that arrived.
    reads: usize,
    _permits: Vec<Arc<Permit>>,
}

struct OpenBatch {
    number: u64,
    alive: Arc<AtomicUsize>,
}

impl Drop for OpenBatch {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

fn value(sequence: Sequence) -> u64 {
    sequence * 10
}

impl Job for Integers {
    type Read = Read;
    type FetchedData = FetchedInteger;
    type InFlight = OpenBatch;
    type Row = ();
    type RowOutput = u64;
    type Batch = (u64, Vec<u64>);
    type Scratch<'job> = ();
    type Fault = String;

    fn place(&self, sequence: Sequence) -> RowLocation {
        RowLocation {
            in_flight: sequence / ROWS,
            row: (sequence % ROWS) as usize,
        }
    }

    fn first(&self, in_flight: u64) -> Sequence {
        in_flight * ROWS
    }

    fn plan(&self, from: Sequence, until: Sequence) -> Result<ReadRun<Read>, String> {
        if self.plan_fails_at.is_some_and(|at| at <= from) {
            return Err("no plan".to_owned());
        }
        let end = (from + 12).min(until);
        let sequences: Vec<Sequence> = (from..end).collect();
        let read = |group: &[Sequence]| {
            let sequences = group.to_vec();
            let again = false;
            (group[0], Read { sequences, again })
        };
        let mut reads: Vec<_> = sequences.chunks(self.group as usize).map(read).collect();
        if self.paired {
            reads.extend(sequences.chunks(1).map(read));
            reads.sort_by_key(|(first, _)| *first);
        }
        Ok(ReadRun { end, reads })
    }

    fn read(&self, read: Read, gate: MemoryReservation<'_>) -> Vec<(Sequence, FetchedInteger)> {
        let Ok(permit) = gate.admit(self.bytes) else {
            return Vec::new();
        };
        let permit = Arc::new(permit);
        let fetched = |sequence| FetchedInteger {
            value: value(sequence),
            again: read.again,
            reads: 1,
            _permits: vec![Arc::clone(&permit)],
        };
        read.sequences
            .iter()
            .map(|&sequence| (sequence, fetched(sequence)))
            .collect()
    }

    fn join(
        &self,
        waiting: Option<FetchedInteger>,
        mut arrived: FetchedInteger,
    ) -> JoinedReads<FetchedInteger> {
        if let Some(waiting) = waiting {
            arrived.reads += waiting.reads;
            arrived._permits.extend(waiting._permits);
        }
        if self.paired && !arrived.again && arrived.reads < 2 {
            JoinedReads::Part(arrived)
        } else {
            JoinedReads::Whole(arrived)
        }
    }

    fn open(&self, in_flight: u64) -> Result<(OpenBatch, Vec<()>), String> {
        let alive = self.alive.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_alive.fetch_max(alive, Ordering::SeqCst);
        Ok((
            OpenBatch {
                number: in_flight,
                alive: Arc::clone(&self.alive),
            },
            vec![(); ROWS as usize],
        ))
    }

    fn scratch(&self) {}

    fn fill(
        &self,
        sequence: Sequence,
        fetched: FetchedInteger,
        _: &mut (),
        _: &mut (),
    ) -> FillOutcome<Integers> {
        assert_ne!(self.panics_at, Some(sequence), "sequence {sequence} panics");
        if self.fails_at == Some(sequence) {
            return FillOutcome::Failed(format!("sequence {sequence} failed"));
        }
        if self.substitute && sequence.is_multiple_of(7) && !fetched.again {
            self.log
                .lock()
                .expect("no panic")
                .push(format!("again {sequence}"));
            return FillOutcome::Again(Read {
                sequences: vec![sequence],
                again: true,
            });
        }
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_inside.fetch_max(inside, Ordering::SeqCst);
        std::thread::yield_now();
        self.inside.fetch_sub(1, Ordering::SeqCst);
        FillOutcome::Done(fetched.value)
    }

    fn close(
        &self,
        in_flight: OpenBatch,
        rows: Vec<Result<u64, String>>,
    ) -> Result<(u64, Vec<u64>), String> {
        let rows = rows.into_iter().collect::<Result<Vec<u64>, String>>()?;
        Ok((in_flight.number, rows))
    }
}

fn config(workers: usize) -> Config {
    Config {
        workers,
        working: workers,
        readers: 3,
        in_flight_batches: 3,
        ahead: 40,
        fetched_bytes: 100,
        spare_bytes: 20,
        taking: BatchChoice::All,
    }
}

fn expected_batch(in_flight: u64) -> (u64, Vec<u64>) {
    (
        in_flight,
        (in_flight * ROWS..(in_flight + 1) * ROWS)
            .map(value)
            .collect(),
    )
}

fn take(executor: &Executor<Integers>) -> (u64, Vec<u64>) {
    match executor.next(LONG) {
        NextBatch::Batch(batch) => batch,
        other => panic!("not a batch: {other:?}"),
    }
}

#[test]
fn batches_leave_in_order_with_every_row_in_place_whatever_the_number_of_workers() {
    for workers in [1, 2, 7] {
        for group in [1, 5] {
            let job = Integers {
                group,
                ..Integers::default()
            };
            let executor = Executor::start(job, config(workers), 0).expect("threads");

            for in_flight in 0..200 {
                assert_eq!(
                    take(&executor),
                    expected_batch(in_flight),
                    "{workers} workers"
                );
            }
        }
    }
}

#[test]
fn rows_with_two_reads_stay_within_the_budget() {
    for (workers, group, bytes) in [(1, 1, 50), (2, 5, 30), (3, 12, 25)] {
        let job = Integers {
            group,
            bytes,
            paired: true,
            substitute: true,
            ..Integers::default()
        };
        let config = Config {
            spare_bytes: bytes,
            ..config(workers)
        };
        let executor = Executor::start(job, config, 0).expect("threads");

        for in_flight in 0..100 {
            assert_eq!(
                take(&executor),
                expected_batch(in_flight),
                "reads of {group}"
            );
        }
        // If a reset kept partial rows, their bytes would soon fill the budget.
        for round in 0..50 {
            let in_flight = round * 31 % 97;
            executor.reset(in_flight);
            assert_eq!(
                take(&executor),
                expected_batch(in_flight),
                "after {round} resets"
            );
        }
        assert!(executor.fetched_bytes().1 <= 100);
    }
}

#[test]
fn a_row_is_expensive_if_one_of_its_reads_is() {
    let job = Integers {
        paired: true,
        ..Integers::default()
    };
    let mut state = state::ExecutorState::<Integers>::new(0, 0, 1, BatchChoice::All, 1);
    let parts = [(3, false), (5, true), (5, false), (3, false), (6, true)];

    for (sequence, is_expensive) in parts {
        let data = FetchedInteger {
            value: value(sequence),
            again: false,
            reads: 1,
            _permits: Vec::new(),
        };
        state.add_fetched(&job, sequence, state::FetchedPart { data, is_expensive });
    }

    assert!(state.fetched_records.keys().eq(&[3, 5]));
    assert!(state.expensive.iter().eq(&[5]));
    assert!(state.parts.keys().eq(&[6]));
}

#[test]
fn a_consumer_that_waits_during_a_shutdown_gets_closed() {
    let executor = Executor::start(Integers::default(), config(2), 0).expect("threads");
    while executor.ready() > 0 {
        take(&executor);
    }

    std::thread::scope(|scope| {
        let consumer = scope.spawn(|| {
            loop {
                match executor.next(LONG) {
                    NextBatch::Batch(_) => {}
                    other => break other,
                }
            }
        });
        executor.shutdown();
        let last = consumer.join().expect("no panic");
        assert!(matches!(last, NextBatch::Closed), "{last:?}");
    });
    assert!(matches!(executor.next(LONG), NextBatch::Closed));
}

#[test]
fn open_batches_stay_within_the_limit_and_none_is_left() {
    let job = Integers::default();
    let (alive, most) = (Arc::clone(&job.alive), Arc::clone(&job.most_alive));
    let executor = Executor::start(job, config(2), 0).expect("threads");

    for _ in 0..100 {
        take(&executor);
    }
    drop(executor);

    assert!(most.load(Ordering::SeqCst) <= 3);
    assert_eq!(alive.load(Ordering::SeqCst), 0);
}

#[test]
fn fetched_records_stay_within_the_budget_with_large_reads() {
    let job = Integers {
        bytes: 60,
        group: 6,
        ..Integers::default()
    };
    let executor = Executor::start(job, config(2), 0).expect("threads");

    for in_flight in 0..100 {
        assert_eq!(take(&executor), expected_batch(in_flight));
    }

    assert!(executor.fetched_bytes().1 <= 100);
}

#[test]
fn a_row_that_needs_another_read_gets_it_even_while_all_readers_wait_for_the_budget() {
    for readers in [1, 3] {
        let job = Integers {
            bytes: 20,
            substitute: true,
            ..Integers::default()
        };
        let log = Arc::clone(&job.log);
        let config = Config {
            readers,
            ..config(2)
        };
        let executor = Executor::start(job, config, 0).expect("threads");

        for in_flight in 0..50 {
            assert_eq!(
                take(&executor),
                expected_batch(in_flight),
                "{readers} readers"
            );
        }
        drop(executor);

        let log: BTreeSet<String> = log.lock().expect("no panic").iter().cloned().collect();
        assert!(
            (0..200)
                .step_by(7)
                .all(|sequence| log.contains(&format!("again {sequence}")))
        );
    }
}

#[test]
fn a_fault_replaces_its_batch_until_a_reset() {
    let job = Integers {
        fails_at: Some(9),
        ..Integers::default()
    };
    let executor = Executor::start(job, config(2), 0).expect("threads");

    assert_eq!(take(&executor), expected_batch(0));
    assert_eq!(take(&executor), expected_batch(1));
    for _ in 0..2 {
        let NextBatch::Fault(fault) = executor.next(LONG) else {
            panic!("no fault")
        };
        assert_eq!(fault, "sequence 9 failed");
    }
    executor.reset(3);
    assert_eq!(take(&executor), expected_batch(3));
}

#[test]
fn a_failed_plan_is_reported_after_the_batches_before_it() {
    let job = Integers {
        plan_fails_at: Some(12),
        ..Integers::default()
    };
    let executor = Executor::start(job, config(2), 0).expect("threads");

    for in_flight in 0..3 {
        assert_eq!(take(&executor), expected_batch(in_flight));
    }
    assert!(matches!(executor.next(LONG), NextBatch::Fault(fault) if fault == "no plan"));
}

#[test]
fn a_panic_in_job_code_reaches_the_consumer_with_its_text() {
    let job = Integers {
        panics_at: Some(5),
        ..Integers::default()
    };
    let executor = Executor::start(job, config(2), 0).expect("threads");

    let text = loop {
        match executor.next(LONG) {
            NextBatch::Batch(_) => {}
            NextBatch::Broken(text) => break text,
            other => panic!("not broken: {other:?}"),
        }
    };
    assert!(text.contains("sequence 5 panics"), "{text}");
}

#[test]
fn a_reset_continues_at_the_given_batch_and_drops_the_old_work() {
    let job = Integers {
        substitute: true,
        ..Integers::default()
    };
    let alive = Arc::clone(&job.alive);
    let executor = Executor::start(job, config(3), 0).expect("threads");

    for round in 0..200 {
        let in_flight = round * 31 % 97;
        executor.reset(in_flight);
        assert_eq!(take(&executor), expected_batch(in_flight));
        assert_eq!(take(&executor), expected_batch(in_flight + 1));
    }
    drop(executor);

    assert_eq!(alive.load(Ordering::SeqCst), 0);
}

#[test]
fn dropping_the_executor_at_any_moment_ends_all_its_threads() {
    for taken in 0..20 {
        let executor = Executor::start(Integers::default(), config(2), 0).expect("threads");
        for _ in 0..taken {
            take(&executor);
        }
        let shared = Arc::downgrade(&executor.shared);

        drop(executor);

        assert_eq!(shared.strong_count(), 0, "a thread still holds the state");
    }
}

#[test]
fn a_consumer_that_does_not_wait_gets_a_timeout() {
    let mut slow = config(1);
    slow.readers = 1;
    let executor = Executor::start(Integers::default(), slow, 0).expect("threads");

    let mut timeouts = 0;
    for in_flight in 0..50 {
        loop {
            match executor.next(Duration::ZERO) {
                NextBatch::Timeout => timeouts += 1,
                NextBatch::Batch(batch) => break assert_eq!(batch, expected_batch(in_flight)),
                other => panic!("neither: {other:?}"),
            }
            std::thread::yield_now();
        }
    }
    assert!(timeouts > 0);
}

#[test]
fn changing_the_number_of_workers_loses_no_batch() {
    for (substitute, group) in [(false, 5), (true, 1)] {
        let job = Integers {
            substitute,
            group,
            ..Integers::default()
        };
        let alive = Arc::clone(&job.alive);
        let executor = Executor::start(job, config(6), 0).expect("threads");

        for in_flight in 0..300 {
            let workers = 1 + (crate::random::mix(in_flight) % 6) as usize;
            executor.set_workers(workers);
            assert_eq!(
                take(&executor),
                expected_batch(in_flight),
                "{workers} workers"
            );
            assert_eq!(executor.workers(), workers);
            if in_flight % 50 == 49 {
                executor.reset(in_flight + 1);
            }
        }
        drop(executor);

        assert_eq!(alive.load(Ordering::SeqCst), 0);
    }
}

#[test]
fn only_permitted_workers_fill_rows_and_parked_workers_are_not_idle() {
    let job = Integers::default();
    let most = Arc::clone(&job.most_inside);
    let mut one = config(6);
    one.working = 1;
    let executor = Executor::start(job, one, 0).expect("threads");
    let most_over = |in_flight_batches: std::ops::Range<u64>| {
        most.store(0, Ordering::SeqCst);
        in_flight_batches
            .for_each(|in_flight| assert_eq!(take(&executor), expected_batch(in_flight)));
        most.load(Ordering::SeqCst)
    };

    assert_eq!(most_over(0..50), 1);
    assert_eq!(executor.situation().workers, 1);
    assert!(executor.situation().idle_workers <= 1);

    executor.set_workers(4);
    assert!((1..=4).contains(&most_over(50..200)));

    executor.set_workers(2);
    // Batches in flight still have rows that more workers began.
    most_over(200..205);
    assert!((1..=2).contains(&most_over(205..300)));

    executor.set_workers(0);
    assert_eq!(executor.workers(), 1, "one worker is left");
    executor.set_workers(99);
    assert_eq!(executor.workers(), 6);
}
