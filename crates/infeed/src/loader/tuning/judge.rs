//! Decides whether to keep another number of workers, from turns that alternate with the current
//! one.

use infeed_core::compare::{ComparisonRule, ShorterStep, median};

use crate::loader::window::StepWindow;

/// Minimum gain of a move, and maximum loss of a move that frees cores. Turns of one setting differ
/// by less than this.
const GAIN: f64 = 0.02;
const LOSS: f64 = 0.02;

/// Additional waiting that a move which frees cores may cause, as a share of a step.
const MORE_WAIT: f64 = 0.01;

/// Keeps a move with a shorter step.
const FOR_GAIN: ComparisonRule = ComparisonRule {
    hopeless_turn: 2.5,
    hopeless: 1.25,
    least_rounds: 3,
    most_rounds: 6,
    errors: 2.0,
    faster: 1.0 - GAIN,
    surely_faster: 1.0,
    slower: 1.0 + LOSS,
    tolerated: 1.0 + LOSS,
    even_above: 1.0 - GAIN,
    even_up_to: f64::INFINITY,
    undecided: Some(ShorterStep::Neither),
};

/// Keeps a move that frees cores, unless the step becomes longer. A shorter step is no reason.
const FOR_CORES: ComparisonRule = ComparisonRule {
    faster: 0.0,
    surely_faster: 0.0,
    slower: 1.0 + LOSS / 2.0,
    tolerated: 1.0 + LOSS,
    even_above: f64::NEG_INFINITY,
    even_up_to: 1.0 + LOSS,
    undecided: None,
    ..FOR_GAIN
};

/// Ends a move that frees cores but causes waiting. Later rounds may show that it does not.
const FOR_CORES_WHILE_WAITING: ComparisonRule = ComparisonRule {
    tolerated: f64::NEG_INFINITY,
    even_up_to: f64::NEG_INFINITY,
    undecided: Some(ShorterStep::Present),
    ..FOR_CORES
};

/// Goal of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MoveGoal {
    /// A shorter step.
    Gain,
    /// Fewer workers with an equal step.
    Save,
}

/// Verdict on a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MoveVerdict {
    /// The move is kept.
    Kept,
    /// The move makes no difference, or too small a one.
    Even,
    /// The move makes steps longer.
    Worse,
}

/// Turns of two settings, each between two turns of the other.
#[derive(Clone, Debug)]
pub(super) struct SettingTurns {
    goal: MoveGoal,
    /// Last turn of the current setting.
    before: StepWindow,
    /// Turn of the other setting, until the current one has its next turn.
    pending: Option<StepWindow>,
    ratios: Vec<f64>,
    more_wait: Vec<f64>,
}

impl SettingTurns {
    pub(super) fn new(goal: MoveGoal, before: StepWindow) -> SettingTurns {
        SettingTurns {
            goal,
            before,
            pending: None,
            ratios: Vec::new(),
            more_wait: Vec::new(),
        }
    }

    /// Whether it is the other setting's turn.
    pub(super) fn is_others(&self) -> bool {
        self.pending.is_none()
    }

    /// Goal of the move.
    pub(super) fn goal(&self) -> MoveGoal {
        self.goal
    }

    /// Last turn of the current setting.
    pub(super) fn before(&self) -> StepWindow {
        self.before
    }

    /// Adds the next turn; a verdict ends the trial.
    pub(super) fn add(&mut self, window: StepWindow) -> Option<MoveVerdict> {
        let Some(other) = self.pending.take() else {
            let first = self.ratios.is_empty();
            if first && FOR_GAIN.ends_at_first_turn(self.before.step_s, window.step_s) {
                return Some(MoveVerdict::Worse);
            }
            self.pending = Some(window);
            return None;
        };
        // Compare with the two adjacent turns of the current setting, so that drift of the machine
        // cancels.
        let present = f64::midpoint(self.before.step_s, window.step_s);
        let waited = f64::midpoint(self.before.wait(), window.wait());
        self.ratios.push(other.step_s / present.max(1e-12));
        self.more_wait.push(other.wait() - waited);
        self.before = window;
        self.verdict()
    }

    fn verdict(&self) -> Option<MoveVerdict> {
        let rule = match self.goal {
            MoveGoal::Gain => FOR_GAIN,
            MoveGoal::Save if median(self.more_wait.iter().copied()) > MORE_WAIT => {
                FOR_CORES_WHILE_WAITING
            }
            MoveGoal::Save => FOR_CORES,
        };
        let shorter = rule.decide(&self.ratios)?;
        Some(match (shorter, self.goal) {
            (ShorterStep::Present, _) => MoveVerdict::Worse,
            (ShorterStep::Neither, MoveGoal::Gain) => MoveVerdict::Even,
            (ShorterStep::Challenger, _) | (ShorterStep::Neither, MoveGoal::Save) => {
                MoveVerdict::Kept
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(step_s: f64) -> StepWindow {
        StepWindow {
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

    /// The verdict for alternating step durations of both settings, and the number of turns taken.
    fn verdict_of(goal: MoveGoal, steps: &[f64]) -> (Option<MoveVerdict>, usize) {
        let mut turns = SettingTurns::new(goal, window(1.0));
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

        assert_eq!(
            verdict_of(MoveGoal::Gain, &steps),
            (Some(MoveVerdict::Kept), 6)
        );
    }

    #[test]
    fn a_gain_within_the_noise_is_not_kept() {
        let steps = [
            0.9, 1.0, 1.12, 1.1, 0.88, 0.95, 1.1, 1.0, 0.9, 1.0, 0.97, 1.0,
        ];

        assert_eq!(
            verdict_of(MoveGoal::Gain, &steps).0,
            Some(MoveVerdict::Even)
        );
    }

    #[test]
    fn a_far_slower_setting_ends_at_its_first_turn() {
        assert_eq!(
            verdict_of(MoveGoal::Gain, &[2.6]),
            (Some(MoveVerdict::Worse), 1)
        );
        assert_eq!(
            verdict_of(MoveGoal::Save, &[1.5, 1.0]),
            (Some(MoveVerdict::Worse), 2)
        );
    }

    #[test]
    fn cores_are_released_if_the_step_stays_equal_and_kept_if_it_waits() {
        let same = [1.0, 1.0, 1.005, 1.0, 0.995, 1.0];
        assert_eq!(verdict_of(MoveGoal::Save, &same).0, Some(MoveVerdict::Kept));

        let slower = [1.05, 1.0, 1.04, 1.0, 1.05, 1.0];
        assert_eq!(
            verdict_of(MoveGoal::Save, &slower).0,
            Some(MoveVerdict::Worse)
        );

        let mut turns = SettingTurns::new(MoveGoal::Save, window(1.0));
        let mut last = None;
        for turn in 0..12 {
            let mut now = window(1.0);
            now.wait_s = if turn % 2 == 0 { 0.05 } else { 0.0 };
            last = turns.add(now);
            if last.is_some() {
                break;
            }
        }
        assert_eq!(last, Some(MoveVerdict::Worse));
    }

    #[test]
    fn drift_of_the_machine_is_no_difference() {
        // Every turn takes one percent longer than the previous one.
        let steps: Vec<f64> = (1..=12).map(|n| 1.01_f64.powi(n)).collect();

        assert_eq!(
            verdict_of(MoveGoal::Gain, &steps).0,
            Some(MoveVerdict::Even)
        );
        assert_eq!(
            verdict_of(MoveGoal::Save, &steps).0,
            Some(MoveVerdict::Kept)
        );
    }
}
