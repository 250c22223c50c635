//! Batches: workers write samples into rows of slabs, so a full batch needs no copy.
//!
//! A field of fixed shape is one slab, divided into rows that workers fill in place. A slab returns
//! to its pool when the last array that views it is dropped. Fields whose size differs by record
//! (padded images, lists, text) are kept by row and gathered when the batch is full.

mod array;
mod batcher;
mod columns;
mod finished_batch;
mod gather;
mod parts;
mod pool;
#[cfg(test)]
mod tests;

pub use array::{Array, ArrayWriter};
pub use batcher::{BatchRow, Batcher, InFlightBatch, RowCell, RowDone};
pub use columns::{ColumnKind, ColumnSpec};
pub use finished_batch::{Batch, Column, PADDING, Values};
pub use pool::{PrepareSlab, SlabPool};
