//! Run records: what a loader delivered, as a file with a line for each step, and the comparison of
//! two of them.
//!
//! Each row of a step has a key: the id of its sample, or a short hash of its contents. Records of
//! loaders of any library have the same format. Python's `infeed.runs.certify` and the command
//! `infeed verify` write them; `infeed.runs.compare_runs` and `infeed verify --against` compare them.

mod compare;
mod file;
mod keys;
mod row_hash;
mod steps;

pub use compare::{ComparedSteps, RunDifference, compare_runs};
pub(super) use compare::{RowExplanation, RunNames, is_same_digest};
pub use file::RunWriter;
pub use keys::{KeyKind, RowKey};
pub use row_hash::RowHashes;
pub use steps::{RecordedRun, RecordedStep, RunRecord};
