//! `placement="auto"`: how much of the work on rows is the device's, found and kept while the run goes on.
//!
//! Batches of all forms are the same bits once they are on the device, so ways are tried on the run's own
//! steps, in turn, before the number of workers is tuned, and the best is kept. `judge` says which that is;
//! here, steps become windows and what it wants is done.

mod duel;
mod finding;
mod judge;

use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::records::Records;
use super::window::{Collector, Counters, Step};
use super::{Loader, lock, tuning};
use crate::device::ring::{RingStats, Route, Upload};
use crate::exec::Conveyor;
use crate::plan::device::{Forms, Placement};

use duel::Turn;
use judge::{Judge, Way};

/// Steps that are left out at the beginning beside batches under way: memory is touched for the first
/// time there.
const WARM_UP: u32 = 3;

/// Who makes rows larger, and why.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Placed {
    /// [`Placement::Host`], [`Placement::Device`] or [`Placement::Resize`]: what batches are begun with
    /// now.
    pub choice: Placement,
    /// Whether it stays, for as long as the load stays what it is.
    pub settled: bool,
    /// What was tried beside it, once that has settled; the nearest first.
    pub others: Vec<Tried>,
    /// Time of a step with the choice, when it was chosen.
    pub step: Option<Duration>,
    /// What was chosen and why, in one line.
    pub why: String,
}

/// A way that was tried, and not chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Tried {
    /// Which.
    pub placement: Placement,
    /// Time of a step with it, as a share of that with the choice.
    pub ratio: f64,
}

impl Placed {
    /// The nearest to the choice of what was tried beside it.
    pub fn runner_up(&self) -> Option<Placement> {
        self.others.first().map(|tried| tried.placement)
    }
}

/// A way that is not tried, and why.
type LeftOut = Option<(Placement, &'static str)>;

/// The placement of one loader's batches.
#[derive(Debug)]
pub(super) struct Placing {
    /// Of each form.
    forms: Vec<Placement>,
    /// Why there is one, as it is told behind its name.
    only: String,
    /// None where there is one.
    trial: Option<Mutex<Trial>>,
}

#[derive(Debug)]
struct Trial {
    judge: Judge,
    left_out: LeftOut,
    collector: Collector,
    opened: Instant,
    /// When the consumer got its last batch; None where the next step does not count.
    delivered: Option<Instant>,
}

/// A batch that the consumer has got.
pub(super) struct Delivery {
    pub(super) form: usize,
    /// When it was asked for.
    pub(super) asked: Instant,
    pub(super) rows: u64,
}

/// What a device did so far, or devices that each have a part of every batch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Crossed {
    /// How long the consumer's stream waited for batches; the longest.
    pub(super) gaps: Duration,
    /// How long copies of batches took, and of how many.
    pub(super) copying: Duration,
    pub(super) copied: u64,
}

impl Crossed {
    /// What several devices did.
    pub(super) fn of(each: impl Iterator<Item = RingStats>) -> Crossed {
        each.fold(Crossed::default(), |sum, stats| Crossed {
            // A step is as late as the last of them.
            gaps: sum.gaps.max(stats.gaps.waited + stats.late.waited),
            copying: sum.copying + stats.times.copying,
            copied: sum.copied + stats.times.batches,
        })
    }
}

impl Placing {
    /// Of a loader that was just opened.
    pub(super) fn new(forms: &Forms, loader: &Loader) -> Placing {
        let tries = forms.each.len() > 1;
        if tries {
            loader.let_tuning_wait(true);
        }
        let way = |(placement, routes): &(Placement, Vec<Route>)| Way {
            placement: *placement,
            row_bytes: row_bytes(routes),
        };
        let trial = || Trial {
            judge: Judge::new(forms.each.iter().map(way).collect()),
            left_out: forms.left_out,
            collector: Collector::new(loader.flight.begun.saturating_add(WARM_UP)),
            opened: Instant::now(),
            delivered: None,
        };
        let only = match forms.left_out {
            None => format!(", {}", forms.only),
            left_out => told(left_out),
        };
        Placing {
            forms: forms.each.iter().map(|(placement, _)| *placement).collect(),
            only,
            trial: tries.then(|| Mutex::new(trial())),
        }
    }

