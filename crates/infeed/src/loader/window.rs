//! Steps of the consumer gathered into windows: what one setting led to for a while, a number of
//! workers or a placement.

use std::collections::VecDeque;
use std::time::Duration;

/// Least steps of a window, and the least time that they take together: a window of a few
/// milliseconds would tell what the scheduler did, not what the workers did.
const STEPS: u32 = 8;
const SPAN: Duration = Duration::from_millis(250);

/// Steps that are enough where they take this long.
const SLOW_STEPS: u32 = 4;
const SLOW_SPAN: Duration = Duration::from_secs(4);

/// Steps of which the consumer's usual one is the median.
const USUAL: usize = 9;

/// A consumer that stays away for so many usual steps did something else meanwhile: a validation,
/// a checkpoint. What was prepared in that time is no sign of speed.
const PAUSE: f64 = 8.0;

/// Batches that may come from what lay ready without counting as drained: at the ends of a window
/// the batches under way are at different points.
const LEEWAY: f64 = 0.5;

/// What a loader counted since it opened.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Counters {
    /// Rows that workers filled.
    pub(super) rows: u64,
    /// Time they were at it, summed over workers.
    pub(super) busy: Duration,
    /// Time they had no bytes, summed over workers.
    pub(super) starved: Duration,
    /// Processor time of workers and I/O threads.
    pub(super) own_cpu: Duration,
    /// Processor time of the whole process.
    pub(super) process_cpu: Duration,
    /// Time that a device waited for batches, as far as it is known.
    pub(super) gaps: Duration,
    /// Time that copies of batches to a device took, and of how many.
    pub(super) copying: Duration,
    pub(super) copied: u64,
}

/// One step of the consumer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    /// When the batch at its end was handed over, since the loader opened.
    pub(super) at: Duration,
    /// From the batch before to the question for this one.
    pub(super) own: Duration,
    /// From the question to the batch.
    pub(super) wait: Duration,
    /// Rows of the batch.
    pub(super) rows: u64,
}

/// What one setting led to. Times are in seconds, the rest in workers or cores, on average over the
/// window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Window {
    /// A step from batch to batch, waiting included, at the pace that the workers can keep up.
    pub(super) step_s: f64,
    /// The part of a step that the consumer waited.
    pub(super) wait_s: f64,
    /// Workers at rows.
    pub(super) busy: f64,
    /// Workers without bytes.
    pub(super) starved: f64,
    /// Cores that the process used.
    pub(super) cores: f64,
    /// Cores that it used beside workers and I/O threads: the step's.
    pub(super) step_cores: f64,
    /// Share of the time that a device waited, as far as it is known.
    pub(super) gap: f64,
    /// Share of a step that the copy of its batch to a device takes; None where none is known.
    pub(super) bus: Option<f64>,
}

impl Window {
    /// Share of the time that the consumer waited.
    pub(super) fn wait(&self) -> f64 {
        self.wait_s / self.step_s.max(1e-12)
    }
}

/// Batches between the workers and the consumer's hands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    /// Those under way, those sent ahead to a device, and the one that the consumer has: what was
    /// begun in another setting is among them, no further.
    pub(super) begun: u32,
    /// Those whose bytes are read ahead, besides what is sent ahead: what more workers make of a stock
    /// of bytes is no sign of what they would make without one.
    pub(super) refilled: u32,
}

impl Flight {
    /// Of a loader with so many batches under way and sent ahead, that reads so many rows ahead.
    pub(super) fn new(trays: usize, sent: usize, rows_ahead: u64, rows: u64) -> Flight {
        let count = |batches: u64| u32::try_from(batches).unwrap_or(u32::MAX);
        let sent = sent as u64 + 1;
        Flight {
            begun: count(trays as u64 + sent),
            refilled: count(rows_ahead.div_ceil(rows.max(1)) + sent),
        }
    }
}

