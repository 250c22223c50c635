//! infeed keeps accelerators fed: it reads records from where they lie, decodes, transforms and
//! batches them on all cores, in an order that is a function of the seed, within a byte budget.
//!
//! A [`Pipeline`] is a description, plain data; [`Pipeline::open`] plans it and gives a
//! [`Loader`], which delivers [`Batch`]es. See the example at [`Pipeline`].
//!
//! One image passes through six functions:
//!
//! | # | file | function | takes | gives |
//! |--:|---|---|---|---|
//! | 1 | `source/folder.rs` | [`source::Source::read`] | a record's number | encoded bytes |
//! | 2 | `decode/mod.rs` | [`decode::Decoder::decode`] | bytes, a region | pixels `[H, W, 3]` uint8 |
//! | 3 | `transform/step.rs` | [`transform::Step::apply`] | pixels | pixels |
//! | 4 | `plan/write.rs` | the pass that writes the row | pixels | row *n* of a slab |
//! | 5 | `batch.rs` | [`batch::Batcher::finish`] | filled rows | a [`Batch`] |
//! | 6 | `loader.rs` | [`Loader::next_batch`] | | the batch of this step |
//!
//! `plan/sample.rs` calls 2 to 4 for one record; `exec/` is the conveyor under 1 to 5 and never
//! looks at pixels. `examples/one_image.rs` makes the same tour on one thread.
#![forbid(unsafe_code)]

// The modules stand in the order data flows; a comment between groups keeps rustfmt from sorting.

pub mod sample;
// What everything counts, draws and reports with.
pub mod counters;
pub mod error;
mod panics;
pub mod printable;
pub mod random;
pub mod stop;
// What this machine can do.
pub mod probe;
// Which record comes next, and from where.
pub mod order;
pub mod store;
// The records in what lies there.
pub mod source;
// Bytes to pixels to rows of a batch.
pub mod decode;
pub mod transform;
// Rows into slabs.
pub mod batch;
// Batches to the accelerator.
pub mod device;
// What users do in their own language.
pub mod function;
// The conveyor that moves positions.
pub mod exec;
// What is asked for, what runs, and running it.
pub mod pipeline;
pub mod plan;
// Batches from other machines.
pub mod wire;
// The iterator.
pub mod loader;
// Batches for other machines.
pub mod feed;
// Data rewritten.
pub mod pack;
// What limits the rate, and what would help.
pub mod explain;
// Telling people.
pub mod report;
// For tests and demos.
pub mod testing;

pub use batch::{Array, Batch, Values};
pub use error::Error;
pub use loader::{Loader, OnError, Options, Stats, Step};
pub use pipeline::Pipeline;
