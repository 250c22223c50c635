//! Concludes what limits a loop over any loader, from the times that a watch around it measured.
//!
//! `infeed.watch` of the Python package takes the times and computes shares and rates from them.

mod advice;
mod calls;
mod evidence;
pub(crate) mod measurements;

use measurements::WatchedLoop;

use crate::findings::Verdict;
use crate::model::limit::Limit;
use infeed_core::units::{format_percent, format_seconds};

/// Share of waiting time below which it is not the limit: without it the loop would be faster by no
/// more than that.
const WAITING: f64 = 0.05;
/// Relative slowdown of the step by the loader below which it is not reported.
const SLOWED: f64 = 0.05;
/// Share of requests that found the interpreter's lock held, above which it is reported.
const HELD: f64 = 0.6;
/// Part of that share that threads other than the loop's must cause, and cores that other Python
/// threads must use, before the lock is reported as the cause of a slow step.
const OTHERS: f64 = 0.2;
const PYTHON: f64 = 0.15;

/// Returns the limit of a watched loop and the conclusions.
pub fn loop_verdict(measured: &WatchedLoop) -> Verdict {
    if measured.step.count == 0 || measured.wait.count == 0 {
        return Verdict {
            limit: Limit::Step,
            rate: 0.0,
            next_limit: None,
            next_rate: None,
            tie: false,
            claim: format!(
                "too short for a verdict: {} batches, and it needs 3",
                measured.batches
            ),
            evidence: evidence::evidence(measured),
            capacity: Vec::new(),
            advice: vec!["watch a longer part of the run".to_owned()],
            not_worth: Vec::new(),
        };
    }
    let (limit, next_limit) = limits(measured);
    let next_rate = rate_without(measured, limit);
    Verdict {
        limit,
        rate: measured.rate,
        next_limit,
        next_rate: next_limit.map(|_| next_rate),
        // A short wait is no evidence that the loader is only as fast as the step: handing over a
        // batch takes time, too.
        tie: false,
        claim: claim(measured, limit),
        evidence: evidence::evidence(measured),
        capacity: evidence::capacity(measured),
        advice: advice::advice(measured, limit, next_rate),
        not_worth: advice::not_worth(measured, limit),
    }
}

/// Returns the limit, and the limit after it.
fn limits(measured: &WatchedLoop) -> (Limit, Option<Limit>) {
    let slows = measured.slowdown >= SLOWED && measured.interference >= SLOWED;
    if waits_most(measured) && measured.waiting >= WAITING {
        let limit = match holds_lock(measured) {
            true => Limit::Python,
            false => Limit::Loader,
        };
        let next = match slows {
            true => Limit::Interference,
            false => Limit::Step,
        };
        return (limit, Some(next));
    }
    if slows {
        let limit = match slows_by_lock(measured) {
            true => Limit::Python,
            false => Limit::Interference,
        };
        let next = match measured.waiting >= WAITING {
            true => Limit::Loader,
            false => Limit::Step,
        };
        return (limit, Some(next));
    }
    (Limit::Step, None)
}

/// Returns whether the loop loses more time by waiting than by slow steps.
fn waits_most(measured: &WatchedLoop) -> bool {
    measured.waiting >= measured.interference
}

/// Returns whether the loader's Python holds the lock while the loop waits for it.
fn holds_lock(measured: &WatchedLoop) -> bool {
    let held = measured.lock.and_then(|lock| lock.waiting);
    held.is_some_and(|held| held >= HELD)
}

/// Returns whether other threads hold the lock during steps.
fn slows_by_lock(measured: &WatchedLoop) -> bool {
    let Some(lock) = measured.lock else {
        return false;
    };
    let Some(stepping) = lock.stepping else {
        return false;
    };
    if measured.processor.python < PYTHON {
        return false;
    }
    // The loop's thread holds the lock no longer than it runs, and no longer with the loader than
    // alone.
    let own = measured.processor.loop_stepping;
    let own = lock.alone.map_or(own, |alone| own.min(alone));
    stepping >= HELD && stepping - own >= OTHERS
}

/// Returns the rate of the loop without its limit.
fn rate_without(measured: &WatchedLoop, limit: Limit) -> f64 {
    match limit {
        Limit::Loader | Limit::Python if measured.waiting >= WAITING => {
            measured.per_batch / measured.step.mean_s
        }
        Limit::Interference | Limit::Python => measured
            .step_rate
            .min(measured.rate * (1.0 + measured.slowdown)),
        _ if measured.waiting < 1.0 => measured.rate / (1.0 - measured.waiting),
        _ => 0.0,
    }
}

