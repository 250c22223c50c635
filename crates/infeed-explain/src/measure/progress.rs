//! Progress of a whole explanation: each phase reports its own share, and the caller receives the
//! share of all phases, from which the remaining time follows.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Receives the name of the current phase and the share of the whole work that is done, 0 to 1.
/// Returns whether to continue.
pub type Progress<'a> = &'a (dyn Fn(&str, f64) -> bool + Sync);

/// Phase names. They are shown to the user.
pub(crate) const RUNNING: &str = "running the pipeline as it is";
pub(crate) const WAITING: &str = "waiting until other programs leave the cores";
pub(crate) const READING: &str = "reading records cold";
pub(crate) const WRITING: &str = "writing a few records for the remedies";
pub(crate) const TRYING: &str = "trying remedies in turn";
pub(crate) const COPYING: &str = "timing copies and kernels";
pub(crate) const DECODING: &str = "timing the device's decoder";
pub(crate) const SENDING: &str = "sending batches over loopback";
pub(crate) const FEEDING: &str = "running with feeders and without, in turn";
pub(crate) const PREDICTING: &str = "measuring for what-if questions, in turn";

pub(crate) const REWRITING: &str = "writing the new dataset";
pub(crate) const MEASURING: &str = "measuring without and with the remedy, in turn";

/// Progress over several phases of estimated lengths, in their order.
pub(crate) struct Phases<'a> {
    progress: Progress<'a>,
    /// Name and estimated seconds of each phase.
    phases: Vec<(&'static str, f64)>,
    /// The largest share so far, as bits of an `f64`, so that progress never goes back.
    most: AtomicU64,
    stopped: AtomicBool,
}

impl<'a> Phases<'a> {
    pub(crate) fn new(progress: Progress<'a>, phases: Vec<(&'static str, f64)>) -> Phases<'a> {
        Phases {
            progress,
            phases,
            most: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
        }
    }

    /// Reports the share of a phase. Returns whether to continue. Once the caller has stopped the
    /// work, every later call returns false.
    pub(crate) fn report(&self, phase: &str, share: f64) -> bool {
        let total: f64 = self.phases.iter().map(|(_, seconds)| seconds).sum();
        let at = self.phases.iter().position(|(name, _)| *name == phase);
        let whole = at.map_or(0.0, |at| {
            let done: f64 = self.phases[..at].iter().map(|(_, seconds)| seconds).sum();
            (done + share.clamp(0.0, 1.0) * self.phases[at].1) / total.max(1e-9)
        });
        // The bits of numbers that are not negative have the order of the numbers.
        let before = self.most.fetch_max(whole.to_bits(), Ordering::Relaxed);
        let go_on = (self.progress)(phase, whole.max(f64::from_bits(before)));
        if !go_on {
            self.stopped.store(true, Ordering::Relaxed);
        }
        !self.is_stopped()
    }

    /// Returns whether the caller has stopped the work.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn shares_of_phases_add_up_and_never_decrease() {
        let seen = Mutex::new(Vec::new());
        let record = |_: &str, share: f64| {
            seen.lock().expect("no panic").push(share);
            true
        };
        let phases = Phases::new(&record, vec![(RUNNING, 6.0), (TRYING, 18.0)]);

        for (phase, share) in [(RUNNING, 0.5), (TRYING, 0.5), (RUNNING, 1.0), (TRYING, 1.0)] {
            assert!(phases.report(phase, share));
        }

        drop(phases);
        let seen = seen.into_inner().expect("no panic");
        assert_eq!(seen, [0.125, 0.625, 0.625, 1.0]);
    }

    #[test]
    fn a_stop_lasts() {
        let was_called = AtomicBool::new(false);
        let once = |_: &str, _: f64| was_called.swap(true, Ordering::Relaxed);
        let phases = Phases::new(&once, vec![(RUNNING, 1.0)]);

        assert!(!phases.report(RUNNING, 0.1));
        assert!(!phases.report(RUNNING, 0.2));
        assert!(phases.is_stopped());
    }
}
