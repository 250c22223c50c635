//! The measurements of a watched loop in sentences, and the division behind each rate.

use super::calls::{OwnCodeRate, PythonStepRate};
use super::measurements::{
    DurationSummary, LockShares, PipelineThroughput, ProcessorLoad, WatchedLoop,
};
use infeed_core::units::{figures, format_percent, format_seconds};

/// Cores of worker processes and of other programs below which they are not listed.
const LISTED_CHILDREN: f64 = 0.05;
const LISTED_OTHERS: f64 = 0.2;

/// Describes the measurements, one per line.
pub(super) fn evidence(measured: &WatchedLoop) -> Vec<String> {
    let mut lines = vec![batches(measured)];
    if measured.epochs > 1 && measured.seam_s > 0.0 {
        let share = match measured.loop_s > 0.0 {
            true => measured.seam_s / measured.loop_s,
            false => 0.0,
        };
        lines.push(format!(
            "between epochs the loop waited {} in all, {} of its time",
            format_seconds(measured.seam_s),
            format_percent(share)
        ));
    }
    for (what, durations) in [("wait", &measured.wait), ("step", &measured.step)] {
        if durations.count > 0 {
            lines.push(format!("{what} {}", spread(durations)));
        }
    }
    if let Some(alone) = &measured.alone {
        let rest = match alone.at_rest {
            true => "",
            false => "; other threads, of the loader or the step, stayed as busy",
        };
        lines.push(format!(
            "step with the loader at rest {} ({} times){rest}",
            spread(&alone.step),
            alone.step.count
        ));
    }
    if let Some(calls) = &measured.calls {
        lines.push(calls.evidence());
    }
    if measured.processor.sampled && measured.processor.busy() > 0.0 {
        lines.push(processor(&measured.processor));
    }
    lines.extend(measured.lock.as_ref().and_then(lock));
    if measured.asynchronous {
        lines.push(
            "a device computes asynchronously, so step and wait are those of the loop's thread; \
             watch(..., sync=torch.cuda.synchronize) separates them"
                .to_owned(),
        );
    }
    lines
}

fn batches(measured: &WatchedLoop) -> String {
    let size = match measured.counts_samples() {
        true => format!(" of {}", figures(measured.per_batch)),
        false => String::new(),
    };
    let mut line = format!(
        "{} batches{size} in {:.1} s after the first",
        measured.batches, measured.loop_s
    );
    if measured.epochs >= 2 {
        line.push_str(&format!(", {} epochs", measured.epochs));
    }
    if let Some(first_s) = measured.first_batch_s {
        line.push_str(&format!(", which took {}", format_seconds(first_s)));
    }
    if !measured.counts_samples() && measured.batches > 0 {
        line.push_str(
            "; their samples are unknown, because their arrays differ in length: \
             watch(..., batch_size=)",
        );
    }
    line
}

fn processor(load: &ProcessorLoad) -> String {
    let mut parts = vec![
        format!("loop {:.1}", load.own),
        format!("other threads {:.1}", load.threads),
    ];
    if load.children >= LISTED_CHILDREN {
        parts.push(format!("worker processes {:.1}", load.children));
    }
    let others = load.machine - load.busy();
    if others >= LISTED_OTHERS {
        parts.push(format!("other programs {others:.1}"));
    }
    format!(
        "processor: {:.1} of {} usable cores busy: {}",
        load.busy(),
        figures(load.usable),
        parts.join(", ")
    )
}

fn lock(lock: &LockShares) -> Option<String> {
    let shares = [
        (lock.waiting, "while waiting"),
        (lock.stepping, "during steps"),
        (lock.alone, "during steps alone"),
    ];
    let parts: Vec<String> = shares
        .into_iter()
        .filter_map(|(share, when)| Some(format!("{} of requests {when}", format_percent(share?))))
        .collect();
    (!parts.is_empty()).then(|| format!("Python's lock was held at {}", parts.join(", ")))
}

/// Describes the rates, each with its division.
pub(super) fn capacity(measured: &WatchedLoop) -> Vec<String> {
    let count = figures(measured.per_batch);
    let each_s = measured.loop_s / measured.step.count as f64;
    let kind = match measured.alone {
        Some(_) => "on a batch from memory",
        None => "without waiting",
    };
    let mut lines = vec![
        format!(
            "the loop: {count} / ({} wait + {} step) = {}",
            format_seconds(each_s - measured.step.mean_s),
            format_seconds(measured.step.mean_s),
            measured.with_unit(measured.rate)
        ),
        format!(
            "the step {kind}: {count} / {} = {}",
            format_seconds(measured.step_s),
            measured.with_unit(measured.step_rate)
        ),
    ];
    if let Some(throughput) = &measured.throughput {
        lines.push(format!(
            "infeed over the same files, alone: {} / {:.1} s = {} samples/s",
            throughput.samples,
            throughput.seconds,
            figures(throughput.samples_per_s)
        ));
    }
    if let Some(with) = measured.with_python_steps() {
        lines.push(with.arithmetic(|rate| measured.with_unit(rate)));
    }
    if let Some(with) = measured.with_own_code() {
        lines.push(with.arithmetic(|rate| measured.with_unit(rate)));
    }
    lines
}

impl WatchedLoop {
    /// Returns whether rates count samples, not batches.
    pub(super) fn counts_samples(&self) -> bool {
        self.samples.is_some_and(|samples| samples > 0.0)
    }

    /// Returns the rate of infeed with the steps of the loader that it lacks. None if there are
    /// none, or if infeed was not measured over the loader's files.
    pub(super) fn with_python_steps(&self) -> Option<PythonStepRate> {
        let throughput = self.throughput.as_ref()?;
        if throughput.notes.is_empty() || !self.counts_samples() {
            return None;
        }
        let calls = self.calls.as_ref()?;
        calls.with_python_steps(throughput.samples_per_s, self.processor.usable)
    }

    /// Returns the rate of `infeed.adopt` if it calls the dataset's own code. None if it does not,
    /// if a pipeline of the user replaces the loader, or if samples are unknown.
    pub(super) fn with_own_code(&self) -> Option<OwnCodeRate<'_>> {
        let is_replaced = |throughput: &PipelineThroughput| throughput.notes.is_empty();
        if self.throughput.as_ref().is_some_and(is_replaced) || !self.counts_samples() {
            return None;
        }
        let calls = self.calls.as_ref()?;
        let loader = match calls.workers {
            // The loop itself makes samples, in the time in which it waits.
            0 => self.rate / self.waiting.max(1e-9),
            _ => self.rate,
        };
        calls.with_own_code(loader, self.processor.usable)
    }

    /// Formats a rate with its unit.
    pub(super) fn with_unit(&self, rate: f64) -> String {
        format!("{} {}", figures(rate), self.unit)
    }
}

fn spread(durations: &DurationSummary) -> String {
    format!(
        "mean {}, p50 {}, p99 {}",
        format_seconds(durations.mean_s),
        format_seconds(durations.p50_s),
        format_seconds(durations.p99_s)
    )
}
