//! Comparison of two placements that take turns on the run's own steps.

use infeed_core::compare::{ComparisonRule, ShorterStep, median};

/// Relative difference up to which two steps count as equal. A kernel that expands a batch takes
/// about 50 us, so it is 0.5 % of a step of 10 ms.
pub(super) const TIE: f64 = 0.005;

/// Relative difference that decides after all rounds even if it is not significant.
const LARGE: f64 = 0.03;

/// Turns of a round: current, challenger, challenger, current. Drift of the machine cancels with
/// the fewest changes.
pub(super) const ROUND: usize = 4;

/// Pairs of turns in a round. Each pair gives a ratio.
const PAIRS: usize = 2;

/// Maximum number of rounds.
pub(super) const ROUNDS: usize = 3;

const RULE: ComparisonRule = ComparisonRule {
    hopeless_turn: 2.5,
    hopeless: f64::INFINITY,
    least_rounds: PAIRS,
    most_rounds: PAIRS * ROUNDS,
    errors: 2.0,
    faster: 1.0 - TIE,
    surely_faster: 1.0 - TIE,
    slower: 1.0 + TIE,
    tolerated: 1.0 + TIE,
    even_above: 1.0 - TIE,
    even_up_to: 1.0 + TIE,
    undecided: Some(ShorterStep::Neither),
};

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
        let ends = RULE.ends_at_first_turn(first.step_s, second.step_s);
        return ends.then(|| found(ShorterStep::Present, ratio(first, second)));
    }
    if turns.is_empty() || !turns.len().is_multiple_of(ROUND) {
        return None;
    }
    let pairs = turns.chunks_exact(2).enumerate();
    let ratios = pairs.map(|(pair, turns)| match pair % PAIRS {
        0 => ratio(&turns[0], &turns[1]),
        _ => ratio(&turns[1], &turns[0]),
    });
    let ratios: Vec<f64> = ratios.collect();
    let shorter = RULE.decide(&ratios)?;
    let ratio = median(ratios);
    let shorter = match shorter {
        ShorterStep::Neither if ratio < 1.0 - LARGE => ShorterStep::Challenger,
        ShorterStep::Neither if ratio > 1.0 + LARGE => ShorterStep::Present,
        shorter => shorter,
    };
    Some(found(shorter, ratio))
}

/// Returns the challenger's step divided by that of the current placement.
fn ratio(present: &PlacementTurn, challenger: &PlacementTurn) -> f64 {
    challenger.step_s / present.step_s.max(1e-12)
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
        bus: (!known.is_empty()).then(|| median(known)),
    }
}
