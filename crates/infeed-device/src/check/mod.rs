//! Checks and measurements of a device. `scripts/gpu-check` runs them on a machine with a GPU;
//! tests run them on the simulated device.
//!
//! All checks use [`Device`](crate::Device), so the code is the same for both. Each finding is
//! reported immediately, so that a later check that hangs or crashes loses nothing. Nothing here
//! panics, and a failed check does not stop the others.

mod batch_decoding;
mod bytes;
mod checked_device;
mod findings;
mod groups;
mod jpeg;
mod kernels;
mod ordering;
mod pace;
mod plan;
mod rates;
mod run;
mod stress;
#[cfg(test)]
mod tests;

pub use checked_device::{CheckedDevice, PixelTolerance};
pub use findings::{CheckReport, CheckResult, Figure, Finding, Outcome};
pub use plan::{CheckPlan, Group};
pub use run::run;

pub(crate) use findings::FindingLog;
pub(crate) use groups::check;
