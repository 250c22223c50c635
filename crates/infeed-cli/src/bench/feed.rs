//! What `bench` consumes: batches on the host, on a device, or a part of each on several.

use std::time::Duration;

use infeed::device::{Any, Device, DeviceBatch, Ring, RingStats, SLOTS};
use infeed::loader::ahead::{DeviceLoader, PartsStep, Placed, Placement};
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
    /// Opens it on the devices of these names, or on the host.
    pub(super) fn open(
        target: &Target,
        options: &Options,
        devices: &[String],
        placement: Placement,
    ) -> Result<Feed, CliError> {
        if devices.is_empty() {
            return target.open(options).map(Box::new).map(Feed::Host);
        }
        let open = || {
            let devices = devices.iter().map(|name| Any::open(name));
            let devices = devices.collect::<Result<_, Error>>()?;
            let pipeline = &target.pipeline;
            pipeline.open_on_all(devices, placement, SLOTS, &[], options)
        };
        match open() {
            Ok(loader) => Ok(Feed::Device(loader)),
            Err(error) => Err(CliError::failed(&error)),
        }
    }

    /// The device that batches go to; of several, the first.
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
            Feed::Device(on) => Ok(match on.next_parts(patience, &[])? {
                PartsStep::Parts(parts) => {
                    parts.iter().try_for_each(DeviceBatch::synchronize)?;
                    let samples: usize = parts.iter().map(DeviceBatch::samples).sum();
                    Got::Samples(samples as u64)
                }
                PartsStep::End => Got::End,
                PartsStep::Timeout => Got::Timeout,
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

    /// Names of the devices, and what was sent there.
    pub(super) fn sent(&self) -> Result<Option<(String, RingStats)>, Error> {
        let Feed::Device(on) = self else {
            return Ok(None);
        };
        let names: Vec<_> = on.rings().iter().map(|r| r.device().name()).collect();
        let each = on.rings().iter().map(Ring::stats);
        let all = RingStats::together(&each.collect::<Result<Vec<_>, _>>()?);
        Ok(all.map(|all| (names.join(", "), all)))
    }
}
