//! The changes that would help a watched loop, and those that would not.

use super::measurements::{SATURATED, WatchedLoop};
use crate::model::limit::Limit;
use infeed_core::units::{figures, format_factor, format_percent, format_seconds};

/// Cores of the loader's threads and processes below which it works on the loop's thread, if that
/// thread is busy for more than this share of its waiting time.
const NO_WORKERS: f64 = 0.05;
const BUSY_WAITING: f64 = 0.5;
/// Cores of the process's other threads above which the step's own threads may compete.
const POOL: f64 = 0.5;
/// Ratio of rates from which on another loader is a gain.
const GAINS: f64 = 1.05;

/// Describes changes to try. `next_rate` is the rate of the loop without its limit.
pub(super) fn advice(measured: &WatchedLoop, limit: Limit, next_rate: f64) -> Vec<String> {
    let mut lines = Vec::new();
    let waits = matches!(limit, Limit::Loader | Limit::Python);
    let calls = measured.calls.as_ref().filter(|_| waits);
    let workers = calls.and_then(|calls| calls.more_workers(measured));
    let step = calls.and_then(|calls| calls.slow_step(measured));
    let has_workers = workers.is_some();
    for (text, then) in workers.into_iter().chain(step) {
        lines.push(format!(
            "{text}; at most {}",
            self::gain(then, measured.rate)
        ));
    }
    let (certain, conditional): (Vec<_>, Vec<_>) = infeed_predictions(measured)
        .into_iter()
        .filter(|found| limit != Limit::Step && gains(measured, found.rate))
        .partition(|found| !found.is_conditional);
    lines.extend(certain.into_iter().flat_map(|found| found.lines));
    let gain = gain(next_rate, measured.rate);
    match limit {
        Limit::Loader if has_workers => {}
        Limit::Loader => lines.push(for_loader(measured, &gain)),
        Limit::Python => lines.push(format!(
            "code that releases the lock while it works (decoders in C, infeed), or worker \
             processes; at most {gain}"
        )),
        Limit::Interference => {
            lines.push(format!(
                "fewer workers, until a core is left for the step; at most {gain} if they still \
                 keep up"
            ));
            if measured.processor.threads > POOL {
                lines.push(
                    "fewer threads in the step's own pool, such as torch.set_num_threads(1), \
                     which compete with the workers"
                        .to_owned(),
                );
            }
        }
        _ => {
            lines.push(
                "a faster step: a smaller or compiled model, lower precision, a larger device"
                    .to_owned(),
            );
            if measured.alone.is_none() {
                lines.push(
                    "watch.ceiling(step) to measure whether the loader slows the step".to_owned(),
                );
            }
        }
    }
    // The measurement of `infeed.adopt` refutes them, until their condition is true.
    lines.extend(conditional.into_iter().flat_map(|found| found.lines));
    lines
}

/// Describes the change that makes the loader faster.
fn for_loader(measured: &WatchedLoop, gain: &str) -> String {
    let load = &measured.processor;
    let (usable, used) = (figures(load.usable), load.threads + load.children);
    if !load.sampled {
        format!("more workers if cores are idle, less work per sample if none is; at most {gain}")
    } else if used < NO_WORKERS && load.loop_waiting > BUSY_WAITING {
        let overlapped = measured.step.mean_s.max(measured.wait.mean_s);
        let both = measured.step.mean_s + measured.wait.mean_s;
        format!(
            "prepare batches during the step instead of between steps: at best {} -> {} per step, \
             {}",
            format_seconds(both),
            format_seconds(overlapped),
            self::gain(both, overlapped)
        )
    } else if load.uses_all() {
        format!(
            "less work per sample, because no core is left: `infeed explain DIR` measures it; at \
             most {gain}"
        )
    } else if load.machine >= SATURATED * load.usable {
        format!(
            "measure again when other programs leave more than {:.1} of {usable} cores; the \
             loader used {used:.1}",
            (load.usable - load.machine + load.busy()).max(0.0)
        )
    } else {
        format!(
            "more workers, because {:.1} of {usable} cores are idle, or faster storage; at most \
             {gain}",
            load.usable - load.busy()
        )
    }
}

/// Returns whether the loop over a loader of this rate is faster than it was.
fn gains(measured: &WatchedLoop, rate: f64) -> bool {
    rate.min(measured.step_rate) > GAINS * measured.rate
}

/// The predicted loop over a pipeline of infeed.
struct InfeedPrediction {
    /// Rate of the pipeline.
    rate: f64,
    /// Whether the rate holds only after another change of the program.
    is_conditional: bool,
    /// The prediction, and notes on it.
    lines: Vec<String>,
}

