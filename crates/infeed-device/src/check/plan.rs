//! Groups of checks, and the time to spend on them.

use std::str::FromStr;

use infeed_core::error::Error;

use crate::jpeg::DecoderSettings;

/// A group of checks that a process can run alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Bytes that kernels write, compared with the host's.
    Kernels,
    /// Rates of copies and kernels, and the host's cost of a step.
    Rates,
    /// Batches that a consumer reads late.
    Stress,
    /// Order of the writes of JPEG decoders.
    Ordering,
    /// JPEG decoding: pixels, rejected files and rates.
    Jpegs,
}

impl Group {
    /// Every group, in the order in which they run.
    pub const ALL: [Group; 5] = [
        Group::Kernels,
        Group::Rates,
        Group::Stress,
        Group::Ordering,
        Group::Jpegs,
    ];

    /// Returns the name of the group on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Group::Kernels => "kernels",
            Group::Rates => "rates",
            Group::Stress => "stress",
            Group::Ordering => "ordering",
            Group::Jpegs => "jpegs",
        }
    }
}

impl FromStr for Group {
    type Err = Error;

    fn from_str(name: &str) -> Result<Group, Error> {
        let found = Group::ALL.into_iter().find(|group| group.name() == name);
        found.ok_or_else(|| {
            let names = Group::ALL.map(Group::name).join(", ");
            let problem = format!("no group of checks is named {name:?}; the groups are {names}");
            Error::config("groups", problem)
        })
    }
}

/// Groups to check, and the time to spend.
#[derive(Clone, Debug)]
pub struct CheckPlan {
    /// Duration in seconds. From 10 seconds on, sizes are those of training. Below, sizes are small
    /// and the figures mean little. The stress test takes all of this time if it runs alone,
    /// otherwise half.
    pub seconds: f64,
    /// The groups to run.
    pub groups: Vec<Group>,
    /// Settings of JPEG decoders.
    pub decoders: DecoderSettings,
}

impl CheckPlan {
    /// Creates a plan of every group, with the default decoders.
    pub fn new(seconds: f64) -> CheckPlan {
        CheckPlan {
            seconds,
            groups: Group::ALL.to_vec(),
            decoders: DecoderSettings::default(),
        }
    }
}

/// Amount of work: enough to see that everything works, or enough to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effort {
    Small,
    Full,
}
