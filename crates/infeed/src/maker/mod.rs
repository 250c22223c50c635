//! Making samples: the work for each record, on one thread.
//!
//! [`SampleMaker`] has a plan and the working memory of its thread. `sample.rs` makes a sample of one
//! record. For a sample of several records, `parts.rs` draws and arranges each, and the file of the
//! transform joins them. User functions follow.

mod computed;
mod copy_paste;
mod functions;
mod joined;
mod kept;
mod mix;
mod mosaic;
pub(crate) mod needs;
mod parts;
mod prepared;
pub mod preview;
mod preview_joined;
mod sample;
mod sample_maker;
mod scratch;
pub(crate) mod shared_tiles;

pub use sample_maker::{SampleMaker, SampleRecord};
pub use scratch::SampleScratch;
