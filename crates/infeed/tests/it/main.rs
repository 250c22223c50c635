//! Tests of the engine, by behaviour.

mod bad_records;
mod batch_layouts;
mod cache;
mod classes;
mod decoding;
mod device;
mod fast_plan;
mod fields;
mod functions;
mod image_mixup;
mod joins;
mod lossless;
mod memory;
mod mix;
mod mixup;
mod mosaic;
mod order;
mod placement;
mod remote;
mod resume;
mod row_runs;
mod run_record;
mod shards;
mod sources;
mod state;
mod tails;
mod tuning;
mod verify;

use infeed_testkit::data;
