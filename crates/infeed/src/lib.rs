//! infeed keeps accelerators fed: it reads, decodes, transforms and batches records on all cores,
//! in an order that is a function of the seed, within a memory budget in bytes.
//!
//! A [`Pipeline`] is a description, plain data. [`Pipeline::open`] plans it and returns a
//! [`Loader`], which delivers [`Batch`]es. See the example at [`Pipeline`]. `open.rs` lists the steps
//! from a description to a running loader.
//!
//! One image passes through six functions:
//!
//! | # | file | function | input | output |
//! |--:|---|---|---|---|
//! | 1 | `infeed-source/src/folder.rs` | [`source::Source::read`] | record number | encoded bytes |
//! | 2 | `infeed-codec/src/decode/decoder.rs` | [`decode::Decoder::decode`] | bytes, region | `[H, W, 3]` uint8 |
//! | 3 | `infeed-codec/src/transform/apply.rs` | [`transform::Step::apply`] | pixels | pixels |
//! | 4 | `fields/pixels/write.rs` | the pass that writes the row | pixels | row *n* of a slab |
//! | 5 | `infeed-core/src/batch/batcher.rs` | [`batch::Batcher::finish`] | filled rows | a [`Batch`] |
//! | 6 | `loader/consume.rs` | [`Loader::next_batch`] | | the batch of this step |
//!
//! `maker/sample.rs` calls 2 to 4 for one record. `infeed-core/src/exec` is the executor under 1 to 5 and never
//! looks at pixels. `examples/one_image.rs` runs the same six functions on one thread.
//!
//! # Cargo features
//!
//! All are on by default. A call that needs a missing feature returns an error that names it.
//!
//! | feature | includes |
//! |---|---|
//! | `remote` | object storage and web servers (`s3://`, `gs://`, `az://`, `hf://`, `http://`, `https://`) |
//! | `tables` | Parquet and Arrow files, and [`source::batches`] |
//! | `cuda` | NVIDIA GPUs and nvJPEG ([`device::cuda`]); the simulated device is always there |
#![forbid(unsafe_code)]

pub mod fields;
pub mod function;
pub mod loader;
pub mod maker;
mod open;
pub mod pipeline;
pub mod plan;

pub use infeed_codec::{audio, decode, instances, lossless, transform};
pub use infeed_core::{
    batch, counters, error, exec, log, order, parse_problem, printable, probe, random, sample,
    stop, units,
};
pub use infeed_device as device;
pub use infeed_source as source;
pub use infeed_source::store;

pub use batch::{Array, Batch, Values};
pub use error::Error;
pub use loader::{Loader, OnError, Options, Stats, Step};
pub use pipeline::Pipeline;

/// Compiles the Rust page of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/reference/rust.md")]
struct RustPage;
