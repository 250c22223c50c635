//! A running pipeline: batches, epochs, statistics, close.

// Other crates of the engine use what is hidden here; programs do not.
#[doc(hidden)]
pub mod any;
mod assemble;
mod bad_records;
mod batch_functions;
mod budget;
mod cache;
mod consume;
mod cores;
mod costs;
pub(crate) mod decoders;
pub mod device;
pub mod digest;
pub(crate) mod divide;
mod failure;
mod fetched_records;
pub(crate) mod function_outputs;
#[doc(hidden)]
pub mod losses;
mod options;
mod placement;
pub(crate) mod preview;
mod record_needs;
mod records;
mod register;
#[doc(hidden)]
pub mod remote;
mod reservation;
pub(crate) mod resources;
mod resume;
mod rules;
mod run_digest;
#[doc(hidden)]
pub mod run_record;
mod running;
mod schedule;
mod several;
pub(crate) mod start;
mod state;
mod stats;
pub mod targets;
mod tuning;
pub mod verify;
mod whole_groups;
mod window;

pub use crate::plan::device::DecodeBy;
#[doc(hidden)]
pub use cache::DecodedCache;
pub use cache::{CacheLimit, CacheOptions, DecodedCacheStats, DiskCacheOptions, DiskCacheStats};
pub use consume::Step;
#[doc(hidden)]
pub use failure::sample_error;
pub use fetched_records::BadRecord;
pub use options::Options;
#[doc(hidden)]
pub use reservation::unreserved_memory_bytes;
pub use rules::OnError;
pub use running::Loader;
pub use state::LoaderState;
pub use stats::Stats;
pub use tuning::TuningState;
