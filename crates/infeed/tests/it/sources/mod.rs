//! Sources of every kind: the promises that all keep, and what their files look like.

mod conformance;
mod formats;
mod shards;
mod tables;
mod wrapped;
pub(crate) mod write;
