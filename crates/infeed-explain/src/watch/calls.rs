//! The calls of a loader's dataset: their parts, and the rates that follow from their times.

use serde::{Deserialize, Serialize};

use super::WatchedLoop;
use crate::units::{milliseconds, percent, significant};

/// Share of a call's time without use of a core, above which more workers than cores help.
const IDLE: f64 = 0.5;
/// Share of a call's time from which on a step is named as slow.
const SLOW: f64 = 0.25;
/// Maximum number of parts to list, and of workers to recommend.
const LISTED: usize = 4;
const MOST_WORKERS: f64 = 64.0;

/// Calls of a dataset, measured in one worker process.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct DatasetCalls {
    /// Worker processes of the loader.
    pub workers: u32,
    /// Elapsed time per sample, in seconds.
    pub wall_s: f64,
    /// Processor time per sample, in seconds.
    pub processor_s: f64,
    /// Time per sample in which the call neither computed nor waited for a free core, in seconds.
    pub idle_s: f64,
    /// The parts that take the most time, longest first.
    pub parts: Vec<CallPart>,
}

/// Time of one class, or one function, in the calls of a dataset.
#[derive(Clone, Debug, Deserialize, Serialize)]
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
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CallPartKind {
    /// The dataset reads and decodes.
    Dataset,
    /// A step of a library whose steps infeed has.
    Library,
    /// Another step, which a pipeline of infeed calls as well.
    Program,
}

/// Rate of a pipeline of infeed that also calls the steps which infeed does not have.
pub(super) struct WithPythonSteps {
    /// Samples per second if the threads of the pipeline call them.
    pub(super) in_threads: f64,
    /// Samples per second if processes call them.
    pub(super) in_processes: f64,
    /// Names of the steps.
    pub(super) names: String,
    /// Processor time of the steps per sample, in seconds.
    pub(super) processor_s: f64,
}

impl DatasetCalls {
    /// Describes the time of a call and its parts.
    pub(super) fn evidence(&self) -> String {
        let parts = self.parts.iter().take(LISTED);
        let parts: Vec<String> = parts
            .map(|part| format!("{} {}", part.name, milliseconds(part.wall_s)))
            .collect();
        let idle = match self.is_idle() {
            true => format!(
                ", {} of it without using a core",
                milliseconds(self.idle_s)
            ),
            false => String::new(),
        };
        format!(
            "a sample of the dataset takes {} in one process{idle}: {}",
            milliseconds(self.wall_s),
            parts.join(", ")
        )
    }

    /// Returns whether calls mostly sleep, or wait for storage or another process.
    pub(super) fn is_idle(&self) -> bool {
        self.idle_s >= IDLE * self.wall_s
    }

    /// Recommends workers for calls that are mostly idle, so that they keep up with the step, and
    /// returns the rate of the loop with them. None if more workers are not faster.
    pub(super) fn more_workers(&self, measured: &WatchedLoop) -> Option<(String, f64)> {
        if !self.is_idle() {
            return None;
        }
        let usable = measured.processor.usable;
        let call_s = self.idle_s + self.processor_s;
        let by_cores = usable / self.processor_s.max(1e-9);
        let wanted = measured.step_rate.min(by_cores) * call_s;
        let workers = wanted.ceil().clamp(1.0, MOST_WORKERS);
        if workers <= f64::from(self.workers) {
            return None;
        }
        let rate = (workers / call_s).min(by_cores);
        let then = rate.min(measured.step_rate);
        let text = format!(
            "num_workers={workers:.0} instead of {}, because a sample takes {} and uses a core for \
             {} of it: {workers:.0} / {} = {}",
            self.workers,
            milliseconds(call_s),
            milliseconds(self.processor_s),
            milliseconds(call_s),
            measured.with_unit(rate),
        );
        (then > measured.rate).then_some((text, then))
    }

    /// Names the slowest step, and returns the rate of the loop without it. None if no step takes
    /// much of the time.
    pub(super) fn slow_step(&self, measured: &WatchedLoop) -> Option<(String, f64)> {
        let mut steps = self.parts.iter();
        let slow = steps.find(|part| part.kind != CallPartKind::Dataset)?;
        let share = slow.wall_s / self.wall_s;
        if share < SLOW {
            return None;
        }
        let then = match self.workers {
            // The loop itself makes samples, in the time in which it waits.
            0 => measured.rate / (1.0 - share * measured.waiting),
            _ => (measured.rate / (1.0 - share)).min(measured.step_rate),
        };
        let text = format!(
            "a faster {}: it takes {} of {} per sample, {}",
            slow.name,
            milliseconds(slow.wall_s),
            milliseconds(self.wall_s),
            percent(share),
        );
        Some((text, then))
    }

    /// Returns the rate of a pipeline of infeed that makes `samples_per_s` without the steps that
    /// infeed does not have. None without such steps.
    ///
    /// A step that computes in Python holds the interpreter's lock, so threads share one core for
    /// it. Processes use all cores, on which the rest of the pipeline runs as well.
    pub(super) fn with_python_steps(
        &self,
        samples_per_s: f64,
        usable: f64,
    ) -> Option<WithPythonSteps> {
        let steps = || {
            let parts = self.parts.iter();
            parts.filter(|part| part.kind == CallPartKind::Program)
        };
        let names: Vec<&str> = steps().map(|part| part.name.as_str()).collect();
        let wall_s: f64 = steps().map(|part| part.wall_s).sum();
        let processor_s: f64 = steps().map(|part| part.processor_s).sum();
        if names.is_empty() || samples_per_s <= 0.0 {
            return None;
        }
        // A step that sleeps holds up its thread, and a pipeline has a thread for each core.
        let step_s = if self.is_idle() { wall_s } else { processor_s };
        let on_all_cores = usable / (usable / samples_per_s + step_s);
        Some(WithPythonSteps {
            in_threads: on_all_cores.min(1.0 / processor_s.max(1e-9)),
            in_processes: on_all_cores,
            names: names.join(", "),
            processor_s,
        })
    }
}

impl WithPythonSteps {
    /// Describes both rates.
    pub(super) fn arithmetic(&self, with_unit: impl Fn(f64) -> String) -> String {
        format!(
            "infeed with {} in Python, {} of a core per sample: {} in threads, {} in processes",
            self.names,
            milliseconds(self.processor_s),
            significant(self.in_threads, 3),
            with_unit(self.in_processes),
        )
    }
}
