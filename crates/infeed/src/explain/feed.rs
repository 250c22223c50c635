//! The loader of the plain run, with its batches on the host or on a device.

use std::sync::Arc;
use std::time::Duration;

use super::case::Case;
use super::transfers::{Transfers, transfers};
use crate::device::any::AnyQueue;
use crate::device::ring::{Ring, RingStats};
use crate::device::{Any, Device, SLOTS};
use crate::error::Error;
use crate::loader::ahead::{DeviceLoader, DeviceStep, Placement};
use crate::loader::{Loader, Options, Step};
use crate::pipeline::Pipeline;

/// A running pipeline.
pub(super) enum Feed {
    Host(Box<Loader>),
    Device {
        loader: Box<DeviceLoader<Any>>,
        /// In which the consumer would compute.
        stream: AnyQueue,
    },
}

/// What a call got.
pub(super) enum Got {
    /// So many samples, where the consumer wants them.
    Batch(u64),
    Nothing,
}

impl Feed {
    /// Opens a pipeline over the source of a case, towards the case's device.
    ///
    /// # Errors
    ///
    /// As [`Pipeline::open`] and [`Pipeline::open_on`].
    pub(super) fn open(case: &Case, pipeline: &Pipeline, options: &Options) -> Result<Feed, Error> {
        let source = Arc::clone(&case.source);
        let Some(device) = &case.conditions.device else {
            return pipeline
                .open_over(source, options)
                .map(Box::new)
                .map(Feed::Host);
        };
        let stream = device.stream().map_err(|error| error.on(device.name()))?;
        let (device, aim) = (device.clone(), case.aim(options.decode));
        let placement = aim.unwrap_or(Placement::Device);
        let loader = pipeline.open_on_over(device, placement, SLOTS, source, options)?;
        Ok(Feed::Device {
            loader: Box::new(loader),
            stream,
        })
    }

    pub(super) fn loader(&self) -> &Loader {
        match self {
            Feed::Host(loader) => loader,
            Feed::Device { loader, .. } => loader.loader(),
        }
    }

    /// The next batch within `patience`; a step would begin with it now.
    ///
    /// # Errors
    ///
    /// What stopped the loader or the device.
    pub(super) fn next_within(&self, patience: Duration) -> Result<Got, Error> {
        match self {
            Feed::Host(loader) => Ok(match loader.next_within(patience)? {
                Step::Batch(batch) => Got::Batch(batch.samples() as u64),
                Step::End | Step::Timeout => Got::Nothing,
            }),
            Feed::Device { loader, stream } => {
                let step = loader.next_within(patience, Some(*stream))?;
                let DeviceStep::Batch(batch) = step else {
                    return Ok(Got::Nothing);
                };
                batch.ready_on(*stream)?;
                // A step that is only the passing of time on the host begins when the batch is there.
                batch.synchronize()?;
                Ok(Got::Batch(batch.samples() as u64))
            }
        }
    }

    /// What crossed to the device, of which so many batches were delivered.
    ///
    /// # Errors
    ///
    /// What stopped the device.
    pub(super) fn transfers(&self) -> Result<Option<Transfers>, Error> {
        match self {
            Feed::Host(_) => Ok(None),
            Feed::Device { loader, .. } => crossed(loader).map(Some),
        }
    }
}

/// What a loader on a device sent so far.
///
/// # Errors
///
/// [`Error::Closed`]; what stopped the device.
pub(super) fn crossed<D: Device>(loader: &DeviceLoader<D>) -> Result<Transfers, Error> {
    let stats = loader.loader().stats()?;
    let ring = loader.ring();
    let rings = loader.rings().iter();
    let names: Vec<String> = rings.clone().map(|ring| ring.device().name()).collect();
    let simulated = names.iter().all(|name| is_simulated(name));
    let placed = loader.placed();
    // Where several forms of a batch are tried, the one that is sent now is told field by field.
    let routes = loader.routes();
    // The first batch is waited for by every loop, whatever comes after.
    let waited_s = stats.wait.saturating_sub(stats.first_wait).as_secs_f64();
    let sent = rings.map(Ring::stats).collect::<Result<Vec<_>, _>>()?;
    let sent = RingStats::together(&sent).unwrap_or_default();
    let name = (names.join(", "), simulated);
    let mut found = transfers(name, &sent, routes, stats.batches, waited_s);
    if ring.forms().len() > 1 {
        found.add_trial(&placed);
    }
    Ok(found)
}

/// Whether a device of this name is simulated.
fn is_simulated(name: &str) -> bool {
    name == "sim" || name.starts_with("sim:")
}
