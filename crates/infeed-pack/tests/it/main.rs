//! Tests of the pack crate, by behaviour.

mod curriculum;
mod lossless;
mod pack;
mod pack_groups;
mod pack_parts;
mod pack_shards;
mod pack_taken_up;
mod restart;
mod turned;

use infeed_testkit::data;
