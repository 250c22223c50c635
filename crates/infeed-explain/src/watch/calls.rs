//! The calls of a loader's dataset in sentences, and the rates that follow from their times.

use super::measurements::{AdoptedSteps, CallPartKind, DatasetCalls, WatchedLoop};
use infeed_core::units::{figures, format_percent, format_seconds};

/// Share of a call's time without use of a core, above which more workers than cores help.
const IDLE: f64 = 0.5;
/// Share of a call's time from which on a step is named as slow.
const SLOW: f64 = 0.25;
/// Maximum number of parts to list, and of workers to recommend.
const LISTED: usize = 4;
const MOST_WORKERS: f64 = 64.0;

/// Rate of a pipeline of infeed that also calls the steps which infeed does not have.
pub(super) struct PythonStepRate {
    /// Samples per second if the threads of the pipeline call them.
    pub(super) in_threads: f64,
    /// Samples per second if processes call them.
    pub(super) in_processes: f64,
    /// Samples per second if one call at a time runs.
    pub(super) one_at_a_time: f64,
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
            .map(|part| format!("{} {}", part.name, format_seconds(part.wall_s)))
            .collect();
        let idle = match self.is_idle() {
            true => format!(
                ", {} of it without using a core",
                format_seconds(self.idle_s)
            ),
            false => String::new(),
        };
        format!(
            "a sample of the dataset takes {} in one process{idle}: {}",
            format_seconds(self.wall_s),
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
        // Rounding must not add a worker.
        let workers = (wanted - 1e-6).ceil().clamp(1.0, MOST_WORKERS);
        if workers <= f64::from(self.workers) {
            return None;
        }
        let rate = (workers / call_s).min(by_cores);
        let then = rate.min(measured.step_rate);
        let text = format!(
            "num_workers={workers:.0} instead of {}, because a sample takes {} and uses a core for \
             {} of it: {workers:.0} / {} = {}",
            self.workers,
            format_seconds(call_s),
            format_seconds(self.processor_s),
            format_seconds(call_s),
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
            format_seconds(slow.wall_s),
            format_seconds(self.wall_s),
            format_percent(share),
        );
        Some((text, then))
    }

    /// Returns the rate of `infeed.adopt` if it calls the code of the dataset. None if a source of
    /// infeed replaces the dataset.
    ///
    /// It follows from `loader`, the samples per second that the loader's workers make, because
    /// the same Python runs: other programs and the profiler then slow both alike.
    pub(super) fn with_own_code(&self, loader: f64, usable: f64) -> Option<OwnCodeRate<'_>> {
        let adopted = self.adopted.as_ref()?;
        let name = adopted.dataset.as_deref()?;
        let call_s = (self.idle_s + self.processor_s).max(1e-9);
        let by_cores = usable / self.processor_s.max(1e-9);
        let by_calls = |calls: f64| (calls / call_s).min(by_cores);
        let workers = f64::from(self.workers.max(1));
        let share = match adopted.in_processes {
            true => 1.0,
            false => by_calls(1.0) / by_calls(workers),
        };
        Some(OwnCodeRate {
            name,
            rate: share * loader,
            share,
            loader,
        })
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
    ) -> Option<PythonStepRate> {
        let steps = self.python_steps()?;
        if samples_per_s <= 0.0 {
            return None;
        }
        let AdoptedSteps {
            names,
            wall_s,
            processor_s,
        } = steps;
        // A step that sleeps holds up its thread, and a pipeline has a thread for each core.
        let sleeps = wall_s - processor_s >= IDLE * wall_s;
        let step_s = if sleeps { wall_s } else { processor_s };
        let on_all_cores = usable / (usable / samples_per_s + step_s);
        Some(PythonStepRate {
            in_threads: on_all_cores.min(1.0 / processor_s.max(1e-9)),
            in_processes: on_all_cores,
            one_at_a_time: on_all_cores.min(1.0 / wall_s.max(1e-9)),
            names,
            processor_s,
        })
    }

    /// Returns the steps that infeed does not have: measured alone, or else their parts of the
    /// dataset's calls.
    fn python_steps(&self) -> Option<AdoptedSteps> {
        let measured = self.adopted.as_ref().and_then(|code| code.steps.clone());
        if measured.is_some() {
            return measured;
        }
        let parts = self.parts.iter();
        let steps: Vec<_> = parts
            .filter(|part| part.kind == CallPartKind::Program)
            .collect();
        let names: Vec<&str> = steps.iter().map(|part| part.name.as_str()).collect();
        let wall_s = steps.iter().map(|part| part.wall_s).sum();
        let processor_s = steps.iter().map(|part| part.processor_s).sum();
        (!names.is_empty()).then(|| AdoptedSteps {
            names: names.join(", "),
            // The rest of the elapsed time of other calls is mostly that of waits for a core.
            wall_s: if self.is_idle() { wall_s } else { processor_s },
            processor_s,
        })
    }
}

