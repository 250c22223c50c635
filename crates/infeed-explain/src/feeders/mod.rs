//! Rates of feeders for the arithmetic of [`super::feeding`]. They are planned from this machine's
//! rates and its loopback, measured with existing feeders, or counted by a running loop.

mod counted;
mod measured;
mod plan;
mod probe;

pub(super) use counted::{counted, made_here};
pub use plan::applies;
pub(super) use plan::{PlanInputs, feeding};

use super::feeding::FeederHost;
use infeed::loader::remote::RemoteWorkerStats;

/// Builds the report of a feeder. `feeder` counts its part of `batches` delivered batches next to
/// this machine's cores. `sending` counts the bytes of a run of `seconds`, which may be another
/// run.
fn host(
    feeder: &RemoteWorkerStats,
    sending: &RemoteWorkerStats,
    (batches, seconds): (u64, f64),
) -> FeederHost {
    let made = feeder.batches as f64;
    let receiving = sending.receiving.as_secs_f64();
    FeederHost {
        host: feeder.host.clone(),
        connected: feeder.connected,
        batches: feeder.batches,
        // A feeder may make batches ahead that are never delivered.
        share: made / (batches as f64).max(made).max(1.0),
        bytes: feeder.bytes,
        wait_s: feeder.wait.as_secs_f64() / made.max(1.0),
        bytes_per_s: match receiving > 0.0 {
            true => sending.bytes as f64 / receiving,
            false => 0.0,
        },
        busy: (receiving / seconds.max(1e-9)).min(1.0),
        alone: None,
        redone: feeder.redone,
        problem: feeder.problem.clone(),
    }
}
