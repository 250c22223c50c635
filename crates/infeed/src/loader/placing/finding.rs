//! Result of a trial, and its one line in logs and reports.

use std::fmt;

use crate::plan::device::Placement;

/// Reason to prefer one placement to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PreferenceReason {
    /// Its steps are shorter.
    Shorter,
    /// Steps are equal and nothing waits: the device has less work.
    Spared,
    /// Steps are equal and wait: fewer bytes cross the bus.
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
    /// Share of waiting, the larger of the two.
    pub(super) wait: f64,
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
        if let Some(tie) = ties.first() {
            let names: Vec<&str> = ties.iter().map(|other| other.placement.name()).collect();
            let names = names.join(" and ");
            write!(f, "steps take {step_ms:.1} ms, as long as with {names}, ")?;
            match tie.why {
                PreferenceReason::Fewer => write!(
                    f,
                    "and wait ({:.1} % of the time), so the placement with fewer bytes on the bus \
                     is used",
                    100.0 * tie.wait
                )?,
                PreferenceReason::Shorter | PreferenceReason::Spared => {
                    f.write_str(
                        "and do not wait, so the placement with less work on the device is used",
                    )?;
                }
            }
        } else {
            write!(f, "steps take {step_ms:.1} ms")?;
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
