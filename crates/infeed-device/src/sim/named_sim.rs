//! The simulated device among the kinds of devices that users name.

use std::sync::Arc;
use std::time::Duration;

use infeed_raw::slab::Slab;

use super::{Sim, SimMemory};
use crate::DeviceError;
use crate::check::{CheckedDevice, PixelTolerance};
use crate::jpeg::Backend;
use crate::named_device::NamedDevice;
use infeed_core::error::Error;

impl CheckedDevice for Sim {
    // The simulated device finds races at any timing.
    const LATE: Duration = Duration::from_micros(100);
    const BUSY_BYTES: usize = 64 << 10;
    const BACKENDS: &'static [Option<Backend>] = &[None];
    const APART: PixelTolerance = PixelTolerance {
        full: 0.0,
        sampled: 0.0,
    };

    fn fetch(
        &self,
        queue: Self::Queue,
        from: &Arc<Self::Memory>,
        mut into: Slab,
    ) -> Result<Slab, DeviceError> {
        let bytes = into.as_ref().len();
        let seen = self.read(queue, from, bytes, Duration::ZERO)?.bytes();
        let into_bytes = into.as_mut();
        into_bytes.copy_from_slice(&seen);
        Ok(into)
    }

    fn complaints(&self) -> Vec<String> {
        self.violations().iter().map(ToString::to_string).collect()
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        vec![("name", "the simulated device".to_owned())]
    }
}

impl NamedDevice for Sim {
    const KIND: &'static str = "sim";
    const NAMES: &'static str = "\"sim\", a simulated device";
    const IS_SIMULATED: bool = true;

    fn open_named(name: &str) -> Result<Sim, Error> {
        Sim::parse(name)
    }

    fn host_copy(&self, memory: &Arc<SimMemory>, bytes: usize) -> Result<Vec<u8>, Error> {
        Ok(memory.first(bytes))
    }
}
