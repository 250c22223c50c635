//! Choice of a placement, from turns on the run's own steps.
//!
//! Placements are sorted by the device's share of the work. The current one is compared with its
//! neighbours, one after the other. A better neighbour becomes the current one and is compared with
//! its own neighbours, until none is better. If one step in a direction is no gain, a larger step
//! is none either: it needs even more of the limiting resource, be that host, bus or device.
//!
//! Pure: windows in, placements out. It uses no clock and no thread, so tests feed it with
//! simulated steps.

use crate::plan::device::Placement;
use infeed_core::compare::ShorterStep;

use super::duel::{self, DuelOutcome, PlacementTurn, TIE};
use super::finding::{NoTurnReason, PlacementFinding, PreferenceReason, RejectedPlacement};

/// Share of waiting up to which the consumer itself counts as the limit.
const WAITS: f64 = 0.01;

/// Change of the step's duration (factor), or of the share of waiting, that starts another trial.
const STEP_CHANGE: f64 = 1.2;
const WAIT_CHANGE: f64 = 0.05;

/// Number of consecutive windows that make a change permanent. Doubles after each trial without a
/// new choice, up to a limit.
const LASTING: u32 = 10;
const MAX_LASTING: u32 = 80;

/// A placement on trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PlacementOption {
    pub(super) placement: Placement,
    /// Bytes of a row that cross the bus.
    pub(super) row_bytes: u64,
}

/// The trial, and the monitoring after it.
#[derive(Debug)]
pub(super) struct Judge {
    /// At least one; sorted by the device's share of the work.
    options: Vec<PlacementOption>,
    phase: TrialPhase,
    lasting: u32,
}

#[derive(Debug)]
enum TrialPhase {
    Trying(PairTrial),
    Settled {
        finding: PlacementFinding,
        /// First window since the choice settled.
        usual: Option<PlacementTurn>,
        off: u32,
    },
}

#[derive(Debug)]
struct PairTrial {
    present: Placement,
    /// Placement that is compared with the current one; `None` if nothing is left to try.
    challenger: Option<Placement>,
    /// Turns of both, in the order of the comparison's rounds.
    turns: Vec<PlacementTurn>,
    /// Usual turn of the current placement, once it had one.
    known: Option<PlacementTurn>,
    /// Placements that were worse than the current one, the last first.
    others: Vec<RejectedPlacement>,
    untried: Vec<(Placement, NoTurnReason)>,
    /// Choice of the previous trial.
    before: Option<Placement>,
}

impl Judge {
    /// Begins with [`Placement::Device`] if it is an option, else with the least work for the
    /// device.
    pub(super) fn new(mut options: Vec<PlacementOption>) -> Judge {
        options.sort_by_key(|option| work(option.placement));
        let devices = options
            .iter()
            .find(|option| option.placement == Placement::Device);
        let first = devices.or(options.first());
        let present = first.map_or(Placement::Host, |option| option.placement);
        Judge {
            phase: TrialPhase::Trying(PairTrial::new(&options, present, None)),
            options,
            lasting: LASTING,
        }
    }

    /// Placement of batches that begin now.
    pub(super) fn placement(&self) -> Placement {
        match &self.phase {
            TrialPhase::Trying(trial) => match trial.challenger {
                Some(challenger) if duel::is_challengers(trial.turns.len()) => challenger,
                _ => trial.present,
            },
            TrialPhase::Settled { finding, .. } => finding.choice,
        }
    }

    /// Result of the trial; `None` while it runs.
    pub(super) fn finding(&self) -> Option<&PlacementFinding> {
        match &self.phase {
            TrialPhase::Trying(_) => None,
            TrialPhase::Settled { finding, .. } => Some(finding),
        }
    }

