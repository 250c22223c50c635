//! infeed keeps accelerators fed: it reads, decodes, transforms and batches records on all cores,
//! in an order that is a function of the seed, within a memory budget in bytes.
//!
//! A [`Pipeline`] is a description, plain data. [`Pipeline::open`] plans it and returns a
//! [`Loader`], which delivers [`Batch`]es. See the example at [`Pipeline`]. `open.rs` lists the steps
//! from a description to a running loader.
//!
//! This crate shows what a program needs: descriptions, loaders, batches, and the traits for sources
//! and functions in Rust. The parts of the engine are crates of their own.
//!
//! One image passes through six functions:
//!
//! | # | file | function | input | output |
//! |--:|---|---|---|---|
//! | 1 | `infeed-source/src/folder.rs` | [`Source::read`](infeed_source::Source::read) | record number | encoded bytes |
//! | 2 | `infeed-codec/src/decode/decoder.rs` | [`Decoder::decode`](infeed_codec::decode::Decoder::decode) | bytes, region | `[H, W, 3]` uint8 |
//! | 3 | `infeed-codec/src/transform/apply.rs` | [`Step::apply`](infeed_codec::transform::Step::apply) | pixels | pixels |
//! | 4 | `fields/pixels/write.rs` | the pass that writes the row | pixels | row *n* of a slab |
//! | 5 | `infeed-core/src/batch/batcher.rs` | [`Batcher::finish`](infeed_core::batch::Batcher::finish) | filled rows | a [`Batch`] |
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
//! | `tables` | Parquet and Arrow files |
//! | `cuda` | NVIDIA GPUs and nvJPEG; the simulated device is always there |
#![forbid(unsafe_code)]

// Packing, explaining and feeding use these modules; programs do not.
#[doc(hidden)]
pub mod fields;
#[doc(hidden)]
pub mod maker;
#[doc(hidden)]
pub mod plan;

pub mod function;
pub mod loader;
mod open;
pub mod pipeline;

pub use infeed_core::batch::{Array, Batch, Values};
pub use infeed_core::error::Error;
pub use loader::{Loader, OnError, Options, Stats, Step};
pub use pipeline::Pipeline;

/// Parts of a batch.
pub mod batch {
    pub use infeed_core::batch::{Array, Batch, Column, PADDING, Values};
}

/// Counters of a loader's stages.
pub mod counters {
    pub use infeed_core::counters::{Stage, StageStats, TimelineSpan};
}

/// Devices that receive batches, and the batches there.
pub mod device {
    pub use infeed_device::{
        AnyDevice, Device, DeviceArray, DeviceBatch, DeviceError, RingSettings, RingStats,
    };
}

/// The error of all operations, and its parts.
pub mod error {
    pub use infeed_core::error::{Cause, Error, IncompleteRecord, MemoryAdvice};
}

/// Records, fields and values.
pub mod sample {
    pub use infeed_codec::decode::ColorMode;
    pub use infeed_core::sample::{DType, Field, FieldKind, Pixels, Record, RecordId, Size};
}

/// The trait of a source, for records that [`SourceSpec`](pipeline::SourceSpec) does not open, and
/// records in memory.
pub mod source {
    pub use infeed_source::memory::{FieldData, Memory};
    pub use infeed_source::{
        Admission, Read, ReadError, RecordResult, ResidentRows, Sink, Source, read_one,
    };
}

/// Object storage and web servers: settings, cache and counters.
pub mod store {
    pub use infeed_source::store::{Cache, CacheCounts, RequestCounts, configure, set_cache};
}

/// The transforms and their settings.
pub mod transform {
    pub use infeed_codec::transform::list::*;
    pub use infeed_codec::transform::{
        BoxFormat, ChannelValues, Corner, CropPosition, Filter, FilterChoice, Jitter, PadMode,
        Padding, Palette, Shear, SideChoice, Sides, Transform, TransformError, Unknown, ValuePair,
    };
}

/// Compiles the Rust page of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/reference/rust.md")]
struct RustPage;
