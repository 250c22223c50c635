//! Which placement is kept, from turns that both take on the run's own steps.
//!
//! Pure: windows in, placements out. It knows no clock and no thread, so that tests feed it with
//! steps that nobody took.

use std::fmt;

use crate::loader::window::{median, standard_error};
use crate::plan::device::Placement;

/// Steps that differ by no more take as long.
const TIE: f64 = 0.03;

/// Share of its time that a consumer may wait and still be the limit itself.
const WAITS: f64 = 0.01;

/// Turns of a round: the present placement, the other twice, and the present one again, so that drift
/// of the machine cancels with the fewest changes.
const ROUND: usize = 4;

/// The most rounds of a trial.
const ROUNDS: usize = 3;

/// A first turn with steps so much longer ends a trial.
const HOPELESS: f64 = 2.5;

/// Standard errors that make a difference one.
const SURE: f64 = 2.0;

/// By how much the step's time, or the share of waiting, is to differ for another trial.
const STEP_CHANGE: f64 = 1.2;
const WAIT_CHANGE: f64 = 0.05;

/// Windows in a row that make a change a lasting one; twice as many after each trial that changed
/// nothing, up to a limit.
const LASTING: u32 = 10;
const MOST_LASTING: u32 = 80;

/// What a placement led to for a while.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Turn {
    /// From batch to batch, in seconds.
    pub(super) step_s: f64,
    /// Share of the time that the consumer, or its device, waited.
    pub(super) wait: f64,
}

/// Why a placement was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// Its steps are shorter.
    Shorter,
    /// Steps take as long and wait for nothing: the device has less to do.
    Spared,
    /// Steps take as long and wait: fewer bytes cross the bus.
    Fewer,
}

/// What a trial found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Finding {
    /// [`Placement::Host`] or [`Placement::Device`].
    pub(super) choice: Placement,
    pub(super) why: Why,
    /// Of the choice, in seconds.
    pub(super) step_s: f64,
    /// Step of the other over that of the choice.
    pub(super) ratio: f64,
    /// Share of waiting, of whichever waited longer.
    pub(super) wait: f64,
}

impl Finding {
    /// What was not chosen.
    pub(super) fn runner_up(&self) -> Placement {
        other(self.choice)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (choice, runner_up) = (self.choice.name(), self.runner_up().name());
        let (step_ms, ratio) = (1e3 * self.step_s, self.ratio);
        write!(f, "placement: {choice}; ")?;
        match self.why {
            Why::Shorter => write!(
                f,
                "its steps take {step_ms:.1} ms, those of {runner_up} {ratio:.2} times as long"
            ),
            Why::Spared => write!(
                f,
                "steps take {step_ms:.1} ms, as long as with {runner_up}, and do not wait, so the \
                 device is spared"
            ),
            Why::Fewer => write!(
                f,
                "steps take {step_ms:.1} ms, as long as with {runner_up}, and wait ({:.1} % of the \
                 time), so the bus is spared",
                100.0 * self.wait
            ),
        }
    }
}

/// The trial, and the watch after it.
#[derive(Debug)]
pub(super) struct Judge {
    phase: Phase,
    lasting: u32,
}

#[derive(Debug)]
enum Phase {
    Trying {
        present: Placement,
        turns: Vec<Turn>,
        /// What was found last time.
        before: Option<Placement>,
    },
    Settled {
        finding: Finding,
        /// Of the first window since.
        usual: Option<Turn>,
        off: u32,
    },
}

impl Judge {
    /// Begins with the device.
    pub(super) fn new() -> Judge {
        Judge {
            phase: Phase::Trying {
                present: Placement::Device,
                turns: Vec::new(),
                before: None,
            },
            lasting: LASTING,
        }
    }

    /// What batches are to be begun with now.
    pub(super) fn placement(&self) -> Placement {
        match &self.phase {
            Phase::Trying { present, turns, .. } => match turns.len() % ROUND {
                1 | 2 => other(*present),
                _ => *present,
            },
            Phase::Settled { finding, .. } => finding.choice,
        }
    }

    /// What was found, unless it is trying.
    pub(super) fn finding(&self) -> Option<&Finding> {
        match &self.phase {
            Phase::Trying { .. } => None,
            Phase::Settled { finding, .. } => Some(finding),
        }
    }

    /// Enters what [`Judge::placement`] led to.
    pub(super) fn observe(&mut self, turn: Turn) {
        match &mut self.phase {
            Phase::Trying {
                present,
                turns,
                before,
            } => {
                turns.push(turn);
                let Some(finding) = verdict(*present, turns) else {
                    return;
                };
                self.lasting = match *before == Some(finding.choice) {
                    true => (2 * self.lasting).min(MOST_LASTING),
                    false => LASTING,
                };
                self.phase = Phase::Settled {
                    finding,
                    usual: None,
                    off: 0,
                };
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
                if *off >= self.lasting {
                    self.phase = Phase::Trying {
                        present: finding.choice,
                        turns: Vec::new(),
                        before: Some(finding.choice),
                    };
                }
            }
        }
    }
}

