//! The promises of the engine, by behaviour.

mod bad_records;
mod curriculum;
mod data;
mod explain;
mod fast_plan;
mod fields;
mod functions;
mod memory;
mod mix;
mod mixup;
mod order;
mod pack;
mod pack_groups;
mod pack_shards;
mod pack_taken_up;
mod remote;
mod report;
mod restart;
mod resumed;
mod shards;
mod sources;
mod state;
mod tails;
mod tidy;
mod tuning;
mod verify;
