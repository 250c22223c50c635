//! What other machines give a trainer, or would give: its own cores first, feeders for the rest, and
//! what limits both.
//!
//! This is arithmetic over numbers that were planned, measured or counted elsewhere (`explain/feeders`).

mod model;
#[cfg(test)]
mod tests;
mod words;

use serde::{Deserialize, Serialize};

use super::interval::Interval;
use super::limit::{Limit, Resource};

pub(super) use model::Supply;
pub(super) use words::{About, tell};

/// What feeders give, and what more of them would.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Feeding {
    /// Where the numbers of a feeder are from.
    pub known: FeederKnown,
    /// Cores of a feeder, where it is planned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feeder_cores: Option<usize>,
    /// Processor time for making a sample.
    pub make_s: f64,
    /// A feeder's processor time for sending one.
    pub send_s: f64,
    /// This machine's processor time for receiving one.
    pub receive_s: f64,
    /// Bytes of a sample on the wire.
    pub sample_bytes: f64,
    /// Bytes of a sample if what makes it larger were left to the device; None where nothing is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub small_bytes: Option<f64>,
    /// What the wire carries.
    pub network: Network,
    /// What each part allows by itself: this machine's cores, one feeder, wire, receiving.
    pub parts: Vec<Resource>,
    /// What so many feeders give, none first.
    pub counts: Vec<FeederCount>,
    /// The fewest that keep the step fed; None if none do, or no step is known.
    pub enough: Option<u32>,
    /// The fewest with which something else than feeders' cores limits; None if up to the most that
    /// were looked at they do.
    pub saturated: Option<u32>,
    /// The feeders that there are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<FedHost>,
    /// What they gave, in turn with none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Fed>,
    /// All that in sentences.
    pub said: Vec<String>,
}

/// Where the numbers of a feeder are from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum FeederKnown {
    /// What this machine does, for a machine like it.
    #[default]
    Planned,
    /// Measured with the feeders that were named.
    Measured,
    /// Counted while a loop ran.
    Counted,
}

/// What the network between feeders and this machine carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Network {
    /// Bytes of batches a second.
    pub bytes_per_s: f64,
    /// Where that is from.
    pub known: NetworkKnown,
}

/// Where the rate of a network is from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum NetworkKnown {
    /// What this machine sends to itself: a network gives less.
    #[default]
    Loopback,
    /// It was told.
    Given,
    /// What came from feeders while anything came.
    Reached,
}

/// What so many feeders give.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FeederCount {
    /// How many.
    pub feeders: u32,
    /// Samples a second, of this machine and the feeders.
    pub rate: Interval,
    /// Rate with them over rate without.
    pub gain: Interval,
    /// Samples a second that this machine makes.
    pub own: f64,
    /// Samples a second that the feeders make.
    pub fed: f64,
    /// Cores of this machine that receive.
    pub receive_cores: f64,
    /// What limits.
    pub limit: Limit,
    /// How the rate was come by.
    pub arithmetic: String,
}

/// A feeder that there is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FedHost {
    /// `host:port`, as it was given.
    pub host: String,
    /// Whether it was connected and answered in time.
    pub connected: bool,
    /// Batches that it made.
    pub batches: u64,
    /// Share of all batches that it made, 0 to 1.
    pub share: f64,
    /// Bytes of them.
    pub bytes: u64,
    /// From asking to having one, on average.
    pub wait_s: f64,
    /// Bytes a second while they came.
    pub bytes_per_s: f64,
    /// Share of the time in which bytes came, 0 to 1.
    pub busy: f64,
    /// Samples a second that it gives by itself; None where that was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alone: Option<Interval>,
    /// Batches that had to be made elsewhere.
    pub redone: u64,
    /// What went wrong last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Feeders beside this machine's cores, and these alone, in turn.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Fed {
    /// Samples a second without feeders.
    pub without: f64,
    /// With them.
    pub with: f64,
    /// One over the other, turn by turn.
    pub gain: Interval,
    /// What was predicted of so many machines like this one.
    pub predicted: Interval,
    /// What limits with them.
    pub limit: Limit,
    /// Share of the time in which bytes came from any of them, 0 to 1.
    pub busy: f64,
}

impl Feeding {
    /// What so many feeders give, where that was looked at.
    pub fn of(&self, feeders: u32) -> Option<&FeederCount> {
        self.counts.iter().find(|count| count.feeders == feeders)
    }
}
