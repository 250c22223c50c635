//! The executor: turns positions in order into filled batches in order, on threads.
//!
//! It knows positions and rows, not samples. The [`Job`] defines how a read runs and how a row is
//! filled. I/O threads perform reads and may block on storage; workers fill rows and never wait for
//! storage. The protocol (turns, in-flight batches, waits) is described in this folder's README.

pub mod budget;
mod config;
mod cores;
mod executor;
mod executor_shared;
mod job;
pub mod lease;
mod lock;
mod lock_times;
mod readers;
mod state;
#[cfg(test)]
mod tests;
mod totals;
mod workers;

pub use crate::panics::panic_text;
pub use budget::MemoryReservation;
pub use config::{BatchChoice, Config};
pub use executor::{Executor, ExecutorSnapshot, NextBatch};
pub use job::{FillOutcome, Job, JoinedReads, OpenedBatch, ReadRun, RowLocation, Sequence};
pub use lock_times::{HoldTotals, hold_totals};
pub use totals::{WaitTimes, WorkerTotals};
