//! The exported metrics, each with its name, type and help line.

use std::time::Duration;

use infeed::loader::Stats;
use infeed::loader::remote::RemoteWorkerStats;
use infeed_core::counters::StageStats;
use infeed_device::ring::RingStats;

/// One metric.
pub(super) struct Family<T> {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    /// Type name in the format.
    pub(super) kind: &'static str,
    pub(super) value: fn(&T) -> f64,
}

/// A value that only grows while a loader is open.
const fn counter<T>(name: &'static str, help: &'static str, value: fn(&T) -> f64) -> Family<T> {
    let kind = "counter";
    Family {
        name,
        help,
        kind,
        value,
    }
}

/// A value that can rise and fall, or stays.
const fn gauge<T>(name: &'static str, help: &'static str, value: fn(&T) -> f64) -> Family<T> {
    let kind = "gauge";
    Family {
        name,
        help,
        kind,
        value,
    }
}

fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}

/// Metrics of a loader.
pub(super) const OF_LOADER: [Family<Stats>; 18] = [
    counter("infeed_batches_total", "Batches delivered.", |s| {
        s.batches as f64
    }),
    counter("infeed_samples_total", "Samples delivered.", |s| {
        s.samples as f64
    }),
    counter(
        "infeed_bad_records_total",
        "Bad records, each counted once.",
        |s| s.bad as f64,
    ),
    counter(
        "infeed_wait_seconds_total",
        "Time the consumer waited for batches.",
        |s| seconds(s.wait),
    ),
    counter(
        "infeed_unknown_pixels_total",
        "Mask pixels whose colour or index is not a class.",
        |s| s.unknown_pixels as f64,
    ),
    counter(
        "infeed_decoder_warnings_total",
        "Decoder warnings that do not change the sample.",
        |s| s.warnings as f64,
    ),
    counter(
        "infeed_decoded_cache_hits_total",
        "Samples made of records in the cache of decoded records.",
        |s| s.decoded_cache.unwrap_or_default().hits as f64,
    ),
    counter(
        "infeed_decoded_cache_misses_total",
        "Samples whose record the cache of decoded records did not have.",
        |s| s.decoded_cache.unwrap_or_default().misses as f64,
    ),
    gauge(
        "infeed_decoded_cache_bytes",
        "Memory in use by the cache of decoded records, of all processes that share it.",
        |s| s.decoded_cache.unwrap_or_default().used_bytes as f64,
    ),
    gauge(
        "infeed_open_seconds",
        "Time since the loader was opened.",
        |s| seconds(s.elapsed),
    ),
    gauge(
        "infeed_first_batch_seconds",
        "Time from opening to the first batch, NaN before it.",
        |s| s.first_batch.map_or(f64::NAN, seconds),
    ),
    gauge(
        "infeed_ready_batches",
        "Batches ready for the consumer; 0 when it waits.",
        |s| s.ready as f64,
    ),
    gauge("infeed_held_batches", "Batches the consumer holds.", |s| {
        s.held as f64
    }),
    gauge("infeed_worker_threads", "Worker threads.", |s| {
        s.workers as f64
    }),
    gauge("infeed_io_threads", "I/O threads.", |s| s.readers as f64),
    gauge("infeed_budget_bytes", "The byte budget.", |s| {
        s.budget_bytes as f64
    }),
    gauge(
        "infeed_slab_bytes",
        "Bytes of the slabs of one batch.",
        |s| s.slab_bytes as f64,
    ),
    gauge(
        "infeed_encoded_peak_bytes",
        "Peak of encoded bytes in memory.",
        |s| s.fetched_peak_bytes as f64,
    ),
];

/// Metrics of a stage.
pub(super) const OF_STAGE: [Family<StageStats>; 6] = [
    counter(
        "infeed_stage_samples_total",
        "Samples processed by the stage.",
        |s| s.samples as f64,
    ),
    counter(
        "infeed_stage_in_bytes_total",
        "Input bytes of the stage.",
        |s| s.bytes_in as f64,
    ),
    counter(
        "infeed_stage_out_bytes_total",
        "Output bytes of the stage.",
        |s| s.bytes_out as f64,
    ),
    counter(
        "infeed_stage_wall_seconds_total",
        "Time threads spent inside the stage.",
        |s| seconds(s.wall),
    ),
    counter(
        "infeed_stage_cpu_seconds_total",
        "Processor time threads used inside the stage.",
        |s| seconds(s.cpu),
    ),
    counter(
        "infeed_stage_wait_seconds_total",
        "Time threads were blocked before the stage.",
        |s| seconds(s.wait),
    ),
];

