//! Opens a device by its name and checks it.

use std::time::Instant;

use infeed_core::error::Error;

use super::findings::{CheckReport, Figure, Finding, FindingLog};
use super::plan::CheckPlan;
use crate::AnyDevice;

/// Checks a device and passes each finding to `found` immediately. [`AnyDevice::open`] defines the
/// names of devices.
///
/// # Errors
///
/// [`Error::Config`] if no device has this name; [`Error::Device`] if the device cannot be opened.
pub fn run(
    device: &str,
    plan: &CheckPlan,
    found: &mut dyn FnMut(&Finding),
) -> Result<CheckReport, Error> {
    let mut log = FindingLog::new(found);
    let start = Instant::now();
    let opened = AnyDevice::open(device)?;
    log.figure(Figure {
        name: "open/device".to_owned(),
        value: start.elapsed().as_secs_f64() * 1e3,
        unit: "ms",
    });
    opened.check(plan, &mut log);
    Ok(log.into_report())
}