/// Gathers steps into windows.
#[derive(Debug)]
pub(super) struct Collector {
    /// Steps to leave out before the next window begins.
    skip: u32,
    /// Since the setting was changed.
    since_change: Option<Since>,
    window: Option<Since>,
    wait: Duration,
    /// Lengths of the last steps, in seconds.
    usual: VecDeque<f64>,
    /// Raised where pauses follow each other so closely that no window would ever end.
    pause: f64,
}

/// Where counting began, and what was delivered since.
#[derive(Clone, Copy, Debug)]
struct Since {
    at: Duration,
    counters: Counters,
    steps: u32,
    rows: u64,
}

impl Collector {
    /// Begins after `skip` steps.
    pub(super) fn new(skip: u32) -> Collector {
        Collector {
            skip,
            since_change: None,
            window: None,
            wait: Duration::ZERO,
            usual: VecDeque::new(),
            pause: PAUSE,
        }
    }

    /// Throws away what was gathered, since another setting holds; begins again after `skip` steps.
    pub(super) fn restart(&mut self, skip: u32) {
        self.skip = skip;
        self.since_change = None;
        self.window = None;
    }

    /// Enters a step; gives a window with the step that completes it. `skip` is what a pause
    /// costs, and `counters` is asked only at the edges of windows.
    pub(super) fn step(
        &mut self,
        step: Step,
        skip: u32,
        counters: impl FnOnce() -> Counters,
    ) -> Option<Window> {
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
            let begun = Since::new(step.at, counters);
            self.since_change = Some(begun);
            self.begin(begun);
            return None;
        }
        if self.skip > 0 {
            self.skip -= 1;
            if self.skip == 0 {
                self.begin(Since::new(step.at, counters()));
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

    fn begin(&mut self, since: Since) {
        self.window = (self.skip == 0).then_some(since);
        self.wait = Duration::ZERO;
    }

    fn finish(&mut self, at: Duration, now: Counters) -> Option<Window> {
        let (window, change) = (self.window?, self.since_change?);
        let seconds = at.saturating_sub(window.at).as_secs_f64().max(1e-9);
        let over = |time: fn(&Counters) -> Duration| {
            let spent = time(&now).saturating_sub(time(&window.counters));
            spent.as_secs_f64() / seconds
        };
        let steps = f64::from(window.steps);
        let (cores, own) = (over(|c| c.process_cpu), over(|c| c.own_cpu));
        let step_s = seconds / steps * change.drain(&now);
        // By the batch: at the edges of a window some copies are not known yet.
        let copied = now.copied.saturating_sub(window.counters.copied);
        let copying = now.copying.saturating_sub(window.counters.copying);
        let copy_s = copying.as_secs_f64() / copied as f64;
        let found = Window {
            step_s,
            wait_s: self.wait.as_secs_f64() / steps,
            busy: over(|c| c.busy),
            starved: over(|c| c.starved),
            cores,
            step_cores: (cores - own).max(0.0),
            gap: over(|c| c.gaps),
            bus: (copied > 0).then_some(copy_s / step_s),
        };
        self.begin(Since::new(at, now));
        Some(found)
    }

    /// Whether the consumer was elsewhere before it asked.
    fn is_pause(&mut self, step: &Step) -> bool {
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

impl Since {
    fn new(at: Duration, counters: Counters) -> Since {
        Since {
            at,
            counters,
            steps: 0,
            rows: 0,
        }
    }

    /// How much longer a step would be if nothing had lain ready: at least 1. A number of workers
    /// that cannot keep up does not make the consumer wait before what was ready is used up.
    fn drain(&self, now: &Counters) -> f64 {
        let made = now.rows.saturating_sub(self.counters.rows);
        let steps = f64::from(self.steps);
        let rows = self.rows as f64 / steps.max(1.0);
        let drained = self.rows.saturating_sub(made) as f64 / rows.max(1.0) - LEEWAY;
        steps / (steps - drained.max(0.0)).max(steps / 4.0).max(1e-9)
    }
}

/// Median; 0 of none.
pub(super) fn median(numbers: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = numbers.collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// Standard error of the mean. Not a robust one: a turn that was disturbed is to make the
/// verdict less sure, and so ask for more turns.
pub(super) fn standard_error(numbers: &[f64]) -> f64 {
    let count = numbers.len() as f64;
    let mean = numbers.iter().sum::<f64>() / count.max(1.0);
    let squares = numbers.iter().map(|number| (number - mean).powi(2));
    (squares.sum::<f64>() / (count - 1.0).max(1.0) / count.max(1.0)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A loader that makes so many rows a second, and a consumer before it.
    struct Loop {
        collector: Collector,
        at: f64,
        made: f64,
        made_per_s: f64,
    }

    impl Loop {
        fn new(skip: u32, made_per_s: f64) -> Loop {
            Loop {
                collector: Collector::new(skip),
                at: 0.0,
                made: 0.0,
                made_per_s,
            }
        }

        fn step(&mut self, own: f64, wait: f64) -> Option<Window> {
            self.at += own + wait;
            self.made += self.made_per_s * (own + wait);
            let step = Step {
                at: Duration::from_secs_f64(self.at),
                own: Duration::from_secs_f64(own),
                wait: Duration::from_secs_f64(wait),
                rows: 10,
            };
            let counters = Counters {
                rows: self.made as u64,
                busy: Duration::from_secs_f64(1.5 * self.at),
                starved: Duration::from_secs_f64(0.25 * self.at),
                own_cpu: Duration::from_secs_f64(1.25 * self.at),
                process_cpu: Duration::from_secs_f64(1.75 * self.at),
                gaps: Duration::from_secs_f64(0.05 * self.at),
                // Ten batches a second, of which each takes 0.02 s.
                copying: Duration::from_secs_f64(0.02 * (10.0 * self.at).floor()),
                copied: (10.0 * self.at) as u64,
            };
            self.collector.step(step, 2, || counters)
        }
    }

    #[test]
    fn a_window_tells_step_wait_and_who_was_busy() {
        let mut run = Loop::new(3, 100.0);

        let found: Vec<Option<Window>> = (0..12).map(|_| run.step(0.07, 0.03)).collect();

        // One to begin, three left out, eight in it.
        assert_eq!(found.iter().flatten().count(), 1);
        let window = found[11].expect("the last completes it");
        assert!((window.step_s - 0.1).abs() < 1e-9 && (window.wait() - 0.3).abs() < 1e-9);
        assert!((window.busy - 1.5).abs() < 1e-9 && (window.starved - 0.25).abs() < 1e-9);
        assert!((window.step_cores - 0.5).abs() < 1e-9 && (window.cores - 1.75).abs() < 1e-9);
        assert!((window.gap - 0.05).abs() < 1e-9);
        assert!(window.bus.is_some_and(|bus| (bus - 0.2).abs() < 1e-9));
    }

    #[test]
    fn what_is_in_flight_is_what_a_device_is_sent_ahead_too() {
        let host = Flight::new(4, 0, 1000, 256);
        let device = Flight::new(4, 2, 1000, 256);

        assert_eq!((host.begun, host.refilled), (5, 5));
        assert_eq!((device.begun, device.refilled), (7, 7));
        assert_eq!(Flight::new(2, 0, 0, 0).refilled, 1);
    }

    #[test]
    fn short_steps_make_a_window_by_time_and_long_ones_by_number() {
        let count = |own: f64| {
            let mut run = Loop::new(0, 1e6);
            (1..).find(|_| run.step(own, 0.0).is_some())
        };

        assert!(count(0.001).is_some_and(|steps| (250..=252).contains(&steps)));
        assert_eq!(count(0.1), Some(9));
        assert_eq!(count(2.0), Some(5));
    }

    #[test]
    fn a_step_that_lives_on_what_lay_ready_counts_at_the_pace_of_the_workers() {
        let mut run = Loop::new(4, 80.0);

        // Ten rows each 0.1 s are taken and eight are made: in time a step will take 0.125 s.
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