/// Metrics of a device.
pub(super) const OF_DEVICE: [Family<RingStats>; 11] = [
    counter(
        "infeed_device_batches_total",
        "Batches sent to the device.",
        |s| s.batches as f64,
    ),
    counter(
        "infeed_device_transfers_total",
        "Copies from the host to the device.",
        |s| s.transfers as f64,
    ),
    counter(
        "infeed_device_bytes_total",
        "Bytes copied to the device.",
        |s| s.bytes as f64,
    ),
    counter(
        "infeed_device_jpegs_total",
        "JPEGs that the device decoded.",
        |s| s.jpegs as f64,
    ),
    counter(
        "infeed_device_overflow_slots_total",
        "Slots added because the consumer kept all others.",
        |s| s.overflow as f64,
    ),
    counter(
        "infeed_device_unpinned_bytes_total",
        "Host memory for batches that the driver could not pin; copies from it are slower.",
        |s| s.unpinned as f64,
    ),
    counter(
        "infeed_device_gap_seconds_total",
        "Time that the device waited for batches, by its own clock, where the stream was known.",
        |s| seconds(s.gaps.waited),
    ),
    counter(
        "infeed_device_gap_batches_total",
        "Batches for which the wait of the device is known.",
        |s| s.gaps.batches as f64,
    ),
    counter(
        "infeed_device_late_seconds_total",
        "Time that the loop waited for batches it already held, where the stream was not known.",
        |s| seconds(s.late.waited),
    ),
    counter(
        "infeed_device_late_batches_total",
        "Batches for which the wait of the loop is known.",
        |s| s.late.batches as f64,
    ),
    gauge(
        "infeed_device_slots",
        "Slots for batches on the device.",
        |s| s.slots as f64,
    ),
];

/// Metrics of a feeder.
pub(super) const OF_FEEDER: [Family<RemoteWorkerStats>; 11] = [
    gauge(
        "infeed_feeder_connected",
        "1 if the feeder is connected and answers in time, else 0.",
        |s| f64::from(u8::from(s.connected)),
    ),
    counter(
        "infeed_feeder_batches_total",
        "Batches the feeder made.",
        |s| s.batches as f64,
    ),
    counter(
        "infeed_feeder_bytes_total",
        "Bytes of the batches the feeder made.",
        |s| s.bytes as f64,
    ),
    counter(
        "infeed_feeder_wait_seconds_total",
        "Time from the request for a batch to its arrival, summed over batches.",
        |s| seconds(s.wait),
    ),
    counter(
        "infeed_feeder_receiving_seconds_total",
        "Time during which bytes arrived from the feeder.",
        |s| seconds(s.receiving),
    ),
    counter(
        "infeed_feeder_cpu_seconds_total",
        "Processor time on this machine to receive from the feeder.",
        |s| seconds(s.cpu),
    ),
    counter(
        "infeed_feeder_redone_batches_total",
        "Batches requested from the feeder and made elsewhere.",
        |s| s.redone as f64,
    ),
    counter(
        "infeed_feeder_declined_batches_total",
        "Batches the feeder could not make.",
        |s| s.declined as f64,
    ),
    counter(
        "infeed_feeder_corrupt_batches_total",
        "Batches whose bytes changed in transit.",
        |s| s.corrupt as f64,
    ),
    counter(
        "infeed_feeder_lost_total",
        "Times the connection was lost.",
        |s| s.lost as f64,
    ),
    counter(
        "infeed_feeder_refused_total",
        "Times the feeder rejected this run.",
        |s| s.refused as f64,
    ),
];

/// Metrics of the process, equal for every loader.
pub(super) const OF_PROCESS: [Family<Stats>; 8] = [
    counter(
        "infeed_storage_requests_total",
        "Requests to buckets and web servers, including retries.",
        |s| s.storage.requests as f64,
    ),
    counter(
        "infeed_storage_retries_total",
        "Retries after a failed request.",
        |s| s.storage.retries as f64,
    ),
    counter(
        "infeed_storage_hedges_total",
        "Duplicate requests after a slow request.",
        |s| s.storage.hedges as f64,
    ),
    counter(
        "infeed_storage_hedges_won_total",
        "Duplicate requests that were answered first.",
        |s| s.storage.hedges_won as f64,
    ),
    counter(
        "infeed_storage_bytes_total",
        "Bytes received from buckets and web servers.",
        |s| s.storage.bytes as f64,
    ),
    counter(
        "infeed_cache_hits_total",
        "Pieces of remote data found in the disk cache.",
        |s| s.cache.hits as f64,
    ),
    counter(
        "infeed_cache_misses_total",
        "Pieces of remote data requested over the network.",
        |s| s.cache.misses as f64,
    ),
    counter(
        "infeed_cache_damaged_total",
        "Pieces in the disk cache that failed their checksum.",
        |s| s.cache.damaged as f64,
    ),
];
