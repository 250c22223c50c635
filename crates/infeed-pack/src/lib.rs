//! Rewrites a dataset once into a format that is cheaper to read: image files, one `.npy` file per
//! field, or shards (WebDataset, TFRecord, Arrow, Parquet, `.npz`).
//!
//! [`pack()`] runs a dataset, [`Parts`] a part of it in one of several processes. Both open the
//! `input`: `fields` chooses the work for each field, and `make` does it for one record. The threads
//! of `run` write the results with `folder` and `arrays`. The threads of `shards` write one `shard`
//! after the other, as decided in the `shard_plan`. Each file of `targets` is one format of shards
//! and implements `shard_layout`. The `output_folder` has one owner, and its `manifest` describes
//! the dataset. Nothing is written over or into the original. A file gets its name only when it is
//! complete, so a stopped run can resume: by file in a folder, by row in arrays, by shard in other
//! formats (`journal`). Shards may go to a bucket (`location`).
#![forbid(unsafe_code)]

mod arrays;
mod columnar;
mod count;
mod encode;
mod encoding;
mod entry;
mod error;
mod fields;
mod folder;
mod input;
mod journal;
mod judge;
mod location;
mod make;
mod manifest;
mod names;
mod note;
mod npy;
mod options;
mod options_json;
mod output_folder;
mod overlap;
mod pack;
mod part_file;
mod parts;
mod product;
mod restart;
mod run;
mod selection;
mod sequence;
mod shapes;
mod shard;
mod shard_layout;
mod shard_plan;
mod shards;
mod targets;
mod values;

pub use count::PackProgress;
pub use encode::encode;
pub use encoding::{Encoding, PngFilter, PngLevel};
pub use entry::BAD_LIST;
pub use entry::listed_bad;
pub use error::PackError;
pub use infeed::pipeline::packed_dataset::MANIFEST;
pub use judge::Fidelity;
pub use options::{PackOptions, SHARD_BYTES};
pub use pack::{PackedDataset, pack};
pub use parts::{Part, Parts};
pub use restart::{TILE, with_restarts};
pub use targets::Target;
