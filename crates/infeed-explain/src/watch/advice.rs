//! The changes that would help a watched loop, and those that would not.

use super::WatchedLoop;
use crate::limit::Limit;
use crate::units::{milliseconds, percent, significant};

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
    if limit != Limit::Step && infeed_rate(measured).is_some_and(|then| gains(measured, then)) {
        lines.extend(with_infeed(measured));
    }
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
    lines
}

/// Describes the change that makes the loader faster.
fn for_loader(measured: &WatchedLoop, gain: &str) -> String {
    let load = &measured.processor;
    let (usable, used) = (significant(load.usable, 3), load.threads + load.children);
    if !load.sampled {
        format!("more workers if cores are idle, less work per sample if none is; at most {gain}")
    } else if used < NO_WORKERS && load.loop_waiting > BUSY_WAITING {
        let overlapped = measured.step.mean_s.max(measured.wait.mean_s);
        let both = measured.step.mean_s + measured.wait.mean_s;
        format!(
            "prepare batches during the step instead of between steps: at best {} -> {} per step, \
             {}",
            milliseconds(both),
            milliseconds(overlapped),
            self::gain(both, overlapped)
        )
    } else if load.uses_all() {
        format!(
            "less work per sample, because no core is left: `infeed explain DIR` measures it; at \
             most {gain}"
        )
    } else if load.machine >= super::SATURATED * load.usable {
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

/// Returns the rate of infeed with all steps of the loader. None without a measurement, or if the
/// samples of the loop are unknown.
fn infeed_rate(measured: &WatchedLoop) -> Option<f64> {
    let throughput = measured.throughput.as_ref()?;
    let with_steps = measured.with_python_steps();
    let rate = with_steps.map_or(throughput.samples_per_s, |with| with.in_processes);
    measured.counts_samples().then_some(rate)
}

/// Returns whether the loop over a loader of this rate is faster than it was.
fn gains(measured: &WatchedLoop, rate: f64) -> bool {
    rate.min(measured.step_rate) > GAINS * measured.rate
}

/// Describes the loop over infeed: the slower of step and pipeline.
fn with_infeed(measured: &WatchedLoop) -> Vec<String> {
    let (Some(rate), Some(throughput)) = (infeed_rate(measured), &measured.throughput) else {
        return Vec::new();
    };
    let then = measured.step_rate.min(rate);
    let mut text = format!(
        "infeed: min(step {}, infeed {}) = {}, {}, waiting {}",
        significant(measured.step_rate, 4),
        significant(rate, 4),
        measured.with_unit(then),
        gain(then, measured.rate),
        percent((1.0 - rate / measured.step_rate).max(0.0))
    );
    if let Some(with) = measured.with_python_steps() {
        let threads = with.in_threads.min(measured.step_rate);
        text += &format!(
            ", with processes= for {}; {} without",
            with.names,
            gain(threads, measured.rate)
        );
    }
    let mut lines = vec![text];
    lines.extend(throughput.notes.iter().cloned());
    lines
}

/// Describes changes without a gain, with the reason.
pub(super) fn not_worth(measured: &WatchedLoop, limit: Limit) -> Vec<String> {
    let waiting = percent(measured.waiting);
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
                percent(measured.slowed)
            ));
        }
        return lines;
    }
    if let Some(rate) = infeed_rate(measured)
        && !gains(measured, rate)
    {
        lines.extend(with_infeed(measured).into_iter().next());
    }
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
            significant(load.usable, 3)
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
        factor if (1.0..1.1).contains(&factor) => format!("{:.1} % faster", 100.0 * (factor - 1.0)),
        factor => format!("{}x", significant(factor, 2)),
    }
}