fn claim(measured: &WatchedLoop, limit: Limit) -> String {
    let waited = format!(
        "the loop waited {} of its time",
        format_percent(measured.waiting)
    );
    let longer = format!(
        "{} with the loader, {} alone",
        format_seconds(measured.step.middle_s),
        format_seconds(measured.step_s)
    );
    match limit {
        Limit::Python if waits_most(measured) => {
            format!("Python's lock limits this run: {waited} for code that holds it")
        }
        Limit::Python => format!("the loader slows the step through Python's lock: {longer}"),
        Limit::Interference => format!("the loader slows the step: {longer}"),
        _ => format!("{} limits this run: {waited}", limit.subject()),
    }
}

#[cfg(test)]
mod tests {
    use super::measurements::{
        AdoptedCode, CallPart, CallPartKind, DatasetCalls, DurationSummary, PipelineThroughput,
        ProcessorLoad,
    };
    use super::*;

    /// Returns the measurements of a loop over samples with these rates.
    pub(super) fn watched_loop(
        usable: f64,
        step_rate: f64,
        rate: f64,
        waiting: f64,
    ) -> WatchedLoop {
        let step = DurationSummary {
            count: 100,
            total_s: 100.0 / step_rate,
            mean_s: 1.0 / step_rate,
            p50_s: 1.0 / step_rate,
            p99_s: 1.0 / step_rate,
            middle_s: 1.0 / step_rate,
            error_s: 0.0,
        };
        let wait_s = 1.0 / rate - 1.0 / step_rate;
        WatchedLoop {
            batches: 101,
            samples: Some(101.0),
            epochs: 1,
            first_batch_s: Some(0.1),
            seam_s: 0.0,
            wait: DurationSummary {
                total_s: 100.0 * wait_s,
                mean_s: wait_s,
                ..step
            },
            step,
            alone: None,
            lock: None,
            processor: ProcessorLoad {
                usable,
                own: 0.1,
                loop_waiting: 0.0,
                loop_stepping: 0.1,
                threads: 0.0,
                python: 0.0,
                children: 0.5,
                machine: 0.6,
                sampled: true,
            },
            throughput: None,
            calls: None,
            asynchronous: false,
            loop_s: 100.0 / rate,
            waiting,
            per_batch: 1.0,
            unit: "samples/s".to_owned(),
            rate,
            step_s: 1.0 / step_rate,
            step_rate,
            slowdown: 0.0,
            interference: 0.0,
        }
    }

    /// Infeed over the files of a loop whose dataset has a slow step in Python.
    fn with_slow_step(rate: f64) -> WatchedLoop {
        let mut found = watched_loop(2.0, 1000.0, rate, 1.0 - rate / 1000.0);
        found.throughput = Some(PipelineThroughput {
            samples_per_s: 900.0,
            samples: 1800,
            seconds: 2.0,
            notes: vec!["that pipeline only decodes".to_owned()],
        });
        found.calls = Some(DatasetCalls {
            workers: 2,
            samples: 24,
            wall_s: 0.010,
            processor_s: 0.010,
            idle_s: 0.0,
            parts: vec![CallPart {
                name: "Slow".to_owned(),
                kind: CallPartKind::Program,
                wall_s: 0.009,
                processor_s: 0.009,
            }],
            adopted: None,
        });
        found
    }

    #[test]
    fn infeed_without_a_gain_is_not_advised() {
        // 2 / (2 / 900 + 9 ms) = 178 samples/s with processes for the step.
        let slower = loop_verdict(&with_slow_step(190.0));
        let faster = loop_verdict(&with_slow_step(100.0));

        assert!(slower.advice[0].starts_with("a faster Slow"), "{slower:?}");
        assert!(!slower.advice.iter().any(|line| line.starts_with("infeed")));
        assert!(slower.not_worth[0].contains("= 178 samples/s, 0.94x"));
        let infeed = faster.advice.iter().find(|line| line.starts_with("infeed"));
        let infeed = infeed.expect("a gain");
        assert!(infeed.contains("1.78x"), "{infeed}");
        assert!(
            infeed.ends_with("processes= for Slow; 1.11x without"),
            "{infeed}"
        );
    }

    /// A loop whose dataset is a class of the program, with steps of a library.
    fn with_own_dataset(in_processes: bool) -> WatchedLoop {
        let mut found = with_slow_step(190.0);
        let calls = found.calls.as_mut().expect("calls");
        calls.parts[0].name = "Pairs".to_owned();
        calls.parts[0].kind = CallPartKind::Dataset;
        calls.adopted = Some(AdoptedCode {
            dataset: Some("Pairs.__getitem__".to_owned()),
            in_processes,
            problem: None,
            steps: None,
        });
        found
    }

