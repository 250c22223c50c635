//! The engine of infeed.
#![forbid(unsafe_code)]

pub mod sample;
// data flows
pub mod counters;
pub mod random;
// stop sorting
pub mod error;
pub mod exec;
pub mod order;
pub mod transform;
// stop
pub mod source;
// stop
pub mod batch;
