//! A loader whose batches lie on the host or on devices, where only the caller's options say which.

use std::sync::Arc;
use std::time::Duration;

use super::device::{DeviceLoader, PartsStep, PlacementState};
use super::{Loader, LoaderState, Step};
use infeed_core::batch::Batch;
use infeed_core::error::Error;
use infeed_device::any::AnyQueue;
use infeed_device::ring::{DeviceBatch, Ring, RingStats};
use infeed_device::{AnyDevice, Device};

/// A running pipeline with batches on the host or on devices.
#[derive(Debug)]
pub enum AnyLoader {
    /// Batches are in host memory.
    Host(Box<Loader>),
    /// Batches are on one or more devices.
    Device(Box<DeviceLoader<AnyDevice>>),
}

/// Result of waiting for the next batch of an [`AnyLoader`].
#[derive(Debug)]
pub enum AnyStep {
    /// The next batch, on the host.
    Host(Batch),
    /// The next batch: one part per device, in the order of the devices.
    Device(Vec<DeviceBatch<AnyDevice>>),
    /// The epoch is over; the next call begins the next one.
    End,
    /// No batch was ready in time.
    Timeout,
}

impl From<Loader> for AnyLoader {
    fn from(loader: Loader) -> AnyLoader {
        AnyLoader::Host(Box::new(loader))
    }
}

impl From<DeviceLoader<AnyDevice>> for AnyLoader {
    fn from(loader: DeviceLoader<AnyDevice>) -> AnyLoader {
        AnyLoader::Device(Box::new(loader))
    }
}

impl AnyLoader {
    /// The loader that prepares the batches on the host.
    pub fn loader(&self) -> &Loader {
        match self {
            AnyLoader::Host(loader) => loader,
            AnyLoader::Device(on) => on.loader(),
        }
    }

    /// The loader of the devices. None if batches stay on the host.
    pub fn on_device(&self) -> Option<&DeviceLoader<AnyDevice>> {
        match self {
            AnyLoader::Host(_) => None,
            AnyLoader::Device(on) => Some(on),
        }
    }

    /// Waits up to `timeout` for the next batch. `streams` has the consumer's stream on each device;
    /// missing ones count as None.
    ///
    /// # Errors
    ///
    /// As [`Loader::next_within`] and [`DeviceLoader::next_parts`].
    pub fn next_within(
        &self,
        timeout: Duration,
        streams: &[Option<AnyQueue>],
    ) -> Result<AnyStep, Error> {
        Ok(match self {
            AnyLoader::Host(loader) => match loader.next_within(timeout)? {
                Step::Batch(batch) => AnyStep::Host(batch),
                Step::End => AnyStep::End,
                Step::Timeout => AnyStep::Timeout,
            },
            AnyLoader::Device(on) => match on.next_parts(timeout, streams)? {
                PartsStep::Parts(parts) => AnyStep::Device(parts),
                PartsStep::End => AnyStep::End,
                PartsStep::Timeout => AnyStep::Timeout,
            },
        })
    }

    /// As [`Loader::end_epoch`].
    ///
    /// # Errors
    ///
    /// As [`Loader::end_epoch`].
    pub fn end_epoch(&self) -> Result<(), Error> {
        match self {
            AnyLoader::Host(loader) => loader.end_epoch(),
            AnyLoader::Device(on) => on.end_epoch(),
        }
    }

    /// As [`Loader::seek`].
    ///
    /// # Errors
    ///
    /// As [`Loader::seek`].
    pub fn seek(&self, epoch: u64, step: u64) -> Result<(), Error> {
        match self {
            AnyLoader::Host(loader) => loader.seek(epoch, step),
            AnyLoader::Device(on) => on.seek(epoch, step),
        }
    }

    /// As [`Loader::begin_epoch`].
    ///
    /// # Errors
    ///
    /// As [`Loader::begin_epoch`].
    pub fn begin_epoch(&self, epoch: u64, step: u64, records: Arc<[u64]>) -> Result<(), Error> {
        match self {
            AnyLoader::Host(loader) => loader.begin_epoch(epoch, step, records),
            AnyLoader::Device(on) => on.begin_epoch(epoch, step, records),
        }
    }

    /// As [`Loader::restore`].
    ///
    /// # Errors
    ///
    /// As [`Loader::restore`].
    pub fn restore(&self, state: &LoaderState) -> Result<(), Error> {
        match self {
            AnyLoader::Host(loader) => loader.restore(state),
            AnyLoader::Device(on) => on.restore(state),
        }
    }

    /// As [`Loader::restore_anyway`].
    ///
    /// # Errors
    ///
    /// As [`Loader::restore_anyway`].
    pub fn restore_anyway(&self, state: &LoaderState) -> Result<Vec<String>, Error> {
        match self {
            AnyLoader::Host(loader) => loader.restore_anyway(state),
            AnyLoader::Device(on) => on.restore_anyway(state),
        }
    }

    /// Placement of the work between host and device. None if batches stay on the host.
    pub fn placement(&self) -> Option<PlacementState> {
        self.on_device().map(DeviceLoader::placement)
    }

    /// Name and counters of each device, in the order of the devices.
    ///
    /// # Errors
    ///
    /// The error that stopped a device.
    pub fn device_stats(&self) -> Result<Vec<(String, RingStats)>, Error> {
        let rings = self.on_device().map_or(&[][..], DeviceLoader::rings);
        let of = |ring: &Ring<AnyDevice>| Ok((ring.device().name(), ring.stats()?));
        rings.iter().map(of).collect()
    }

    /// Names and summed counters of all devices. None if batches stay on the host.
    ///
    /// # Errors
    ///
    /// As [`AnyLoader::device_stats`].
    pub fn device_total(&self) -> Result<Option<(String, RingStats)>, Error> {
        let (names, each): (Vec<_>, Vec<_>) = self.device_stats()?.into_iter().unzip();
        Ok(RingStats::together(&each).map(|total| (names.join(", "), total)))
    }

    /// As [`Loader::close`].
    pub fn close(&self) {
        match self {
            AnyLoader::Host(loader) => loader.close(),
            AnyLoader::Device(on) => on.close(),
        }
    }
}

impl AnyStep {
    /// Number of samples in the batch; 0 without a batch.
    pub fn samples(&self) -> usize {
        match self {
            AnyStep::Host(batch) => batch.samples(),
            AnyStep::Device(parts) => parts.iter().map(DeviceBatch::samples).sum(),
            AnyStep::End | AnyStep::Timeout => 0,
        }
    }

    /// Waits until all parts of the batch are complete on their devices.
    ///
    /// # Errors
    ///
    /// The error that stopped a device.
    pub fn synchronize(&self) -> Result<(), Error> {
        match self {
            AnyStep::Device(parts) => parts.iter().try_for_each(DeviceBatch::synchronize),
            AnyStep::Host(_) | AnyStep::End | AnyStep::Timeout => Ok(()),
        }
    }
}
