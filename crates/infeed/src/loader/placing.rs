//! `placement="auto"`: who makes rows larger, the host or the device, found and kept while the run goes
//! on.
//!
//! Batches of the two forms are the same bits once they are on the device, so both are tried on the
//! run's own steps, in turn, before the number of workers is tuned, and the better is kept. `judge`
//! says which that is; here, steps become windows and what it wants is done.

mod judge;

use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::records::Records;
use super::window::{Collector, Counters, Step};
use super::{Loader, lock, tuning};
use crate::exec::Conveyor;
use crate::plan::device::{Forms, Placement};

use judge::{Judge, Turn};

/// Steps that are left out at the beginning beside batches under way: memory is touched for the first
/// time there.
const WARM_UP: u32 = 3;

/// Who makes rows larger, and why.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Placed {
    /// [`Placement::Host`], [`Placement::Device`] or, where it was asked for, [`Placement::Resize`]: what
    /// batches are begun with now.
    pub choice: Placement,
    /// Whether it stays, for as long as the load stays what it is.
    pub settled: bool,
    /// What was tried beside it, once that has settled.
    pub runner_up: Option<Placement>,
    /// Time of a step with the runner-up, as a share of that with the choice.
    pub ratio: Option<f64>,
    /// Time of a step with the choice, when it was chosen.
    pub step: Option<Duration>,
    /// What was chosen and why, in one line.
    pub why: String,
}

/// The placement of one loader's batches.
#[derive(Debug)]
pub(super) struct Placing {
    /// Of each form.
    forms: Vec<Placement>,
    /// Why there is one.
    only: &'static str,
    /// None where there is one.
    trial: Option<Mutex<Trial>>,
}

#[derive(Debug)]
struct Trial {
    judge: Judge,
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

impl Placing {
    /// Of a loader that was just opened.
    pub(super) fn new(forms: &Forms, loader: &Loader) -> Placing {
        let tries = forms.each.len() > 1;
        if tries {
            loader.let_tuning_wait(true);
        }
        let trial = || Trial {
            judge: Judge::new(),
            collector: Collector::new(loader.flight.begun.saturating_add(WARM_UP)),
            opened: Instant::now(),
            delivered: None,
        };
        Placing {
            forms: forms.each.iter().map(|(placement, _)| *placement).collect(),
            only: forms.only,
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
                runner_up: None,
                ratio: None,
                step: None,
                why: format!("placement: {}, {}", choice.name(), self.only),
            };
        };
        let trial = lock(trial);
        let (choice, finding) = (trial.judge.placement(), trial.judge.finding());
        Placed {
            choice,
            settled: finding.is_some(),
            runner_up: finding.map(judge::Finding::runner_up),
            ratio: finding.map(|finding| finding.ratio),
            step: finding.map(|finding| Duration::from_secs_f64(finding.step_s.clamp(0.0, 1e9))),
            why: match finding {
                Some(finding) => finding.to_string(),
                None => format!(
                    "placement: {}, which is being tried; not settled yet",
                    choice.name()
                ),
            },
        }
    }

    /// Leaves out what is under way: the consumer went elsewhere in the order.
    pub(super) fn disturbed(&self, loader: &Loader) {
        if let Some(trial) = &self.trial {
            let mut trial = lock(trial);
            trial.delivered = None;
            trial.collector.restart(loader.flight.refilled);
        }
    }

    /// Enters a batch that was handed over now; `gaps` tells how long the device has waited so far.
    /// Gives a line for the log when it settles.
    pub(super) fn delivered(
        &self,
        loader: &Loader,
        conveyor: &Conveyor<Records>,
        delivery: &Delivery,
        gaps: impl Fn() -> Duration,
    ) -> Option<String> {
        let trial = &mut *lock(self.trial.as_ref()?);
        let now = Instant::now();
        let last = trial.delivered.replace(now)?;
        let skip = loader.flight.begun;
        let was_settled = trial.judge.finding().is_some();
        let before = trial.judge.placement();
        if was_settled && !loader.is_tuned() {
            // What changes meanwhile is the search's doing.
            trial.collector.restart(skip);
            return None;
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
        let counters = || Counters {
            gaps: gaps(),
            ..tuning::counters(conveyor)
        };
        let window = trial.collector.step(step, skip, counters)?;
        trial.judge.observe(Turn {
            step_s: window.step_s,
            // The device waits while the consumer does, and may wait longer.
            wait: window.wait().max(window.gap),
        });
        let placement = trial.judge.placement();
        if placement != before {
            tracing::debug!(
                "placement: {} instead of {}",
                placement.name(),
                before.name()
            );
            conveyor.job().set_form(self.form(placement));
            trial.collector.restart(skip);
        }
        let settled = trial.judge.finding();
        if settled.is_some() != was_settled {
            // Slabs have room for what is tried, and no more than that for what is kept.
            let kept = self.form(placement);
            conveyor.job().batcher().make_room(match settled {
                Some(_) => kept..kept + 1,
                None => 0..self.forms.len(),
            });
            loader.let_tuning_wait(settled.is_none());
        }
        let settled = settled.filter(|_| !was_settled)?;
        Some(settled.to_string())
    }

    /// Number of the form of a placement.
    fn form(&self, placement: Placement) -> usize {
        let mut forms = self.forms.iter();
        forms.position(|form| *form == placement).unwrap_or(0)
    }
}
