//! GPU utilisation as `nvidia-smi` reports it, as a cross-check of the ring's measurements. A GPU
//! counts as busy while any kernel runs, however small.

use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::AnyDevice;

/// Time between two samples. The driver updates its counter no faster.
const EVERY: Duration = Duration::from_millis(200);

/// Maximum number of samples kept. At the limit, every second sample is dropped and the interval
/// doubles.
const KEPT: usize = 2048;

/// Utilisation of a GPU over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Utilisation {
    /// Average share of the time in which a kernel ran, 0 to 1.
    pub busy: f64,
    /// Every sample, in the order of time.
    pub samples: Vec<UtilisationSample>,
}

/// One sample of a GPU's utilisation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UtilisationSample {
    /// Seconds since the monitor started.
    pub at_s: f64,
    /// Share of the time just before the sample in which a kernel ran, 0 to 1.
    pub busy: f64,
}

/// Samples a GPU's utilisation five times a second, on a thread.
#[derive(Debug)]
pub struct UtilisationMonitor {
    /// Dropped to stop the thread.
    end: SyncSender<()>,
    thread: JoinHandle<Vec<UtilisationSample>>,
}

impl UtilisationMonitor {
    /// Starts to monitor a device. None if its utilisation cannot be read, as on a simulated
    /// device.
    pub fn over(device: &AnyDevice) -> Option<UtilisationMonitor> {
        UtilisationMonitor::polling(EVERY, device.busy_share()?)
    }

    /// Starts the thread if a first call of `ask` returns a value.
    fn polling(
        every: Duration,
        ask: impl Fn() -> Option<f64> + Send + 'static,
    ) -> Option<UtilisationMonitor> {
        ask()?;
        let (end, ended) = mpsc::sync_channel::<()>(0);
        let begun = Instant::now();
        let sample = move || {
            let mut samples: Vec<UtilisationSample> = Vec::new();
            let mut every = every;
            while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                let Some(busy) = ask() else { break };
                let at_s = begun.elapsed().as_secs_f64();
                samples.push(UtilisationSample { at_s, busy });
                if samples.len() == KEPT {
                    let mut odd = false;
                    samples.retain(|_| {
                        odd = !odd;
                        odd
                    });
                    every *= 2;
                }
            }
            samples
        };
        let thread = thread::Builder::new().name("infeed-busy".to_owned());
        let thread = thread.spawn(sample).ok()?;
        Some(UtilisationMonitor { end, thread })
    }

    /// Stops the monitor. None if it ran too briefly for a sample.
    pub fn end(self) -> Option<Utilisation> {
        drop(self.end);
        let samples = self.thread.join().ok()?;
        let sum: f64 = samples.iter().map(|sample| sample.busy).sum();
        (!samples.is_empty()).then(|| Utilisation {
            busy: sum / samples.len() as f64,
            samples,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn samples_are_taken_until_the_end_and_averaged() {
        // The monitor signals each sample, so that the test does not sleep.
        let (report, reported) = mpsc::channel();
        let shares = Mutex::new([0.5, 1.0, 0.0].into_iter().cycle());
        let ask = move || {
            let _ = report.send(());
            shares.lock().expect("no panic").next()
        };

        let watch = UtilisationMonitor::polling(Duration::from_millis(1), ask).expect("it answers");
        // `polling` has used the first value already.
        for _ in 0..4 {
            reported.recv().expect("it looks");
        }
        let found = watch.end().expect("it looked");

        assert!(found.samples.len() >= 2, "{found:?}");
        assert_eq!(found.samples[0].busy, 1.0);
        assert_eq!(found.samples[1].busy, 0.0);
        assert!(found.samples[0].at_s < found.samples[1].at_s);
        let sum: f64 = found.samples.iter().map(|sample| sample.busy).sum();
        assert_eq!(found.busy, sum / found.samples.len() as f64);
    }

    #[test]
    fn a_gpu_without_utilisation_is_not_monitored() {
        assert!(UtilisationMonitor::polling(EVERY, || None).is_none());
        let sim = AnyDevice::open("sim").expect("every machine has one");
        assert!(UtilisationMonitor::over(&sim).is_none());
    }

    #[test]
    fn a_monitor_that_stops_at_once_has_no_samples() {
        let watch = UtilisationMonitor::polling(Duration::from_secs(3600), || Some(1.0))
            .expect("it answers");

        assert_eq!(watch.end(), None);
    }
}
