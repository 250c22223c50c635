//! Tests of the pack crate, by behaviour.

mod curriculum;
mod lossless;
mod orientation;
mod pack;
mod pack_groups;
mod pack_parts;
mod pack_resumed;
mod pack_shards;
mod restart;

use infeed_testkit::data;
