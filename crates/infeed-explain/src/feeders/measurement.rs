//! Measures existing feeders. Turns alternate between own cores alone, own cores with all feeders,
//! all feeders alone, and each feeder alone, so that all variants meet the same machine load.

use std::sync::Arc;
use std::time::Duration;

use super::host;
use crate::case::Case;
use crate::measure::trial::{interval, ratio};
use crate::measure::variant::{Slice, Variant};
use crate::model::feeders::FeederHost;
use crate::model::interval::Interval;
use infeed::loader::Stats;
use infeed::loader::remote::RemoteWorkerStats;
use infeed_core::compare::median;
use infeed_core::error::Error;
use infeed_feed::{Feeders, Hosts, Local};

/// Turns of each variant.
const ROUNDS: usize = 3;

/// Minimum and maximum length of a turn.
const SLICE: Duration = Duration::from_millis(700);
const LONGEST: Duration = Duration::from_secs(20);

/// Number of batches in a turn, if they fit into [`LONGEST`].
const BATCHES: f64 = 12.0;

/// Maximum number of feeders that are measured one by one. With more feeders, their mean is used.
const ALONE: usize = 4;

/// Measurements of all feeders.
pub(super) struct FeederMeasurements {
    pub(super) hosts: Vec<FeederHost>,
    /// Samples per second of one feeder, on average. None if no feeder was reached.
    pub(super) feeder: Option<Interval>,
    /// Samples per second with all feeders, and without feeders, and the ratio.
    pub(super) with: f64,
    pub(super) without: f64,
    pub(super) gain: Interval,
    /// Bytes of a sample, and bytes per second while bytes arrived.
    pub(super) sample_bytes: f64,
    pub(super) bytes_per_s: f64,
    /// Share of the time in which bytes arrived, in runs in which feeders made all batches.
    pub(super) busy: f64,
    /// This machine's processor time to receive a sample, and to make a sample, in seconds.
    pub(super) receive_s: f64,
    pub(super) make_s: f64,
}

/// A variant and its measured slices.
struct FeederRun {
    variant: Variant,
    slices: Vec<Slice>,
}

impl FeederRun {
    fn new(variant: Variant) -> FeederRun {
        FeederRun {
            variant,
            slices: Vec::new(),
        }
    }

    fn rates(&self) -> Vec<f64> {
        self.slices.iter().map(|slice| slice.rate).collect()
    }

    fn sum(&self, what: impl Fn(&Stats) -> f64) -> f64 {
        self.slices.iter().map(|slice| what(&slice.stats)).sum()
    }

    /// Sums the counters of a feeder over all turns. Its state is that of the last turn.
    fn feeder(&self, at: usize) -> RemoteWorkerStats {
        let turns = self.slices.iter();
        let mut turns = turns.filter_map(|slice| slice.stats.remote.get(at));
        let first = turns.next().cloned().unwrap_or_default();
        turns.fold(first, |sum, turn| RemoteWorkerStats {
            batches: sum.batches + turn.batches,
            bytes: sum.bytes + turn.bytes,
            wait: sum.wait + turn.wait,
            receiving: sum.receiving + turn.receiving,
            redone: sum.redone + turn.redone,
            ..turn.clone()
        })
    }
}

/// Runs the pipeline with feeders and without.
///
/// # Errors
///
/// Returns the error of a feeder that rejects the run, the error that stopped a loader, and
/// [`Error::Config`] if `go_on` stopped the work before the first measurement.
pub(super) fn measure_feeders(
    case: &Case,
    feeders: &Feeders,
    go_on: &dyn Fn(f64) -> bool,
) -> Result<FeederMeasurements, Error> {
    let base = case.whole(None)?;
    let with = |hosts: &Hosts, local: Local| {
        let mut remote = feeders.clone();
        (remote.hosts, remote.local) = (hosts.clone(), local);
        let mut variant = base.clone();
        variant.options.remote = Some(Arc::new(remote));
        variant
    };
    // Without a step, which would limit the rate of feeders.
    let alone = |hosts: &Hosts| {
        let mut variant = with(hosts, Local::Fallback);
        variant.step = None;
        FeederRun::new(variant)
    };
    let hosts = &feeders.hosts;
    let mut runs = vec![
        FeederRun::new(base.clone()),
        FeederRun::new(with(hosts, feeders.local)),
        alone(hosts),
    ];
    if (2..=ALONE).contains(&hosts.count()) {
        runs.extend(hosts.each().iter().map(alone));
    }
    let total = (ROUNDS * runs.len()) as f64;
    let mut length = SLICE;
    for round in 0..ROUNDS {
        for turn in 0..runs.len() {
            if !go_on((round * runs.len() + turn) as f64 / total) {
                break;
            }
            // Each round starts with another variant, so that none always follows the same one.
            let at = (turn + round) % runs.len();
            let run = &mut runs[at];
            let slice = run.variant.run_slice(length)?;
            let wanted = BATCHES * case.rows() as f64 / slice.rate.max(1e-3);
            let wanted = Duration::from_secs_f64(wanted.min(LONGEST.as_secs_f64()));
            length = length.max(wanted);
            run.slices.push(slice);
        }
    }
    if runs.iter().any(|run| run.slices.is_empty()) {
        return Err(Error::config(
            "explain",
            "stopped before feeders were measured",
        ));
    }
    Ok(sum_turns(case.rows() as f64, hosts.count(), &runs))
}

