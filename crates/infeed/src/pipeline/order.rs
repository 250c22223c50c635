//! Order of the records: shuffling, windows over shards, weights, passes and groups of batches.

use std::sync::Arc;

use super::per_record::{by_length, similar};
use super::shuffle::{ShuffleWindow, window_bytes};
use super::{Handle, Pipeline};
use infeed_core::error::Error;
use infeed_core::order::window::Groups;
use infeed_core::order::{MixturePart, Order};
use infeed_core::random::hash;
use infeed_source::Source;

/// Separates the seeds of a mix's parts from all other seeds.
const PART: u64 = 4;

/// Returns the order of a source's records.
pub(super) fn order(
    pipeline: &Pipeline,
    source: &dyn Source,
    handles: &[Handle],
) -> Result<Order, Error> {
    let window = pipeline.shuffle.and_then(|shuffle| shuffle.window);
    let seed = pipeline.shuffle.map(|shuffle| shuffle.seed);
    let once = match &pipeline.weights {
        Some(weights) => {
            let weighted = weights.resolve(source, handles)?;
            Order::from_weights(weighted, windows(source, window), seed)
        }
        None => one_pass(source, window, seed),
    };
    let len = once.len();
    let order = match pipeline.repeat {
        Some(passes) => Order::repeat(once, passes).ok_or_else(|| {
            let problem = format!("{passes} passes of {len} positions exceed the limit of 2^64");
            Error::config("repeat", problem)
        })?,
        None => once,
    };
    let batch = &pipeline.batch;
    match (&pipeline.batch_groups, &pipeline.batch_lengths) {
        (Some(groups), None) => similar(order, groups, batch, source, handles),
        (None, Some(lengths)) => by_length(order, lengths, (batch, seed), source, handles),
        (None, None) if batch.max_tokens.is_none() => Ok(order),
        (None, None) => {
            let problem = "max_tokens needs the length of each record; pass lengths to .batch";
            Err(Error::config("batch", problem))
        }
        (Some(_), Some(_)) => {
            let problem = "batches have records of one group, or of similar length with \
                           max_tokens; use one of them";
            Err(Error::config("batch", problem))
        }
    }
}

fn one_pass(source: &dyn Source, window: Option<ShuffleWindow>, seed: Option<u64>) -> Order {
    if let Some((sources, weights)) = source.weighted_parts() {
        let part = |(at, (source, &weight)): (usize, (&Arc<dyn Source>, &f64))| MixturePart {
            // Two parts of equal length must not have the same order.
            order: one_pass(
                &**source,
                window,
                seed.map(|seed| hash(&[PART, seed, at as u64])),
            ),
            weight,
        };
        let parts = sources.iter().zip(&weights.shares).enumerate().map(part);
        let epoch = weights.epoch.unwrap_or_else(|| source.len());
        return Order::from_mixture(parts.collect(), epoch, seed);
    }
    match windows(source, window) {
        Some((groups, bytes)) => Order::from_windows(groups, bytes, seed),
        None => Order::new(source.len(), seed),
    }
}

/// Returns the groups of a source and the window size in bytes; `None` if records are shuffled one
/// by one.
fn windows(source: &dyn Source, window: Option<ShuffleWindow>) -> Option<(Arc<Groups>, u64)> {
    let groups = source.groups()?;
    let bytes = window_bytes(window, &groups)?;
    Some((groups, bytes))
}
