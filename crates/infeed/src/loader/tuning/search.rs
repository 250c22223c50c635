//! How many workers: from the closed form to small moves, each judged by the step it leads to.
//!
//! Pure: windows in, numbers out. It knows no clock and no thread, so that tests feed it with
//! pipelines that do not exist. Every move or its refusal narrows the numbers that are left, so a
//! search ends; then it is silent until the load is another one for long.

use std::fmt;

use super::judge::{Aim, Turns, Verdict};
use crate::loader::window::{Window, median};

/// Windows that tell what is the limit.
const LOOK: usize = 2;

/// How full workers may be: rows of unequal length and steps of unequal length need the rest.
const FULL: f64 = 0.85;

/// Share of its time that a consumer may wait and still be the limit itself.
const WAITS: f64 = 0.01;

/// Share of workers at rows from which they are the limit.
const AT_WORK: f64 = 0.8;

/// Share of the cores in use below which there is something left for further workers; below which
/// workers mostly wait, so that fewer may do as much; and from which steps and workers take each
/// other's.
const ROOM: f64 = 0.95;
const IDLE: f64 = 0.7;
const CROWDED: f64 = 0.85;

/// Cores that a step uses when it could need more of them.
const STEP_CORES: f64 = 0.3;

/// A number that was kept is given up if its steps are so much longer after all.
const REGRET: f64 = 1.05;

/// Trials of one search.
const TRIALS: u32 = 10;

/// By how much the step's time, or the share of waiting, is to differ for another search.
const STEP_CHANGE: f64 = 1.2;
const WAIT_CHANGE: f64 = 0.05;

/// Windows in a row that make a change a lasting one; twice as many after each search that changed
/// nothing, up to a limit.
const LASTING: u32 = 10;
const MOST_LASTING: u32 = 80;

/// What a loop waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    /// The step: batches are ready before it asks.
    Step,
    /// Workers: they are at rows, and the consumer waits.
    Workers,
    /// Bytes: workers have none, and the consumer waits.
    Reading,
}

/// What a search found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Finding {
    pub(super) workers: usize,
    pub(super) cores: usize,
    /// Most workers there may be.
    pub(super) most: usize,
    pub(super) limit: Limit,
    /// Share of the time that the consumer waits.
    pub(super) wait: f64,
    /// Whether fewer workers were kept because the step needs the cores.
    pub(super) for_the_step: bool,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = match self.limit {
            Limit::Step => "the step is the limit",
            Limit::Workers => "the workers are the limit",
            Limit::Reading => "reading is the limit",
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
            f.write_str("; more made the step longer, which needs the cores too")?;
        } else if self.workers == self.most && self.most < self.cores {
            f.write_str("; memory leaves no room for more")?;
        }
        Ok(())
    }
}

/// The search, and the watch after it.
#[derive(Debug)]
pub(super) struct Search {
    /// Cores that this process may count on.
    cores: usize,
    /// Most workers there may be.
    most: usize,
    /// The present number, and the bounds of what is left to try.
    base: usize,
    low: usize,
    high: usize,
    trials: u32,
    /// Number at the last settling.
    settled_at: Option<usize>,
    for_the_step: bool,
    lasting: u32,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    Look {
        seen: Vec<Window>,
        /// The number before the last move, with its step and bounds.
        before: Option<Before>,
    },
    Try {
        candidate: usize,
        turns: Turns,
    },
    Settled {
        finding: Finding,
        step_s: f64,
        off: u32,
    },
}

#[derive(Clone, Copy, Debug)]
struct Before {
    workers: usize,
    step_s: f64,
    low: usize,
    high: usize,
}

impl Search {
    /// Begins with as many workers as cores, of at most `most`.
    pub(super) fn new(cores: usize, most: usize) -> Search {
        let most = most.max(1);
        let cores = cores.max(1);
        Search {
            cores,
            most,
            base: cores.min(most),
            low: 1,
            high: most.min(2 * cores),
            trials: 0,
            settled_at: None,
            for_the_step: false,
            lasting: LASTING,
            phase: Phase::look(None),
        }
    }

    /// Workers that are to work now.
    pub(super) fn workers(&self) -> usize {
        match &self.phase {
            Phase::Try { candidate, turns } if turns.is_others() => *candidate,
            _ => self.base,
        }
    }

    /// What was found, once it has settled.
    pub(super) fn finding(&self) -> Option<Finding> {
        match &self.phase {
            Phase::Settled { finding, .. } => Some(*finding),
            _ => None,
        }
    }

    /// Another number of cores: processes came or went.
    pub(super) fn set_cores(&mut self, cores: usize) {
        let cores = cores.max(1);
        if cores == self.cores {
            return;
        }
        self.cores = cores;
        self.begin();
        self.base = self.base.min(cores);
    }

    /// Cores that this process may count on.
    pub(super) fn cores(&self) -> usize {
        self.cores
    }

