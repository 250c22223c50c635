//! Windows of the consumer's steps: the effect of one setting (number of workers, placement) over
//! some time.

use std::collections::VecDeque;
use std::time::Duration;

use infeed_core::compare::median;

/// Minimum steps and minimum duration of a window. In a window of a few milliseconds, the scheduler
/// matters more than the workers.
const STEPS: u32 = 8;
const SPAN: Duration = Duration::from_millis(250);

/// Fewer steps suffice for a window of this duration.
const SLOW_STEPS: u32 = 4;
const SLOW_SPAN: Duration = Duration::from_secs(4);

/// Number of recent steps whose median is the usual step.
const USUAL: usize = 9;

/// A consumer that does not return for this number of usual steps did something else, such as a
/// validation or a checkpoint. Batches made during that time say nothing about speed.
const PAUSE: f64 = 8.0;

/// Batches that may come from the ready ones without counting as drained: the in-flight batches are
/// at different points at both ends of a window.
const LEEWAY: f64 = 0.5;

/// Counters of a loader since it opened.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct LoaderCounters {
    /// Rows that workers filled.
    pub(super) rows: u64,
    /// Time that workers filled rows, summed over workers.
    pub(super) busy: Duration,
    /// Time that workers waited for bytes, summed over workers.
    pub(super) starved: Duration,
    /// CPU time of workers and I/O threads.
    pub(super) own_cpu: Duration,
    /// CPU time of the whole process.
    pub(super) process_cpu: Duration,
    /// Time that a device waited for batches, if known.
    pub(super) gaps: Duration,
    /// Duration of transfers to a device, and their number.
    pub(super) copying: Duration,
    pub(super) copied: u64,
}

/// One step of the consumer.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConsumerStep {
    /// Time of the batch's delivery, since the loader opened.
    pub(super) at: Duration,
    /// Time from the previous batch to the request.
    pub(super) own: Duration,
    /// Time from the request to the batch.
    pub(super) wait: Duration,
    /// Rows of the batch.
    pub(super) rows: u64,
}

/// Effect of one setting, as averages over a window: times in seconds, the rest in workers or
/// cores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct StepWindow {
    /// Duration of a step from batch to batch, including waits, at the pace that workers sustain.
    pub(super) step_s: f64,
    /// Part of a step in which the consumer waited.
    pub(super) wait_s: f64,
    /// Workers that fill rows.
    pub(super) busy: f64,
    /// Workers that wait for bytes.
    pub(super) starved: f64,
    /// Cores in use by the process.
    pub(super) cores: f64,
    /// Cores in use by the step: those of the process without workers and I/O threads.
    pub(super) step_cores: f64,
    /// Share of the time that a device waited, if known.
    pub(super) gap: f64,
    /// Share of a step that the transfer of its batch takes; `None` if unknown.
    pub(super) bus: Option<f64>,
}

impl StepWindow {
    /// Returns the share of the time that the consumer waited.
    pub(super) fn wait(&self) -> f64 {
        self.wait_s / self.step_s.max(1e-12)
    }
}

/// Batches between the workers and the consumer, for discarding the effects of an earlier setting.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchesInFlight {
    /// In-flight batches, batches sent ahead to a device, and the consumer's batch. Only these can
    /// have begun in an earlier setting.
    pub(super) begun: u32,
    /// Batches read ahead, batches sent ahead, and the consumer's batch. While workers use up a
    /// stock of fetched bytes, their speed does not show the speed of reading.
    pub(super) refilled: u32,
}

impl BatchesInFlight {
    /// Counts the batches of a loader with this number of in-flight and sent batches, which reads
    /// `rows_ahead` rows ahead.
    pub(super) fn new(
        in_flight_batches: usize,
        sent: usize,
        rows_ahead: u64,
        rows: u64,
    ) -> BatchesInFlight {
        let count = |batches: u64| u32::try_from(batches).unwrap_or(u32::MAX);
        let sent = sent as u64 + 1;
        BatchesInFlight {
            begun: count(in_flight_batches as u64 + sent),
            refilled: count(rows_ahead.div_ceil(rows.max(1)) + sent),
        }
    }
}

/// Collects steps into windows.
#[derive(Debug)]
pub(super) struct WindowCollector {
    /// Steps to leave out before the next window begins.
    skip: u32,
    /// Counters at the last change of the setting.
    since_change: Option<CountingStart>,
    window: Option<CountingStart>,
    wait: Duration,
    /// Durations of the last steps, in seconds.
    usual: VecDeque<f64>,
    /// Raised if pauses follow each other so closely that no window would complete.
    pause: f64,
}

/// Start of counting, and the deliveries since.
#[derive(Clone, Copy, Debug)]
struct CountingStart {
    at: Duration,
    counters: LoaderCounters,
    steps: u32,
    rows: u64,
}

