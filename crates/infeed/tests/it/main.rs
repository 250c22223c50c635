//! The promises of the engine, by behaviour.

mod bad_records;
mod data;
mod fields;
mod fast_plan;
mod memory;
mod order;
mod shards;
mod tidy;
