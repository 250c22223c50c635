//! A loader's job on the executor: reading, filling and closing of batches, and handling of bad
//! records.
//!
//! If samples are mixed, a row needs two records: its own, and the one at its partner's position.
//! The partner's sample is made as it would be at its own position and then mixed in. A row of a
//! mosaic has three partners, that of a paste one, and that of two blended mosaics seven.

mod cached_records;
mod executor_job;
mod joined_rows;
mod limits;
mod reads;
mod record_job;
mod rows;
mod runs;
mod samples;
mod substitutes;

pub(super) use record_job::{ReadFrom, RecordJob, RecordRead, WorkerScratch};
