//! What `bench` consumes: batches on the host, or on a device.

use std::time::Duration;

use infeed::device::{Any, Device, RingStats, SLOTS};
use infeed::loader::ahead::{DeviceLoader, DeviceStep, Placed, Placement};
use infeed::{Error, Loader, Options, Step};

use crate::error::CliError;
use crate::target::Target;

/// A running pipeline.
pub(super) enum Feed {
    Host(Box<Loader>),
    Device(DeviceLoader<Any>),
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
        let open = || {
            let device = Any::open(name)?;
            target
                .pipeline
                .open_on(device, placement, SLOTS, &[], options)
        };
        match open() {
            Ok(loader) => Ok(Feed::Device(loader)),
            Err(error) => Err(CliError::failed(&error)),
        }
    }

    /// The device that batches go to.
    pub(super) fn device(&self) -> Option<&Any> {
        match self {
            Feed::Host(_) => None,
            Feed::Device(on) => Some(on.ring().device()),
        }
    }

    pub(super) fn loader(&self) -> &Loader {
        match self {
            Feed::Host(loader) => loader,
            Feed::Device(on) => on.loader(),
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
            Feed::Device(on) => Ok(match on.next_within(patience, None)? {
                DeviceStep::Batch(batch) => {
                    batch.synchronize()?;
                    Got::Samples(batch.samples() as u64)
                }
                DeviceStep::End => Got::End,
                DeviceStep::Timeout => Got::Timeout,
            }),
        }
    }

    /// Who makes rows larger for the device, and why.
    pub(super) fn placed(&self) -> Option<Placed> {
        match self {
            Feed::Host(_) => None,
            Feed::Device(on) => Some(on.placed()),
        }
    }

    /// Name of the device, and what was sent there.
    pub(super) fn sent(&self) -> Result<Option<(String, RingStats)>, Error> {
        Ok(match self {
            Feed::Host(_) => None,
            Feed::Device(on) => Some((on.ring().device().name(), on.ring().stats()?)),
        })
    }
}
