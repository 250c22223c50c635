//! Which placement is kept, from turns that ways take on the run's own steps.
//!
//! Ways stand in a row, by how much of the work is the device's. The present one is held against its
//! neighbours, one after the other; one that is better takes its place and is held against its own, until
//! none is. Who goes further in a direction in which one step was no gain gains nothing either: it asks still
//! more of what is short, be it the host, the bus or the device.
//!
//! Pure: windows in, placements out. It knows no clock and no thread, so that tests feed it with
//! steps that nobody took.

use crate::plan::device::Placement;

use super::duel::{self, Outcome, Shorter, TIE, Turn};
use super::finding::{Finding, Other, Untried, Why};

/// Share of its time that a consumer may wait and still be the limit itself.
const WAITS: f64 = 0.01;

/// By how much the step's time, or the share of waiting, is to differ for another trial.
const STEP_CHANGE: f64 = 1.2;
const WAIT_CHANGE: f64 = 0.05;

/// Windows in a row that make a change a lasting one; twice as many after each trial that changed
/// nothing, up to a limit.
const LASTING: u32 = 10;
const MOST_LASTING: u32 = 80;

/// A way of making rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    pub(super) placement: Placement,
    /// What crosses the bus of a row.
    pub(super) row_bytes: u64,
}

/// The trial, and the watch after it.
#[derive(Debug)]
pub(super) struct Judge {
    /// At least one; the less the device does, the earlier.
    ways: Vec<Way>,
    phase: Phase,
    lasting: u32,
}

#[derive(Debug)]
enum Phase {
    Trying(Trial),
    Settled {
        finding: Finding,
        /// Of the first window since.
        usual: Option<Turn>,
        off: u32,
    },
}

#[derive(Debug)]
struct Trial {
    present: Placement,
    /// What is held against it; None if there is nothing left to try.
    challenger: Option<Placement>,
    /// Of the two, as the duel's rounds have it.
    turns: Vec<Turn>,
    /// What is usual with the present way, once it had a turn.
    known: Option<Turn>,
    /// Those that the present way was preferred to, the last first.
    others: Vec<Other>,
    untried: Vec<(Placement, Untried)>,
    /// What was found last time.
    before: Option<Placement>,
}

impl Judge {
    /// Begins with the device, where that is one of these ways, else with the one that leaves it least.
    pub(super) fn new(mut ways: Vec<Way>) -> Judge {
        ways.sort_by_key(|way| work(way.placement));
        let devices = ways.iter().find(|way| way.placement == Placement::Device);
        let first = devices.or(ways.first());
        let present = first.map_or(Placement::Host, |way| way.placement);
        Judge {
            phase: Phase::Trying(Trial::new(&ways, present, None)),
            ways,
            lasting: LASTING,
        }
    }

    /// What batches are to be begun with now.
    pub(super) fn placement(&self) -> Placement {
        match &self.phase {
            Phase::Trying(trial) => match trial.challenger {
                Some(challenger) if duel::is_challengers(trial.turns.len()) => challenger,
                _ => trial.present,
            },
            Phase::Settled { finding, .. } => finding.choice,
        }
    }

    /// What was found, unless it is trying.
    pub(super) fn finding(&self) -> Option<&Finding> {
        match &self.phase {
            Phase::Trying(_) => None,
            Phase::Settled { finding, .. } => Some(finding),
        }
    }

    /// Enters what [`Judge::placement`] led to.
    pub(super) fn observe(&mut self, turn: Turn) {
        match &mut self.phase {
            Phase::Trying(trial) => {
                trial.observe(&self.ways, turn);
                self.settle();
            }
            Phase::Settled {
                finding,
                usual,
                off,
            } => {
                let usual = usual.get_or_insert(turn);
                let ratio = turn.step_s / usual.step_s.max(1e-12);
                let same = (1.0 / STEP_CHANGE..=STEP_CHANGE).contains(&ratio)
                    && (turn.wait - usual.wait).abs() <= WAIT_CHANGE;
                *off = if same { 0 } else { *off + 1 };
                if *off >= self.lasting && self.ways.len() > 1 {
                    let choice = finding.choice;
                    self.phase = Phase::Trying(Trial::new(&self.ways, choice, Some(choice)));
                }
            }
        }
    }

    /// Never takes this way again, if there is another: it turned out that it cannot be gone.
    pub(super) fn refuse(&mut self, placement: Placement) -> bool {
        let is_it = |way: &Way| way.placement == placement;
        if self.ways.iter().all(is_it) {
            return false;
        }
        let at = self.ways.iter().position(is_it);
        self.ways.retain(|way| way.placement != placement);
        let Some(at) = at else { return true };
        let nearest = self.ways[at.saturating_sub(1)].placement;
        match &mut self.phase {
            Phase::Trying(trial) if trial.present == placement => {
                *trial = Trial::new(&self.ways, nearest, trial.before);
            }
            Phase::Trying(trial) => trial.refuse(&self.ways, placement),
            Phase::Settled { finding, .. } if finding.choice == placement => {
                self.phase = Phase::Trying(Trial::new(&self.ways, nearest, None));
            }
            Phase::Settled { .. } => {}
        }
        self.settle();
        true
    }

    /// Ends a trial that has nothing left to try.
    fn settle(&mut self) {
        let Phase::Trying(trial) = &self.phase else {
            return;
        };
        let Some(finding) = trial.finding(&self.ways) else {
            return;
        };
        self.lasting = match trial.before == Some(finding.choice) {
            true => (2 * self.lasting).min(MOST_LASTING),
            false => LASTING,
        };
        self.phase = Phase::Settled {
            finding,
            usual: None,
            off: 0,
        };
    }
}

