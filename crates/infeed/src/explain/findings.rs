//! What an explanation holds: plain data, the same in Rust, JSON and the reports.
//!
//! Rates are samples a second, times seconds, sizes bytes, unless the name says otherwise.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::decoding::Decoding;
use super::feeding::Feeding;
use super::interval::Interval;
use super::limit::{Limit, Resource};
use super::placement::Placing;
use super::transfers::Transfers;
use crate::device::busy::Utilisation;

/// Version of the JSON form.
pub const VERSION: u32 = 1;

/// Everything `infeed explain` found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Explanation {
    /// [`VERSION`].
    pub version: u32,
    /// Version of infeed.
    pub infeed: String,
    /// Seconds since 1970, UTC.
    pub made_at_s: u64,
    /// Where it was measured.
    pub machine: Machine,
    /// What was explained.
    pub subject: Subject,
    /// The plan, a line a field.
    pub plan: String,
    /// The plain run.
    pub run: Run,
    /// Where the consumer's time went.
    pub stall: Stall,
    /// What each resource allows, the tightest first.
    pub resources: Vec<Resource>,
    /// The limit, in words and numbers.
    pub verdict: Verdict,
    /// What would help, best first; feeders that are not there last.
    pub remedies: Vec<Remedy>,
    /// Remedies that were not tried, and why.
    pub not_tried: Vec<NotTried>,
    /// What of the work belongs on the device; None without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placing>,
    /// What leaving JPEGs to the device's decoder would give; None where it has nothing to decode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decoding: Option<Decoding>,
    /// Who makes rows larger in a loop that runs, as its own steps told; None of others, and where
    /// batches stay on the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tried: Option<Tried>,
    /// What other machines give or would give; None where they were not looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feeding: Option<Feeding>,
    /// What crossed to the device; None where batches stayed on the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transfers: Option<Transfers>,
    /// How busy the card was during the run, as `nvidia-smi` tells it; None where nobody tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilisation: Option<Utilisation>,
    /// Who did what when, in the first seconds of the run.
    pub timeline: Vec<Span>,
    /// Predictions that were checked on this dataset, oldest first.
    pub ledger: Vec<LedgerEntry>,
    /// What the reader should know besides, a sentence each.
    pub notes: Vec<String>,
}

/// Where it was measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    /// Processor model.
    pub cpu: String,
    /// Cores this process may use.
    pub cores: usize,
    /// Memory this process may use.
    pub memory_bytes: u64,
    /// Operating system and architecture.
    pub system: String,
    /// Rate at which one core, and all, copy memory; read plus written.
    pub memory_bytes_per_s: Option<f64>,
    /// Name of the profile whose storage and bus stand in for this machine's, if one was named.
    pub profile: Option<String>,
}

/// What was explained.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Subject {
    /// The folder or file that was named.
    pub name: String,
    /// The pipeline, as TOML; empty where it holds arrays in memory.
    pub pipeline: String,
    /// Records of the source.
    pub records: u64,
    /// Encoded bytes of all records, estimated from a sample.
    pub bytes: u64,
    /// Rows of a batch.
    pub batch_rows: u64,
    /// Worker threads.
    pub workers: usize,
    /// I/O threads.
    pub readers: usize,
    /// Time a step takes, if it was given.
    pub step_s: Option<f64>,
    /// Whether the data stays in memory between epochs, so that reads after the first are warm.
    pub fits_in_memory: bool,
}

/// The plain run: the pipeline as it is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Run {
    /// After the first batch.
    pub samples_per_s: f64,
    /// Samples of the run.
    pub samples: u64,
    /// Batches of the run.
    pub batches: u64,
    /// Wall time, from opening.
    pub seconds: f64,
    /// From opening to the first batch.
    pub first_batch_s: f64,
    /// What the consumer waited after the first batch.
    pub wait_s: f64,
    /// Time inside the consumer's steps.
    pub step_s: f64,
    /// Stages in the order data flows.
    pub stages: Vec<StageCost>,
    /// How full the loader was, over time.
    pub queue: Vec<QueuePoint>,
}

/// Who makes rows larger, of the ways that a running loader tried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tried {
    /// What `placement=` is called with for the way that is kept, or that runs now.
    pub choice: String,
    /// Whether it stays, for as long as the load stays what it is.
    pub settled: bool,
    /// What was tried beside it, once that has settled: the time of a step with each of them, as a share of
    /// that with the choice.
    pub others: BTreeMap<String, f64>,
    /// Time of a step with the choice, when it was chosen.
    pub step_s: Option<f64>,
    /// What was chosen and why, in one line.
    pub text: String,
}

