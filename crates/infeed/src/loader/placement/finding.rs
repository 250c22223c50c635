//! Result of a trial, and its one line in logs and reports.

use std::fmt;

use crate::plan::device::Placement;

/// Reason to prefer one placement to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PreferenceReason {
    /// Its steps are shorter.
    Shorter,
    /// Steps are equal: fewer bytes cross the bus.
    Fewer,
}

/// Reason why a placement had no turn in a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoTurnReason {
    /// It would relieve the host, but nothing waits for the host.
    Idle,
    /// Its transfers alone would take as long as steps take now.
    Bus,
    /// A smaller change in the same direction was no gain.
    Beyond,
}

/// A placement that was tried and rejected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RejectedPlacement {
    pub(super) placement: Placement,
    /// Its step divided by that of the choice.
    pub(super) ratio: f64,
    pub(super) why: PreferenceReason,
}

/// Result of a trial.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PlacementFinding {
    pub(super) choice: Placement,
    /// Step of the choice, in seconds.
    pub(super) step_s: f64,
    /// Rejected placements, the closest first.
    pub(super) others: Vec<RejectedPlacement>,
    pub(super) untried: Vec<(Placement, NoTurnReason)>,
}

impl fmt::Display for PlacementFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (choice, step_ms) = (self.choice.name(), 1e3 * self.step_s);
        let (longer, ties): (Vec<&RejectedPlacement>, Vec<&RejectedPlacement>) = self
            .others
            .iter()
            .partition(|other| other.why == PreferenceReason::Shorter);
        write!(f, "placement: {choice}; ")?;
        if ties.is_empty() {
            write!(f, "steps take {step_ms:.1} ms")?;
        } else {
            let names: Vec<&str> = ties.iter().map(|other| other.placement.name()).collect();
            let names = names.join(" and ");
            write!(
                f,
                "steps take {step_ms:.1} ms, as long as with {names}, so the placement with \
                 fewer bytes on the bus is used"
            )?;
        }
        for RejectedPlacement {
            placement, ratio, ..
        } in longer
        {
            let name = placement.name();
            write!(f, ", {name} takes {ratio:.2} times as long")?;
        }
        for (placement, why) in &self.untried {
            let why = match why {
                NoTurnReason::Idle => "nothing waits for the host",
                NoTurnReason::Bus => "the bus has no capacity for its bytes",
                NoTurnReason::Beyond => "a smaller change in that direction did not help",
            };
            write!(f, "; {} was not tried because {why}", placement.name())?;
        }
        Ok(())
    }
}
