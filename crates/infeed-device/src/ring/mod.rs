//! A ring: slots of device memory through which batches go to the consumer, ahead of time.
//!
//! The README of this crate states the protocol, and why no event is missing. A file may use only
//! files above it in this list. `tests/model.rs` compiles the files a second time, with locks whose
//! order a model checker chooses.

mod sync;

mod events;
mod slots;

mod gaps;

mod sampling;

mod times;

mod ring_state;

pub mod crops;

pub mod files;

mod decoding;

mod batch;

mod route;

mod stats;

mod device_ring;

mod slot_memory;

mod commands;

mod closing;
mod sending;
#[cfg(test)]
mod tests;

pub use batch::{DeviceArray, DeviceBatch, SentBatch, TakenArray};
pub use device_ring::{Ring, RingSettings, SLOTS};
pub use gaps::{Gap, GapTotals, TimedRequest};
pub use route::{Route, Upload};
pub use stats::RingStats;
pub use times::SentTimes;