/// What one stage costs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StageCost {
    /// `read`, `decode`, `transform`, `write` or `python`.
    pub name: String,
    /// Samples that went through.
    pub samples: u64,
    /// Time inside it, summed over threads.
    pub wall_s: f64,
    /// Processor time inside it, summed over threads.
    pub cpu_s: f64,
    /// Time threads were blocked before it.
    pub wait_s: f64,
    /// Bytes taken in.
    pub bytes_in: u64,
    /// Bytes given on.
    pub bytes_out: u64,
    /// Wall time of one call, the 99th percentile.
    pub p99_s: f64,
    /// Samples a second of one core that does nothing else.
    pub rate_per_core: f64,
    /// Share of all processor time, 0 to 1.
    pub cpu_share: f64,
}

/// How full the loader was at one moment.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct QueuePoint {
    /// Since the run began.
    pub at_s: f64,
    /// Batches ready and not taken.
    pub ready: usize,
    /// Share of the time since the last point that the consumer waited, 0 to 1.
    pub waiting: f64,
}

/// Where the consumer's time went, as shares of the run after its first batch that sum to 1.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Stall {
    /// Waited for storage.
    pub fetch: f64,
    /// Waited for processor cores.
    pub prep: f64,
    /// Waited for the network to feeders.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub wire: f64,
    /// Waited for the bus, or for the device's work on rows.
    pub copy: f64,
    /// Computed.
    pub compute: f64,
}

/// The limit, in words and numbers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Verdict {
    /// The binding resource.
    pub limit: Limit,
    /// What it allows.
    pub rate: f64,
    /// The resource behind it; None if there is no other.
    pub next_limit: Option<Limit>,
    /// What that allows.
    pub next_rate: Option<f64>,
    /// Whether the two are too close to tell apart.
    pub tie: bool,
    /// One line.
    pub claim: String,
    /// What was seen, with numbers, a line each.
    pub evidence: Vec<String>,
    /// The arithmetic of the limit.
    pub capacity: String,
    /// What to do: action and gain.
    pub advice: Vec<String>,
    /// What gains nothing, and why.
    pub not_worth: Vec<String>,
}

/// One remedy and what it would gain.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Remedy {
    /// Stable name, such as `resize` or `jpeg-90`.
    pub id: String,
    /// What it does, a few words.
    pub name: String,
    /// What applies it.
    pub command: String,
    /// Samples a second with it.
    pub rate: Interval,
    /// Rate with it over rate without.
    pub gain: Interval,
    /// Time of a step with it: the longer of computing and waiting for the batch.
    pub step_time: Interval,
    /// Bytes it takes on disk, beside the original.
    pub disk_bytes: u64,
    /// Time to apply it to the whole dataset.
    pub convert_s: f64,
    /// What it does to the pixels: `identical`, or a loss with its measure.
    pub quality: String,
    /// The limit with it.
    pub limit: Limit,
    /// How the rate was come by.
    pub arithmetic: String,
}

impl Remedy {
    /// Whether it gains anything for sure: its whole interval lies above the rate now.
    pub fn gains(&self) -> bool {
        self.gain.low > 1.0
    }
}

/// A remedy that was not tried.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NotTried {
    /// Stable name.
    pub id: String,
    /// What it would do.
    pub name: String,
    /// Why not.
    pub why: String,
}

/// One thread's work on one thing, or the consumer's waiting or computing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Span {
    /// The thread's name, such as `infeed-work-0`; `consumer` for the training loop.
    pub thread: String,
    /// `read`, `decode`, `transform`, `write`, `python`; of the consumer `wait` or `step`.
    pub what: String,
    /// Microseconds since the run began.
    pub start_us: u64,
    /// Microseconds.
    pub length_us: u64,
    /// Number of the batch, counted on from epoch to epoch, where it is known.
    pub batch: Option<u64>,
}

/// A prediction and what came of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LedgerEntry {
    /// Seconds since 1970, UTC.
    pub made_at_s: u64,
    /// The dataset or pipeline.
    pub subject: String,
    /// [`Remedy::id`].
    pub remedy: String,
    /// Version of infeed.
    pub infeed: String,
    /// Processor and cores.
    pub machine: String,
    /// The limit before.
    pub limit: Limit,
    /// Predicted gain.
    pub predicted: Interval,
    /// Measured gain.
    pub measured: f64,
    /// Rate without, measured in the same run.
    pub rate_before: f64,
    /// Rate with.
    pub rate_after: f64,
    /// Bad records that were left out of what was rewritten.
    #[serde(default, skip_serializing_if = "is_none")]
    pub left_out: u64,
}

fn is_nothing(share: &f64) -> bool {
    *share == 0.0
}

fn is_none(count: &u64) -> bool {
    *count == 0
}

impl LedgerEntry {
    /// Relative error of the prediction: 0.1 for one that was 10 % too high.
    pub fn error(&self) -> f64 {
        self.predicted.mid / self.measured - 1.0
    }
}
