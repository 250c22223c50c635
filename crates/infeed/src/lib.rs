//! The engine of infeed.
#![forbid(unsafe_code)]

pub mod sample;
