//! Making samples: the work for each record, on one thread.
//!
//! [`SampleMaker`] has a plan and the working memory of its thread. `sample.rs` makes a sample: it draws
//! and arranges each of its records before it makes any pixel. The file of a transform that joins
//! records makes their parts and joins them. User functions follow.

mod computed_columns;
mod copy_paste;
mod functions;
mod image_mixup;
mod kept_sample;
pub(crate) mod memory;
mod mix;
mod mosaic;
pub(crate) mod needs;
mod parts;
mod prepare;
pub mod preview;
mod preview_joined;
mod sample;
mod sample_maker;
pub(crate) mod shared_tiles;

pub use sample_maker::{SampleMaker, SampleRecord};
