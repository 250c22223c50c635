//! Tests of the explain crate, by behaviour.

mod explain;
mod explained_decoding;
mod placement;
mod recording;
mod report;

use infeed_testkit::data;