    /// Adds a window of [`Judge::placement`].
    pub(super) fn observe(&mut self, turn: PlacementTurn) {
        match &mut self.phase {
            TrialPhase::Trying(trial) => {
                trial.observe(&self.options, turn);
                self.settle();
            }
            TrialPhase::Settled {
                finding,
                usual,
                off,
            } => {
                let usual = usual.get_or_insert(turn);
                let ratio = turn.step_s / usual.step_s.max(1e-12);
                let same = (1.0 / STEP_CHANGE..=STEP_CHANGE).contains(&ratio)
                    && (turn.wait - usual.wait).abs() <= WAIT_CHANGE;
                *off = if same { 0 } else { *off + 1 };
                if *off >= self.lasting && self.options.len() > 1 {
                    let choice = finding.choice;
                    self.phase =
                        TrialPhase::Trying(PairTrial::new(&self.options, choice, Some(choice)));
                }
            }
        }
    }

    /// Removes a placement that turned out to be impossible, if there is another. Returns whether
    /// another exists.
    pub(super) fn refuse(&mut self, placement: Placement) -> bool {
        let is_it = |option: &PlacementOption| option.placement == placement;
        if self.options.iter().all(is_it) {
            return false;
        }
        let at = self.options.iter().position(is_it);
        self.options.retain(|option| option.placement != placement);
        let Some(at) = at else { return true };
        let nearest = self.options[at.saturating_sub(1)].placement;
        match &mut self.phase {
            TrialPhase::Trying(trial) if trial.present == placement => {
                *trial = PairTrial::new(&self.options, nearest, trial.before);
            }
            TrialPhase::Trying(trial) => trial.refuse(&self.options, placement),
            TrialPhase::Settled { finding, .. } if finding.choice == placement => {
                self.phase = TrialPhase::Trying(PairTrial::new(&self.options, nearest, None));
            }
            TrialPhase::Settled { .. } => {}
        }
        self.settle();
        true
    }

    /// Ends a trial that has nothing left to try.
    fn settle(&mut self) {
        let TrialPhase::Trying(trial) = &self.phase else {
            return;
        };
        let Some(finding) = trial.finding(&self.options) else {
            return;
        };
        self.lasting = match trial.before == Some(finding.choice) {
            true => (2 * self.lasting).min(MAX_LASTING),
            false => LASTING,
        };
        self.phase = TrialPhase::Settled {
            finding,
            usual: None,
            off: 0,
        };
    }
}

impl PairTrial {
    fn new(
        options: &[PlacementOption],
        present: Placement,
        before: Option<Placement>,
    ) -> PairTrial {
        let mut trial = PairTrial {
            present,
            challenger: None,
            turns: Vec::new(),
            known: None,
            others: Vec::new(),
            untried: Vec::new(),
            before,
        };
        trial.choose(options);
        trial
    }

    fn observe(&mut self, options: &[PlacementOption], turn: PlacementTurn) {
        self.turns.push(turn);
        if self.known.is_none() {
            // The challenger was chosen before any turn was known.
            self.known = Some(turn);
            self.choose(options);
        } else if let Some(outcome) = duel::outcome(&self.turns) {
            self.end_duel(options, outcome);
        }
    }

    /// Chooses the next neighbour as challenger, first the one with less work for the device.
    fn choose(&mut self, options: &[PlacementOption]) {
        self.challenger = None;
        let Some(at) = options
            .iter()
            .position(|option| option.placement == self.present)
        else {
            return;
        };
        let neighbours = [at.checked_sub(1), at.checked_add(1)];
        for option in neighbours
            .into_iter()
            .flatten()
            .filter_map(|n| options.get(n))
        {
            let next = option.placement;
            let was_tried = self.others.iter().any(|other| other.placement == next);
            if was_tried || self.untried.iter().any(|(untried, _)| *untried == next) {
                continue;
            }
            match self
                .known
                .and_then(|known| in_vain(options[at], *option, known))
            {
                Some(why) => self.untried.push((next, why)),
                None => {
                    self.challenger = Some(next);
                    return;
                }
            }
        }
    }

