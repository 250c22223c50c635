//! Costs of the stages of a run, and the consumer's time by activity.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use infeed::loader::Stats;
use infeed_core::counters::{Stage, StageStats};

/// Cost of one stage.
#[derive(Clone, Debug, Default, JsonSchema, Serialize, Deserialize)]
pub struct StageCost {
    /// One of `read`, `decode`, `transform`, `write` and `python`.
    pub name: String,
    /// Number of samples that passed the stage.
    pub samples: u64,
    /// Wall time inside the stage in seconds, summed over threads.
    pub wall_s: f64,
    /// Processor time inside the stage in seconds, summed over threads.
    pub cpu_s: f64,
    /// Time in seconds that threads were blocked before the stage.
    pub wait_s: f64,
    /// Bytes that the stage received.
    pub bytes_in: u64,
    /// Bytes that the stage produced.
    pub bytes_out: u64,
    /// 99th percentile of the wall time of a call, in seconds.
    pub p99_s: f64,
    /// Samples per second of one core that runs only this stage.
    pub rate_per_core: f64,
    /// Share of the total processor time, 0 to 1.
    pub cpu_share: f64,
}

/// Computes the cost of each stage from a loader's counters.
pub fn stage_costs(stats: &Stats) -> Vec<StageCost> {
    let all: f64 = stats.stages.iter().map(|(_, s)| s.cpu.as_secs_f64()).sum();
    let cost = |(stage, s): &(Stage, StageStats)| {
        let cpu_s = s.cpu.as_secs_f64();
        StageCost {
            name: stage.name().to_owned(),
            samples: s.samples,
            wall_s: s.wall.as_secs_f64(),
            cpu_s,
            wait_s: s.wait.as_secs_f64(),
            bytes_in: s.bytes_in,
            bytes_out: s.bytes_out,
            p99_s: s.p99.as_secs_f64(),
            rate_per_core: if cpu_s > 0.0 {
                s.samples as f64 / cpu_s
            } else {
                0.0
            },
            cpu_share: cpu_s / all.max(1e-9),
        }
    };
    stats.stages.iter().map(cost).collect()
}

/// The consumer's time after the first batch, as shares that sum to 1.
#[derive(Clone, Copy, Debug, Default, JsonSchema, Serialize, Deserialize)]
pub struct Stall {
    /// Share of waiting for storage.
    pub fetch: f64,
    /// Share of waiting for processor cores.
    pub prep: f64,
    /// Share of waiting for the network to feeders.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub wire: f64,
    /// Share of waiting for the bus, or for the device's work on rows.
    pub copy: f64,
    /// Share of computing.
    pub compute: f64,
}

fn is_nothing(share: &f64) -> bool {
    *share == 0.0
}
