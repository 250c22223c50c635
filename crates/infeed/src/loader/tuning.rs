//! `workers="auto"`: finds the number of active workers, during the run.
//!
//! The consumer's thread decides from time to time, by the duration of the consumer's steps. The
//! worker that fills a row changes no bit, so the decision changes none either.
//!
//! The parts: `search` makes moves from windows of steps, `judge` compares two settings.

mod judge;
mod search;
#[cfg(test)]
mod tests;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use infeed_raw::machine::process_cpu_time;

use super::cores::SharedCores;
use super::records::RecordJob;
use super::window::{BatchesInFlight, ConsumerStep, LoaderCounters, WindowCollector};
use infeed_core::counters::{Stage, StageStats};
use infeed_core::exec::Executor;

use search::WorkerSearch;

/// Batches skipped at the beginning in addition to in-flight batches, because they touch memory for
/// the first time.
const WARM_UP: u32 = 3;

/// Interval between checks for neighbours.
const NEIGHBOUR_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// State of the worker tuning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TuningState {
    /// Cores that the loader may use: this process's share, next to other ranks.
    pub cores: usize,
    /// Maximum number of active workers.
    pub most: usize,
    /// Whether the number is settled. It stays until the load changes.
    pub settled: bool,
    /// The number and its reason, in one line.
    pub text: String,
}

/// Tuning of one loader.
#[derive(Debug)]
pub(super) struct Tuning {
    cores: SharedCores,
    search: WorkerSearch,
    collector: WindowCollector,
    most: usize,
    opened: Instant,
    /// Time of the last delivery; `None` if the next step does not count.
    delivered: Option<Instant>,
    neighbours_checked_at: Instant,
}

impl Tuning {
    /// Begins with `now` active workers, one per usable core, of at most `most`.
    pub(super) fn new(cores: SharedCores, now: usize, most: usize) -> Tuning {
        let opened = Instant::now();
        Tuning {
            search: WorkerSearch::new(now, most),
            cores,
            collector: WindowCollector::new(WARM_UP),
            most,
            opened,
            delivered: None,
            neighbours_checked_at: opened,
        }
    }

    /// Number of active workers.
    pub(super) fn workers(&self) -> usize {
        self.search.workers()
    }

    /// Returns the current state.
    pub(super) fn state(&self) -> TuningState {
        let finding = self.search.finding();
        TuningState {
            cores: self.search.cores(),
            most: self.most,
            settled: finding.is_some(),
            text: match finding {
                Some(finding) => finding.to_string(),
                None => format!(
                    "workers: {} on {} cores, not settled yet",
                    self.search.workers(),
                    self.search.cores()
                ),
            },
        }
    }

    /// Discards the current window, because the consumer has moved in the order.
    pub(super) fn discard_window(&mut self, flight: BatchesInFlight) {
        self.delivered = None;
        self.collector.restart(flight.refilled);
    }

    /// Whether the number has settled.
    pub(super) fn is_settled(&self) -> bool {
        self.search.finding().is_some()
    }

    /// Releases its cores for others, because this loader makes no more batches.
    pub(super) fn leave(&mut self) {
        self.cores.leave();
    }

    /// Records the delivery of a batch of `rows` rows, requested at `requested_at`. Returns a line for the
    /// log when the number settles.
    pub(super) fn record_delivery(
        &mut self,
        executor: &Executor<RecordJob>,
        flight: BatchesInFlight,
        requested_at: Instant,
        rows: u64,
    ) -> Option<String> {
        let now = Instant::now();
        let last = self.delivered.replace(now)?;
        let step = ConsumerStep {
            at: now.saturating_duration_since(self.opened),
            own: requested_at.saturating_duration_since(last),
            wait: now.saturating_duration_since(requested_at.max(last)),
            rows,
        };
        let counters = || counters(executor);
        let window = self.collector.step(step, flight.refilled, counters)?;
        let before = (self.search.workers(), self.search.finding().is_some());
        self.search.observe(window);
        if now.saturating_duration_since(self.neighbours_checked_at) >= NEIGHBOUR_CHECK_INTERVAL {
            self.neighbours_checked_at = now;
            self.search.set_cores(self.cores.now());
        }
        let workers = self.search.workers();
        if workers != before.0 {
            tracing::debug!("workers: {workers} instead of {}", before.0);
            executor.set_workers(workers);
            self.collector.restart(match workers > before.0 {
                true => flight.refilled,
                false => flight.begun,
            });
        }
        let settled = self.search.finding().filter(|_| !before.1)?;
        Some(settled.to_string())
    }
}

/// Collects the counters of a loader's threads, without those of a device.
pub(super) fn counters(executor: &Executor<RecordJob>) -> LoaderCounters {
    let time = |ns: &std::sync::atomic::AtomicU64| Duration::from_nanos(ns.load(Ordering::Relaxed));
    let mut counted = StageStats::default();
    for stage in Stage::ALL {
        executor.job().add_counts(stage, &mut counted);
    }
    LoaderCounters {
        rows: executor.work().rows.load(Ordering::Relaxed),
        busy: time(&executor.work().busy_ns),
        starved: time(&executor.waits().starved_ns),
        own_cpu: counted.cpu,
        process_cpu: process_cpu_time(),
        ..LoaderCounters::default()
    }
}
