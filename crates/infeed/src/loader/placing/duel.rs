//! Two ways that take turns on the run's own steps, and what the turns say.

use crate::loader::window::{median, standard_error};

/// Steps that differ by no more take as long.
pub(super) const TIE: f64 = 0.03;

/// Turns of a round: the present way, the challenger twice, and the present one again, so that drift of
/// the machine cancels with the fewest changes.
pub(super) const ROUND: usize = 4;

/// The most rounds of a duel.
pub(super) const ROUNDS: usize = 3;

/// A challenger's first turn with steps so much longer ends a duel.
const HOPELESS: f64 = 2.5;

/// Standard errors that make a difference one.
const SURE: f64 = 2.0;

/// What a way led to for a while.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Turn {
    /// From batch to batch, in seconds.
    pub(super) step_s: f64,
    /// Share of the time that the consumer, or its device, waited.
    pub(super) wait: f64,
    /// Share of the time that the bus was busy, where it is known.
    pub(super) bus: Option<f64>,
}

/// Who has the shorter steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shorter {
    Present,
    Challenger,
    /// They take as long.
    Neither,
}

/// What a duel came to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    pub(super) shorter: Shorter,
    /// Step of the challenger over that of the present way.
    pub(super) ratio: f64,
    /// What is usual with the present way.
    pub(super) present: Turn,
    /// What is usual with the challenger.
    pub(super) challenger: Turn,
}

/// Whether the next turn after so many is the challenger's.
pub(super) fn is_challengers(turns: usize) -> bool {
    matches!(turns % ROUND, 1 | 2)
}

/// What turns say, if they say enough.
pub(super) fn outcome(turns: &[Turn]) -> Option<Outcome> {
    let found = |shorter, ratio| Outcome {
        shorter,
        ratio,
        present: usual(turns, false),
        challenger: usual(turns, true),
    };
    if let [first, second] = turns {
        let ratio = second.step_s / first.step_s.max(1e-12);
        return (ratio > HOPELESS).then(|| found(Shorter::Present, ratio));
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
        return Some(found(Shorter::Challenger, ratio));
    }
    if ratio - noise > 1.0 + TIE {
        return Some(found(Shorter::Present, ratio));
    }
    let tells = last || (ratio - 1.0).abs() + noise <= TIE;
    tells.then(|| found(Shorter::Neither, ratio))
}

/// Medians of the turns of one of the two.
fn usual(turns: &[Turn], challengers: bool) -> Turn {
    let own = || {
        let turns = turns.iter().enumerate();
        let own = turns.filter(move |(at, _)| is_challengers(*at) == challengers);
        own.map(|(_, turn)| *turn)
    };
    let known: Vec<f64> = own().filter_map(|turn| turn.bus).collect();
    Turn {
        step_s: median(own().map(|turn| turn.step_s)),
        wait: median(own().map(|turn| turn.wait)),
        bus: (!known.is_empty()).then(|| median(known.into_iter())),
    }
}
