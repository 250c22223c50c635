//! `workers="auto"`: how many workers work, found and kept while the loader runs.
//!
//! Decided on the consumer's thread, now and then, by the time of a step as the consumer sees it.
//! Which worker fills a row changes no bit, so neither does this.
//!
//! The parts: `search` makes moves by windows of steps, `judge` compares two settings, `cores` and
//! `neighbours` say how many cores there are to count on.

mod cores;
mod judge;
mod neighbours;
mod search;
#[cfg(test)]
mod tests;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use infeed_raw::machine::process_cpu_time;

use super::Options;
use super::budget::{Shares, Slabs};
use super::records::Records;
use super::whole::Whole;
use super::window::{Collector, Counters, Flight, Step};
use crate::counters::{Stage, StageStats};
use crate::error::Error;
use crate::exec::Conveyor;

use cores::Cores;
use search::Search;

/// Workers there are for each core that they may use, most of them parked: what waits in workers
/// (pages of a mapped file, a user's process) can use more of them than cores.
const PER_CORE: usize = 2;

/// Batches that are left out at the beginning beside those under way: memory is touched for the
/// first time there.
const WARM_UP: u32 = 3;

/// How often neighbours are looked for.
const LOOK_AROUND: Duration = Duration::from_secs(5);

/// What tuning has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tuned {
    /// Cores that the loader counts on: those of this process, shared with other ranks.
    pub cores: usize,
    /// Most workers that it may let work.
    pub most: usize,
    /// Whether it has settled, for as long as the load stays what it is.
    pub settled: bool,
    /// What was chosen and why, in one line.
    pub text: String,
}

/// Tuning of one loader.
#[derive(Debug)]
pub(super) struct Tuning {
    cores: Cores,
    search: Search,
    collector: Collector,
    most: usize,
    opened: Instant,
    /// When the consumer got its last batch; None where the next step does not count.
    delivered: Option<Instant>,
    looked_around: Instant,
}

/// The memory of a loader that is opened with these options, its worker threads, and the tuning of
/// how many of them work, unless that was given.
///
/// # Errors
///
/// [`Error::Budget`].
pub(super) fn shared_out(
    options: &Options,
    slabs: Slabs,
    own_cells: bool,
    whole: Whole,
) -> Result<(Shares, usize, Option<Tuning>), Error> {
    let beside = cores::ranks_here(options.world_size);
    if let Some(workers) = options.workers {
        let memory = options.memory;
        let shares = Shares::new(memory, beside, slabs, workers, own_cells, whole)?;
        return Ok((shares, workers, None));
    }
    let cores = Cores::join(options.world_size);
    let now = cores.now();
    let counts = (now, PER_CORE * now);
    let (shares, most) =
        Shares::for_at_most(options.memory, beside, slabs, counts, own_cells, whole)?;
    Ok((shares, most, Some(Tuning::new(cores, now, most))))
}

/// Cores that a loader of one of so many ranks may count on, where nothing is tuned.
pub(super) fn cores(world_size: u64) -> usize {
    Cores::join(world_size).now()
}

impl Tuning {
    fn new(cores: Cores, now: usize, most: usize) -> Tuning {
        let opened = Instant::now();
        Tuning {
            search: Search::new(now, most),
            cores,
            collector: Collector::new(WARM_UP),
            most,
            opened,
            delivered: None,
            looked_around: opened,
        }
    }

    /// Workers that are to work now.
    pub(super) fn workers(&self) -> usize {
        self.search.workers()
    }

    /// What it has come to.
    pub(super) fn tuned(&self) -> Tuned {
        let finding = self.search.finding();
        Tuned {
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

    /// Leaves out what is under way: the consumer went elsewhere in the order.
    pub(super) fn disturbed(&mut self, flight: Flight) {
        self.delivered = None;
        self.collector.restart(flight.refilled);
    }

    /// Whether it has settled.
    pub(super) fn is_settled(&self) -> bool {
        self.search.finding().is_some()
    }

    /// Leaves its cores to others: nothing is made any more.
    pub(super) fn leave(&mut self) {
        self.cores.leave();
    }

    /// Enters a batch of so many rows, asked for then and handed over now. Gives a line for the
    /// log when it settles.
    pub(super) fn delivered(
        &mut self,
        conveyor: &Conveyor<Records>,
        flight: Flight,
        asked: Instant,
        rows: u64,
    ) -> Option<String> {
        let now = Instant::now();
        let last = self.delivered.replace(now)?;
        let step = Step {
            at: now.saturating_duration_since(self.opened),
            own: asked.saturating_duration_since(last),
            wait: now.saturating_duration_since(asked.max(last)),
            rows,
        };
        let counters = || counters(conveyor);
        let window = self.collector.step(step, flight.refilled, counters)?;
        let before = (self.search.workers(), self.search.finding().is_some());
        self.search.observe(window);
        if now.saturating_duration_since(self.looked_around) >= LOOK_AROUND {
            self.looked_around = now;
            self.search.set_cores(self.cores.now());
        }
        let workers = self.search.workers();
        if workers != before.0 {
            tracing::debug!("workers: {workers} instead of {}", before.0);
            conveyor.set_workers(workers);
            self.collector.restart(match workers > before.0 {
                true => flight.refilled,
                false => flight.begun,
            });
        }
        let settled = self.search.finding().filter(|_| !before.1)?;
        Some(settled.to_string())
    }
}

/// What a loader's threads counted, without what a device did.
pub(super) fn counters(conveyor: &Conveyor<Records>) -> Counters {
    let time = |ns: &std::sync::atomic::AtomicU64| Duration::from_nanos(ns.load(Ordering::Relaxed));
    let mut counted = StageStats::default();
    for stage in Stage::ALL {
        conveyor.job().add_counts(stage, &mut counted);
    }
    Counters {
        rows: conveyor.work().rows.load(Ordering::Relaxed),
        busy: time(&conveyor.work().busy_ns),
        starved: time(&conveyor.waits().starved_ns),
        own_cpu: counted.cpu,
        process_cpu: process_cpu_time(),
        ..Counters::default()
    }
}
