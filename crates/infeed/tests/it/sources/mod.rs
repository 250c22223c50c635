//! Sources of every kind: the contract of all, and the files of each.

mod conformance;
mod formats;
mod left_out;
mod nested_columns;
mod shards;
mod tables;
mod wrapped_sources;
pub(crate) use infeed_testkit::write;
