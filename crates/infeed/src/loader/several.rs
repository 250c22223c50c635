//! A batch shared out among several devices of one process.

use infeed_raw::near::{self, Bound, Node};

use super::{Loader, OnError};
use crate::batch::Batch;
use crate::device::Device;
use crate::device::ring::Ring;
use crate::error::Error;
use crate::order::partition::Tail;

/// Rows of a full batch that each of so many devices gets.
///
/// # Errors
///
/// [`Error::Config`] if a batch, the last one of an epoch included, is not divided by them.
pub(super) fn share(loader: &Loader, devices: usize) -> Result<usize, Error> {
    let wrong = |problem: String| Err(Error::config("devices", problem));
    let rows = loader.most_rows()?;
    if devices == 0 {
        return wrong("none is named; name one at least, such as \"cuda:0\"".to_owned());
    }
    if devices == 1 {
        return Ok(rows);
    }
    if !rows.is_multiple_of(devices) {
        let (fewer, more) = (rows / devices * devices, rows.next_multiple_of(devices));
        let near = match fewer {
            0 => more.to_string(),
            _ => format!("{fewer} or {more}"),
        };
        return wrong(format!(
            "a batch of {rows} rows is not divided by {devices} devices; use batches of {near}"
        ));
    }
    let conveyor = loader.conveyor()?;
    let partition = conveyor.job().partition();
    let last = partition.rows_at(partition.steps().saturating_sub(1));
    if !last.is_multiple_of(devices as u64) {
        let (drop, pad, wrap) = (Tail::Drop.name(), Tail::Pad.name(), Tail::Wrap.name());
        return wrong(format!(
            "the last batch of an epoch has {last} rows, which {devices} devices do not divide; \
             describe the batch with tail=\"{drop}\", \"{pad}\" or \"{wrap}\""
        ));
    }
    if loader.options.on_error == OnError::Skip {
        return wrong(
            "a batch without its bad records is not divided by them; open with \
             on_error=\"substitute\" or \"stop\""
                .to_owned(),
        );
    }
    Ok(rows / devices)
}

/// That there are not several, for a call that gives one batch.
pub(super) fn only_one<D: Device>(rings: &[Ring<D>]) -> Result<(), Error> {
    if rings.len() == 1 {
        return Ok(());
    }
    let problem = format!(
        "a step has a batch on each of {} devices, and this call gives one",
        rings.len()
    );
    Err(Error::config("devices", problem))
}

/// Cuts a batch into a part for each.
pub(super) fn cut(batch: Batch, devices: usize) -> Result<Vec<Batch>, Error> {
    batch.cut(devices).map_err(|error| Error::OutOfMemory {
        bytes: error.requested_bytes as u64,
    })
}

/// The part of the machine that all these devices hang on, where it has several.
pub(super) fn node<D: Device>(devices: &[D]) -> Option<Node> {
    let nodes: Vec<Node> = devices.iter().filter_map(Device::node).collect();
    let first = nodes.first()?;
    let names: Vec<String> = devices.iter().map(Device::name).collect();
    let names = names.join(", ");
    if nodes.len() < devices.len() || nodes.iter().any(|node| node.number != first.number) {
        tracing::info!(
            target: "infeed::device",
            "{names} are not near one node of the machine; memory for copies is left where it comes \
             to lie. A process for each, near its own, copies faster"
        );
        return None;
    }
    tracing::info!(
        target: "infeed::device",
        "{names}: near node {} of {}; the sender runs there, and batches lie in its memory",
        first.number,
        first.of
    );
    Some(first.clone())
}

/// Keeps the calling thread near a device, and so the memory that it touches first, until the guard is
/// dropped; unless this process may not run there.
pub(super) fn stay(node: Option<&Node>) -> Option<Bound> {
    near::bind(&node?.cores)
}
