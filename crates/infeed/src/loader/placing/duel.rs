//! Comparison of two placements that take turns on the run's own steps.

use crate::loader::window::{median, standard_error};

/// Relative difference up to which two steps count as equal.
pub(super) const TIE: f64 = 0.03;

/// Turns of a round: current, challenger, challenger, current. Drift of the machine cancels with
/// the fewest changes.
pub(super) const ROUND: usize = 4;

/// Maximum number of rounds.
pub(super) const ROUNDS: usize = 3;

/// A first turn of the challenger with a step longer by this factor ends the comparison.
const HOPELESS: f64 = 2.5;

/// Number of standard errors that make a difference significant.
const SURE: f64 = 2.0;

/// Effect of one placement over a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PlacementTurn {
    /// Duration from batch to batch, in seconds.
    pub(super) step_s: f64,
    /// Share of the time that the consumer or its device waited.
    pub(super) wait: f64,
    /// Share of the time that the bus was busy, if known.
    pub(super) bus: Option<f64>,
}

/// Placement with the shorter steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShorterStep {
    Present,
    Challenger,
    /// Both steps take equally long.
    Neither,
}

/// Result of a comparison.
#[derive(Clone, Copy, Debug)]
pub(super) struct DuelOutcome {
    pub(super) shorter: ShorterStep,
    /// Step of the challenger divided by that of the current placement.
    pub(super) ratio: f64,
    /// Usual turn of the current placement.
    pub(super) present: PlacementTurn,
    /// Usual turn of the challenger.
    pub(super) challenger: PlacementTurn,
}

/// Whether the turn after `turns` turns is the challenger's.
pub(super) fn is_challengers(turns: usize) -> bool {
    matches!(turns % ROUND, 1 | 2)
}

/// Returns the result of the turns if they suffice.
pub(super) fn outcome(turns: &[PlacementTurn]) -> Option<DuelOutcome> {
    let found = |shorter, ratio| DuelOutcome {
        shorter,
        ratio,
        present: usual(turns, false),
        challenger: usual(turns, true),
    };
    if let [first, second] = turns {
        let ratio = second.step_s / first.step_s.max(1e-12);
        return (ratio > HOPELESS).then(|| found(ShorterStep::Present, ratio));
    }
    if turns.is_empty() || !turns.len().is_multiple_of(ROUND) {
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
        return Some(found(ShorterStep::Challenger, ratio));
    }
    if ratio - noise > 1.0 + TIE {
        return Some(found(ShorterStep::Present, ratio));
    }
    let is_decided = last || (ratio - 1.0).abs() + noise <= TIE;
    is_decided.then(|| found(ShorterStep::Neither, ratio))
}

/// Returns the medians of one placement's turns.
fn usual(turns: &[PlacementTurn], challengers: bool) -> PlacementTurn {
    let own = || {
        let turns = turns.iter().enumerate();
        let own = turns.filter(move |(at, _)| is_challengers(*at) == challengers);
        own.map(|(_, turn)| *turn)
    };
    let known: Vec<f64> = own().filter_map(|turn| turn.bus).collect();
    PlacementTurn {
        step_s: median(own().map(|turn| turn.step_s)),
        wait: median(own().map(|turn| turn.wait)),
        bus: (!known.is_empty()).then(|| median(known.into_iter())),
    }
}
