//! Batches from and for other machines: the wire protocol, the feeder, and the trainer's side.
//!
//! A feeder ([`serve`]) makes batches of a pipeline on request. A trainer names its feeders in
//! [`Feeders`], which implements the loader's trait for remote rows:
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use infeed::pipeline::{Pipeline, SourceSpec};
//! use infeed_feed::Feeders;
//!
//! # fn main() -> Result<(), infeed::Error> {
//! let pipeline = Pipeline::new(SourceSpec::folder("photos")).decode().batch(32);
//! let mut options = infeed::Options::default();
//! options.remote = Some(Arc::new(Feeders::new(["10.0.0.7:7077"])));
//! let loader = pipeline.open(&options)?;
//! # drop(loader);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod contents;
mod facts;
mod feeder;
mod hosts;
mod trainer;
pub mod wire;

pub use feeder::{FeedOptions, FeedStats, Feeder, serve, serve_over};
pub use hosts::{FeederAddress, Feeders, Hosts, Local};