fn other(placement: Placement) -> Placement {
    match placement {
        Placement::Host => Placement::Device,
        _ => Placement::Host,
    }
}

/// What turns say, if they say enough.
fn verdict(present: Placement, turns: &[Turn]) -> Option<Finding> {
    let of = |others: bool, figure: fn(&Turn) -> f64| {
        let turns = turns.iter().enumerate();
        let own = turns.filter(|(at, _)| matches!(at % ROUND, 1 | 2) == others);
        median(own.map(|(_, turn)| figure(turn)))
    };
    let found = |others: bool, why, ratio| Finding {
        choice: if others { other(present) } else { present },
        why,
        step_s: of(others, |turn| turn.step_s),
        ratio,
        wait: of(false, |turn| turn.wait).max(of(true, |turn| turn.wait)),
    };
    if let [first, second] = turns {
        let ratio = second.step_s / first.step_s.max(1e-12);
        return (ratio > HOPELESS).then(|| found(false, Why::Shorter, ratio));
    }
    if !turns.len().is_multiple_of(ROUND) {
        return None;
    }
    let ratios = turns.chunks_exact(2).enumerate().map(|(pair, turns)| {
        let [own, others] = match pair % 2 {
            0 => [turns[0], turns[1]],
            _ => [turns[1], turns[0]],
        };
        others.step_s / own.step_s.max(1e-12)
    });
    let ratios: Vec<f64> = ratios.collect();
    let ratio = median(ratios.iter().copied());
    let last = turns.len() >= ROUND * ROUNDS;
    let noise = match last {
        true => 0.0,
        false => SURE * standard_error(&ratios),
    };
    if ratio + noise < 1.0 - TIE {
        return Some(found(true, Why::Shorter, 1.0 / ratio.max(1e-12)));
    }
    if ratio - noise > 1.0 + TIE {
        return Some(found(false, Why::Shorter, ratio));
    }
    if !last && (ratio - 1.0).abs() + noise > TIE {
        return None;
    }
    let waits = found(false, Why::Fewer, ratio).wait >= WAITS;
    let (choice, why) = match waits {
        true => (Placement::Device, Why::Fewer),
        false => (Placement::Host, Why::Spared),
    };
    Some(match choice == present {
        true => found(false, why, ratio),
        false => found(true, why, 1.0 / ratio.max(1e-12)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run in which steps take so long with each placement.
    struct Run {
        judge: Judge,
        turns: Vec<Placement>,
    }

    impl Run {
        fn new() -> Run {
            Run {
                judge: Judge::new(),
                turns: Vec::new(),
            }
        }

        /// Takes a turn, if what was found does not end the trial before.
        fn turn(&mut self, of: impl Fn(Placement, usize) -> Turn) {
            let placement = self.judge.placement();
            self.judge.observe(of(placement, self.turns.len()));
            self.turns.push(placement);
        }

        fn until_settled(&mut self, of: impl Fn(Placement, usize) -> Turn) -> Finding {
            let from = self.turns.len();
            while self.judge.finding().is_none() {
                assert!(self.turns.len() < from + ROUND * ROUNDS, "it does not end");
                self.turn(&of);
            }
            *self.judge.finding().expect("it has settled")
        }
    }

    fn turn(step_s: f64, wait: f64) -> Turn {
        Turn { step_s, wait }
    }

    /// Steps of a host and a device that take so long.
    fn of(host_s: f64, device_s: f64, wait: f64) -> impl Fn(Placement, usize) -> Turn {
        move |placement, _| match placement {
            Placement::Host => turn(host_s, wait),
            _ => turn(device_s, wait),
        }
    }

    use Placement::{Device, Host};

    #[test]
    fn the_shorter_steps_win_after_one_round_that_begins_and_ends_with_the_present() {
        let mut run = Run::new();

        let finding = run.until_settled(of(0.08, 0.1, 0.2));

        assert_eq!(run.turns, [Device, Host, Host, Device]);
        assert_eq!((finding.choice, finding.why), (Host, Why::Shorter));
        assert!((finding.ratio - 1.25).abs() < 1e-9 && (finding.step_s - 0.08).abs() < 1e-9);
        assert_eq!(run.judge.placement(), Host);
        let text = finding.to_string();
        let told = "placement: host; its steps take 80.0 ms, those of device 1.25 times as long";
        assert_eq!(text, told);

        let finding = Run::new().until_settled(of(0.11, 0.1, 0.0));
        assert_eq!((finding.choice, finding.why), (Device, Why::Shorter));
    }

    #[test]
    fn a_placement_that_is_far_slower_has_one_turn() {
        let mut run = Run::new();

        let finding = run.until_settled(of(1.0, 0.1, 0.9));

        assert_eq!(run.turns, [Device, Host]);
        assert_eq!(finding.choice, Device);
        assert!((finding.ratio - 10.0).abs() < 1e-9);
    }

    #[test]
    fn a_tie_spares_the_device_where_nothing_waits_and_else_the_bus() {
        let idle = Run::new().until_settled(of(0.101, 0.1, 0.0));
        assert_eq!((idle.choice, idle.why), (Host, Why::Spared));
        assert!(idle.to_string().ends_with("so the device is spared"));

        let waits = Run::new().until_settled(of(0.099, 0.1, 0.02));
        assert_eq!((waits.choice, waits.why), (Device, Why::Fewer));
        assert!(waits.to_string().ends_with("so the bus is spared"));

        // Who waited with one of them waited.
        let one = |placement, _| turn(0.1, if placement == Host { 0.3 } else { 0.0 });
        assert_eq!(Run::new().until_settled(one).choice, Device);
    }

    #[test]
    fn drift_of_the_machine_is_no_difference() {
        let slower = |_, at| turn(0.1 * 1.02_f64.powi(i32::try_from(at).expect("few")), 0.0);

        assert_eq!(Run::new().until_settled(slower).why, Why::Spared);
    }

    #[test]
    fn noise_asks_for_more_rounds_and_a_disturbed_turn_does_not_decide() {
        // With each other's, turns differ by a tenth; the host's are a twentieth shorter.
        let noisy = |placement, at: usize| {
            let noise = [1.0, 1.1, 0.95, 1.0, 1.05, 0.97, 1.0, 1.04][at % 8];
            turn(if placement == Host { 0.095 } else { 0.1 } * noise, 0.0)
        };
        let mut run = Run::new();
        run.until_settled(noisy);
        assert!(run.turns.len() > ROUND);

        let disturbed = |placement, at| {
            let usual = if placement == Host { 0.09 } else { 0.1 };
            turn(if at == 1 { 2.0 * usual } else { usual }, 0.0)
        };
        assert_eq!(Run::new().until_settled(disturbed).choice, Host);
    }

    #[test]
    fn the_same_times_lead_to_the_same_choice() {
        let steps = |placement, at: usize| {
            let noise = 1.0 + (crate::random::mix(at as u64) % 100) as f64 / 1e3;
            turn(if placement == Host { 0.1 } else { 0.102 } * noise, 0.001)
        };

        let runs: Vec<Finding> = (0..3).map(|_| Run::new().until_settled(steps)).collect();

        assert!(runs.windows(2).all(|two| two[0] == two[1]));
    }

    #[test]
    fn another_trial_begins_with_another_step_that_lasts_and_not_with_a_moment() {
        let mut run = Run::new();
        run.until_settled(of(0.1, 0.05, 0.0));
        let calm = of(0.1, 0.05, 0.0);
        let changed = of(0.2, 0.3, 0.0);

        for at in 0..192 {
            match at % 12 {
                0..3 | 11 => run.turn(&calm),
                _ => run.turn(&changed),
            }
            assert!(run.judge.finding().is_some(), "after {at}");
        }
        for _ in 0..LASTING {
            run.turn(&changed);
        }

        assert!(run.judge.finding().is_none());
        assert_eq!(run.judge.placement(), Device, "the present goes first");
        assert_eq!(run.until_settled(&changed).choice, Host);
    }

    #[test]
    fn trials_that_change_nothing_become_rare() {
        let mut run = Run::new();
        run.until_settled(of(0.1, 0.05, 0.0));
        let mut waits = Vec::new();
        // Steps change for good whenever it has settled.
        for change in 1..6 {
            let steps = of(0.1 * f64::from(change), 0.05 * f64::from(change), 0.0);
            let next = of(
                0.1 * f64::from(2 * change),
                0.05 * f64::from(2 * change),
                0.0,
            );
            run.turn(&steps);
            let from = run.turns.len();
            while run.judge.finding().is_some() {
                run.turn(&next);
            }
            waits.push(run.turns.len() - from);
            run.until_settled(&next);
        }

        assert_eq!(waits, [10, 20, 40, 80, 80]);
    }

    #[test]
    fn another_limit_is_a_reason_to_try_again() {
        let mut run = Run::new();
        run.until_settled(of(0.1, 0.05, 0.0));
        run.turn(of(0.1, 0.05, 0.0));

        for _ in 0..LASTING {
            run.turn(of(0.1, 0.05, 0.3));
        }

        assert!(run.judge.finding().is_none());
    }
}
