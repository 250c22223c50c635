//! The counters of a loop over time, in a bounded number of windows of equal width.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum number of windows.
pub(super) const MAX_WINDOWS: usize = 256;

/// Width of the first windows in seconds.
const FIRST_WIDTH_S: f64 = 0.25;

/// Counters of a loop since its recording began, and the state of its queue.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LoopTotals {
    /// Batches delivered.
    pub batches: u64,
    /// Samples delivered. 0 if they are not counted.
    pub samples: u64,
    /// Time that the loop waited for data after its first batch, in seconds.
    pub waited_s: f64,
    /// Epochs that ended.
    pub epochs: u64,
    /// Bad records found.
    pub bad: u64,
    /// Batches that wait for the loop, if the loader reports it.
    pub ready: Option<u64>,
    /// Batches that the loop holds, if the loader reports it.
    pub held: Option<u64>,
}

/// Counters of a loop in one window of time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RecordedWindow {
    /// Batches delivered.
    pub batches: u64,
    /// Samples delivered. 0 if they are not counted.
    pub samples: u64,
    /// Time that the loop waited for data, in seconds.
    pub waited_s: f64,
    /// Epochs that ended.
    pub epochs: u64,
    /// Bad records found.
    pub bad: u64,
    /// Lowest number of batches that waited for the loop.
    pub ready: Option<u64>,
    /// Highest number of batches that the loop held.
    pub held: Option<u64>,
}

impl RecordedWindow {
    /// Adds the counters of another window.
    fn add(&mut self, other: &RecordedWindow) {
        self.batches = self.batches.saturating_add(other.batches);
        self.samples = self.samples.saturating_add(other.samples);
        self.waited_s += other.waited_s;
        self.epochs = self.epochs.saturating_add(other.epochs);
        self.bad = self.bad.saturating_add(other.bad);
        self.ready = [self.ready, other.ready].into_iter().flatten().min();
        self.held = self.held.max(other.held);
    }

    /// Returns the sum of windows.
    fn sum(windows: &[RecordedWindow]) -> RecordedWindow {
        let mut sum = RecordedWindow::default();
        windows.iter().for_each(|window| sum.add(window));
        sum
    }
}

/// Up to 256 windows of equal width from the beginning of the recording. When all are used, the
/// width doubles and each pair becomes one window.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(into = "WindowColumns", try_from = "WindowColumns")]
pub struct RecordingWindows {
    width_s: f64,
    windows: Vec<RecordedWindow>,
    /// Time and counters of the last call of `add`.
    last: (f64, LoopTotals),
}

impl Default for RecordingWindows {
    fn default() -> RecordingWindows {
        RecordingWindows {
            width_s: FIRST_WIDTH_S,
            windows: Vec::new(),
            last: (0.0, LoopTotals::default()),
        }
    }
}

/// A part of a recording: one or several windows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecordingPart {
    /// Begin in seconds since the recording began.
    pub from_s: f64,
    /// End in seconds since the recording began.
    pub to_s: f64,
    /// Sum of the windows.
    pub sum: RecordedWindow,
}

impl RecordingPart {
    /// Returns the share of the time in which the loop waited for data, 0 to 1.
    pub fn waiting(&self) -> f64 {
        (self.sum.waited_s / (self.to_s - self.from_s).max(1e-9)).clamp(0.0, 1.0)
    }
}

impl RecordingWindows {
    /// Creates windows that count from these totals on.
    pub(super) fn since(totals: LoopTotals) -> RecordingWindows {
        RecordingWindows {
            last: (0.0, totals),
            ..RecordingWindows::default()
        }
    }

    /// Returns the counters of the last call of `add`.
    pub(super) fn totals(&self) -> LoopTotals {
        self.last.1
    }

    /// Returns the width of a window in seconds.
    pub fn width_s(&self) -> f64 {
        self.width_s
    }

    /// Returns all windows, oldest first. The last one may be shorter than the others.
    pub fn windows(&self) -> &[RecordedWindow] {
        &self.windows
    }