/// Sums up all turns. The order of `runs` is: own cores alone, own cores with all feeders, all
/// feeders alone, each feeder alone.
fn sum_turns(rows: f64, count: usize, runs: &[FeederRun]) -> FeederMeasurements {
    let (none, help, all) = (&runs[0], &runs[1], &runs[2]);
    let of_feeders = |run: &FeederRun, what: &dyn Fn(&RemoteWorkerStats) -> f64| {
        run.sum(|stats| stats.remote.iter().map(what).sum::<f64>())
    };
    let batches = |run: &FeederRun| of_feeders(run, &|feeder| feeder.batches as f64);
    let bytes = |run: &FeederRun| of_feeders(run, &|feeder| feeder.bytes as f64);
    let made = batches(help) + batches(all);
    let receiving = all.sum(|stats| stats.receiving.as_secs_f64());
    let running = all.sum(|stats| {
        let first = stats.first_batch.unwrap_or_default();
        stats.elapsed.saturating_sub(first).as_secs_f64()
    });
    let cpu = [help, all].map(|run| of_feeders(run, &|feeder| feeder.cpu.as_secs_f64()));
    let stages = |stats: &Stats| -> f64 {
        let cpu = stats
            .stages
            .iter()
            .map(|(_, stage)| stage.cpu.as_secs_f64());
        cpu.sum()
    };
    let hosts: Vec<FeederHost> = (0..count)
        .map(|at| sum_host(help, all, runs.get(3 + at), at, count))
        .collect();
    let reached: Vec<f64> = hosts
        .iter()
        .filter(|host| host.connected)
        .filter_map(|host| Some(host.alone?.mid))
        .collect();
    let connected = hosts.iter().filter(|host| host.connected).count();
    let feeder = match (reached.is_empty(), connected) {
        (_, 0) => None,
        (false, _) => Some(interval(&[
            reached.iter().sum::<f64>() / reached.len() as f64
        ])),
        (true, count) => Some(interval(&all.rates()).map(|rate| rate / count as f64)),
    };
    let samples = made.max(1.0) * rows;
    FeederMeasurements {
        feeder: feeder.filter(|_| made > 0.0),
        hosts,
        with: median(help.rates()),
        without: median(none.rates()),
        gain: ratio(&help.rates(), &none.rates()),
        sample_bytes: (bytes(help) + bytes(all)) / samples,
        bytes_per_s: bytes(all) / receiving.max(1e-9),
        busy: (receiving / running.max(1e-9)).min(1.0),
        receive_s: (cpu[0] + cpu[1]) / samples,
        make_s: none.sum(stages) / none.sum(|stats| stats.samples as f64).max(1.0),
    }
}

/// Sums up one feeder over all turns.
fn sum_host(
    help: &FeederRun,
    all: &FeederRun,
    alone: Option<&FeederRun>,
    at: usize,
    count: usize,
) -> FeederHost {
    let helping = help.feeder(at);
    let alone = match (alone, count) {
        (Some(alone), _) => Some(interval(&alone.rates())),
        (None, 1) => Some(interval(&all.rates())),
        (None, _) => None,
    };
    let delivered = help.sum(|stats| stats.batches as f64) as u64;
    let elapsed = all.sum(|stats| stats.elapsed.as_secs_f64());
    FeederHost {
        alone: alone.filter(|_| helping.connected),
        ..host(&helping, &all.feeder(at), (delivered, elapsed))
    }
}