impl WindowCollector {
    /// Begins after `skip` steps.
    pub(super) fn new(skip: u32) -> WindowCollector {
        WindowCollector {
            skip,
            since_change: None,
            window: None,
            wait: Duration::ZERO,
            usual: VecDeque::new(),
            pause: PAUSE,
        }
    }

    /// Discards collected steps after a change of the setting; begins again after `skip` steps.
    pub(super) fn restart(&mut self, skip: u32) {
        self.skip = skip;
        self.since_change = None;
        self.window = None;
    }

    /// Adds a step. Returns a window with the step that completes it. `skip` is the number of steps
    /// to skip after a pause. `counters` is called only at the edges of windows.
    pub(super) fn step(
        &mut self,
        step: ConsumerStep,
        skip: u32,
        counters: impl FnOnce() -> LoaderCounters,
    ) -> Option<StepWindow> {
        if self.is_pause(&step) {
            self.pause *= 2.0;
            self.restart(skip);
            return None;
        }
        if let Some(since) = &mut self.since_change {
            since.steps += 1;
            since.rows += step.rows;
        } else {
            let counters = counters();
            let begun = CountingStart::new(step.at, counters);
            self.since_change = Some(begun);
            self.begin(begun);
            return None;
        }
        if self.skip > 0 {
            self.skip -= 1;
            if self.skip == 0 {
                self.begin(CountingStart::new(step.at, counters()));
            }
            return None;
        }
        let window = self.window.as_mut()?;
        window.steps += 1;
        window.rows += step.rows;
        self.wait += step.wait;
        let span = step.at.saturating_sub(window.at);
        let whole = window.steps >= STEPS && span >= SPAN;
        let slow = window.steps >= SLOW_STEPS && span >= SLOW_SPAN;
        if !(whole || slow) {
            return None;
        }
        let found = self.finish(step.at, counters());
        self.pause = (self.pause / 2.0).max(PAUSE);
        found
    }

    fn begin(&mut self, since: CountingStart) {
        self.window = (self.skip == 0).then_some(since);
        self.wait = Duration::ZERO;
    }

    fn finish(&mut self, at: Duration, now: LoaderCounters) -> Option<StepWindow> {
        let (window, change) = (self.window?, self.since_change?);
        let seconds = at.saturating_sub(window.at).as_secs_f64().max(1e-9);
        let over = |time: fn(&LoaderCounters) -> Duration| {
            let spent = time(&now).saturating_sub(time(&window.counters));
            spent.as_secs_f64() / seconds
        };
        let steps = f64::from(window.steps);
        let (cores, own) = (over(|c| c.process_cpu), over(|c| c.own_cpu));
        let step_s = seconds / steps * change.drain(&now);
        // Per batch: at the edges of a window some transfers are not complete.
        let copied = now.copied.saturating_sub(window.counters.copied);
        let copying = now.copying.saturating_sub(window.counters.copying);
        let copy_s = copying.as_secs_f64() / copied as f64;
        let found = StepWindow {
            step_s,
            wait_s: self.wait.as_secs_f64() / steps,
            busy: over(|c| c.busy),
            starved: over(|c| c.starved),
            cores,
            step_cores: (cores - own).max(0.0),
            gap: over(|c| c.gaps),
            bus: (copied > 0).then_some(copy_s / step_s),
        };
        self.begin(CountingStart::new(at, now));
        Some(found)
    }

    /// Whether the consumer did something else before its request.
    fn is_pause(&mut self, step: &ConsumerStep) -> bool {
        let own = step.own.as_secs_f64();
        let full = self.usual.len() == USUAL;
        let pause = full && own > self.pause * median(self.usual.iter().copied());
        if full {
            self.usual.pop_front();
        }
        self.usual.push_back(own + step.wait.as_secs_f64());
        pause
    }
}

impl CountingStart {
    fn new(at: Duration, counters: LoaderCounters) -> CountingStart {
        CountingStart {
            at,
            counters,
            steps: 0,
            rows: 0,
        }
    }