    /// Adds the change of the counters since the last call. Counts belong to the window of `at_s`.
    /// Waiting time is spread over the windows since the last call. Ignores a time that is not
    /// finite, and counts a time in the past as the time of the last call.
    pub(super) fn add(&mut self, at_s: f64, totals: LoopTotals) {
        if !at_s.is_finite() {
            return;
        }
        let (from_s, before) = self.last;
        let at_s = at_s.max(from_s);
        self.last = (at_s, totals);
        while at_s >= self.width_s * MAX_WINDOWS as f64 {
            self.double_width();
        }
        let (first, last) = (self.window_at(from_s), self.window_at(at_s));
        if self.windows.len() <= last {
            self.windows.resize(last + 1, RecordedWindow::default());
        }
        let passed_s = at_s - from_s;
        let waited_s = (totals.waited_s - before.waited_s).clamp(0.0, passed_s);
        if waited_s > 0.0 {
            for (number, window) in self.windows.iter_mut().enumerate().skip(first) {
                let begin_s = number as f64 * self.width_s;
                let overlap_s = at_s.min(begin_s + self.width_s) - from_s.max(begin_s);
                window.waited_s += waited_s * overlap_s.max(0.0) / passed_s;
            }
        }
        self.windows[last].add(&RecordedWindow {
            batches: totals.batches.saturating_sub(before.batches),
            samples: totals.samples.saturating_sub(before.samples),
            waited_s: 0.0,
            epochs: totals.epochs.saturating_sub(before.epochs),
            bad: totals.bad.saturating_sub(before.bad),
            ready: totals.ready,
            held: totals.held,
        });
    }

    /// Divides the recording of `seconds` into up to `most` parts of equal width. The last one may
    /// be shorter.
    pub(crate) fn parts(&self, seconds: f64, most: usize) -> Vec<RecordingPart> {
        let size = self.windows.len().div_ceil(most.max(1)).max(1);
        let part = |(number, windows): (usize, &[RecordedWindow])| {
            let from_s = (number * size) as f64 * self.width_s;
            RecordingPart {
                from_s,
                to_s: (from_s + windows.len() as f64 * self.width_s).min(seconds.max(from_s)),
                sum: RecordedWindow::sum(windows),
            }
        };
        self.windows.chunks(size).enumerate().map(part).collect()
    }

    fn window_at(&self, at_s: f64) -> usize {
        ((at_s / self.width_s) as usize).min(MAX_WINDOWS - 1)
    }

    fn double_width(&mut self) {
        self.windows = self.windows.chunks(2).map(RecordedWindow::sum).collect();
        self.width_s *= 2.0;
    }
}

/// The windows as the file stores them: a list for each counter.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
struct WindowColumns {
    /// Width of a window in seconds.
    width_s: f64,
    /// Batches delivered, by window.
    batches: Vec<u64>,
    /// Samples delivered, by window. 0 if they are not counted.
    samples: Vec<u64>,
    /// Time that the loop waited for data in seconds, by window.
    waited_s: Vec<f64>,
    /// Epochs that ended, by window.
    epochs: Vec<u64>,
    /// Bad records found, by window.
    bad: Vec<u64>,
    /// Lowest number of batches that waited for the loop, by window. Absent if not counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ready: Vec<Option<u64>>,
    /// Highest number of batches that the loop held, by window. Absent if not counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    held: Vec<Option<u64>>,
}

impl From<RecordingWindows> for WindowColumns {
    fn from(of: RecordingWindows) -> WindowColumns {
        fn column<T>(of: &RecordingWindows, value: impl Fn(&RecordedWindow) -> T) -> Vec<T> {
            of.windows.iter().map(value).collect()
        }
        fn gauge_column(of: &RecordingWindows, value: Gauge) -> Vec<Option<u64>> {
            let values = column(of, value);
            match values.iter().any(Option::is_some) {
                true => values,
                false => Vec::new(),
            }
        }
        WindowColumns {
            width_s: of.width_s,
            batches: column(&of, |window| window.batches),
            samples: column(&of, |window| window.samples),
            // Tenths of a millisecond keep the file short.
            waited_s: column(&of, |window| (window.waited_s * 1e4).round() / 1e4),
            epochs: column(&of, |window| window.epochs),
            bad: column(&of, |window| window.bad),
            ready: gauge_column(&of, |window| window.ready),
            held: gauge_column(&of, |window| window.held),
        }
    }
}

/// Reads the state of the queue from a window.
type Gauge = fn(&RecordedWindow) -> Option<u64>;

impl TryFrom<WindowColumns> for RecordingWindows {
    type Error = String;

