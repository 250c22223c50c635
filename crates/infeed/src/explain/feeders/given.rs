//! Feeders that there are, measured: with this machine's cores, without them, one by one, and none, in
//! turn, so that all of that meets the same machines.

use std::time::Duration;

use super::host;
use crate::error::Error;
use crate::explain::case::Case;
use crate::explain::feeding::FedHost;
use crate::explain::interval::Interval;
use crate::explain::trial::{Slice, Variant, interval, median, ratio};
use crate::loader::Stats;
use crate::loader::feeders::{FeederStats, Feeders, Hosts, Local};

/// Turns of each.
const ROUNDS: usize = 3;

/// Length of a turn, at least and at most.
const SLICE: Duration = Duration::from_millis(700);
const LONGEST: Duration = Duration::from_secs(20);

/// Batches that a turn holds, if that is no longer.
const BATCHES: f64 = 12.0;

/// Feeders that are run one by one at most; of more, the mean of all is taken.
const ALONE: usize = 4;

/// What feeders gave.
pub(super) struct Given {
    pub(super) hosts: Vec<FedHost>,
    /// Samples a second of one, on average; None where none was reached.
    pub(super) feeder: Option<Interval>,
    /// Samples a second with all and with none, and their ratio.
    pub(super) with: f64,
    pub(super) without: f64,
    pub(super) gain: Interval,
    /// Bytes of a sample, and bytes a second while they came.
    pub(super) sample_bytes: f64,
    pub(super) bytes_per_s: f64,
    /// Share of the time in which bytes came, of runs in which feeders made all.
    pub(super) busy: f64,
    /// Processor time here for a sample that comes, and for one that is made.
    pub(super) receive_s: f64,
    pub(super) make_s: f64,
}

/// A way to run, and what it gave.
struct Way {
    variant: Variant,
    slices: Vec<Slice>,
}

impl Way {
    fn new(variant: Variant) -> Way {
        Way {
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

    /// What the feeder of a number did in all turns, and how it was in the last.
    fn feeder(&self, at: usize) -> FeederStats {
        let turns = self.slices.iter();
        let mut turns = turns.filter_map(|slice| slice.stats.feeders.get(at));
        let first = turns.next().cloned().unwrap_or_default();
        turns.fold(first, |sum, turn| FeederStats {
            batches: sum.batches + turn.batches,
            bytes: sum.bytes + turn.bytes,
            wait: sum.wait + turn.wait,
            receiving: sum.receiving + turn.receiving,
            redone: sum.redone + turn.redone,
            ..turn.clone()
        })
    }
}

/// Runs with feeders and without.
///
/// # Errors
///
/// What refuses this run at a feeder; what stopped a loader; [`Error::Config`] if `go_on` said no before
/// anything was measured.
pub(super) fn given(
    case: &Case,
    feeders: &Feeders,
    go_on: &dyn Fn(f64) -> bool,
) -> Result<Given, Error> {
    let base = case.whole(None)?;
    let with = |hosts: &Hosts, local: Local| {
        let mut asked = feeders.clone();
        (asked.hosts, asked.local) = (hosts.clone(), local);
        let mut variant = base.clone();
        variant.options.feeders = Some(asked);
        variant
    };
    // What feeders give by themselves is asked for, not what a step takes.
    let alone = |hosts: &Hosts| {
        let mut variant = with(hosts, Local::Fallback);
        variant.step = None;
        Way::new(variant)
    };
    let hosts = &feeders.hosts;
    let mut ways = vec![
        Way::new(base.clone()),
        Way::new(with(hosts, feeders.local)),
        alone(hosts),
    ];
    if (2..=ALONE).contains(&hosts.count()) {
        ways.extend(hosts.each().iter().map(alone));
    }
    let total = (ROUNDS * ways.len()) as f64;
    let mut length = SLICE;
    for round in 0..ROUNDS {
        for turn in 0..ways.len() {
            if !go_on((round * ways.len() + turn) as f64 / total) {
                break;
            }
            // Each round begins elsewhere, so that no way always follows the same one.
            let at = (turn + round) % ways.len();
            let way = &mut ways[at];
            let slice = way.variant.watched(length)?;
            let wanted = BATCHES * case.rows() as f64 / slice.rate.max(1e-3);
            let wanted = Duration::from_secs_f64(wanted.min(LONGEST.as_secs_f64()));
            length = length.max(wanted);
            way.slices.push(slice);
        }
    }
    if ways.iter().any(|way| way.slices.is_empty()) {
        return Err(Error::config(
            "explain",
            "stopped before feeders were measured",
        ));
    }
    Ok(summed(case.rows() as f64, hosts.count(), &ways))
}

/// The numbers of all turns. Ways are: none, all beside own cores, all alone, and each alone.
fn summed(rows: f64, count: usize, ways: &[Way]) -> Given {
    let (none, help, all) = (&ways[0], &ways[1], &ways[2]);
    let of_feeders = |way: &Way, what: &dyn Fn(&FeederStats) -> f64| {
        way.sum(|stats| stats.feeders.iter().map(what).sum::<f64>())
    };
    let batches = |way: &Way| of_feeders(way, &|feeder| feeder.batches as f64);
    let bytes = |way: &Way| of_feeders(way, &|feeder| feeder.bytes as f64);
    let made = batches(help) + batches(all);
    let receiving = all.sum(|stats| stats.receiving.as_secs_f64());
    let running = all.sum(|stats| {
        let first = stats.first_batch.unwrap_or_default();
        stats.elapsed.saturating_sub(first).as_secs_f64()
    });
    let cpu = [help, all].map(|way| of_feeders(way, &|feeder| feeder.cpu.as_secs_f64()));
    let stages = |stats: &Stats| -> f64 {
        let cpu = stats
            .stages
            .iter()
            .map(|(_, stage)| stage.cpu.as_secs_f64());
        cpu.sum()
    };
    let hosts: Vec<FedHost> = (0..count)
        .map(|at| given_host(help, all, ways.get(3 + at), at, count))
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
    Given {
        feeder: feeder.filter(|_| made > 0.0),
        hosts,
        with: median(&help.rates()),
        without: median(&none.rates()),
        gain: ratio(&help.rates(), &none.rates()),
        sample_bytes: (bytes(help) + bytes(all)) / samples,
        bytes_per_s: bytes(all) / receiving.max(1e-9),
        busy: (receiving / running.max(1e-9)).min(1.0),
        receive_s: (cpu[0] + cpu[1]) / samples,
        make_s: none.sum(stages) / none.sum(|stats| stats.samples as f64).max(1.0),
    }
}

/// One feeder in all turns.
fn given_host(help: &Way, all: &Way, alone: Option<&Way>, at: usize, count: usize) -> FedHost {
    let helping = help.feeder(at);
    let alone = match (alone, count) {
        (Some(alone), _) => Some(interval(&alone.rates())),
        (None, 1) => Some(interval(&all.rates())),
        (None, _) => None,
    };
    let delivered = help.sum(|stats| stats.batches as f64) as u64;
    let elapsed = all.sum(|stats| stats.elapsed.as_secs_f64());
    FedHost {
        alone: alone.filter(|_| helping.connected),
        ..host(&helping, &all.feeder(at), (delivered, elapsed))
    }
}