    /// Returns the factor, at least 1, by which a step would be longer without ready batches. With
    /// too few workers, the consumer starts to wait only after it has used up the ready batches.
    fn drain(&self, now: &LoaderCounters) -> f64 {
        let made = now.rows.saturating_sub(self.counters.rows);
        let steps = f64::from(self.steps);
        let rows = self.rows as f64 / steps.max(1.0);
        let drained = self.rows.saturating_sub(made) as f64 / rows.max(1.0) - LEEWAY;
        steps / (steps - drained.max(0.0)).max(steps / 4.0).max(1e-9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A simulated loader with a rate in rows per second, and its consumer.
    struct Loop {
        collector: WindowCollector,
        at: f64,
        made: f64,
        made_per_s: f64,
    }

    impl Loop {
        fn new(skip: u32, made_per_s: f64) -> Loop {
            Loop {
                collector: WindowCollector::new(skip),
                at: 0.0,
                made: 0.0,
                made_per_s,
            }
        }

        fn step(&mut self, own: f64, wait: f64) -> Option<StepWindow> {
            self.at += own + wait;
            self.made += self.made_per_s * (own + wait);
            let step = ConsumerStep {
                at: Duration::from_secs_f64(self.at),
                own: Duration::from_secs_f64(own),
                wait: Duration::from_secs_f64(wait),
                rows: 10,
            };
            let counters = LoaderCounters {
                rows: self.made as u64,
                busy: Duration::from_secs_f64(1.5 * self.at),
                starved: Duration::from_secs_f64(0.25 * self.at),
                own_cpu: Duration::from_secs_f64(1.25 * self.at),
                process_cpu: Duration::from_secs_f64(1.75 * self.at),
                gaps: Duration::from_secs_f64(0.05 * self.at),
                // Ten batches per second; each transfer takes 0.02 s.
                copying: Duration::from_secs_f64(0.02 * (10.0 * self.at).floor()),
                copied: (10.0 * self.at) as u64,
            };
            self.collector.step(step, 2, || counters)
        }
    }

    #[test]
    fn a_window_reports_step_wait_and_utilization() {
        let mut run = Loop::new(3, 100.0);

        let found: Vec<Option<StepWindow>> = (0..12).map(|_| run.step(0.07, 0.03)).collect();

        // One step to begin, three skipped, eight in the window.
        assert_eq!(found.iter().flatten().count(), 1);
        let window = found[11].expect("the last completes it");
        assert!((window.step_s - 0.1).abs() < 1e-9 && (window.wait() - 0.3).abs() < 1e-9);
        assert!((window.busy - 1.5).abs() < 1e-9 && (window.starved - 0.25).abs() < 1e-9);
        assert!((window.step_cores - 0.5).abs() < 1e-9 && (window.cores - 1.75).abs() < 1e-9);
        assert!((window.gap - 0.05).abs() < 1e-9);
        assert!(window.bus.is_some_and(|bus| (bus - 0.2).abs() < 1e-9));
    }

    #[test]
    fn batches_sent_ahead_count_as_in_flight() {
        let host = BatchesInFlight::new(4, 0, 1000, 256);
        let device = BatchesInFlight::new(4, 2, 1000, 256);

        assert_eq!((host.begun, host.refilled), (5, 5));
        assert_eq!((device.begun, device.refilled), (7, 7));
        assert_eq!(BatchesInFlight::new(2, 0, 0, 0).refilled, 1);
    }

    #[test]
    fn short_steps_complete_a_window_by_time_and_long_steps_by_count() {
        let count = |own: f64| {
            let mut run = Loop::new(0, 1e6);
            (1..).find(|_| run.step(own, 0.0).is_some())
        };

        assert!(count(0.001).is_some_and(|steps| (250..=252).contains(&steps)));
        assert_eq!(count(0.1), Some(9));
        assert_eq!(count(2.0), Some(5));
    }

    #[test]
    fn a_step_that_drains_ready_batches_counts_at_the_pace_of_the_workers() {
        let mut run = Loop::new(4, 80.0);

        // Each 0.1 s takes ten rows and makes eight, so a sustained step takes 0.125 s.
        let window = (0..20).find_map(|_| run.step(0.1, 0.0)).expect("a window");

        assert!(
            window.step_s > 0.112 && window.step_s <= 0.125,
            "{window:?}"
        );
        let mut kept_up = Loop::new(4, 97.0);
        let window = (0..20).find_map(|_| kept_up.step(0.1, 0.0)).expect("one");
        assert!((window.step_s - 0.1).abs() < 1e-9, "within the leeway");
    }

    #[test]
    fn a_pause_ends_the_window_and_repeated_pauses_become_usual() {
        let mut run = Loop::new(0, 1000.0);
        for _ in 0..8 {
            run.step(0.1, 0.0);
        }
        run.step(0.1, 0.0);
        run.step(0.1, 0.0);

        assert!(run.step(30.0, 0.0).is_none());
        let next: Vec<f64> = (0..12)
            .filter_map(|_| run.step(0.1, 0.0))
            .map(|w| w.step_s)
            .collect();
        assert!(next.len() == 1 && (next[0] - 0.1).abs() < 1e-9, "{next:?}");

        let windows = (0..200).filter_map(|n| run.step(if n % 5 == 0 { 2.0 } else { 0.1 }, 0.0));
        assert!(
            windows.count() > 3,
            "a consumer that rests every fifth step is seen as it is"
        );
    }
}
