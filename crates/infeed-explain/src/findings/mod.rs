//! The results of an explanation: plain data, the same in Rust, JSON and the reports.
//!
//! Rates are in samples per second, times in seconds and sizes in bytes, unless the name says
//! otherwise.

pub mod ledger;
pub(crate) mod what_if;

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use ledger::LedgerEntry;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use what_if::WhatIfReport;

use crate::model::crossover::Crossover;
use crate::model::decoding::DecodingReport;
use crate::model::feeders::Feeding;
use crate::model::interval::Interval;
use crate::model::limit::{Limit, Resource};
use crate::model::placement::PlacementReport;
use crate::model::stages::{StageCost, Stall};
use crate::model::transfers::Transfers;
use infeed_device::busy::Utilisation;

/// Version of the JSON format.
pub const VERSION: u32 = 1;

/// All results of `infeed explain`.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Explanation {
    /// Version of the format: another number if a key was removed or has another meaning. A new key
    /// does not change it.
    pub version: u32,
    /// Version of infeed.
    pub infeed: String,
    /// Seconds since 1970, UTC.
    pub made_at_s: u64,
    /// The machine that ran the measurements.
    pub machine: MeasuredMachine,
    /// The dataset and pipeline.
    pub subject: Subject,
    /// The plan, one line per field.
    pub plan: String,
    /// The plain run.
    pub run: Run,
    /// The consumer's time by activity.
    pub stall: Stall,
    /// The rate that each resource allows, lowest first.
    pub resources: Vec<Resource>,
    /// The limit with its evidence.
    pub verdict: Verdict,
    /// The unchanged pipeline divided by itself, in the same turns as the remedies: 1 on a quiet
    /// machine. Its difference from 1 widens the gain of each remedy. None without trials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<Interval>,
    /// The records of the trials. None without trials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<TrialSample>,
    /// Remedies, best first: those that gain before the others, then those that change no pixel
    /// before the others (unless the user allowed a loss), then by gain. Remedies that need more
    /// feeders are last.
    pub remedies: Vec<Remedy>,
    /// Remedies that were not tried, with the reason.
    pub not_tried: Vec<UntriedRemedy>,
    /// The best placement of the work on host and device. None without a device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<PlacementReport>,
    /// The gain from decoding JPEGs on the device. None if the device has nothing to decode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decoding: Option<DecodingReport>,
    /// Measured placements of the expansion (cast, one-hot) in a running loop. None if the loop
    /// does not run, and for batches on the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tried: Option<TunedPlacement>,
    /// The gain from feeders, existing or planned. None if feeders were not considered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feeding: Option<Feeding>,
    /// The step times at which the limit changes, longest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub crossovers: Vec<Crossover>,
    /// The prediction for other cores, memory, storage or batches. None if none was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub what_if: Option<WhatIfReport>,
    /// Transfers to the device. None if batches stayed on the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transfers: Option<Transfers>,
    /// Utilisation of the GPU during the run, as in `nvidia-smi`. None if no driver reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilisation: Option<Utilisation>,
    /// Activity of the threads in the first seconds of the run.
    pub timeline: Vec<Span>,
    /// Checked predictions on this dataset, oldest first.
    pub ledger: Vec<LedgerEntry>,
    /// Reasons to doubt the numbers, one sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Further notes, one sentence each.
    pub notes: Vec<String>,
}

/// The machine that ran the measurements.
#[derive(Clone, Debug, Default, JsonSchema, Serialize, Deserialize)]
pub struct MeasuredMachine {
    /// Processor model.
    pub cpu: String,
    /// Number of cores that this process may use.
    pub cores: usize,
    /// Memory that this process may use, in bytes.
    pub memory_bytes: u64,
    /// Operating system and architecture.
    pub system: String,
    /// Rate at which all cores copy memory, in bytes read plus bytes written per second. None if
    /// `infeed probe` has not measured it.
    pub memory_bytes_per_s: Option<f64>,
    /// Name of the profile that replaces this machine's storage and bus, if the user named one.
    pub profile: Option<String>,
}

/// The dataset and pipeline.
#[derive(Clone, Debug, Default, JsonSchema, Serialize, Deserialize)]
pub struct Subject {
    /// The folder or file that the user named.
    pub name: String,
    /// The pipeline as TOML. Empty if it has arrays in memory.
    pub pipeline: String,
    /// Number of records in the source.
    pub records: u64,
    /// Encoded bytes of all records, estimated from a sample.
    pub bytes: u64,
    /// Rows per batch.
    pub batch_rows: u64,
    /// Number of worker threads.
    pub workers: usize,
    /// Number of I/O threads.
    pub readers: usize,
    /// Time of a step in seconds, if the user gave it.
    pub step_s: Option<f64>,
    /// Whether the data stays in memory between epochs. Later reads are then warm.
    pub fits_in_memory: bool,
}

/// The records that all trials repeat.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct TrialSample {
    /// Number of records.
    pub records: u64,
    /// Encoded bytes of all of them.
    pub encoded_bytes: u64,
    /// Bytes of their rows in batches. 0 if samples differ in size.
    pub row_bytes: u64,
    /// Bytes of the last-level cache, or 0 if the system does not report them. A sample that is
    /// smaller may be faster in the trial than in a run.
    pub cache_bytes: u64,
}

