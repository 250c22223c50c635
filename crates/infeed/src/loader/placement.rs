//! `placement="auto"`: finds the share of row processing that the device does, during the run.
//!
//! All batch layouts have the same bits once they are on the device. So placements take turns on
//! the run's own steps, before the number of workers is tuned, and the best one stays. `judge`
//! decides; this module collects windows and carries out the decisions.

mod duel;
mod finding;
mod judge;

use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::records::RecordJob;
use super::running::{Loader, lock};
use super::tuning;
use super::window::{ConsumerStep, LoaderCounters, WindowCollector};
use crate::plan::device::{BatchLayouts, Placement};
use infeed_core::exec::Executor;
use infeed_device::ring::{RingStats, Route, Upload};

use duel::PlacementTurn;
use judge::{Judge, PlacementOption};

/// Steps skipped at the beginning in addition to in-flight batches, because they touch memory for
/// the first time.
const WARM_UP: u32 = 3;

/// Chosen placement, and the reason.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PlacementState {
    /// Placement of batches that begin now: [`Placement::Host`], [`Placement::Device`] or
    /// [`Placement::Resize`].
    pub choice: Placement,
    /// Whether the choice is settled. It stays until the load changes.
    pub settled: bool,
    /// Rejected placements once settled, the closest first.
    pub others: Vec<TriedPlacement>,
    /// Duration of a step with the choice, when it was chosen.
    pub step: Option<Duration>,
    /// The choice and its reason, in one line.
    pub why: String,
}

/// A placement that was tried and rejected.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct TriedPlacement {
    /// The placement.
    pub placement: Placement,
    /// Duration of its step divided by that of the choice.
    pub ratio: f64,
}

impl PlacementState {
    /// Returns the rejected placement that was closest to the choice.
    pub fn runner_up(&self) -> Option<Placement> {
        self.others.first().map(|tried| tried.placement)
    }
}

/// A placement that is not tried, and the reason.
type UntriedPlacement = Option<(Placement, &'static str)>;

/// Placement of one loader's batches.
#[derive(Debug)]
pub(super) struct PlacementControl {
    /// Placement of each batch layout.
    placements: Vec<Placement>,
    /// The reason if there is only one layout, as a suffix to its name.
    only: String,
    /// `None` if there is only one layout.
    trial: Option<Mutex<RunningTrial>>,
}

#[derive(Debug)]
struct RunningTrial {
    judge: Judge,
    left_out: UntriedPlacement,
    collector: WindowCollector,
    opened: Instant,
    /// Time of the last delivery; `None` if the next step does not count.
    delivered: Option<Instant>,
}

/// A delivered batch.
pub(super) struct DeliveredBatch {
    pub(super) layout: usize,
    /// Time of the request.
    pub(super) requested_at: Instant,
    pub(super) rows: u64,
}

/// Totals of a device, or of several devices that share every batch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DeviceTotals {
    /// Longest time that a consumer's stream waited for batches.
    pub(super) gaps: Duration,
    /// Total duration of transfers, and their number.
    pub(super) copying: Duration,
    pub(super) copied: u64,
}

impl DeviceTotals {
    /// Combines the totals of several devices.
    pub(super) fn of(each: impl Iterator<Item = RingStats>) -> DeviceTotals {
        each.fold(DeviceTotals::default(), |sum, stats| DeviceTotals {
            // A step waits for the slowest device.
            gaps: sum.gaps.max(stats.gaps.waited + stats.late.waited),
            copying: sum.copying + stats.times.copying,
            copied: sum.copied + stats.times.batches,
        })
    }
}

