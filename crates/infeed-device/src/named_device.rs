//! Kinds of devices, which users choose by a name such as `cuda:1`.

use std::sync::Arc;

use super::check::CheckedDevice;
use infeed_core::error::Error;

/// A kind of device that users choose by its name.
pub(crate) trait NamedDevice: CheckedDevice {
    /// Name of the kind: the part of a device's name before the colon.
    const KIND: &'static str;

    /// Names of its devices in messages.
    const NAMES: &'static str;

    /// Whether its rates are configured and not those of hardware.
    const IS_SIMULATED: bool;

    /// Opens the device with this name, which begins with [`NamedDevice::KIND`].
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for an invalid name; [`Error::Device`] if the device cannot be opened.
    fn open_named(name: &str) -> Result<Self, Error>;

    /// Copies the first bytes of a memory to the host. No command uses the memory.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if the device failed; [`Error::OutOfMemory`] if the host has no memory
    /// left.
    fn host_copy(&self, memory: &Arc<Self::Memory>, bytes: usize) -> Result<Vec<u8>, Error>;

    /// Returns a function that returns the share of time in which the device was busy. None if the
    /// device does not report it.
    fn busy_share(&self) -> Option<BusyShare> {
        None
    }
}

/// Returns the share of time just before the call in which a device was busy, 0 to 1.
pub(crate) type BusyShare = Box<dyn Fn() -> Option<f64> + Send>;