    /// Enters what [`Search::workers`] led to.
    pub(super) fn observe(&mut self, window: Window) {
        match &mut self.phase {
            Phase::Look { seen, before } => {
                seen.push(window);
                if seen.len() < LOOK {
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
            Phase::Try { candidate, turns } => {
                let Some(verdict) = turns.add(window) else {
                    return;
                };
                let (candidate, aim, present) = (*candidate, turns.aim(), turns.before());
                self.judged(candidate, aim, verdict, present);
            }
            Phase::Settled {
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

    /// Begins a search from the present number.
    fn begin(&mut self) {
        (self.low, self.high) = (1, self.most.min(2 * self.cores));
        self.base = self.base.min(self.high);
        self.trials = 0;
        self.phase = Phase::look(None);
    }

    /// Tries the next candidate, or settles.
    fn next(&mut self, seen: Window) {
        let limit = self.limit(&seen);
        match self.candidate(&seen, limit) {
            Some((candidate, aim)) if self.trials < TRIALS => {
                self.trials += 1;
                self.phase = Phase::Try {
                    candidate,
                    turns: Turns::new(aim, seen),
                };
            }
            _ => self.settle(&seen, limit),
        }
    }

    fn settle(&mut self, seen: &Window, limit: Limit) {
        let again = self.settled_at.replace(self.base);
        self.lasting = match again {
            Some(number) if number == self.base => (2 * self.lasting).min(MOST_LASTING),
            _ => LASTING,
        };
        self.phase = Phase::Settled {
            finding: Finding {
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

    fn limit(&self, seen: &Window) -> Limit {
        if seen.wait() < WAITS {
            Limit::Step
        } else if seen.busy >= AT_WORK * self.base as f64 {
            Limit::Workers
        } else if seen.starved >= (self.base as f64 - seen.busy) / 2.0 {
            Limit::Reading
        } else {
            // They have neither rows nor lack of bytes: room for batches is what they wait for.
            Limit::Step
        }
    }

    /// The number to try next, and what for.
    fn candidate(&self, seen: &Window, limit: Limit) -> Option<(usize, Aim)> {
        let base = self.base;
        let stride = (base / 4).max(1);
        let fewer = base.saturating_sub(stride).max(self.low);
        let in_use = seen.cores / self.cores as f64;
        if limit != Limit::Workers {
            // As many as the rows of a step need.
            let needed = workers_for(seen.busy).max(self.low);
            if needed < base {
                return Some((needed, Aim::Save));
            }
        } else {
            // As many as make a batch within a step without waiting.
            let step_s = (seen.step_s - seen.wait_s).max(0.01 * seen.step_s);
            let needed = workers_for(seen.busy * seen.step_s / step_s).min(self.cores);
            let needed = needed.min(self.high);
            if needed > base {
                return Some((needed, Aim::Gain));
            }
            // Workers that do not use the cores wait for something: a page, a lock, a process.
            if base < self.high && in_use < ROOM {
                return Some(((base + stride).min(self.high), Aim::Gain));
            }
            if self.low < base && in_use < IDLE {
                return Some((fewer, Aim::Save));
            }
        }
        let crowded = in_use >= CROWDED && seen.step_cores >= STEP_CORES;
        (self.low < base && crowded).then_some((fewer, Aim::Gain))
    }

    fn judged(&mut self, candidate: usize, aim: Aim, verdict: Verdict, present: Window) {
        let fewer = candidate < self.base;
        match verdict {
            Verdict::Kept => {
                let before = Before {
                    workers: self.base,
                    step_s: present.step_s,
                    low: self.low,
                    high: self.high,
                };
                if fewer {
                    self.high = self.base - 1;
                    self.for_the_step |= aim == Aim::Gain;
                } else {
                    self.low = self.base + 1;
                    self.for_the_step = false;
                }
                self.base = candidate;
                self.phase = Phase::look(Some(before));
            }
            verdict => {
                self.refuse(candidate, verdict);
                self.next(present);
            }
        }
    }

    /// Narrows what is left: beyond a number that was worse, others are worse too; beside one
    /// that was no better than this, none is.
    fn refuse(&mut self, candidate: usize, verdict: Verdict) {
        let base = self.base;
        match (candidate < base, verdict) {
            (true, Verdict::Even) => self.low = base,
            // Half of what lies between is left out as well, so that few trials reach the end.
            (true, _) => self.low = candidate + (base - candidate).div_ceil(2),
            (false, Verdict::Even) => self.high = base,
            (false, _) => self.high = base + (candidate - base) / 2,
        }
    }

    /// The last move was a mistake.
    fn go_back(&mut self, before: Before) {
        let refused = self.base;
        self.base = before.workers;
        (self.low, self.high) = (before.low, before.high);
        self.for_the_step = false;
        self.refuse(refused, Verdict::Worse);
        self.phase = Phase::look(None);
    }
}

impl Phase {
    fn look(before: Option<Before>) -> Phase {
        Phase::Look {
            seen: Vec::with_capacity(LOOK),
            before,
        }
    }
}

/// Workers that have room for so many rows at once.
fn workers_for(busy: f64) -> usize {
    // A cast saturates; what is no number is 0.
    ((busy / FULL).ceil() as usize).max(1)
}

fn mean(seen: &[Window]) -> Window {
    let of = |figure: fn(&Window) -> f64| median(seen.iter().map(figure));
    Window {
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
