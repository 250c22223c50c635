//! The result of a run, as JSON.

use std::collections::BTreeMap;
use std::time::Duration;

use infeed::loader::device::PlacementState;
use infeed::loader::remote::RemoteWorkerStats;
use infeed::loader::{BadRecord, DecodedCacheStats};
use infeed_device::RingStats;
use infeed_explain::{StageCost, stage_costs};
use schemars::JsonSchema;
use serde::Serialize;

use super::report::BenchResult;

/// Result of `infeed bench`.
#[derive(JsonSchema, Serialize)]
pub(crate) struct BenchJson {
    /// Samples per second after the first batch.
    samples_per_s: f64,
    /// Number of samples.
    samples: u64,
    /// Number of batches.
    batches: u64,
    /// Number of whole epochs.
    epochs: u64,
    /// Time from the start of the command to the first batch, in seconds. It includes the listing of
    /// files. Null without a batch.
    first_batch_s: Option<f64>,
    /// Duration of the run in seconds.
    elapsed_s: f64,
    /// Time that the consumer waited after the first batch, in seconds.
    wait_s: f64,
    /// Most memory of the process at one time, in bytes.
    peak_rss_bytes: u64,
    /// Memory limit for batches, read-ahead and workers, in bytes.
    budget_bytes: u64,
    /// The cache of decoded records. Null without one.
    cache: Option<CacheJson>,
    /// Number of worker threads.
    workers: usize,
    /// Choice of the number of workers in one line. Null if the number was given.
    tuned: Option<String>,
    /// Number of I/O threads.
    io_threads: usize,
    /// Whether Ctrl-C ended the run.
    interrupted: bool,
    /// Pixels of masks without a class.
    unknown_pixels: u64,
    /// Harmless warnings of decoders.
    decoder_warnings: u64,
    /// Transfers to the device. Null if batches stayed on the host.
    device: Option<DeviceJson>,
    /// All bad records.
    bad: Vec<BadJson>,
    /// Stages in the order data flows.
    stages: Vec<StageCost>,
    /// Feeders of the run.
    feeders: Vec<FeederJson>,
}

/// The cache of decoded records.
#[derive(JsonSchema, Serialize)]
struct CacheJson {
    /// Records that came from the cache.
    hits: u64,
    /// Records that were decoded.
    misses: u64,
    /// Records in memory.
    records: u64,
    /// Bytes of these records.
    used_bytes: u64,
    /// Limit of the memory in bytes. 0 without a cache in memory.
    limit_bytes: u64,
    /// The folder on a disk. Null without one.
    disk: Option<DiskCacheJson>,
}

/// The folder of a cache.
#[derive(JsonSchema, Serialize)]
struct DiskCacheJson {
    /// Records that came from the folder. They count as hits.
    hits: u64,
    /// Records whose file was damaged. They were decoded again.
    damaged: u64,
    /// Limit of the folder in bytes.
    limit_bytes: u64,
}

/// Transfers to a device.
#[derive(JsonSchema, Serialize)]
struct DeviceJson {
    /// Names of the devices.
    name: String,
    /// Batches sent.
    batches: u64,
    /// Copies over the bus.
    transfers: u64,
    /// Bytes of all copies.
    bytes: u64,
    /// JPEGs that the device decoded.
    jpegs: u64,
    /// Number of slots for batches on the device.
    slots: usize,
    /// Time of the copies on the device's clock, in seconds.
    copying_s: f64,
    /// Time of the kernels on the device's clock, in seconds.
    expanding_s: f64,
    /// Number of batches in `copying_s`.
    timed_batches: u64,
    /// Number of batches in `expanding_s`.
    expanded_batches: u64,
    /// Average share of the time in which a kernel ran, 0 to 1. Null if no driver reports it.
    utilisation: Option<f64>,
    /// Placement of the expansion (cast, one-hot). Null if there is no choice.
    placement: Option<PlacementJson>,
}

/// Placement of the expansion on host or device.
#[derive(JsonSchema, Serialize)]
struct PlacementJson {
    /// Value of `--placement` for the placement in use.
    name: &'static str,
    /// Whether the choice is final for the present load.
    settled: bool,
    /// The choice and its reason in one line.
    text: String,
    /// Time of a step with the choice in seconds. Null before it is measured.
    step_s: Option<f64>,
    /// Step times with the other tried placements, divided by the step time with the choice.
    others: BTreeMap<&'static str, f64>,
}

/// A bad record.
#[derive(JsonSchema, Serialize)]
struct BadJson {
    /// Name of the record.
    record: String,
    /// Index of the record in the source.
    index: u64,
    /// Epoch, from 0.
    epoch: u64,
    /// Position in the epoch, from 0.
    position: u64,
    /// The error.
    reason: String,
}

