//! The resources that can limit a pipeline or a watched loop, and the rate that each allows.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::interval::Interval;

/// A resource that can be the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    /// Reads of encoded bytes.
    Storage,
    /// Processor cores, whatever they spend their time on.
    Host,
    /// Processor cores that spend most of their time on decoding.
    Decode,
    /// Processor cores that spend most of their time on transforms and on writing rows.
    Transform,
    /// The interpreter lock, or a Python function.
    Python,
    /// Memory bandwidth.
    Memory,
    /// The lock of the executor, which hands out rows one at a time.
    Executor,
    /// The cores of feeders, together with those of this machine.
    Feeders,
    /// The network between feeders and this machine.
    Wire,
    /// This machine's cores, which receive the batches of feeders.
    Receive,
    /// The bus to the device.
    // Older recordings name it `bus` in placements.
    #[serde(alias = "bus")]
    Copy,
    /// The device's JPEG decoder, which shares the stream of the copies.
    Decoder,
    /// The device's work on rows, which runs next to the step.
    Device,
    /// The training step itself. The loader keeps up.
    Step,
    /// The loader of a watched loop, whose own resources are unknown.
    Loader,
    /// The loader of a watched loop, which takes cores or memory bandwidth from the step.
    Interference,
}

impl Limit {
    /// The resources of a [`PlacementReport`](crate::PlacementReport), which decodes on the host, in
    /// the order data flows.
    pub const HOST_DECODING: [Limit; 5] = [
        Limit::Storage,
        Limit::Host,
        Limit::Copy,
        Limit::Device,
        Limit::Step,
    ];

    /// The resources of a [`DecodingReport`](crate::DecodingReport), in the order data flows.
    pub const DEVICE_DECODING: [Limit; 6] = [
        Limit::Storage,
        Limit::Host,
        Limit::Copy,
        Limit::Decoder,
        Limit::Device,
        Limit::Step,
    ];

    /// Returns the lower-case name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Limit::Storage => "storage",
            Limit::Host => "host",
            Limit::Decode => "decode",
            Limit::Transform => "transform",
            Limit::Python => "python",
            Limit::Memory => "memory",
            Limit::Executor => "executor",
            Limit::Feeders => "feeders",
            Limit::Wire => "wire",
            Limit::Receive => "receive",
            Limit::Copy => "copy",
            Limit::Decoder => "decoder",
            Limit::Device => "device",
            Limit::Step => "step",
            Limit::Loader => "loader",
            Limit::Interference => "interference",
        }
    }

    /// Returns the lower-case name in a table of placements, whose rows cross the bus in different
    /// forms. As in JSON there.
    pub fn placement_name(self) -> &'static str {
        match self {
            Limit::Copy => "bus",
            other => other.name(),
        }
    }

    /// Returns the name for a sentence about a placement.
    pub(crate) fn subject_in_placement(self) -> &'static str {
        match self {
            Limit::Copy => "the bus",
            Limit::Device => "the device's work on rows next to the step",
            other => other.subject(),
        }
    }

    /// Returns the name for a sentence about the loader.
    pub(crate) fn subject(self) -> &'static str {
        match self {
            Limit::Storage => "storage",
            Limit::Host => "the host's cores",
            Limit::Decode => "decoding",
            Limit::Transform => "transforming and writing rows",
            Limit::Python => "Python",
            Limit::Memory => "memory bandwidth",
            Limit::Executor => "the executor's lock",
            Limit::Feeders => "preparing here and on feeders",
            Limit::Wire => "the network to feeders",
            Limit::Receive => "receiving from feeders",
            Limit::Copy => "the copy to the device",
            Limit::Decoder => "the device's decoder",
            Limit::Device => "the device's work on rows",
            Limit::Step => "the step",
            Limit::Loader => "the loader",
            Limit::Interference => "the loader's effect on the step",
        }
    }
}

/// The rate that one resource allows.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Resource {
    /// The resource.
    pub limit: Limit,
    /// Samples per second.
    pub rate: Interval,
    /// Arithmetic of the rate, such as `2 workers / 6.4 ms per sample = 312 samples/s`.
    pub arithmetic: String,
}
