//! What `bench` consumes: batches on the host, or on a device.

use std::time::Duration;

use infeed::device::cuda::Cuda;
use infeed::device::named::Named;
use infeed::device::sim::Sim;
use infeed::device::{Device, RingStats};
use infeed::loader::ahead::{DeviceLoader, DeviceStep, Placement};
use infeed::{Error, Loader, Options, Step};

use crate::error::CliError;
use crate::target::Target;

/// Slots on a device: one with the consumer, two on their way.
const SLOTS: usize = 3;

/// A running pipeline.
pub(super) enum Feed {
    Host(Box<Loader>),
    Cuda(DeviceLoader<Cuda>),
    Sim(DeviceLoader<Sim>),
}

/// What a call got.
pub(super) enum Got {
    /// A batch of so many samples, which was looked at and dropped.
    Samples(u64),
    End,
    Timeout,
}

impl Feed {
    /// Opens it on the device of a name, or on the host.
    pub(super) fn open(
        target: &Target,
        options: &Options,
        device: Option<(&str, Placement)>,
    ) -> Result<Feed, CliError> {
        let Some((name, placement)) = device else {
            return target.open(options).map(Box::new).map(Feed::Host);
        };
        let pipeline = &target.pipeline;
        let open = || -> Result<Feed, Error> {
            Ok(match Named::open(name)? {
                Named::Cuda(cuda) => {
                    Feed::Cuda(pipeline.open_on(cuda, placement, SLOTS, &[], options)?)
                }
                Named::Sim(sim) => {
                    Feed::Sim(pipeline.open_on(sim, placement, SLOTS, &[], options)?)
                }
            })
        };
        open().map_err(|error| CliError::failed(&error))
    }

    pub(super) fn loader(&self) -> &Loader {
        match self {
            Feed::Host(loader) => loader,
            Feed::Cuda(on) => on.loader(),
            Feed::Sim(on) => on.loader(),
        }
    }

    /// The next batch within `patience`, where the consumer wants it.
    pub(super) fn next_within(&self, patience: Duration) -> Result<Got, Error> {
        match self {
            Feed::Host(loader) => Ok(match loader.next_within(patience)? {
                Step::Batch(batch) => Got::Samples(batch.samples() as u64),
                Step::End => Got::End,
                Step::Timeout => Got::Timeout,
            }),
            Feed::Cuda(on) => arrived(on, patience),
            Feed::Sim(on) => arrived(on, patience),
        }
    }

    /// Name of the device, and what was sent there.
    pub(super) fn sent(&self) -> Result<Option<(String, RingStats)>, Error> {
        Ok(match self {
            Feed::Host(_) => None,
            Feed::Cuda(on) => Some((on.ring().device().name(), on.ring().stats()?)),
            Feed::Sim(on) => Some((on.ring().device().name(), on.ring().stats()?)),
        })
    }
}

fn arrived<D: Device>(on: &DeviceLoader<D>, patience: Duration) -> Result<Got, Error> {
    Ok(match on.next_within(patience, None)? {
        DeviceStep::Batch(batch) => {
            batch.synchronize()?;
            Got::Samples(batch.samples() as u64)
        }
        DeviceStep::End => Got::End,
        DeviceStep::Timeout => Got::Timeout,
    })
}
