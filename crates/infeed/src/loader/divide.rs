//! Division of an epoch into batches.

use std::sync::Arc;

use super::options::Options;
use super::rules::OnError;
use crate::plan::SamplePlan;
use infeed_core::batch::{ColumnKind, ColumnSpec};
use infeed_core::error::Error;
use infeed_core::order::Order;
use infeed_core::order::partition::{Partition, PartitionError, Tail};

/// Divides an epoch into batches of `global` rows, or of the sizes of the order, and each batch among
/// the ranks.
///
/// # Errors
///
/// [`Error::Config`] if the options or the plan do not allow a last batch with this `tail`.
pub(crate) fn divide_epoch(
    plan: &SamplePlan,
    order: &Order,
    global: u64,
    tail: Tail,
    options: &Options,
) -> Result<Partition, Error> {
    let (rank, ranks) = (options.rank, options.world_size);
    let partition = match order.batch_ends() {
        None => Partition::new(order.len(), global, rank, ranks, tail),
        Some((ends, last)) => {
            Partition::of_sizes(order.len(), Arc::clone(ends), last, (rank, ranks), tail)
        }
    };
    let partition = partition.map_err(|error| {
        let fix = match (error, order.batch_ends()) {
            (PartitionError::Indivisible { .. }, Some(_)) => {
                format!("; with max_tokens, use multiple_of={ranks}")
            }
            _ => String::new(),
        };
        Error::config("batch", format!("{error}{fix}"))
    })?;
    if options.on_error == OnError::Skip && (tail != Tail::Keep || options.world_size > 1) {
        let problem = "\"skip\" makes batches shorter, which drop_last, tail=\"pad\" or \"wrap\" \
                       and several ranks do not allow; use on_error=\"substitute\"";
        return Err(Error::config("on_error", problem));
    }
    let padded = |column: &&ColumnSpec| matches!(column.kind, ColumnKind::Padded { .. });
    if partition.leaves_a_rank_empty()
        && let Some(column) = plan.columns().iter().find(padded)
    {
        let problem = format!(
            "the last batch of a rank would be only padding, so `{}`, which is padded to the \
             largest row, would have no size; use tail=\"wrap\" or \"drop\"",
            column.name
        );
        return Err(Error::config("batch", problem));
    }
    Ok(partition)
}