/// Predicts the loop over infeed: first what `infeed.adopt` reaches, then what another change adds.
///
/// Empty if the samples of the loop are unknown.
fn infeed_predictions(measured: &WatchedLoop) -> Vec<InfeedPrediction> {
    if !measured.counts_samples() {
        return Vec::new();
    }
    if let Some(own) = measured.with_own_code() {
        let name = own.name;
        let mut text = format!(
            "infeed.adopt: it calls {name} in Python: {}",
            describe_loop(measured, own.rate, "adopt")
        );
        if let Some(problem) = process_problem(measured) {
            text += &format!("; one call at a time runs, because {problem}");
        }
        let mut found = vec![InfeedPrediction {
            rate: own.rate,
            is_conditional: false,
            lines: vec![text],
        }];
        let condition = format!("infeed, if a pipeline reads the files itself instead of {name}");
        found.extend(over_files(measured, &condition, true));
        return found;
    }
    let Some(problem) = process_problem(measured) else {
        return over_files(measured, "infeed", false).into_iter().collect();
    };
    let mut found = Vec::new();
    let mut names = "its function".to_owned();
    if let Some(with) = measured.with_python_steps() {
        let then = describe_loop(measured, with.one_at_a_time, "infeed");
        names = with.names;
        found.push(InfeedPrediction {
            rate: with.one_at_a_time,
            is_conditional: false,
            lines: vec![format!(
                "infeed: {then}, because one call of {names} at a time runs"
            )],
        });
    }
    let condition = format!("infeed, if {names} runs in processes ({problem})");
    found.extend(over_files(measured, &condition, true));
    found
}

/// Returns the reason why the loader's Python runs one call at a time in infeed, with the fix. None
/// if it runs in processes, or if the user has the pipeline.
fn process_problem(measured: &WatchedLoop) -> Option<&str> {
    let adopted = measured.calls.as_ref()?.adopted.as_ref()?;
    let problem = adopted.problem.as_deref();
    problem.filter(|_| {
        !measured
            .throughput
            .as_ref()
            .is_some_and(|of| of.notes.is_empty())
    })
}

/// Predicts the loop over a pipeline that reads the files, with all steps of the loader.
fn over_files(
    measured: &WatchedLoop,
    subject: &str,
    is_conditional: bool,
) -> Option<InfeedPrediction> {
    let throughput = measured.throughput.as_ref()?;
    let with_steps = measured.with_python_steps();
    let is_condition = process_problem(measured).is_some() && measured.with_own_code().is_none();
    let rate = match &with_steps {
        Some(with) => with.in_processes,
        None => throughput.samples_per_s,
    };
    let mut text = format!("{subject}: {}", describe_loop(measured, rate, "infeed"));
    if let Some(with) = with_steps
        && !is_condition
    {
        let threads = with.in_threads.min(measured.step_rate);
        text += &format!(
            ", with processes= for {}; {} without",
            with.names,
            gain(threads, measured.rate)
        );
    }
    let mut lines = vec![text];
    // The work of the loader that infeed's measured pipeline does not do.
    lines.extend(throughput.notes.iter().cloned());
    Some(InfeedPrediction {
        rate,
        is_conditional,
        lines,
    })
}

/// Describes the loop over a pipeline of this rate: the slower of step and pipeline.
fn describe_loop(measured: &WatchedLoop, rate: f64, pipeline: &str) -> String {
    let then = measured.step_rate.min(rate);
    format!(
        "min(step {}, {pipeline} {}) = {}, {}, waiting {}",
        figures(measured.step_rate),
        figures(rate),
        measured.with_unit(then),
        gain(then, measured.rate),
        format_percent((1.0 - rate / measured.step_rate).max(0.0))
    )
}

/// Describes changes without a gain, with the reason.
pub(super) fn not_worth(measured: &WatchedLoop, limit: Limit) -> Vec<String> {
    let waiting = format_percent(measured.waiting);
    let load = &measured.processor;
    let mut lines = Vec::new();
    if limit == Limit::Step {
        let most = match measured.waiting < 1.0 {
            true => gain(1.0, 1.0 - measured.waiting),
            false => "nothing".to_owned(),
        };
        lines.push(format!(
            "more workers, another format or another loader: waiting is {waiting} of the time, so \
             at most {most}"
        ));
        if measured.alone.is_some() {
            lines.push(format!(
                "removing the loader's effect on the step: {} longer with the loader",
                format_percent(measured.slowdown)
            ));
        }
        return lines;
    }
    let without_gain = infeed_predictions(measured).into_iter();
    let without_gain = without_gain.filter(|found| !gains(measured, found.rate));
    lines.extend(without_gain.filter_map(|found| found.lines.into_iter().next()));
    if limit == Limit::Python {
        lines.push("more threads in Python: they share the interpreter's lock".to_owned());
    }
    if limit == Limit::Interference {
        lines.push(format!(
            "more workers: the loop waits only {waiting}, and they compete"
        ));
    } else if load.uses_all() {
        lines.push(format!(
            "more workers: {:.1} of {} usable cores are busy",
            load.busy(),
            figures(load.usable)
        ));
    }
    if limit == Limit::Loader {
        lines.push("a faster device: the loop would wait longer for the same data".to_owned());
    }
    lines
}

/// Formats a gain, in percent if it is small.
fn gain(after: f64, before: f64) -> String {
    if before == 0.0 {
        return "unknown".to_owned();
    }
    match after / before {
        factor if (1.0..1.1).contains(&factor) => {
            format!("{} faster", format_percent(factor - 1.0))
        }
        factor => format_factor(factor),
    }
}