/// The plain run: the pipeline as it is.
#[derive(Clone, Debug, Default, JsonSchema, Serialize, Deserialize)]
pub struct Run {
    /// Samples per second after the first batch.
    pub samples_per_s: f64,
    /// Number of samples.
    pub samples: u64,
    /// Number of batches.
    pub batches: u64,
    /// Wall time since opening, in seconds.
    pub seconds: f64,
    /// Time from opening to the first batch, in seconds.
    pub first_batch_s: f64,
    /// Time that the consumer waited after the first batch, in seconds.
    pub wait_s: f64,
    /// Time inside the consumer's steps, in seconds.
    pub step_s: f64,
    /// Stages in the order data flows.
    pub stages: Vec<StageCost>,
    /// Fill level of the loader over time.
    pub queue: Vec<QueuePoint>,
}

/// Placement of the expansion (cast, one-hot), among those that a running loader tried.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct TunedPlacement {
    /// Value of `placement=` for the placement in use.
    pub choice: String,
    /// Whether the choice is final for the present load.
    pub settled: bool,
    /// Step times with the other placements, divided by the step time with the choice. Filled once
    /// the choice is final.
    pub others: BTreeMap<String, f64>,
    /// Time of a step with the choice in seconds, when it was made.
    pub step_s: Option<f64>,
    /// The choice and its reason in one line.
    pub text: String,
}

/// Fill level of the loader at one moment.
#[derive(Clone, Copy, Debug, Default, JsonSchema, Serialize, Deserialize)]
pub struct QueuePoint {
    /// Time since the start of the run, in seconds.
    pub at_s: f64,
    /// Number of batches that are ready.
    pub ready: usize,
    /// Share of the time since the previous point in which the consumer waited, 0 to 1.
    pub waiting: f64,
}

/// The limit with its evidence: of a run of infeed, or of a watched loop.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Verdict {
    /// The limiting resource.
    pub limit: Limit,
    /// Samples per second that it allows, or batches per second if a watched loop does not count
    /// samples.
    pub rate: f64,
    /// The second limit. None if there is no other.
    pub next_limit: Option<Limit>,
    /// Rate that the second limit allows, in the same unit.
    pub next_rate: Option<f64>,
    /// Whether both rates are too close to separate.
    pub tie: bool,
    /// The verdict in one line.
    pub claim: String,
    /// Observations with numbers, one per line.
    pub evidence: Vec<String>,
    /// Arithmetic of the limit, one rate per line.
    pub capacity: Vec<String>,
    /// Recommended actions with their gain.
    pub advice: Vec<String>,
    /// Remedies without gain, with the reason.
    pub not_worth: Vec<String>,
}

/// A remedy and its predicted gain.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Remedy {
    /// Stable name, such as `resize` or `jpeg-90`.
    pub id: String,
    /// Its effect in a few words.
    pub name: String,
    /// Command or code that applies it.
    pub command: String,
    /// Samples per second with the remedy.
    pub rate: Interval,
    /// Rate with the remedy, divided by the rate without.
    pub gain: Interval,
    /// Time of a step with the remedy: the longer of computing and waiting for the batch.
    pub step_time: Interval,
    /// Bytes of the new data on disk, in addition to the original.
    pub disk_bytes: u64,
    /// Time to apply it to the whole dataset, in seconds.
    pub convert_s: f64,
    /// Effect on the pixels: `identical`, or the loss with PSNR and SSIM against the present pixels.
    pub quality: String,
    /// Whether the pixels differ from the present ones, or could not be compared.
    pub lossy: bool,
    /// Whether it needs feeders that do not run yet.
    #[serde(default)]
    pub needs_feeders: bool,
    /// The limit with the remedy.
    pub limit: Limit,
    /// Arithmetic of the rate.
    pub arithmetic: String,
}

/// Gain above which a remedy without a certain gain is unclear, and not useless.
const UNCLEAR: f64 = 1.3;

impl Remedy {
    /// Returns whether the gain is certain: the whole interval is above 1.
    pub fn gains(&self) -> bool {
        self.gain.low > 1.0
    }

    /// Returns whether the trials vary too much to answer: the gain is likely large, and may be
    /// none.
    pub fn is_unclear(&self) -> bool {
        !self.gains() && self.gain.mid > UNCLEAR
    }

    /// Returns the name, with a mark if the remedy changes pixels.
    pub fn title(&self) -> String {
        match self.lossy {
            true => format!("{} (lossy)", self.name),
            false => self.name.clone(),
        }
    }
}

/// A remedy that was not tried.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct UntriedRemedy {
    /// Stable name.
    pub id: String,
    /// Its effect in a few words.
    pub name: String,
    /// The reason.
    pub why: String,
}

/// An activity of a thread, or a wait or step of the consumer.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Span {
    /// Name of the thread, such as `infeed-work-0`, or `consumer` for the training loop.
    pub thread: String,
    /// Activity: `read`, `decode`, `transform`, `write` or `python`. For the consumer `wait` or
    /// `step`.
    pub what: String,
    /// Microseconds since the start of the run.
    pub start_us: u64,
    /// Duration in microseconds.
    pub length_us: u64,
    /// Number of the batch, counted across epochs, if it is known.
    pub batch: Option<u64>,
}

/// Returns the present time in seconds since 1970, UTC, as results have it.
pub(crate) fn now_s() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_secs())
}