impl PlacementControl {
    /// Creates the control of a loader that was just opened.
    pub(super) fn new(layouts: &BatchLayouts, loader: &Loader) -> PlacementControl {
        let tries = layouts.each.len() > 1;
        if tries {
            loader.let_tuning_wait(true);
        }
        let option = |(placement, routes): &(Placement, Vec<Route>)| PlacementOption {
            placement: *placement,
            row_bytes: row_bytes(routes),
        };
        let trial = || RunningTrial {
            judge: Judge::new(layouts.each.iter().map(option).collect()),
            left_out: layouts.left_out,
            collector: WindowCollector::new(loader.flight.begun.saturating_add(WARM_UP)),
            opened: Instant::now(),
            delivered: None,
        };
        let only = match layouts.left_out {
            None => format!(", {}", layouts.only),
            left_out => left_out_text(left_out),
        };
        PlacementControl {
            placements: layouts
                .each
                .iter()
                .map(|(placement, _)| *placement)
                .collect(),
            only,
            trial: tries.then(|| Mutex::new(trial())),
        }
    }

    /// Returns the current choice.
    pub(super) fn state(&self) -> PlacementState {
        let Some(trial) = &self.trial else {
            let choice = self.placements[0];
            return PlacementState {
                choice,
                settled: true,
                others: Vec::new(),
                step: None,
                why: format!("placement: {}{}", choice.name(), self.only),
            };
        };
        let trial = lock(trial);
        let (choice, finding) = (trial.judge.placement(), trial.judge.finding());
        let others = finding.map(|finding| {
            let tried = |other: &finding::RejectedPlacement| TriedPlacement {
                placement: other.placement,
                ratio: other.ratio,
            };
            finding.others.iter().map(tried).collect()
        });
        let why = match finding {
            Some(finding) => finding.to_string(),
            None => format!(
                "placement: {}, which is being tried; not settled yet",
                choice.name()
            ),
        };
        PlacementState {
            choice,
            settled: finding.is_some(),
            others: others.unwrap_or_default(),
            step: finding.map(|finding| Duration::from_secs_f64(finding.step_s.clamp(0.0, 1e9))),
            why: why + &left_out_text(trial.left_out),
        }
    }

    /// Index of the layout of batches that begin now.
    pub(super) fn now(&self) -> usize {
        let trial = self.trial.as_ref();
        trial.map_or(0, |trial| self.layout_of(lock(trial).judge.placement()))
    }

    /// Index of the layout of all batches from now on; `None` during a trial.
    pub(super) fn settled_layout(&self) -> Option<usize> {
        let trial = lock(self.trial.as_ref()?);
        let finding = trial.judge.finding()?;
        Some(self.layout_of(finding.choice))
    }

    /// Discards the current window, because the consumer has moved in the order.
    pub(super) fn discard_window(&self, loader: &Loader) {
        if let Some(trial) = &self.trial {
            let mut trial = lock(trial);
            trial.delivered = None;
            trial.collector.restart(loader.flight.refilled);
        }
    }

    /// Records a delivered batch. `crossed` returns the device's totals so far. Returns whether the
    /// choice settled, or a new trial began.
    pub(super) fn record_delivery(
        &self,
        loader: &Loader,
        executor: &Executor<RecordJob>,
        delivery: &DeliveredBatch,
        crossed: impl Fn() -> DeviceTotals,
    ) -> bool {
        let Some(trial) = &self.trial else {
            return false;
        };
        let trial = &mut *lock(trial);
        let now = Instant::now();
        let Some(last) = trial.delivered.replace(now) else {
            return false;
        };
        let skip = loader.flight.begun;
        let before = trial.judge.placement();
        if trial.judge.finding().is_some() && !loader.is_tuned() {
            // Changes during the tuning of workers are not caused by placement.
            trial.collector.restart(skip);
            return false;
        }
        if self.placements[delivery.layout] != before {
            // This batch began before the last change, and more such batches may follow.
            trial.collector.restart(skip);
        }
        let step = ConsumerStep {
            at: now.saturating_duration_since(trial.opened),
            own: delivery.requested_at.saturating_duration_since(last),
            wait: now.saturating_duration_since(delivery.requested_at.max(last)),
            rows: delivery.rows,
        };
        let counters = || {
            let crossed = crossed();
            LoaderCounters {
                gaps: crossed.gaps,
                copying: crossed.copying,
                copied: crossed.copied,
                ..tuning::counters(executor)
            }
        };
        let Some(window) = trial.collector.step(step, skip, counters) else {
            return false;
        };
        self.update_judge(trial, loader, executor, |judge| {
            judge.observe(PlacementTurn {
                step_s: window.step_s,
                // The device waits while the consumer waits, and may wait longer.
                wait: window.wait().max(window.gap),
                bus: window.bus,
            });
        })
    }

