//! The executor on a simulated clock: rows take simulated time, and the clock moves when all threads
//! wait. Times are exact, so the tests do not depend on the machine.

use std::sync::{Condvar, PoisonError};

use super::*;

const BATCH: u64 = 64;
const WORKERS: usize = 16;

/// In-flight batches with 48 rows per worker, as loaders have them, and fewer.
const ENOUGH: usize = 12;
const FEW: usize = 8;

/// Simulated time of a usual row, and of a slow one, which is one of a hundred.
const USUAL: u64 = 1;
const SLOW: u64 = 50;

/// Longer than a claim may take in real time, so that each worker claims one row.
const REAL: Duration = Duration::from_micros(200);

/// Executors of one process share its cores. A worker that waits for a core of another simulation,
/// whose clock waits for its own workers, would wait for ever.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn ticks(sequence: Sequence) -> u64 {
    match crate::random::mix(sequence).is_multiple_of(100) {
        true => SLOW,
        false => USUAL,
    }
}

/// Simulated time, and when each worker's row is filled.
#[derive(Default)]
struct Clock {
    now: u64,
    ends: Vec<u64>,
}

struct TimedRows {
    clock: Mutex<Clock>,
    moved: Condvar,
    /// Whether slow rows are known before they are filled.
    expected: bool,
}

impl TimedRows {
    fn clock(&self) -> std::sync::MutexGuard<'_, Clock> {
        self.clock.lock().expect("no panic")
    }
}

impl Job for TimedRows {
    type Read = Vec<Sequence>;
    type FetchedData = Sequence;
    type InFlight = ();
    type Row = ();
    type RowOutput = ();
    type Batch = ();
    type Scratch<'job> = ();
    type Fault = String;

    fn place(&self, sequence: Sequence) -> RowLocation {
        RowLocation {
            in_flight: sequence / BATCH,
            row: (sequence % BATCH) as usize,
        }
    }

    fn first(&self, in_flight: u64) -> Sequence {
        in_flight * BATCH
    }

    fn plan(&self, from: Sequence, until: Sequence) -> Result<ReadRun<Vec<Sequence>>, String> {
        let end = until.min(from + BATCH);
        let reads = vec![(from, (from..end).collect())];
        Ok(ReadRun { end, reads })
    }

    fn read(&self, read: Vec<Sequence>, gate: MemoryReservation<'_>) -> Vec<(Sequence, Sequence)> {
        drop(gate.admit(1));
        read.into_iter()
            .map(|sequence| (sequence, sequence))
            .collect()
    }

    fn is_expensive(&self, fetched: &Sequence) -> bool {
        self.expected && ticks(*fetched) > 8 * USUAL
    }

    fn open(&self, _: u64) -> Result<((), Vec<()>), String> {
        Ok(((), vec![(); BATCH as usize]))
    }

    fn scratch(&self) {}

    fn fill(
        &self,
        sequence: Sequence,
        _: Sequence,
        _: &mut (),
        _: &mut (),
    ) -> FillOutcome<TimedRows> {
        std::thread::sleep(REAL);
        let mut clock = self.clock();
        let end = clock.now.saturating_add(ticks(sequence));
        clock.ends.push(end);
        while clock.now < end {
            clock = self.moved.wait(clock).expect("no panic");
        }
        let at = clock.ends.iter().position(|&other| other == end);
        clock.ends.swap_remove(at.expect("is in the list"));
        FillOutcome::Done(())
    }

    fn close(&self, (): (), _: Vec<Result<(), String>>) -> Result<(), String> {
        Ok(())
    }
}

/// Waits until no thread can go on before the clock moves.
fn settle(executor: &Executor<TimedRows>) {
    let shared = &executor.shared;
    loop {
        {
            let state = shared.lock();
            let clock = shared.job.clock();
            let end = state.front + shared.config.in_flight_batches as u64;
            let horizon = shared.job.first(state.front) + shared.config.ahead;
            let next = state.fetched_records.keys().next();
            let no_row = next.is_none_or(|&first| first / BATCH >= end);
            let no_read = state.reads.is_empty() && state.planned >= horizon;
            let readers = state.idle_readers == shared.config.readers + 1;
            let filling = clock.ends.iter().filter(|&&end| end > clock.now).count();
            let woken = filling < clock.ends.len();
            let all = state.idle_workers + filling == WORKERS;
            if !woken && all && no_read && readers && (no_row || filling == WORKERS) {
                return;
            }
        }
        std::thread::yield_now();
    }
}

/// Moves the clock to the next end of a row, or to `until` if it comes first.
fn advance(executor: &Executor<TimedRows>, until: u64) {
    let job = &executor.shared.job;
    let mut clock = job.clock();
    clock.now = clock.ends.iter().copied().min().unwrap_or(until).min(until);
    job.moved.notify_all();
}

/// Runs a loop whose step takes `step` ticks. Returns the ticks that it waited for batches after the
/// first in-flight ones, and the ticks of the whole loop.
fn run(expected: bool, in_flight_batches: usize, batches: u64, step: u64) -> (u64, u64) {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let job = TimedRows {
        clock: Mutex::default(),
        moved: Condvar::new(),
        expected,
    };
    let config = Config {
        in_flight_batches,
        ahead: (in_flight_batches as u64 + 2) * BATCH,
        fetched_bytes: 1 << 20,
        ..config(WORKERS)
    };
    let executor = Executor::start(job, config, 0).expect("threads");
    let now = || executor.shared.job.clock().now;
    let mut waited = 0;
    for batch in 0..batches {
        let requested_at = now();
        loop {
            settle(&executor);
            match executor.next(Duration::ZERO) {
                NextBatch::Batch(()) => break,
                NextBatch::Timeout => advance(&executor, u64::MAX),
                other => panic!("not a batch: {other:?}"),
            }
        }
        if batch >= in_flight_batches as u64 {
            waited += now() - requested_at;
        }
        let end = now() + step;
        while now() < end {
            settle(&executor);
            advance(&executor, end);
        }
    }
    let spent = now();
    // Threads that fill rows must end.
    executor.shared.job.clock().now = u64::MAX;
    executor.shared.job.moved.notify_all();
    (waited, spent)
}

/// Simulated time of all rows on all workers, without any wait.
fn busy(batches: u64) -> u64 {
    (0..batches * BATCH).map(ticks).sum::<u64>() / WORKERS as u64
}

#[test]
fn slow_rows_cost_what_they_take() {
    let batches = 80;

    let (_, spent) = run(true, ENOUGH, batches, 0);

    let ideal = busy(batches);
    assert!(100 * spent <= 103 * ideal, "{spent}, at best {ideal}");
}

#[test]
fn workers_that_begin_with_slow_rows_lose_less_of_a_short_window() {
    let batches = 80;

    let (_, known) = run(true, FEW, batches, 0);
    let (_, unknown) = run(false, FEW, batches, 0);

    assert!(100 * known < 95 * unknown, "{known} {unknown}");
}

#[test]
fn a_step_with_slack_never_waits_for_slow_rows() {
    let batches = 80;
    let step = (5 * busy(batches)).div_ceil(4 * batches);

    let (waited, _) = run(true, ENOUGH, batches, step);

    assert_eq!(waited, 0);
}
