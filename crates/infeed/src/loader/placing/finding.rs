//! What a trial found, and its one line in logs and reports.

use std::fmt;

use crate::plan::device::Placement;

/// Why one way was preferred to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// Its steps are shorter.
    Shorter,
    /// Steps take as long and wait for nothing: the device has less to do.
    Spared,
    /// Steps take as long and wait: fewer bytes cross the bus.
    Fewer,
}

/// Why a way had no turn in a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Untried {
    /// It would take work from the host, for which nothing waits.
    Idle,
    /// Its bytes alone would take the bus as long as steps take now.
    Bus,
    /// One that goes less far in the same direction was no better.
    Beyond,
}

/// A way that was tried and not chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Other {
    pub(super) placement: Placement,
    /// Its step over that of the choice.
    pub(super) ratio: f64,
    pub(super) why: Why,
    /// Share of waiting, of whichever of the two waited longer.
    pub(super) wait: f64,
}

/// What a trial found.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Finding {
    pub(super) choice: Placement,
    /// Of the choice, in seconds.
    pub(super) step_s: f64,
    /// Those that were tried beside it, the nearest first.
    pub(super) others: Vec<Other>,
    pub(super) untried: Vec<(Placement, Untried)>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (choice, step_ms) = (self.choice.name(), 1e3 * self.step_s);
        let (longer, ties): (Vec<&Other>, Vec<&Other>) = self
            .others
            .iter()
            .partition(|other| other.why == Why::Shorter);
        write!(f, "placement: {choice}; ")?;
        if let Some(tie) = ties.first() {
            let names: Vec<&str> = ties.iter().map(|other| other.placement.name()).collect();
            let names = names.join(" and ");
            write!(f, "steps take {step_ms:.1} ms, as long as with {names}, ")?;
            match tie.why {
                Why::Fewer => write!(
                    f,
                    "and wait ({:.1} % of the time), so the bus is spared",
                    100.0 * tie.wait
                )?,
                Why::Shorter | Why::Spared => {
                    f.write_str("and do not wait, so the device is spared")?;
                }
            }
        } else {
            write!(f, "its steps take {step_ms:.1} ms")?;
        }
        for Other {
            placement, ratio, ..
        } in longer
        {
            let name = placement.name();
            write!(f, ", those of {name} {ratio:.2} times as long")?;
        }
        for (placement, why) in &self.untried {
            let why = match why {
                Untried::Idle => "nothing waits for the host",
                Untried::Bus => "the bus has no room for its bytes",
                Untried::Beyond => "a step in that direction was no gain",
            };
            write!(f, "; {} was not tried, since {why}", placement.name())?;
        }
        Ok(())
    }
}
