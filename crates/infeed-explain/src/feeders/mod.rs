//! Rates of feeders for the arithmetic of [`crate::model::feeders`]. They are planned from this
//! machine's rates and its loopback, measured with existing feeders, or counted by a running loop.

pub(crate) mod counters;
#[cfg(feature = "feed")]
mod measurement;
#[cfg(not(feature = "feed"))]
mod no_feed;
#[cfg(feature = "feed")]
mod plan;
#[cfg(feature = "feed")]
mod probe;

#[cfg(not(feature = "feed"))]
use no_feed as plan;

pub use plan::applies;
pub(crate) use plan::feeding;

use crate::findings::{Remedy, Run, Subject, UntriedRemedy};
use crate::model::feeders::{FeederHost, Feeding};
use crate::model::interval::Interval;
use crate::model::supply::Supply;
use infeed::loader::remote::RemoteWorkerStats;

/// Results that the explanation already has.
pub(crate) struct PlanInputs<'a> {
    pub(crate) run: &'a Run,
    pub(crate) subject: &'a Subject,
    /// Samples per second of this machine's cores, from memory.
    pub(crate) own: Interval,
    pub(crate) capacities: &'a Supply,
    /// The other remedies.
    pub(crate) remedies: &'a [Remedy],
}

/// Results of the feeder analysis.
#[derive(Default)]
pub(crate) struct FeederFindings {
    pub(crate) feeding: Option<Feeding>,
    pub(crate) remedies: Vec<Remedy>,
    pub(crate) not_tried: Vec<UntriedRemedy>,
    pub(crate) notes: Vec<String>,
}

impl FeederFindings {
    /// Reports that feeders were not planned, and the reason.
    fn without_plan(why: String) -> FeederFindings {
        FeederFindings {
            not_tried: vec![UntriedRemedy {
                id: "feeders".to_owned(),
                name: "feeders: other machines that also make batches".to_owned(),
                why,
            }],
            ..FeederFindings::default()
        }
    }
}

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