/// Rate of `infeed.adopt` for a dataset whose samples the program's own code makes.
pub(super) struct OwnCodeRate<'a> {
    /// The code, such as `Pairs.__getitem__`.
    pub(super) name: &'a str,
    /// Samples per second.
    pub(super) rate: f64,
    /// Part of the rate of the loader's workers that it is.
    share: f64,
    /// Samples per second of the loader's workers.
    loader: f64,
}

impl OwnCodeRate<'_> {
    /// Describes the rate.
    pub(super) fn arithmetic(&self, with_unit: impl Fn(f64) -> String) -> String {
        let calls = match self.share < 1.0 {
            true => format!(
                "one call at a time: {} x {}",
                figures(self.share),
                figures(self.loader)
            ),
            false => "as many calls at a time as the loader".to_owned(),
        };
        format!(
            "infeed.adopt, which calls {} in Python, {calls} = {}",
            self.name,
            with_unit(self.rate)
        )
    }
}

impl PythonStepRate {
    /// Describes both rates.
    pub(super) fn arithmetic(&self, with_unit: impl Fn(f64) -> String) -> String {
        format!(
            "infeed with {} in Python, {} of a core per sample: {} in threads, {} in processes",
            self.names,
            format_seconds(self.processor_s),
            figures(self.in_threads),
            with_unit(self.in_processes),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::measurements::{AdoptedCode, CallPart};
    use crate::watch::tests::watched_loop;

    fn part(name: &str, kind: CallPartKind, wall_s: f64, processor_s: f64) -> CallPart {
        CallPart {
            name: name.to_owned(),
            kind,
            wall_s,
            processor_s,
        }
    }

    /// Calls of 60 ms, of which a step of the program sleeps for 50 ms.
    fn sleeping(workers: u32) -> DatasetCalls {
        DatasetCalls {
            workers,
            samples: 24,
            wall_s: 0.060,
            processor_s: 0.010,
            idle_s: 0.050,
            parts: vec![
                part("Pause", CallPartKind::Program, 0.050, 0.0),
                part("ImageFolder", CallPartKind::Dataset, 0.010, 0.010),
            ],
            adopted: None,
        }
    }

    /// Calls of 10 ms, of which a step of the program computes for 8 ms.
    fn computing(workers: u32) -> DatasetCalls {
        DatasetCalls {
            workers,
            samples: 24,
            wall_s: 0.010,
            processor_s: 0.010,
            idle_s: 0.0,
            parts: vec![
                part("Slow", CallPartKind::Program, 0.008, 0.008),
                part("ImageFolder", CallPartKind::Dataset, 0.002, 0.002),
            ],
            adopted: None,
        }
    }

    #[test]
    fn a_dataset_that_sleeps_gets_more_workers_than_cores() {
        // Two cores, 100 samples/s of the step, and 30 samples/s of the loop.
        let loop_ = watched_loop(2.0, 100.0, 30.0, 0.7);

        let (text, then) = sleeping(2).more_workers(&loop_).expect("helps");

        // 6 / 60 ms reaches the step.
        assert!(text.starts_with("num_workers=6 instead of 2"), "{text}");
        assert!((then - 100.0).abs() < 1e-9, "{then}");
        assert!(sleeping(6).more_workers(&loop_).is_none());
        assert!(computing(2).more_workers(&loop_).is_none());
    }

    #[test]
    fn cores_limit_the_number_of_workers() {
        // Two cores make 200 samples/s of 10 ms each: 12 workers of 60 ms.
        let (text, then) = sleeping(2)
            .more_workers(&watched_loop(2.0, 1000.0, 30.0, 0.97))
            .expect("helps");

        assert!(text.starts_with("num_workers=12 instead"), "{text}");
        assert!((then - 200.0).abs() < 1e-9, "{then}");
    }

    #[test]
    fn the_gain_of_a_faster_step_counts_the_time_in_which_the_loop_waits() {
        let workers = watched_loop(2.0, 1000.0, 100.0, 0.9);

        let (text, then) = computing(2).slow_step(&workers).expect("is slow");
        let (_, alone) = computing(0).slow_step(&workers).expect("is slow");
        let (_, capped) = computing(2)
            .slow_step(&watched_loop(2.0, 150.0, 100.0, 0.3))
            .expect("is slow");

        assert!(
            text.contains("a faster Slow: it takes 8 ms of 10 ms"),
            "{text}"
        );
        assert!((then - 500.0).abs() < 1e-6, "a fifth of the time: {then}");
        assert!((alone - 100.0 / 0.28).abs() < 1e-6, "{alone}");
        assert!((capped - 150.0).abs() < 1e-6, "the step limits: {capped}");
    }

    #[test]
    fn steps_of_the_program_limit_infeed_in_threads_and_in_processes() {
        let with = computing(2).with_python_steps(1000.0, 4.0).expect("a step");
        let asleep = sleeping(2).with_python_steps(1000.0, 4.0).expect("a step");
        let mut known = computing(2);
        known.parts.remove(0);

        // One thread at a time: 1 / 8 ms. Four processes: 4 / (4 / 1000 + 8 ms).
        assert!((with.in_threads - 125.0).abs() < 1e-6);
        assert!((with.in_processes - 4.0 / 0.012).abs() < 1e-6);
        // Sleeping holds no lock, so threads and processes are alike.
        assert!((asleep.in_threads - 4.0 / 0.054).abs() < 1e-6);
        assert!((asleep.in_processes - asleep.in_threads).abs() < 1e-9);
        // Seeded steps in one process wait for each other: 1 / 50 ms.
        assert!((asleep.one_at_a_time - 20.0).abs() < 1e-9);
        assert!((with.one_at_a_time - with.in_threads).abs() < 1e-9);
        assert!(known.with_python_steps(1000.0, 4.0).is_none());
    }

    #[test]
    fn steps_that_were_measured_replace_their_parts_of_the_calls() {
        let mut calls = computing(2);
        calls.adopted = Some(AdoptedCode {
            dataset: None,
            in_processes: true,
            problem: None,
            steps: Some(AdoptedSteps {
                names: "Slow, RandomErasing".to_owned(),
                wall_s: 0.020,
                processor_s: 0.016,
            }),
        });

        let with = calls.with_python_steps(1000.0, 4.0).expect("a step");
        // The loader calls all of its steps on batches, outside of the dataset.
        calls.parts.clear();
        let outside = calls.with_python_steps(1000.0, 4.0).expect("a step");

        assert_eq!(with.names, "Slow, RandomErasing");
        assert!((with.in_processes - 4.0 / 0.020).abs() < 1e-6);
        assert!((with.in_threads - 1.0 / 0.016).abs() < 1e-6);
        assert!((with.one_at_a_time - 1.0 / 0.020).abs() < 1e-6);
        assert!((outside.in_processes - with.in_processes).abs() < 1e-9);
    }

    #[test]
    fn own_code_is_as_fast_in_infeed_as_in_the_workers_of_the_loader() {
        let own = |calls: DatasetCalls, in_processes| DatasetCalls {
            adopted: Some(AdoptedCode {
                dataset: Some("Pairs.__getitem__".to_owned()),
                in_processes,
                problem: None,
                steps: None,
            }),
            ..calls
        };
        let described = |calls: DatasetCalls| {
            // The workers of the loader make 30 samples/s on two cores.
            let with = calls.with_own_code(30.0, 2.0).expect("own code");
            with.arithmetic(|rate| format!("{rate:.1}"))
        };

        let text = described(own(sleeping(3), true));
        assert!(text.ends_with("as many calls at a time as the loader = 30.0"));
        let text = described(own(sleeping(3), false));
        assert!(
            text.ends_with("Pairs.__getitem__ in Python, one call at a time: 0.33 x 30 = 10.0"),
            "{text}"
        );
        // Two cores run two of four calls.
        let text = described(own(computing(4), false));
        assert!(text.ends_with("at a time: 0.5 x 30 = 15.0"), "{text}");
        assert!(described(own(computing(0), false)).ends_with("as the loader = 30.0"));
        assert!(computing(2).with_own_code(30.0, 2.0).is_none());
    }
}