    /// Removes a layout for which the device lacks memory, if another layout exists for the batches
    /// that begin from now on. Returns whether that is so.
    pub(super) fn refuse(
        &self,
        loader: &Loader,
        executor: &Executor<RecordJob>,
        layout: usize,
    ) -> bool {
        let (Some(trial), Some(&placement)) = (&self.trial, self.placements.get(layout)) else {
            return false;
        };
        if placement != Placement::Resize {
            // The other layouts need no more memory than any loader on a device.
            return false;
        }
        let trial = &mut *lock(trial);
        trial.left_out = Some((placement, "the device has no memory for its larger rows"));
        self.update_judge(trial, loader, executor, |judge| {
            judge.refuse(placement);
        });
        // All begun batches are made again.
        trial.delivered = None;
        trial.collector.restart(loader.flight.refilled);
        true
    }

    /// Applies `change` to the judge and carries out its decision. Returns whether the choice
    /// settled, or a new trial began.
    fn update_judge(
        &self,
        trial: &mut RunningTrial,
        loader: &Loader,
        executor: &Executor<RecordJob>,
        change: impl FnOnce(&mut Judge),
    ) -> bool {
        let was_settled = trial.judge.finding().is_some();
        let before = trial.judge.placement();
        change(&mut trial.judge);
        let placement = trial.judge.placement();
        if placement != before {
            tracing::debug!(
                "placement: {} instead of {}",
                placement.name(),
                before.name()
            );
            executor
                .job()
                .assembler()
                .set_layout(self.layout_of(placement));
            trial.collector.restart(loader.flight.begun);
        }
        let is_settled = trial.judge.finding().is_some();
        if is_settled == was_settled {
            return false;
        }
        // Slabs have room for all layouts on trial, and later only for the chosen one.
        let kept = self.layout_of(placement);
        executor
            .job()
            .assembler()
            .batcher()
            .make_room(match is_settled {
                true => kept..kept + 1,
                false => 0..self.layouts_on_trial(trial),
            });
        loader.let_tuning_wait(!is_settled);
        true
    }

    /// Number of layouts on trial. The one that may be left out is the last.
    fn layouts_on_trial(&self, trial: &RunningTrial) -> usize {
        let left_out = trial.left_out.map(|(placement, _)| placement);
        let is_there = left_out.is_some() && self.placements.last() == left_out.as_ref();
        self.placements.len() - usize::from(is_there)
    }

    /// Index of a placement's layout.
    fn layout_of(&self, placement: Placement) -> usize {
        let mut placements = self.placements.iter();
        placements
            .position(|other| *other == placement)
            .unwrap_or(0)
    }
}

/// Describes a placement that is not tried.
fn left_out_text(left_out: UntriedPlacement) -> String {
    let text = |(placement, why): (Placement, &str)| {
        format!("; {} is left out because {why}", placement.name())
    };
    left_out.map(text).unwrap_or_default()
}

/// Bytes of a row that cross the bus.
fn row_bytes(routes: &[Route]) -> u64 {
    let sent = routes
        .iter()
        .filter(|route| !matches!(route.upload, Upload::Stay));
    let bytes = sent.filter_map(|route| route.host.kind.row_bytes());
    bytes.map(|bytes| bytes as u64).sum()
}
