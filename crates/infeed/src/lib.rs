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
// stop
pub mod decode;
pub mod transform;
// stop
pub mod source;
// stop
pub mod batch;
// stop
pub mod pipeline;
pub mod plan;
// stop
pub mod loader;
// stop
pub mod testing;

pub use batch::{Array, Batch, Values};
pub use error::Error;
pub use loader::{Loader, OnError, Options, Stats, Step};
pub use pipeline::Pipeline;
