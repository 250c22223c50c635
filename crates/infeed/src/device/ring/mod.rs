//! Slots on a device through which batches go to the consumer, ahead of it.
//!
//! The protocol, with the argument why no event is missing, is in the README of `device`. No file
//! here uses one below it in this list; `tests/model.rs` compiles them a second time, over locks
//! whose order a model checker chooses.

mod sync;

mod events;
mod slots;

mod gaps;

mod sampling;

mod times;

mod shared;

pub(crate) mod crops;

pub(crate) mod files;

mod decoding;

mod batch;

mod route;

mod closing;
mod sending;
#[cfg(test)]
mod tests;

pub use batch::{DeviceArray, DeviceBatch, Sent};
pub use gaps::{Asked, Gap, GapTotals};
pub use route::{Route, Upload};
pub use sending::{Ring, RingStats, SLOTS, Settings};
pub use times::SentTimes;
