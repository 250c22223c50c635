//! The arithmetic of an explanation: the rate that each resource allows is its capacity divided by
//! the demand, and the lowest of these rates is the rate of the whole.
//!
//! Runs, placements on host and device, shares of decoding and numbers of feeders differ only in
//! their resources. Nothing here opens a pipeline or reads a record: other modules measure the
//! numbers.

pub(crate) mod crossover;
pub(crate) mod decoding;
pub(crate) mod feeders;
pub(crate) mod interval;
pub(crate) mod limit;
pub(crate) mod placement;
pub(crate) mod stages;
pub(crate) mod supply;
pub(crate) mod transfers;
