//! Division of batches among several devices of one process.

use infeed_raw::near::{self, CoreBinding, Node};

use super::{Loader, OnError};
use infeed_core::batch::Batch;
use infeed_core::error::Error;
use infeed_core::order::partition::Tail;
use infeed_device::Device;
use infeed_device::ring::Ring;

/// Returns the rows of a full batch per device.
///
/// # Errors
///
/// [`Error::Config`] if the devices do not divide every batch evenly, including the last of an
/// epoch.
pub(super) fn share(loader: &Loader, devices: usize) -> Result<usize, Error> {
    let wrong = |problem: String| Err(Error::config("devices", problem));
    let rows = loader.most_rows()?;
    if devices == 0 {
        return wrong("no device; give at least one, such as \"cuda:0\"".to_owned());
    }
    if devices == 1 {
        return Ok(rows);
    }
    let partition = &loader.partition;
    if partition.has_equal_batches() && !rows.is_multiple_of(devices) {
        let (fewer, more) = (rows / devices * devices, rows.next_multiple_of(devices));
        let near = match fewer {
            0 => more.to_string(),
            _ => format!("{fewer} or {more}"),
        };
        return wrong(format!(
            "a batch of {rows} rows cannot be divided evenly among {devices} devices; use batches \
             of {near}"
        ));
    }
    if let Some(found) = partition.rows_unless(|rows| rows.is_multiple_of(devices as u64)) {
        let (drop, pad, wrap) = (Tail::Drop.name(), Tail::Pad.name(), Tail::Wrap.name());
        let (which, fix) = match partition.has_equal_batches() {
            true => ("the last batch of an epoch", String::new()),
            false => ("a batch", format!("multiple_of={devices} and ")),
        };
        return wrong(format!(
            "{which} has {found} rows, which cannot be divided evenly among {devices} devices; use \
             {fix}tail=\"{drop}\", \"{pad}\" or \"{wrap}\""
        ));
    }
    if loader.options.on_error == OnError::Skip {
        return wrong(
            "a batch without its bad records cannot be divided evenly among the devices; open with \
             on_error=\"substitute\" or \"stop\""
                .to_owned(),
        );
    }
    Ok(rows / devices)
}

/// Rejects several devices, for calls that return one batch.
pub(super) fn only_one<D: Device>(rings: &[Ring<D>]) -> Result<(), Error> {
    if rings.len() == 1 {
        return Ok(());
    }
    let problem = format!(
        "this call returns one batch, but there are {} devices; use next_parts",
        rings.len()
    );
    Err(Error::config("devices", problem))
}

/// Splits a batch into one part per device.
pub(super) fn cut(batch: Batch, devices: usize) -> Result<Vec<Batch>, Error> {
    batch.cut(devices).map_err(|error| Error::OutOfMemory {
        bytes: error.requested_bytes as u64,
    })
}

/// Returns the NUMA node of all devices, if the machine has several nodes and they share one.
pub(super) fn node<D: Device>(devices: &[D]) -> Option<Node> {
    let nodes: Vec<Node> = devices.iter().filter_map(Device::node).collect();
    let first = nodes.first()?;
    let names: Vec<String> = devices.iter().map(Device::name).collect();
    let names = names.join(", ");
    if nodes.len() < devices.len() || nodes.iter().any(|node| node.number != first.number) {
        tracing::info!(
            target: "infeed::device",
            "{names} are on different NUMA nodes, so transfer memory is not bound to a node; one \
             process per device transfers faster"
        );
        return None;
    }
    tracing::info!(
        target: "infeed::device",
        "{names}: NUMA node {} of {}; the sender and batch memory are bound to it",
        first.number,
        first.of
    );
    Some(first.clone())
}

/// Binds the calling thread, and so the memory that it touches first, to the device's node until
/// the guard is dropped. Does nothing if this process may not run there.
pub(super) fn stay(node: Option<&Node>) -> Option<CoreBinding> {
    near::bind(&node?.cores)
}
