//! Test equipment: a web server with configurable faults, and small datasets. Not part of any
//! release.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

pub mod data;
pub mod hub;
pub mod server;
pub mod write;
