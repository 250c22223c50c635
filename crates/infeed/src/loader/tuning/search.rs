//! Search for the number of workers: an estimate first, then small moves, each judged by the
//! resulting step.
//!
//! Pure: windows in, numbers out. It uses no clock and no thread, so tests feed it with simulated
//! pipelines. Every accepted or rejected move narrows the candidates, so a search ends. It then
//! waits until the load has changed for long.

use std::fmt;

use super::judge::{MoveGoal, MoveVerdict, SettingTurns};
use crate::loader::window::StepWindow;
use infeed_core::compare::median;

/// Number of windows that determine the limit.
const MEASURE_WINDOWS: usize = 2;

/// Target utilization of workers; rows and steps of unequal length need the rest.
const FULL: f64 = 0.85;

/// Share of waiting up to which the consumer itself counts as the limit.
const WAITS: f64 = 0.01;

/// Share of workers that fill rows from which workers are the limit.
const AT_WORK: f64 = 0.8;

/// Shares of cores in use: below `ROOM`, more workers can use the rest; below `IDLE`, workers
/// mostly wait and fewer may suffice; from `CROWDED`, steps and workers compete for cores.
const ROOM: f64 = 0.95;
const IDLE: f64 = 0.7;
const CROWDED: f64 = 0.85;

/// Cores in use by a step from which it may need more cores.
const STEP_CORES: f64 = 0.3;

/// A move is undone if its steps turn out longer by this factor.
const REGRET: f64 = 1.05;

/// Maximum number of trials in one search.
const TRIALS: u32 = 10;

/// Change of the step's duration (factor), or of the share of waiting, that starts another search.
const STEP_CHANGE: f64 = 1.2;
const WAIT_CHANGE: f64 = 0.05;

/// Number of consecutive windows that make a change permanent. Doubles after each search without a
/// new number, up to a limit.
const LASTING: u32 = 10;
const MAX_LASTING: u32 = 80;

/// The limiting part of the training loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoopLimit {
    /// The step: batches are ready before the request.
    Step,
    /// Workers: they fill rows while the consumer waits.
    Workers,
    /// Reading: workers wait for bytes while the consumer waits.
    Reading,
}

/// Result of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SearchFinding {
    pub(super) workers: usize,
    pub(super) cores: usize,
    /// Maximum number of workers.
    pub(super) most: usize,
    pub(super) limit: LoopLimit,
    /// Share of the time that the consumer waits.
    pub(super) wait: f64,
    /// Whether fewer workers were kept because the step needs the cores.
    pub(super) for_the_step: bool,
}

impl fmt::Display for SearchFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = match self.limit {
            LoopLimit::Step => "the step is the limit",
            LoopLimit::Workers => "the workers are the limit",
            LoopLimit::Reading => "reading is the limit",
        };
        let plural = if self.cores == 1 { "" } else { "s" };
        write!(
            f,
            "workers: {} on {} core{plural}, {limit} (waits {:.1} % of the time)",
            self.workers,
            self.cores,
            100.0 * self.wait
        )?;
        if self.for_the_step {
            f.write_str("; more workers made the step longer, because it needs the cores")?;
        } else if self.workers == self.most && self.most < self.cores {
            f.write_str("; memory does not suffice for more")?;
        }
        Ok(())
    }
}

/// The search, and the monitoring after it.
#[derive(Debug)]
pub(super) struct WorkerSearch {
    /// Number of cores that this process may use.
    cores: usize,
    /// Maximum number of workers.
    most: usize,
    /// Current number, and the bounds of the remaining candidates.
    base: usize,
    low: usize,
    high: usize,
    trials: u32,
    /// Number when the search last settled.
    settled_at: Option<usize>,
    for_the_step: bool,
    lasting: u32,
    phase: SearchPhase,
}

#[derive(Debug)]
enum SearchPhase {
    Measure {
        seen: Vec<StepWindow>,
        /// Number before the last move, with its step and bounds.
        before: Option<PreviousSetting>,
    },
    Try {
        candidate: usize,
        turns: SettingTurns,
    },
    Settled {
        finding: SearchFinding,
        step_s: f64,
        off: u32,
    },
}

#[derive(Clone, Copy, Debug)]
struct PreviousSetting {
    workers: usize,
    step_s: f64,
    low: usize,
    high: usize,
}