    #[test]
    fn the_rate_over_files_is_conditional_if_adopt_calls_the_dataset() {
        let verdict = loop_verdict(&with_own_dataset(false));

        // Half of the rate of two workers.
        let adopt = &verdict.not_worth[0];
        assert_eq!(
            adopt,
            "infeed.adopt: it calls Pairs.__getitem__ in Python: min(step 1000, adopt 95) = 95 \
             samples/s, 0.50x, waiting 90 %"
        );
        let files = "infeed, if a pipeline reads the files itself instead of Pairs.__getitem__: \
                     min(step 1000, infeed 900) = 900 samples/s, 4.74x, waiting 10 %";
        let at = verdict.advice.iter().position(|line| line == files);
        // After the advice that holds as it is, and before the note on the pipeline.
        assert_eq!(at, Some(verdict.advice.len() - 2), "{verdict:?}");
        assert_ne!(at, Some(0));
        assert!(
            !verdict
                .advice
                .iter()
                .any(|line| line.starts_with("infeed:"))
        );
        let product = "one call at a time: 0.5 x 190 = 95 samples/s";
        assert!(verdict.capacity.iter().any(|line| line.ends_with(product)));
    }

    #[test]
    fn own_code_that_no_process_can_run_is_named_with_the_fix() {
        let mut loop_ = with_own_dataset(false);
        let calls = loop_.calls.as_mut().expect("calls");
        let adopted = calls.adopted.as_mut().expect("own code");
        adopted.problem = Some("Pairs is in the script; move it to a module".to_owned());

        let verdict = loop_verdict(&loop_);

        assert!(verdict.not_worth[0].ends_with(
            "waiting 90 %; one call at a time runs, because Pairs is in the script; move it to a \
             module"
        ));
    }

    #[test]
    fn own_code_in_processes_is_as_fast_as_the_loader() {
        let verdict = loop_verdict(&with_own_dataset(true));

        assert!(verdict.not_worth[0].contains("adopt 190) = 190 samples/s, 0 % faster"));
    }

    #[test]
    fn adopting_own_code_is_advised_if_the_loader_has_no_workers() {
        let mut loop_ = with_own_dataset(false);
        (loop_.rate, loop_.step_rate, loop_.waiting) = (190.0, 380.0, 0.5);
        loop_.calls.as_mut().expect("calls").workers = 0;

        let verdict = loop_verdict(&loop_);

        let position = |start| {
            verdict
                .advice
                .iter()
                .position(|line| line.starts_with(start))
        };
        let adopt = position("infeed.adopt: ").expect("a gain");
        assert!(
            verdict.advice[adopt].contains("adopt 380) = 380 samples/s, 2.00x"),
            "{verdict:?}"
        );
        // The files are read no faster than the step.
        assert!(adopt < position("infeed, if ").expect("a gain"));
    }

    #[test]
    fn a_pipeline_of_the_user_is_no_condition() {
        let mut loop_ = with_own_dataset(false);
        loop_.throughput.as_mut().expect("measured").notes.clear();

        let verdict = loop_verdict(&loop_);

        assert!(
            verdict
                .advice
                .iter()
                .any(|line| line.starts_with("infeed: min("))
        );
        assert!(!format!("{verdict:?}").contains("infeed.adopt"));
    }

    #[test]
    fn without_files_only_the_rate_of_adopt_is_predicted() {
        let mut loop_ = with_own_dataset(false);
        loop_.throughput = None;

        let verdict = loop_verdict(&loop_);

        assert!(verdict.not_worth[0].starts_with("infeed.adopt: "));
        assert!(!format!("{verdict:?}").contains("infeed, if"));
    }

    #[test]
    fn steps_that_no_process_can_run_have_the_fix_as_condition() {
        let mut loop_ = with_slow_step(130.0);
        loop_.calls.as_mut().expect("calls").adopted = Some(AdoptedCode {
            dataset: None,
            in_processes: false,
            problem: Some("move Slow to a module".to_owned()),
            steps: None,
        });

        let verdict = loop_verdict(&loop_);

        // 1 / 9 ms as it is, and 178 samples/s in processes.
        assert!(verdict.not_worth[0].starts_with("infeed: min(step 1000, infeed 111)"));
        assert!(verdict.not_worth[0].ends_with("because one call of Slow at a time runs"));
        let fix = "infeed, if Slow runs in processes (move Slow to a module): min(step 1000, \
                   infeed 178)";
        let line = &verdict.advice[verdict.advice.len() - 2];
        assert!(line.starts_with(fix), "{verdict:?}");
        assert!(!line.contains("processes="), "{line}");

        // The time of a bare function belongs to the dataset.
        loop_.calls.as_mut().expect("calls").parts.clear();
        let verdict = loop_verdict(&loop_);
        let line = &verdict.advice[verdict.advice.len() - 2];
        assert!(line.starts_with("infeed, if its function runs in processes ("));
        assert!(!format!("{verdict:?}").contains("infeed: min("));
    }

    #[test]
    fn a_loop_of_unknown_samples_has_no_gain_of_infeed() {
        let mut found = with_slow_step(100.0);
        found.samples = None;
        found.unit = "batches/s".to_owned();

        let verdict = loop_verdict(&found);

        assert!(!verdict.advice.iter().any(|line| line.starts_with("infeed")));
        assert!(verdict.evidence[0].ends_with("watch(..., batch_size=)"));
    }
}
