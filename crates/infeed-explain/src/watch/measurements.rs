//! The measurements of a watched loop, with the shares and rates computed from them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Share of the usable cores above which they count as fully used.
pub(super) const SATURATED: f64 = 0.9;

/// Measurements of a watch, with the shares and rates computed from them.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct WatchedLoop {
    /// Number of batches, without repetitions for the ceiling.
    pub batches: u64,
    /// Number of samples. None if unknown.
    pub samples: Option<f64>,
    /// Number of epochs begun.
    pub epochs: u64,
    /// Time from the first request to the first batch, in seconds.
    pub first_batch_s: Option<f64>,
    /// Waiting time between epochs, in seconds.
    pub seam_s: f64,
    /// Waiting times for batches within epochs.
    pub wait: DurationSummary,
    /// Times from taking a batch to asking for the next one.
    pub step: DurationSummary,
    /// The step on a batch in memory, if it was measured.
    pub alone: Option<Ceiling>,
    /// The interpreter's lock, if there is one.
    pub lock: Option<LockShares>,
    /// Use of the processor.
    pub processor: ProcessorLoad,
    /// Throughput of infeed over the same files, if it was measured.
    pub throughput: Option<PipelineThroughput>,
    /// Calls of the loader's dataset, if they were measured.
    #[serde(default)]
    pub calls: Option<DatasetCalls>,
    /// Whether a device may have worked beyond the end of a step.
    pub asynchronous: bool,
    /// Time in the loop after the first batch, in seconds.
    pub loop_s: f64,
    /// Share of that time in which the loop waited for data, 0 to 1.
    pub waiting: f64,
    /// Samples per batch. 1 if unknown, so that rates count batches.
    pub per_batch: f64,
    /// Unit of the rates.
    pub unit: String,
    /// Rate of the loop.
    pub rate: f64,
    /// Time of the step alone, as far as it is known, in seconds.
    pub step_s: f64,
    /// Rate of the step if it never waited for batches.
    pub step_rate: f64,
    /// Relative slowdown of the step by the loader: 0.2 is 20 %. 0 if unclear.
    pub slowdown: f64,
    /// Share of the loop's time that is due to this slowdown, 0 to 1.
    pub interference: f64,
}

/// Durations of one kind, in seconds.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, Serialize)]
pub struct DurationSummary {
    /// Number of durations.
    pub count: u64,
    /// Their sum.
    pub total_s: f64,
    /// Their mean.
    pub mean_s: f64,
    /// Their median.
    pub p50_s: f64,
    /// The duration that 1 % of them exceed.
    pub p99_s: f64,
    /// Mean without the longest and shortest 5 %.
    pub middle_s: f64,
    /// Standard error of `middle_s`. 0 with too few durations.
    #[serde(default)]
    pub error_s: f64,
}

/// The step on a batch in memory, with the loader at rest.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, Serialize)]
pub struct Ceiling {
    /// Durations of the step.
    pub step: DurationSummary,
    /// Time given to the loader to come to rest, in seconds.
    #[serde(default)]
    pub settle_s: f64,
    /// Whether the loader came to rest. If not, the step may be even faster.
    pub at_rest: bool,
}

/// Share of requests that found the interpreter's lock held, 0 to 1. Unknown after too few
/// requests.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, Serialize)]
pub struct LockShares {
    /// Share while the loop waited for data.
    pub waiting: Option<f64>,
    /// Share during steps.
    pub stepping: Option<f64>,
    /// Share during steps with the loader at rest.
    pub alone: Option<f64>,
    /// Mean waiting time of a request during steps, in seconds.
    #[serde(default)]
    pub wait_s: f64,
}

/// Mean number of busy cores after the first batch.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, Serialize)]
pub struct ProcessorLoad {
    /// Cores that this process may use, including quotas.
    pub usable: f64,
    /// Cores used by the loop's own thread.
    #[serde(rename = "loop")]
    pub own: f64,
    /// Cores used by the loop's thread while it waited for data.
    pub loop_waiting: f64,
    /// Cores used by the loop's thread during steps.
    pub loop_stepping: f64,
    /// Cores used by other threads of this process.
    pub threads: f64,
    /// Part of `threads` that Python started.
    pub python: f64,
    /// Cores used by child processes.
    pub children: f64,
    /// Cores used by all programs on the machine.
    pub machine: f64,
    /// Whether more than the loop's own thread was measured.
    pub sampled: bool,
}

impl ProcessorLoad {
    /// Returns the cores used by this process and its children.
    pub(super) fn busy(&self) -> f64 {
        self.own + self.threads + self.children
    }

    /// Returns whether this process and its children use all usable cores.
    pub(super) fn uses_all(&self) -> bool {
        self.busy() >= SATURATED * self.usable
    }
}

/// Throughput of an infeed pipeline that runs alone on this machine.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct PipelineThroughput {
    /// Samples per second after the first batch.
    pub samples_per_s: f64,
    /// Number of samples counted.
    pub samples: u64,
    /// Duration of the measurement.
    pub seconds: f64,
    /// Work of the watched loader that the pipeline does not do.
    pub notes: Vec<String>,
}

/// Calls of a dataset, measured in one worker process.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct DatasetCalls {
    /// Worker processes of the loader.
    pub workers: u32,
    /// Number of samples read.
    #[serde(default)]
    pub samples: u64,
    /// Elapsed time per sample, in seconds.
    pub wall_s: f64,
    /// Processor time per sample, in seconds.
    pub processor_s: f64,
    /// Time per sample in which the call neither computed nor waited for a free core, in seconds.
    pub idle_s: f64,
    /// The parts that take the most time, longest first.
    pub parts: Vec<CallPart>,
    /// Python code that `infeed.adopt` calls for each sample. None if there is none, or if the
    /// dataset could not be read.
    #[serde(default)]
    pub adopted: Option<AdoptedCode>,
}

/// Python code that `infeed.adopt` calls for each sample.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct AdoptedCode {
    /// Code that makes the samples, such as `Pairs.__getitem__`. None if infeed reads the files and
    /// calls only steps.
    pub dataset: Option<String>,
    /// Whether the code runs in as many processes as the loader has. If not, one call at a time
    /// runs.
    pub in_processes: bool,
    /// Reason why the code does not run in processes, with the fix.
    pub problem: Option<String>,
    /// The steps, if infeed reads the files and a call could be measured.
    #[serde(default)]
    pub steps: Option<AdoptedSteps>,
}

/// Steps that one function of an adopted pipeline calls for each sample. Some may be the loader's,
/// outside of the calls of its dataset.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct AdoptedSteps {
    /// Names of their classes, with `, ` between them.
    pub names: String,
    /// Elapsed time of a call of the function, in seconds, without waits for a free core. Seeds of
    /// random draws, conversions, and the process's copies of inputs and results are parts of the
    /// call.
    pub wall_s: f64,
    /// Processor time of the same, in seconds.
    pub processor_s: f64,
}

/// Time of one class, or one function, in the calls of a dataset.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct CallPart {
    /// Name of the class or function.
    pub name: String,
    /// Whose code it is.
    pub kind: CallPartKind,
    /// Elapsed time per sample without that of other parts, in seconds.
    pub wall_s: f64,
    /// Processor time per sample without that of other parts, in seconds.
    pub processor_s: f64,
}

/// Whose code a part of a dataset's call is.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CallPartKind {
    /// The dataset reads and decodes.
    Dataset,
    /// A step of a library whose steps infeed has.
    Library,
    /// Another step, which a pipeline of infeed calls as well.
    Program,
}