impl WorkerSearch {
    /// Begins with one worker per core, at most `most`.
    pub(super) fn new(cores: usize, most: usize) -> WorkerSearch {
        let most = most.max(1);
        let cores = cores.max(1);
        WorkerSearch {
            cores,
            most,
            base: cores.min(most),
            low: 1,
            high: most.min(2 * cores),
            trials: 0,
            settled_at: None,
            for_the_step: false,
            lasting: LASTING,
            phase: SearchPhase::measure(None),
        }
    }

    /// Number of active workers.
    pub(super) fn workers(&self) -> usize {
        match &self.phase {
            SearchPhase::Try { candidate, turns } if turns.is_others() => *candidate,
            _ => self.base,
        }
    }

    /// Result, once the search has settled.
    pub(super) fn finding(&self) -> Option<SearchFinding> {
        match &self.phase {
            SearchPhase::Settled { finding, .. } => Some(*finding),
            _ => None,
        }
    }

    /// Sets the number of cores, after processes came or went.
    pub(super) fn set_cores(&mut self, cores: usize) {
        let cores = cores.max(1);
        if cores == self.cores {
            return;
        }
        self.cores = cores;
        self.begin();
        self.base = self.base.min(cores);
    }

    /// Number of cores that this process may use.
    pub(super) fn cores(&self) -> usize {
        self.cores
    }

    /// Adds a window of [`WorkerSearch::workers`].
    pub(super) fn observe(&mut self, window: StepWindow) {
        match &mut self.phase {
            SearchPhase::Measure { seen, before } => {
                seen.push(window);
                if seen.len() < MEASURE_WINDOWS {
                    return;
                }
                let (mean, before) = (mean(seen), *before);
                if let Some(before) = before
                    && mean.step_s > REGRET * before.step_s
                {
                    return self.go_back(before);
                }
                self.next(mean);
            }
            SearchPhase::Try { candidate, turns } => {
                let Some(verdict) = turns.add(window) else {
                    return;
                };
                let (candidate, goal, present) = (*candidate, turns.goal(), turns.before());
                self.apply_verdict(candidate, goal, verdict, present);
            }
            SearchPhase::Settled {
                finding,
                step_s,
                off,
            } => {
                let ratio = window.step_s / step_s.max(1e-12);
                let same = (1.0 / STEP_CHANGE..=STEP_CHANGE).contains(&ratio)
                    && window.wait() <= finding.wait + WAIT_CHANGE;
                *off = if same { 0 } else { *off + 1 };
                if *off >= self.lasting {
                    self.begin();
                }
            }
        }
    }

    /// Begins a search from the current number.
    fn begin(&mut self) {
        (self.low, self.high) = (1, self.most.min(2 * self.cores));
        self.base = self.base.min(self.high);
        self.trials = 0;
        self.phase = SearchPhase::measure(None);
    }

    /// Tries the next candidate, or settles.
    fn next(&mut self, seen: StepWindow) {
        let limit = self.limit(&seen);
        match self.candidate(&seen, limit) {
            Some((candidate, goal)) if self.trials < TRIALS => {
                self.trials += 1;
                self.phase = SearchPhase::Try {
                    candidate,
                    turns: SettingTurns::new(goal, seen),
                };
            }
            _ => self.settle(&seen, limit),
        }
    }

    fn settle(&mut self, seen: &StepWindow, limit: LoopLimit) {
        let again = self.settled_at.replace(self.base);
        self.lasting = match again {
            Some(number) if number == self.base => (2 * self.lasting).min(MAX_LASTING),
            _ => LASTING,
        };
        self.phase = SearchPhase::Settled {
            finding: SearchFinding {
                workers: self.base,
                cores: self.cores,
                most: self.most,
                limit,
                wait: seen.wait(),
                for_the_step: self.for_the_step,
            },
            step_s: seen.step_s,
            off: 0,
        };
    }

    fn limit(&self, seen: &StepWindow) -> LoopLimit {
        if seen.wait() < WAITS {
            LoopLimit::Step
        } else if seen.busy >= AT_WORK * self.base as f64 {
            LoopLimit::Workers
        } else if seen.starved >= (self.base as f64 - seen.busy) / 2.0 {
            LoopLimit::Reading
        } else {
            // Workers have neither rows nor a lack of bytes: they wait for free batches.
            LoopLimit::Step
        }
    }

