//! The executor's own time for a row: claiming, handing over, waking threads. A part of it is spent
//! under one lock, so it bounds the rate of any number of cores.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use infeed_core::error::Error;
use infeed_core::exec::budget::Permit;
use infeed_core::exec::{
    BatchChoice, Config, Executor, FillOutcome, Job, MemoryReservation, NextBatch, OpenedBatch,
    ReadRun, RowLocation, Sequence,
};
use infeed_raw::machine::{process_cpu_time, thread_cpu_time};

/// Longest time of a row. Workers claim rows of this time one by one, as they claim all slower rows.
const LONGEST_ROW: Duration = Duration::from_micros(100);

/// Rows of a batch.
const ROWS: u64 = 64;

/// Batches in flight, as in a loader.
const IN_FLIGHT_BATCHES: usize = 4;

/// Length of the measurement.
const SLICE: Duration = Duration::from_millis(300);

/// Longest wait for a batch.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A job whose rows only take time.
struct IdleRows {
    row: Duration,
    /// Processor time inside `fill`, in nanoseconds.
    filling_ns: AtomicU64,
}

impl Job for IdleRows {
    type Read = Sequence;
    type FetchedData = Option<Permit>;
    type InFlight = ();
    type Row = ();
    type RowOutput = ();
    type Batch = u64;
    type Scratch<'job> = ();
    type Fault = ();

    fn place(&self, sequence: Sequence) -> RowLocation {
        RowLocation {
            in_flight: sequence / ROWS,
            row: (sequence % ROWS) as usize,
        }
    }

    fn first(&self, in_flight: u64) -> Sequence {
        in_flight * ROWS
    }

    fn plan(&self, from: Sequence, until: Sequence) -> Result<ReadRun<Sequence>, ()> {
        let end = (from + ROWS / 2).min(until);
        Ok(ReadRun {
            end,
            reads: (from..end).map(|sequence| (sequence, sequence)).collect(),
        })
    }

    fn read(&self, read: Sequence, gate: MemoryReservation<'_>) -> Vec<(Sequence, Option<Permit>)> {
        vec![(read, gate.admit(1).ok())]
    }

    fn open(&self, _: u64) -> Result<OpenedBatch<Self>, ()> {
        Ok(((), vec![(); ROWS as usize]))
    }

    fn scratch(&self) {}

    fn fill(&self, _: Sequence, _: Option<Permit>, (): &mut (), (): &mut ()) -> FillOutcome<Self> {
        let (begun, before) = (Instant::now(), thread_cpu_time());
        while begun.elapsed() < self.row {
            std::hint::spin_loop();
        }
        let spent = thread_cpu_time().saturating_sub(before);
        let spent = u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX);
        // Relaxed: a sum that is read after the run.
        self.filling_ns.fetch_add(spent, Ordering::Relaxed);
        FillOutcome::Done(())
    }

    fn close(&self, (): (), rows: Vec<Result<(), ()>>) -> Result<u64, ()> {
        Ok(rows.len() as u64)
    }
}

/// Measures the processor time in seconds that the executor takes for a row of `row_s` seconds, in
/// all its threads together and outside the job. The time under its lock is at most that.
///
/// # Errors
///
/// If a thread cannot be started.
///
/// # Cost
///
/// 0.3 s with `workers` busy cores.
pub(super) fn executor_s(row_s: f64, workers: usize, readers: usize) -> Result<f64, Error> {
    let row = Duration::from_secs_f64(row_s.clamp(0.0, LONGEST_ROW.as_secs_f64()));
    let job = IdleRows {
        row,
        filling_ns: AtomicU64::new(0),
    };
    let config = Config {
        workers: workers.max(1),
        working: workers.max(1),
        readers: readers.max(1),
        in_flight_batches: IN_FLIGHT_BATCHES,
        ahead: (IN_FLIGHT_BATCHES as u64 + 2) * ROWS,
        fetched_bytes: 1 << 20,
        spare_bytes: 1 << 10,
        taking: BatchChoice::All,
    };
    let executor = Executor::start(job, config, 0)
        .map_err(|error| Error::open("a thread of the executor", error))?;
    let next = || match executor.next(TIMEOUT) {
        NextBatch::Batch(rows) => rows,
        _ => 0,
    };
    // The first batches start the threads.
    let _ = (next(), next());
    let filled = || executor.job().filling_ns.load(Ordering::Relaxed) as f64 / 1e9;
    let (begun, cpu, filling, mut rows) = (Instant::now(), process_cpu_time(), filled(), 0);
    while begun.elapsed() < SLICE {
        match next() {
            0 => break,
            more => rows += more,
        }
    }
    let spent = process_cpu_time().saturating_sub(cpu).as_secs_f64();
    let own = (spent - (filled() - filling)).max(0.0);
    Ok(own / rows.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_executor_takes_microseconds_for_a_row() {
        for row_s in [0.0, 1e-3] {
            let found = executor_s(row_s, 2, 2).expect("threads start");

            assert!((1e-8..1e-3).contains(&found), "{row_s}: {found}");
        }
    }
}