impl Trial {
    fn new(ways: &[Way], present: Placement, before: Option<Placement>) -> Trial {
        let mut trial = Trial {
            present,
            challenger: None,
            turns: Vec::new(),
            known: None,
            others: Vec::new(),
            untried: Vec::new(),
            before,
        };
        trial.choose(ways);
        trial
    }

    fn observe(&mut self, ways: &[Way], turn: Turn) {
        self.turns.push(turn);
        if self.known.is_none() {
            // The challenger was chosen before anything was known.
            self.known = Some(turn);
            self.choose(ways);
        } else if let Some(outcome) = duel::outcome(&self.turns) {
            self.end_duel(ways, outcome);
        }
    }

    /// Takes the next neighbour for the challenger, that with less work for the device first.
    fn choose(&mut self, ways: &[Way]) {
        self.challenger = None;
        let Some(at) = ways.iter().position(|way| way.placement == self.present) else {
            return;
        };
        let neighbours = [at.checked_sub(1), at.checked_add(1)];
        for way in neighbours.into_iter().flatten().filter_map(|n| ways.get(n)) {
            let next = way.placement;
            let was_tried = self.others.iter().any(|other| other.placement == next);
            if was_tried || self.untried.iter().any(|(untried, _)| *untried == next) {
                continue;
            }
            match self.known.and_then(|known| in_vain(ways[at], *way, known)) {
                Some(why) => self.untried.push((next, why)),
                None => {
                    self.challenger = Some(next);
                    return;
                }
            }
        }
    }

    fn end_duel(&mut self, ways: &[Way], outcome: Outcome) {
        let Some(challenger) = self.challenger else {
            return;
        };
        let wait = outcome.present.wait.max(outcome.challenger.wait);
        let (wins, why) = match outcome.shorter {
            Shorter::Challenger => (true, Why::Shorter),
            Shorter::Present => (false, Why::Shorter),
            Shorter::Neither if wait < WAITS => {
                (work(challenger) < work(self.present), Why::Spared)
            }
            Shorter::Neither => {
                let cost = |placement| (row_bytes(ways, placement), work(placement));
                (cost(challenger) < cost(self.present), Why::Fewer)
            }
        };
        let (loser, ratio) = match wins {
            true => (self.present, 1.0 / outcome.ratio.max(1e-12)),
            false => (challenger, outcome.ratio),
        };
        if wins {
            for other in &mut self.others {
                other.ratio *= ratio;
                other.wait = other.wait.max(wait);
                other.why = match other.ratio > 1.0 + TIE {
                    true => Why::Shorter,
                    false => why,
                };
            }
            self.present = challenger;
        }
        self.known = Some(match wins {
            true => outcome.challenger,
            false => outcome.present,
        });
        let other = Other {
            placement: loser,
            ratio,
            why,
            wait,
        };
        self.others.insert(0, other);
        self.turns.clear();
        self.choose(ways);
    }

    /// Goes on without a way that is none any more.
    fn refuse(&mut self, ways: &[Way], placement: Placement) {
        self.others.retain(|other| other.placement != placement);
        self.untried.retain(|(untried, _)| *untried != placement);
        if self.challenger == Some(placement) {
            self.turns.clear();
            self.choose(ways);
        }
    }

    /// What it found, if nothing is left to try.
    fn finding(&self, ways: &[Way]) -> Option<Finding> {
        let known = self.known.filter(|_| self.challenger.is_none())?;
        let mut others = self.others.clone();
        others.sort_by(|a, b| a.ratio.total_cmp(&b.ratio));
        let mut untried = self.untried.clone();
        let present = ways.iter().find(|way| way.placement == self.present)?;
        for way in ways {
            let placement = way.placement;
            let was_tried = others.iter().any(|other| other.placement == placement);
            let is_told = untried.iter().any(|(told, _)| *told == placement);
            if placement != self.present && !was_tried && !is_told {
                let why = in_vain(*present, *way, known).unwrap_or(Untried::Beyond);
                untried.push((placement, why));
            }
        }
        Some(Finding {
            choice: self.present,
            step_s: known.step_s,
            others,
            untried,
        })
    }
}

/// Why nothing can come of another way, from what is usual with the present one. A way that takes work
/// from the host and gives the bus more helps where the host is waited for and the bus has room, and nowhere
/// else.
fn in_vain(present: Way, next: Way, known: Turn) -> Option<Untried> {
    let relieves_host = work(next.placement) > work(present.placement);
    if !relieves_host || next.row_bytes <= present.row_bytes {
        return None;
    }
    if known.wait < WAITS {
        return Some(Untried::Idle);
    }
    let more = next.row_bytes as f64 / present.row_bytes.max(1) as f64;
    let bus = known.bus.is_some_and(|bus| bus * more >= 1.0 - TIE);
    bus.then_some(Untried::Bus)
}

/// What crosses the bus of a row.
fn row_bytes(ways: &[Way], placement: Placement) -> u64 {
    let mut ways = ways.iter();
    let way = ways.find(|way| way.placement == placement);
    way.map_or(0, |way| way.row_bytes)
}

/// Orders ways by what they leave to the device.
fn work(placement: Placement) -> u8 {
    match placement {
        Placement::Host | Placement::Auto => 0,
        Placement::Device => 1,
        Placement::Resize => 2,
    }
}

#[cfg(test)]
mod tests;