/// A feeder of the run.
#[derive(JsonSchema, Serialize)]
struct FeederJson {
    /// Address, `host:port`.
    host: String,
    /// Whether it is connected and answers in time.
    connected: bool,
    /// Batches received from it.
    batches: u64,
    /// Bytes of these batches.
    bytes: u64,
    /// Time from request to complete batch, summed over batches, in seconds.
    wait_s: f64,
    /// Batches that were requested from it but made elsewhere, because it was lost or late.
    redone: u64,
    /// Batches that it declined, for example because a bad record stops the run.
    declined: u64,
    /// Batches with corrupt bytes.
    corrupt: u64,
    /// Number of lost connections.
    lost: u64,
    /// Number of times that it refused this run.
    refused: u64,
    /// Its last problem. Null without one.
    problem: Option<String>,
}

impl BenchResult {
    /// Returns the result as JSON shows it.
    pub(super) fn to_json(&self) -> BenchJson {
        let stats = &self.stats;
        BenchJson {
            samples_per_s: self.samples_per_s,
            samples: stats.samples,
            batches: stats.batches,
            epochs: self.epochs,
            first_batch_s: self.first_batch.map(|time| time.as_secs_f64()),
            elapsed_s: self.elapsed.as_secs_f64(),
            wait_s: self.wait.as_secs_f64(),
            peak_rss_bytes: self.peak_rss_bytes,
            budget_bytes: stats.budget_bytes,
            cache: stats.decoded_cache.map(CacheJson::new),
            workers: stats.workers,
            tuned: stats.tuned.as_ref().map(|tuned| tuned.text.clone()),
            io_threads: stats.readers,
            interrupted: self.interrupted,
            unknown_pixels: stats.unknown_pixels,
            decoder_warnings: stats.warnings,
            device: self.sent.as_ref().map(|(name, sent)| DeviceJson {
                utilisation: self.utilisation.as_ref().map(|found| found.busy),
                placement: self.placed.as_ref().map(PlacementJson::new),
                ..DeviceJson::new(name, sent)
            }),
            bad: self.bad.iter().map(BadJson::new).collect(),
            stages: stage_costs(stats),
            feeders: stats.remote.iter().map(FeederJson::new).collect(),
        }
    }
}

impl CacheJson {
    fn new(cache: DecodedCacheStats) -> CacheJson {
        CacheJson {
            hits: cache.hits,
            misses: cache.misses,
            records: cache.records,
            used_bytes: cache.used_bytes,
            limit_bytes: cache.limit_bytes,
            disk: cache.disk.map(|disk| DiskCacheJson {
                hits: disk.hits,
                damaged: disk.damaged,
                limit_bytes: disk.limit_bytes,
            }),
        }
    }
}

impl DeviceJson {
    fn new(name: &str, sent: &RingStats) -> DeviceJson {
        DeviceJson {
            name: name.to_owned(),
            batches: sent.batches,
            transfers: sent.transfers,
            bytes: sent.bytes,
            jpegs: sent.jpegs,
            slots: sent.slots,
            copying_s: sent.times.copying.as_secs_f64(),
            expanding_s: sent.times.expanding.as_secs_f64(),
            timed_batches: sent.times.batches,
            expanded_batches: sent.times.expanded,
            utilisation: None,
            placement: None,
        }
    }
}

impl PlacementJson {
    fn new(placed: &PlacementState) -> PlacementJson {
        let others = placed.others.iter();
        PlacementJson {
            name: placed.choice.name(),
            settled: placed.settled,
            text: placed.why.clone(),
            step_s: placed.step.map(|step: Duration| step.as_secs_f64()),
            others: others
                .map(|tried| (tried.placement.name(), tried.ratio))
                .collect(),
        }
    }
}

impl BadJson {
    fn new(bad: &BadRecord) -> BadJson {
        BadJson {
            record: bad.record.name.clone(),
            index: bad.record.index,
            epoch: bad.epoch,
            position: bad.position,
            reason: bad.reason.chain(),
        }
    }
}

impl FeederJson {
    fn new(feeder: &RemoteWorkerStats) -> FeederJson {
        FeederJson {
            host: feeder.host.clone(),
            connected: feeder.connected,
            batches: feeder.batches,
            bytes: feeder.bytes,
            wait_s: feeder.wait.as_secs_f64(),
            redone: feeder.redone,
            declined: feeder.declined,
            corrupt: feeder.corrupt,
            lost: feeder.lost,
            refused: feeder.refused,
            problem: feeder.problem.clone(),
        }
    }
}
