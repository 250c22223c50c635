//! Resources that can be the limit, and what each allows.

use serde::{Deserialize, Serialize};

use super::interval::Interval;

/// A resource that can be the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    /// Reading encoded bytes.
    Storage,
    /// Processor cores, most of whose time goes into decoding.
    Decode,
    /// Processor cores, most of whose time goes into transforms and writing rows.
    Transform,
    /// Python's lock, or a function in Python.
    Python,
    /// Memory bandwidth.
    Memory,
    /// The cores of feeders, and those of this machine beside them.
    Feeders,
    /// The network between feeders and this machine.
    Wire,
    /// This machine's cores, which take in what feeders send.
    Receive,
    /// The bus to the device.
    Copy,
    /// The device's decoder of JPEGs.
    Decoder,
    /// The device's work on rows, which it does beside the step.
    Device,
    /// The training step itself: the loader keeps up.
    Step,
}

impl Limit {
    /// Lower-case name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Limit::Storage => "storage",
            Limit::Decode => "decode",
            Limit::Transform => "transform",
            Limit::Python => "python",
            Limit::Memory => "memory",
            Limit::Feeders => "feeders",
            Limit::Wire => "wire",
            Limit::Receive => "receive",
            Limit::Copy => "copy",
            Limit::Decoder => "decoder",
            Limit::Device => "device",
            Limit::Step => "step",
        }
    }

    /// What it is in a sentence about the loader.
    pub(super) fn subject(self) -> &'static str {
        match self {
            Limit::Storage => "storage",
            Limit::Decode => "decoding",
            Limit::Transform => "transforming and writing rows",
            Limit::Python => "Python",
            Limit::Memory => "memory bandwidth",
            Limit::Feeders => "preparing here and on feeders",
            Limit::Wire => "the network to feeders",
            Limit::Receive => "receiving from feeders",
            Limit::Copy => "the copy to the device",
            Limit::Decoder => "the device's decoder",
            Limit::Device => "the device's work on rows",
            Limit::Step => "the step",
        }
    }
}

/// What one resource allows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Resource {
    /// Which.
    pub limit: Limit,
    /// Samples a second it allows.
    pub rate: Interval,
    /// How the rate was come by: `2 workers / 6.4 ms per sample = 312 samples/s`.
    pub arithmetic: String,
}