    fn try_from(of: WindowColumns) -> Result<RecordingWindows, String> {
        let count = of.batches.len();
        if count > MAX_WINDOWS {
            return Err(format!("{count} windows, and the limit is {MAX_WINDOWS}"));
        }
        let gauges = [of.ready.len(), of.held.len()];
        let lengths = [
            of.samples.len(),
            of.waited_s.len(),
            of.epochs.len(),
            of.bad.len(),
        ];
        if lengths.iter().any(|&length| length != count)
            || gauges.iter().any(|&length| length != 0 && length != count)
        {
            return Err("the lists of the windows differ in length".to_owned());
        }
        // The upper limit keeps sums finite. It is longer than any run.
        let is_time = |s: f64| (0.0..1e12).contains(&s);
        if !is_time(of.width_s) || of.width_s == 0.0 || !of.waited_s.iter().all(|&s| is_time(s)) {
            return Err("a time of the windows is negative or too large".to_owned());
        }
        let window = |at: usize| RecordedWindow {
            batches: of.batches[at],
            samples: of.samples[at],
            waited_s: of.waited_s[at],
            epochs: of.epochs[at],
            bad: of.bad[at],
            ready: of.ready.get(at).copied().flatten(),
            held: of.held.get(at).copied().flatten(),
        };
        Ok(RecordingWindows {
            width_s: of.width_s,
            windows: (0..count).map(window).collect(),
            last: (0.0, LoopTotals::default()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(batches: u64, waited_s: f64) -> LoopTotals {
        LoopTotals {
            batches,
            samples: 4 * batches,
            waited_s,
            epochs: batches / 100,
            bad: 0,
            ready: Some(batches % 3),
            held: None,
        }
    }

    #[test]
    fn a_long_run_fits_the_windows_and_its_sums_stay() {
        let mut windows = RecordingWindows::default();

        // A quarter of the time is waiting. The run has 10 000 windows of the first width.
        for second in 1..=2_500_u64 {
            windows.add(second as f64, totals(3 * second, second as f64 / 4.0));
        }

        assert!(windows.windows().len() <= MAX_WINDOWS);
        assert_eq!(windows.width_s(), 16.0);
        let sum = RecordedWindow::sum(windows.windows());
        assert_eq!((sum.batches, sum.samples, sum.epochs), (7_500, 30_000, 75));
        assert!((sum.waited_s - 625.0).abs() < 1e-6, "{sum:?}");
        let text = serde_json::to_string(&windows).expect("writes");
        assert!(text.len() < 12_000, "{} bytes", text.len());
        for part in windows.parts(2_500.0, 10) {
            assert!((part.waiting() - 0.25).abs() < 0.01, "{part:?}");
        }
    }

    #[test]
    fn a_wait_is_spread_over_the_windows_that_it_covers() {
        let mut windows = RecordingWindows::default();

        windows.add(0.25, totals(1, 0.0));
        windows.add(1.0, totals(2, 0.75));

        let waited: Vec<f64> = windows.windows().iter().map(|w| w.waited_s).collect();
        assert_eq!(waited, [0.0, 0.25, 0.25, 0.25, 0.0]);
        let batches: Vec<u64> = windows.windows().iter().map(|w| w.batches).collect();
        assert_eq!(batches, [0, 1, 0, 0, 1]);
    }

    #[test]
    fn times_that_go_back_or_are_not_numbers_add_no_windows() {
        let mut windows = RecordingWindows::default();

        windows.add(f64::NAN, totals(1, 0.0));
        windows.add(f64::INFINITY, totals(1, 0.0));
        windows.add(1.0, totals(2, 0.1));
        windows.add(0.5, totals(3, 9.0));
        windows.add(1e300, totals(4, 9.0));

        let sum = RecordedWindow::sum(windows.windows());
        assert_eq!(sum.batches, 4);
        assert!(windows.windows().len() <= MAX_WINDOWS);
    }

    #[test]
    fn windows_are_read_back_and_wrong_ones_are_errors() {
        let mut windows = RecordingWindows::default();
        windows.add(0.3, totals(1, 0.1));
        windows.add(0.7, totals(5, 0.2));
        let text = serde_json::to_string(&windows).expect("writes");

        let again: RecordingWindows = serde_json::from_str(&text).expect("reads");
        assert_eq!(again.windows().len(), windows.windows().len());
        assert_eq!(serde_json::to_string(&again).expect("writes"), text);

        for (from, to) in [
            ("\"batches\":[0,1,4]", "\"batches\":[0,1]"),
            ("\"width_s\":0.25", "\"width_s\":0.0"),
            ("\"width_s\":0.25", "\"width_s\":-1.0"),
            ("\"width_s\":0.25", "\"width_s\":1e300"),
        ] {
            let wrong = text.replace(from, to);
            assert_ne!(wrong, text, "{text}");
            serde_json::from_str::<RecordingWindows>(&wrong).expect_err(to);
        }
    }
}
