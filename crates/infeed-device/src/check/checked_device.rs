//! Functions and limits of a device that checks need beyond those of a loader.

use std::sync::Arc;
use std::time::Duration;

use infeed_raw::slab::Slab;

use crate::jpeg::Backend;
use crate::{Device, DeviceError};

/// A device with the functions that checks need beyond those of a loader.
pub trait CheckedDevice: Device {
    /// Longest delay of the stress test's consumer per step. It must exceed the host's time per
    /// step.
    const LATE: Duration;

    /// Bytes of the copies that delay the consumer.
    const BUSY_BYTES: usize;

    /// JPEG decoders to check. `None` for the only decoder of a device without a choice.
    const BACKENDS: &'static [Option<Backend>];

    /// Largest accepted distance of decoded pixels from the host's.
    const APART: PixelTolerance;

    /// Fills a slab from the beginning of a memory, after the commands in a stream, and waits for
    /// it.
    ///
    /// # Errors
    ///
    /// As [`Device::copy`].
    fn fetch(
        &self,
        queue: Self::Queue,
        from: &Arc<Self::Memory>,
        into: Slab,
    ) -> Result<Slab, DeviceError>;

    /// Returns unordered memory accesses that the device itself has detected. A GPU detects none.
    fn complaints(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns properties of the device, by name and value.
    fn facts(&self) -> Vec<(&'static str, String)>;
}

/// Largest accepted distance of a device's pixels from the host's: the mean over all levels of an
/// image. For a missing or wrong image, the distance is tens of levels.
#[derive(Clone, Copy, Debug)]
pub struct PixelTolerance {
    /// For images without subsampled chroma: only the inverse transform and rounding can differ.
    pub full: f64,
    /// For images with subsampled chroma, which is interpolated.
    pub sampled: f64,
}
