//! Whether another number of workers is to be kept, from turns that it took with the present one.

use crate::loader::window::{Window, median, standard_error};

/// What a move must gain at least, and what one that frees cores may cost: below this, turns of one
/// and the same setting differ.
const GAIN: f64 = 0.02;
const LOSS: f64 = 0.02;

/// Waiting that a move which frees cores may add, as a share of a step.
const MORE_WAIT: f64 = 0.01;

/// Turns before a verdict, and the most that are taken.
const LEAST: usize = 3;
const MOST: usize = 6;

/// A step that is so much longer needs no second look.
const HOPELESS: f64 = 1.25;

/// Standard errors that make a difference one.
const SURE: f64 = 2.0;

/// What a move is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aim {
    /// A shorter step.
    Gain,
    /// Fewer workers at the same step.
    Save,
}

/// What turns said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The move is kept.
    Kept,
    /// It makes no difference, or not enough of one.
    Even,
    /// It makes steps longer.
    Worse,
}

/// Turns of two settings, each between two of the other.
#[derive(Clone, Debug)]
pub(super) struct Turns {
    aim: Aim,
    /// The last turn of the present setting.
    before: Window,
    /// A turn of the other, until the present one had its next.
    pending: Option<Window>,
    ratios: Vec<f64>,
    more_wait: Vec<f64>,
}

impl Turns {
    pub(super) fn new(aim: Aim, before: Window) -> Turns {
        Turns {
            aim,
            before,
            pending: None,
            ratios: Vec::new(),
            more_wait: Vec::new(),
        }
    }

    /// Whether the other setting has the turn.
    pub(super) fn is_others(&self) -> bool {
        self.pending.is_none()
    }

    /// What the move is for.
    pub(super) fn aim(&self) -> Aim {
        self.aim
    }

    /// The last turn of the present setting.
    pub(super) fn before(&self) -> Window {
        self.before
    }

    /// Enters the next turn; a verdict ends the trial.
    pub(super) fn add(&mut self, window: Window) -> Option<Verdict> {
        let Some(other) = self.pending.take() else {
            let first = self.ratios.is_empty();
            if first && window.step_s > 2.0 * HOPELESS * self.before.step_s {
                return Some(Verdict::Worse);
            }
            self.pending = Some(window);
            return None;
        };
        // Between two turns of the present setting, so that drift of the machine cancels.
        let present = f64::midpoint(self.before.step_s, window.step_s);
        let waited = f64::midpoint(self.before.wait(), window.wait());
        self.ratios.push(other.step_s / present.max(1e-12));
        self.more_wait.push(other.wait() - waited);
        self.before = window;
        self.verdict()
    }

    fn verdict(&self) -> Option<Verdict> {
        let turns = self.ratios.len();
        let ratio = median(self.ratios.iter().copied());
        if turns < LEAST {
            return (ratio > HOPELESS).then_some(Verdict::Worse);
        }
        let noise = SURE * standard_error(&self.ratios);
        let last = turns >= MOST;
        match self.aim {
            Aim::Gain if ratio < 1.0 - GAIN.max(noise) => Some(Verdict::Kept),
            Aim::Gain if ratio - noise > 1.0 + LOSS => Some(Verdict::Worse),
            Aim::Gain if last || ratio - noise > 1.0 - GAIN => Some(Verdict::Even),
            Aim::Gain => None,
            Aim::Save => {
                let waits = median(self.more_wait.iter().copied()) > MORE_WAIT;
                if !waits && ratio + noise <= 1.0 + LOSS {
                    Some(Verdict::Kept)
                } else if ratio - noise > 1.0 + LOSS / 2.0 || (waits && last) {
                    Some(Verdict::Worse)
                } else {
                    let kept = ratio <= 1.0 + LOSS / 2.0;
                    last.then_some(if kept { Verdict::Kept } else { Verdict::Worse })
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(step_s: f64) -> Window {
        Window {
            step_s,
            wait_s: 0.0,
            busy: 1.0,
            starved: 0.0,
            cores: 1.0,
            step_cores: 0.0,
            gap: 0.0,
            bus: None,
        }
    }

    /// The verdict over steps of the other and the present setting in turn, and turns it took.
    fn judged(aim: Aim, steps: &[f64]) -> (Option<Verdict>, usize) {
        let mut turns = Turns::new(aim, window(1.0));
        for (at, &step) in steps.iter().enumerate() {
            if let Some(verdict) = turns.add(window(step)) {
                return (Some(verdict), at + 1);
            }
        }
        (None, steps.len())
    }

    #[test]
    fn a_clear_gain_is_kept_after_three_turns_each() {
        let steps = [0.9, 1.0, 0.91, 1.01, 0.9, 1.0];

        assert_eq!(judged(Aim::Gain, &steps), (Some(Verdict::Kept), 6));
    }

    #[test]
    fn a_gain_within_the_noise_is_not_kept() {
        let steps = [
            0.9, 1.0, 1.12, 1.1, 0.88, 0.95, 1.1, 1.0, 0.9, 1.0, 0.97, 1.0,
        ];

        assert_eq!(judged(Aim::Gain, &steps).0, Some(Verdict::Even));
    }

    #[test]
    fn what_is_far_slower_is_ended_at_its_first_turn() {
        assert_eq!(judged(Aim::Gain, &[2.6]), (Some(Verdict::Worse), 1));
        assert_eq!(judged(Aim::Save, &[1.5, 1.0]), (Some(Verdict::Worse), 2));
    }

    #[test]
    fn cores_are_given_back_where_the_step_stays_the_same_and_not_where_it_waits() {
        let same = [1.0, 1.0, 1.005, 1.0, 0.995, 1.0];
        assert_eq!(judged(Aim::Save, &same).0, Some(Verdict::Kept));

        let slower = [1.05, 1.0, 1.04, 1.0, 1.05, 1.0];
        assert_eq!(judged(Aim::Save, &slower).0, Some(Verdict::Worse));

        let mut turns = Turns::new(Aim::Save, window(1.0));
        let mut last = None;
        for turn in 0..12 {
            let mut now = window(1.0);
            now.wait_s = if turn % 2 == 0 { 0.05 } else { 0.0 };
            last = turns.add(now);
            if last.is_some() {
                break;
            }
        }
        assert_eq!(last, Some(Verdict::Worse));
    }

    #[test]
    fn drift_of_the_machine_is_not_taken_for_a_difference() {
        // Every turn takes one percent longer than the one before.
        let steps: Vec<f64> = (1..=12).map(|n| 1.01_f64.powi(n)).collect();

        assert_eq!(judged(Aim::Gain, &steps).0, Some(Verdict::Even));
        assert_eq!(judged(Aim::Save, &steps).0, Some(Verdict::Kept));
    }
}