    /// Returns the next number to try, and the goal.
    fn candidate(&self, seen: &StepWindow, limit: LoopLimit) -> Option<(usize, MoveGoal)> {
        let base = self.base;
        let stride = (base / 4).max(1);
        let fewer = base.saturating_sub(stride).max(self.low);
        let in_use = seen.cores / self.cores as f64;
        if limit != LoopLimit::Workers {
            // Enough workers for the rows of a step.
            let needed = workers_for(seen.busy).max(self.low);
            if needed < base {
                return Some((needed, MoveGoal::Save));
            }
        } else {
            // Enough workers to make a batch within a step without waiting.
            let step_s = (seen.step_s - seen.wait_s).max(0.01 * seen.step_s);
            let needed = workers_for(seen.busy * seen.step_s / step_s).min(self.cores);
            let needed = needed.min(self.high);
            if needed > base {
                return Some((needed, MoveGoal::Gain));
            }
            // Workers that do not use the cores wait for something: a page, a lock, a process.
            if base < self.high && in_use < ROOM {
                return Some(((base + stride).min(self.high), MoveGoal::Gain));
            }
            if self.low < base && in_use < IDLE {
                return Some((fewer, MoveGoal::Save));
            }
        }
        let crowded = in_use >= CROWDED && seen.step_cores >= STEP_CORES;
        (self.low < base && crowded).then_some((fewer, MoveGoal::Gain))
    }

    fn apply_verdict(
        &mut self,
        candidate: usize,
        goal: MoveGoal,
        verdict: MoveVerdict,
        present: StepWindow,
    ) {
        let fewer = candidate < self.base;
        match verdict {
            MoveVerdict::Kept => {
                let before = PreviousSetting {
                    workers: self.base,
                    step_s: present.step_s,
                    low: self.low,
                    high: self.high,
                };
                if fewer {
                    self.high = self.base - 1;
                    self.for_the_step |= goal == MoveGoal::Gain;
                } else {
                    self.low = self.base + 1;
                    self.for_the_step = false;
                }
                self.base = candidate;
                self.phase = SearchPhase::measure(Some(before));
            }
            verdict => {
                self.refuse(candidate, verdict);
                self.next(present);
            }
        }
    }

    /// Narrows the candidates. If a number was worse, numbers beyond it are worse too. If a number
    /// was no better, no number on its side is.
    fn refuse(&mut self, candidate: usize, verdict: MoveVerdict) {
        let base = self.base;
        match (candidate < base, verdict) {
            (true, MoveVerdict::Even) => self.low = base,
            // Skip half of the numbers between too, so that few trials suffice.
            (true, _) => self.low = candidate + (base - candidate).div_ceil(2),
            (false, MoveVerdict::Even) => self.high = base,
            (false, _) => self.high = base + (candidate - base) / 2,
        }
    }

    /// Undoes the last move.
    fn go_back(&mut self, before: PreviousSetting) {
        let refused = self.base;
        self.base = before.workers;
        (self.low, self.high) = (before.low, before.high);
        self.for_the_step = false;
        self.refuse(refused, MoveVerdict::Worse);
        self.phase = SearchPhase::measure(None);
    }
}

impl SearchPhase {
    fn measure(before: Option<PreviousSetting>) -> SearchPhase {
        SearchPhase::Measure {
            seen: Vec::with_capacity(MEASURE_WINDOWS),
            before,
        }
    }
}

/// Returns the number of workers for `busy` concurrent rows.
fn workers_for(busy: f64) -> usize {
    // A cast saturates; NaN becomes 0.
    ((busy / FULL).ceil() as usize).max(1)
}

fn mean(seen: &[StepWindow]) -> StepWindow {
    let of = |figure: fn(&StepWindow) -> f64| median(seen.iter().map(figure));
    StepWindow {
        step_s: of(|w| w.step_s),
        wait_s: of(|w| w.wait_s),
        busy: of(|w| w.busy),
        starved: of(|w| w.starved),
        cores: of(|w| w.cores),
        step_cores: of(|w| w.step_cores),
        gap: of(|w| w.gap),
        bus: None,
    }
}
