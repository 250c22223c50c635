//! The rate of workers that run the user's Python functions: bounded by the cores, or by the
//! interpreter lock that the functions share.

use crate::findings::Run;
use crate::model::interval::Interval;
use crate::model::limit::Limit;
use crate::model::supply::COUNTED;
use infeed::function::FunctionScope;
use infeed::pipeline::Pipeline;
use infeed_core::units::{format_percent, format_seconds};

/// A limit, the rate it allows, and the arithmetic.
pub(crate) type NamedRate = (Limit, Interval, String);

/// Processor seconds in Python per second of the run above which functions must have released the
/// lock. One lock allows 1.0, and counters vary a little.
const RELEASED: f64 = 1.1;

/// Returns the names of the functions that run in this process.
pub(crate) fn here(pipeline: &Pipeline) -> Vec<&str> {
    let here = pipeline.python.iter().filter(|spec| spec.processes == 0);
    here.map(|spec| spec.function.as_str()).collect()
}

/// Returns the limit of the workers. It is the interpreter lock instead of `cores` if functions
/// hold the lock for so long that it limits first.
pub(crate) fn workers(run: &Run, pipeline: &Pipeline, cores: NamedRate) -> NamedRate {
    let (limit, rate, text) = cores;
    match lock(run, pipeline) {
        Some((lock, lock_text)) if lock.mid <= rate.mid * (1.0 + COUNTED) => {
            let lower = if lock.mid < rate.mid { lock } else { rate };
            (Limit::Python, lower, format!("{lock_text}; {text}"))
        }
        _ => (limit, rate, text),
    }
}

/// Returns the rate that the lock allows: one call at a time, while functions do not release it.
fn lock(run: &Run, pipeline: &Pipeline) -> Option<(Interval, String)> {
    let functions = here(pipeline);
    let python = run.stages.iter().find(|stage| stage.name == "python")?;
    let all_here = functions.len() == pipeline.python.len() && !functions.is_empty();
    if !all_here || python.samples == 0 || python.cpu_s <= 0.0 {
        return None;
    }
    let samples = python.samples as f64;
    if python.cpu_s / run.seconds.max(1e-9) > RELEASED {
        return None;
    }
    let rate = samples / python.cpu_s;
    let text = format!(
        "1 call at a time / {} of processor time in {} = {rate:.0} samples/s, if all of it \
         holds the interpreter's lock; threads waited {} per sample for the lock",
        format_seconds(python.cpu_s / samples),
        functions.join(" and "),
        format_seconds(python.wait_s / samples),
    );
    Some((Interval::exact(rate).widen(COUNTED), text))
}

/// Returns advice for functions that limit a run.
pub(crate) fn advice(run: &Run, pipeline: &Pipeline) -> Option<String> {
    let samples = pipeline
        .python
        .iter()
        .filter(|spec| spec.on == FunctionScope::Sample);
    let here: Vec<&str> = samples
        .filter(|spec| spec.processes == 0)
        .map(|spec| spec.function.as_str())
        .collect();
    let python = run.stages.iter().find(|stage| stage.name == "python")?;
    if here.is_empty() || python.samples == 0 {
        return None;
    }
    let share = python.wait_s / (python.wait_s + python.wall_s).max(1e-9);
    Some(format!(
        ".python({}, processes=N): worker processes do not share this interpreter's lock; calls \
         waited {} of their time for it",
        here.join("), .python("),
        format_percent(share)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::stages::StageCost;
    use infeed::pipeline::{FunctionSpec, SourceSpec};

    fn run(cpu_s: f64) -> Run {
        Run {
            seconds: 10.0,
            stages: vec![StageCost {
                name: "python".to_owned(),
                samples: 1000,
                cpu_s,
                wall_s: 2.0 * cpu_s,
                wait_s: cpu_s,
                ..StageCost::default()
            }],
            ..Run::default()
        }
    }

    #[test]
    fn the_lock_limits_workers_unless_functions_release_it_or_run_in_processes() {
        let mut pipeline =
            Pipeline::new(SourceSpec::folder("x")).function(FunctionSpec::new("steps:blur"));
        let cores = || {
            (
                Limit::Decode,
                Interval::exact(200.0),
                "2 workers".to_owned(),
            )
        };

        let (limit, rate, text) = workers(&run(9.5), &pipeline, cores());
        assert_eq!((limit, rate.mid.round()), (Limit::Python, 105.0));
        assert!(
            text.contains("steps:blur") && text.contains("2 workers"),
            "{text}"
        );
        assert!(advice(&run(9.5), &pipeline).is_some_and(|line| line.contains("33 %")));

        // 1.9 processor seconds per second are more than one lock allows.
        assert_eq!(workers(&run(19.0), &pipeline, cores()).0, Limit::Decode);
        // The lock would allow 1000 samples/s, the cores allow 200.
        assert_eq!(workers(&run(1.0), &pipeline, cores()).0, Limit::Decode);
        pipeline.python[0].processes = 2;
        assert_eq!(workers(&run(9.5), &pipeline, cores()).0, Limit::Decode);
        assert!(advice(&run(9.5), &pipeline).is_none());
    }
}
