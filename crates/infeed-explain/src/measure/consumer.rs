//! The consumer of the plain run, which takes batches on the host or on a device.

use std::sync::Arc;
use std::time::Duration;

use crate::case::Case;
use crate::model::transfers::{Transfers, transfers};
use infeed::loader::any::{AnyLoader, AnyStep};
use infeed::loader::device::{DeviceLoader, Placement};
use infeed::loader::{Loader, Options};
use infeed::pipeline::Pipeline;
use infeed_core::error::Error;
use infeed_device::any::{AnyQueue, is_simulated};
use infeed_device::ring::{Ring, RingStats};
use infeed_device::{Device, SLOTS};

/// An open loader, and the stream of its consumer.
pub(crate) struct LoaderConsumer {
    loader: AnyLoader,
    /// Stream in which the consumer would compute. None on the host.
    stream: Option<AnyQueue>,
}

impl LoaderConsumer {
    /// Opens a pipeline over the source of a case, for the case's device if it has one.
    ///
    /// # Errors
    ///
    /// As [`Pipeline::open`] and [`Pipeline::open_on`].
    pub(crate) fn open(
        case: &Case,
        pipeline: &Pipeline,
        options: &Options,
    ) -> Result<LoaderConsumer, Error> {
        let source = Arc::clone(&case.source);
        let Some(device) = &case.conditions.device else {
            return Ok(LoaderConsumer {
                loader: pipeline.open_over(source, options)?.into(),
                stream: None,
            });
        };
        let stream = device.stream().map_err(|error| error.on(device.name()))?;
        let (device, row_placement) = (device.clone(), case.row_placement(options.decode));
        let placement = row_placement.unwrap_or(Placement::Device);
        let loader = pipeline.open_on_over(device, placement, SLOTS, source, options)?;
        Ok(LoaderConsumer {
            loader: loader.into(),
            stream: Some(stream),
        })
    }

    pub(crate) fn loader(&self) -> &Loader {
        self.loader.loader()
    }

    /// Waits up to `timeout` for the next batch and returns its number of samples. On a device,
    /// also waits until the batch is complete, because the simulated step only sleeps on the host.
    /// None if no batch was ready in time, and at the end of an epoch.
    ///
    /// # Errors
    ///
    /// Returns the error that stopped the loader or the device.
    pub(crate) fn next_within(&self, timeout: Duration) -> Result<Option<u64>, Error> {
        let step = self.loader.next_within(timeout, &[self.stream])?;
        if let (AnyStep::Device(parts), Some(stream)) = (&step, self.stream) {
            for part in parts {
                part.ready_on(stream)?;
            }
        }
        step.synchronize()?;
        Ok(match step {
            AnyStep::Host(_) | AnyStep::Device(_) => Some(step.samples() as u64),
            AnyStep::End | AnyStep::Timeout => None,
        })
    }

    /// Returns the transfers to the device, including the number of delivered batches. None on the
    /// host.
    ///
    /// # Errors
    ///
    /// Returns the error that stopped the device.
    pub(crate) fn transfers(&self) -> Result<Option<Transfers>, Error> {
        self.loader.on_device().map(transfers_of).transpose()
    }
}

/// Returns what a loader has sent to its device so far.
///
/// # Errors
///
/// [`Error::Closed`], and the error that stopped the device.
pub(crate) fn transfers_of<D: Device>(loader: &DeviceLoader<D>) -> Result<Transfers, Error> {
    let stats = loader.loader().stats()?;
    let ring = loader.ring();
    let rings = loader.rings().iter();
    let names: Vec<String> = rings.clone().map(|ring| ring.device().name()).collect();
    let simulated = names.iter().all(|name| is_simulated(name));
    let placed = loader.placement();
    // While the loader tries several placements, the fields are those of the placement in use now.
    let routes = loader.routes();
    // Every loop waits for its first batch, so the first wait is no evidence.
    let waited_s = stats.wait.saturating_sub(stats.first_wait).as_secs_f64();
    let sent = rings.map(Ring::stats).collect::<Result<Vec<_>, _>>()?;
    let sent = RingStats::together(&sent).unwrap_or_default();
    let name = (names.join(", "), simulated);
    let mut found = transfers(name, &sent, routes, stats.batches, waited_s);
    if ring.layouts().len() > 1 {
        found.add_trial(&placed);
    }
    Ok(found)
}