    fn end_duel(&mut self, options: &[PlacementOption], outcome: DuelOutcome) {
        let Some(challenger) = self.challenger else {
            return;
        };
        let (wins, why) = match outcome.shorter {
            ShorterStep::Challenger => (true, PreferenceReason::Shorter),
            ShorterStep::Present => (false, PreferenceReason::Shorter),
            ShorterStep::Neither => {
                let cost = |placement| (row_bytes(options, placement), work(placement));
                (
                    cost(challenger) < cost(self.present),
                    PreferenceReason::Fewer,
                )
            }
        };
        let (loser, ratio) = match wins {
            true => (self.present, 1.0 / outcome.ratio.max(1e-12)),
            false => (challenger, outcome.ratio),
        };
        if wins {
            for other in &mut self.others {
                other.ratio *= ratio;
                other.why = match other.ratio > 1.0 + TIE {
                    true => PreferenceReason::Shorter,
                    false => why,
                };
            }
            self.present = challenger;
        }
        self.known = Some(match wins {
            true => outcome.challenger,
            false => outcome.present,
        });
        let other = RejectedPlacement {
            placement: loser,
            ratio,
            why,
        };
        self.others.insert(0, other);
        self.turns.clear();
        self.choose(options);
    }

    /// Continues without a placement that was removed.
    fn refuse(&mut self, options: &[PlacementOption], placement: Placement) {
        self.others.retain(|other| other.placement != placement);
        self.untried.retain(|(untried, _)| *untried != placement);
        if self.challenger == Some(placement) {
            self.turns.clear();
            self.choose(options);
        }
    }

    /// Returns the result if nothing is left to try.
    fn finding(&self, options: &[PlacementOption]) -> Option<PlacementFinding> {
        let known = self.known.filter(|_| self.challenger.is_none())?;
        let mut others = self.others.clone();
        others.sort_by(|a, b| a.ratio.total_cmp(&b.ratio));
        let mut untried = self.untried.clone();
        let present = options
            .iter()
            .find(|option| option.placement == self.present)?;
        for option in options {
            let placement = option.placement;
            let was_tried = others.iter().any(|other| other.placement == placement);
            let is_listed = untried.iter().any(|(listed, _)| *listed == placement);
            if placement != self.present && !was_tried && !is_listed {
                let why = in_vain(*present, *option, known).unwrap_or(NoTurnReason::Beyond);
                untried.push((placement, why));
            }
        }
        Some(PlacementFinding {
            choice: self.present,
            step_s: known.step_s,
            others,
            untried,
        })
    }
}

/// Reason why another placement cannot help, given the current one's usual turn. A placement that
/// relieves the host and sends more bytes helps only if the run waits for the host and the bus has
/// capacity.
fn in_vain(
    present: PlacementOption,
    next: PlacementOption,
    known: PlacementTurn,
) -> Option<NoTurnReason> {
    let relieves_host = work(next.placement) > work(present.placement);
    if !relieves_host || next.row_bytes <= present.row_bytes {
        return None;
    }
    if known.wait < WAITS {
        return Some(NoTurnReason::Idle);
    }
    let more = next.row_bytes as f64 / present.row_bytes.max(1) as f64;
    let bus = known.bus.is_some_and(|bus| bus * more >= 1.0 - TIE);
    bus.then_some(NoTurnReason::Bus)
}

/// Bytes of a row that cross the bus.
fn row_bytes(options: &[PlacementOption], placement: Placement) -> u64 {
    let mut options = options.iter();
    let option = options.find(|option| option.placement == placement);
    option.map_or(0, |option| option.row_bytes)
}

/// Rank of a placement by the device's share of the work.
fn work(placement: Placement) -> u8 {
    match placement {
        Placement::Host | Placement::Auto => 0,
        Placement::Device => 1,
        Placement::Resize => 2,
    }
}

#[cfg(test)]
mod tests;
