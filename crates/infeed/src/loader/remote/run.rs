//! Description of a run for remote workers.

use std::sync::Arc;

use crate::loader::rules::BatchRules;
use crate::loader::state::LoaderState;
use crate::pipeline::Pipeline;
use crate::plan::function_values::kind_text;
use infeed_core::batch::ColumnSpec;
use infeed_core::order::partition::Partition;
use infeed_source::Source;

/// A run, as other processes need to know it to make equal rows.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RunDescription {
    /// The state before the first step.
    pub begin: LoaderState,
    /// The description of the rows. It has no functions on batches, because the process that
    /// consumes the batches calls them.
    pub rows: Pipeline,
    /// Fingerprint of `rows` and of the numbers of its order that no description contains.
    pub fingerprint: String,
    /// Columns of a batch.
    pub columns: Vec<ColumnSpec>,
    /// The records.
    pub source: Arc<dyn Source>,
    /// Division of an epoch into batches of this rank.
    pub partition: Partition,
    /// Rank of the consuming process.
    pub rank: u64,
    /// Number of ranks.
    pub world_size: u64,
    /// Whether rows have the layout for a device that expands them.
    pub for_device: bool,
    /// Rules of all batches.
    pub rules: BatchRules,
}

impl RunDescription {
    /// Returns names and kinds of the columns as text.
    pub fn columns_text(&self) -> String {
        let column = |column: &ColumnSpec| format!("{} {}", column.name, kind_text(&column.kind));
        let columns: Vec<String> = self.columns.iter().map(column).collect();
        columns.join(", ")
    }
}
