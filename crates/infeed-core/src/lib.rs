//! Common parts of all infeed crates: samples, errors, counters, the order of records, the executor,
//! batches, comparisons and log messages.
//!
//! This crate does not depend on codecs, storage or devices.
#![forbid(unsafe_code)]

pub mod batch;
pub mod compare;
pub mod connections;
pub mod counters;
pub mod error;
pub mod exec;
pub mod log;
pub mod order;
pub mod own_files;
pub mod panics;
pub mod parse_problem;
pub mod printable;
pub mod probe;
pub mod random;
pub mod replace;
pub mod sample;
pub mod stop;
pub mod units;

pub use error::Error;
