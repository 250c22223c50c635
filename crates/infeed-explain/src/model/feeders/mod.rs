//! The rate of a trainer with feeders on other machines: its own cores first, feeders for the rest,
//! and the limits of both.
//!
//! The numbers come from a plan, a measurement or counters ([`crate::feeders`]).

pub(crate) mod rate;
#[cfg(test)]
mod tests;
pub(crate) mod words;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::interval::Interval;
use crate::model::limit::{Limit, Resource};

/// The gain from feeders, existing and additional.
#[derive(Clone, Debug, Default, JsonSchema, Serialize, Deserialize)]
pub struct Feeding {
    /// Origin of the numbers of a feeder.
    #[serde(alias = "known")]
    pub origin: FeederOrigin,
    /// Cores of a feeder, if it is planned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feeder_cores: Option<usize>,
    /// Processor time to make a sample, in seconds.
    pub make_s: f64,
    /// A feeder's processor time to send a sample, in seconds.
    pub send_s: f64,
    /// This machine's processor time to receive a sample, in seconds.
    pub receive_s: f64,
    /// Bytes of a sample on the wire.
    pub sample_bytes: f64,
    /// Bytes of a sample if the device did the expansion (cast, one-hot). None if nothing expands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub small_bytes: Option<f64>,
    /// Rate of the network.
    pub network: Network,
    /// The rate that each part allows alone: this machine's cores, one feeder, wire, receiving.
    pub parts: Vec<Resource>,
    /// The rate for several numbers of feeders, starting with 0.
    pub counts: Vec<FeederCount>,
    /// Smallest number of feeders that keeps the step fed. None if no number does or no step is
    /// known.
    pub enough: Option<u32>,
    /// Smallest number of feeders at which another resource than their cores is the limit. None if
    /// there is no such number up to the maximum.
    pub saturated: Option<u32>,
    /// The existing feeders.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<FeederHost>,
    /// Measured rates with the existing feeders and without, in turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<FeederGain>,
    /// The findings as sentences.
    // Older recordings name them `said`.
    #[serde(alias = "said")]
    pub notes: Vec<String>,
}

/// Origin of the numbers of a feeder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum FeederOrigin {
    /// From this machine, for feeders like it.
    #[default]
    Planned,
    /// Measured with the feeders that the user named.
    Measured,
    /// Counted while a loop ran.
    Counted,
}

/// Rate of the network between feeders and this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Network {
    /// Bytes of batches per second.
    pub bytes_per_s: f64,
    /// Origin of the rate.
    #[serde(alias = "known")]
    pub origin: NetworkOrigin,
}

/// Origin of a network's rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum NetworkOrigin {
    /// Loopback of this machine. A real network is slower.
    #[default]
    Loopback,
    /// Configured by the user.
    Given,
    /// Rate of bytes from feeders while bytes arrived.
    Reached,
}

/// The rate with a number of feeders.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct FeederCount {
    /// Number of feeders.
    pub feeders: u32,
    /// Samples per second of this machine and the feeders.
    pub rate: Interval,
    /// Rate with the feeders, divided by the rate without.
    pub gain: Interval,
    /// Samples per second that this machine makes.
    pub own: f64,
    /// Samples per second that the feeders make.
    // Older recordings name it `fed`.
    #[serde(alias = "fed")]
    pub from_feeders: f64,
    /// Cores of this machine that receive.
    pub receive_cores: f64,
    /// The limiting resource.
    pub limit: Limit,
    /// Arithmetic of the rate.
    pub arithmetic: String,
}

/// An existing feeder.
#[derive(Clone, Debug, Default, JsonSchema, Serialize, Deserialize)]
pub struct FeederHost {
    /// Address as `host:port`, as the user gave it.
    pub host: String,
    /// Whether the feeder was connected and answered in time.
    pub connected: bool,
    /// Number of batches it made.
    pub batches: u64,
    /// Share of all batches that it made, 0 to 1.
    pub share: f64,
    /// Bytes of its batches.
    pub bytes: u64,
    /// Mean time from the request to the batch, in seconds.
    pub wait_s: f64,
    /// Bytes per second while its bytes arrived.
    pub bytes_per_s: f64,
    /// Share of the time in which its bytes arrived, 0 to 1.
    pub busy: f64,
    /// Samples per second of this feeder alone. None if that was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alone: Option<Interval>,
    /// Number of its batches that had to be made elsewhere.
    pub redone: u64,
    /// The last failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Rates with existing feeders and without, measured in turn.
#[derive(Clone, Copy, Debug, JsonSchema, Serialize, Deserialize)]
pub struct FeederGain {
    /// Samples per second without feeders.
    pub without: f64,
    /// Samples per second with feeders.
    pub with: f64,
    /// Ratio of the two, turn by turn.
    pub gain: Interval,
    /// Predicted gain of the same number of machines like this one.
    pub predicted: Interval,
    /// The limit with feeders.
    pub limit: Limit,
    /// Share of the time in which bytes of any feeder arrived, 0 to 1.
    pub busy: f64,
}

impl Feeding {
    /// Returns the rate with this number of feeders, if it was computed.
    pub fn of(&self, feeders: u32) -> Option<&FeederCount> {
        self.counts.iter().find(|count| count.feeders == feeders)
    }
}