    /// What it has come to.
    pub(super) fn placed(&self) -> Placed {
        let Some(trial) = &self.trial else {
            let choice = self.forms[0];
            return Placed {
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
            let tried = |other: &finding::Other| Tried {
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
        Placed {
            choice,
            settled: finding.is_some(),
            others: others.unwrap_or_default(),
            step: finding.map(|finding| Duration::from_secs_f64(finding.step_s.clamp(0.0, 1e9))),
            why: why + &told(trial.left_out),
        }
    }

    /// Number of the form that batches are begun with now.
    pub(super) fn now(&self) -> usize {
        let trial = self.trial.as_ref();
        trial.map_or(0, |trial| self.form(lock(trial).judge.placement()))
    }

    /// Number of the form that batches have from now on; None while others are tried.
    pub(super) fn kept(&self) -> Option<usize> {
        let trial = lock(self.trial.as_ref()?);
        let finding = trial.judge.finding()?;
        Some(self.form(finding.choice))
    }

    /// Leaves out what is under way: the consumer went elsewhere in the order.
    pub(super) fn disturbed(&self, loader: &Loader) {
        if let Some(trial) = &self.trial {
            let mut trial = lock(trial);
            trial.delivered = None;
            trial.collector.restart(loader.flight.refilled);
        }
    }

    /// Enters a batch that was handed over now; `crossed` tells what the device did so far. Says whether it
    /// settled with that, or began to try again.
    pub(super) fn delivered(
        &self,
        loader: &Loader,
        conveyor: &Conveyor<Records>,
        delivery: &Delivery,
        crossed: impl Fn() -> Crossed,
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
            // What changes meanwhile is the search's doing.
            trial.collector.restart(skip);
            return false;
        }
        if self.forms[delivery.form] != before {
            // It was begun before the last change, and there may be more of them.
            trial.collector.restart(skip);
        }
        let step = Step {
            at: now.saturating_duration_since(trial.opened),
            own: delivery.asked.saturating_duration_since(last),
            wait: now.saturating_duration_since(delivery.asked.max(last)),
            rows: delivery.rows,
        };
        let counters = || {
            let crossed = crossed();
            Counters {
                gaps: crossed.gaps,
                copying: crossed.copying,
                copied: crossed.copied,
                ..tuning::counters(conveyor)
            }
        };
        let Some(window) = trial.collector.step(step, skip, counters) else {
            return false;
        };
        self.changed(trial, loader, conveyor, |judge| {
            judge.observe(Turn {
                step_s: window.step_s,
                // The device waits while the consumer does, and may wait longer.
                wait: window.wait().max(window.gap),
                bus: window.bus,
            });
        })
    }

    /// Leaves out a form for which the device has no memory, if batches may have another: they are begun
    /// with that from now on.
    pub(super) fn refuse(
        &self,
        loader: &Loader,
        conveyor: &Conveyor<Records>,
        form: usize,
    ) -> bool {
        let (Some(trial), Some(&placement)) = (&self.trial, self.forms.get(form)) else {
            return false;
        };
        if placement != Placement::Resize {
            // The others take no more than what every loader on a device takes.
            return false;
        }
        let trial = &mut *lock(trial);
        trial.left_out = Some((placement, "the device gave no memory for its larger rows"));
        self.changed(trial, loader, conveyor, |judge| {
            judge.refuse(placement);
        });
        // All that was begun is made again.
        trial.delivered = None;
        trial.collector.restart(loader.flight.refilled);
        true
    }

    /// Has the judge look at something, and does what it then wants. Says whether it settled, or
    /// began to try again.
    fn changed(
        &self,
        trial: &mut Trial,
        loader: &Loader,
        conveyor: &Conveyor<Records>,
        look: impl FnOnce(&mut Judge),
    ) -> bool {
        let was_settled = trial.judge.finding().is_some();
        let before = trial.judge.placement();
        look(&mut trial.judge);
        let placement = trial.judge.placement();
        if placement != before {
            tracing::debug!(
                "placement: {} instead of {}",
                placement.name(),
                before.name()
            );
            conveyor.job().set_form(self.form(placement));
            trial.collector.restart(loader.flight.begun);
        }
        let is_settled = trial.judge.finding().is_some();
        if is_settled == was_settled {
            return false;
        }
        // Slabs have room for what is tried, and no more than that for what is kept.
        let kept = self.form(placement);
        conveyor.job().batcher().make_room(match is_settled {
            true => kept..kept + 1,
            false => 0..self.tried(trial),
        });
        loader.let_tuning_wait(!is_settled);
        true
    }

    /// How many of the forms are tried: what may be left out comes last.
    fn tried(&self, trial: &Trial) -> usize {
        let left_out = trial.left_out.map(|(placement, _)| placement);
        let is_there = left_out.is_some() && self.forms.last() == left_out.as_ref();
        self.forms.len() - usize::from(is_there)
    }

    /// Number of the form of a placement.
    fn form(&self, placement: Placement) -> usize {
        let mut forms = self.forms.iter();
        forms.position(|form| *form == placement).unwrap_or(0)
    }
}

/// What is told of a way that is not tried.
fn told(left_out: LeftOut) -> String {
    let told = |(placement, why): (Placement, &str)| {
        format!("; {} is left out, since {why}", placement.name())
    };
    left_out.map(told).unwrap_or_default()
}

/// Bytes of a row that cross the bus.
fn row_bytes(routes: &[Route]) -> u64 {
    let sent = routes
        .iter()
        .filter(|route| !matches!(route.upload, Upload::Stay));
    let bytes = sent.filter_map(|route| route.host.kind.row_bytes());
    bytes.map(|bytes| bytes as u64).sum()
}
