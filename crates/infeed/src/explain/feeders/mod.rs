//! Numbers of feeders for the arithmetic of [`super::feeding`]: planned from what this machine does and
//! sends to itself, measured with those that there are, counted by a loop that runs.

mod counted;
mod given;
mod plan;
mod probe;

pub(super) use counted::{counted, made_here};
pub use plan::applies;
pub(super) use plan::{Known, feeding};

use super::feeding::FedHost;
use crate::loader::feeders::FeederStats;

/// What a feeder did beside this machine's cores, of so many batches that came from all of them; and how
/// fast bytes came from it in a run of so many seconds, which may be another.
fn host(feeder: &FeederStats, sending: &FeederStats, (batches, seconds): (u64, f64)) -> FedHost {
    let made = feeder.batches as f64;
    let receiving = sending.receiving.as_secs_f64();
    FedHost {
        host: feeder.host.clone(),
        connected: feeder.connected,
        batches: feeder.batches,
        // Batches that are made ahead are more than those delivered.
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
