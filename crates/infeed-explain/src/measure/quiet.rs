//! The cores that other programs use, and a bounded wait until they leave them.

use std::thread;
use std::time::{Duration, Instant};

use infeed_raw::machine::{machine_cpu_time, process_cpu_time, session_cpu_time};

/// Cores that other processes may use during a slice that counts at once.
pub(crate) const QUIET: f64 = 0.15;

/// Time over which the load is measured. Counters of processor time have steps of 10 ms.
const LOAD_WINDOW: Duration = Duration::from_millis(500);

/// Measures the cores that other processes use.
pub(crate) struct OtherProcesses {
    begun: Instant,
    machine: Option<Duration>,
    own: Duration,
}

impl OtherProcesses {
    /// Starts the measurement.
    pub(crate) fn watch() -> OtherProcesses {
        OtherProcesses {
            begun: Instant::now(),
            machine: machine_cpu_time(),
            own: process_cpu_time(),
        }
    }

    /// Returns whether others used more cores since the start than on a quiet machine.
    pub(crate) fn are_busy(&self) -> bool {
        self.cores().is_some_and(|cores| cores > QUIET)
    }

    /// Returns the cores that others used since the start. None if the system does not report it.
    pub(crate) fn cores(&self) -> Option<f64> {
        let machine = machine_cpu_time()?.checked_sub(self.machine?)?;
        let own = process_cpu_time().saturating_sub(self.own);
        let others = machine.saturating_sub(own).as_secs_f64();
        Some(others / self.begun.elapsed().as_secs_f64().max(1e-9))
    }
}

/// The time that an explanation may still wait.
pub(crate) struct QuietWait {
    longest: Duration,
    left: Duration,
    /// Cores that others used at the last look.
    busy: f64,
}

impl QuietWait {
    pub(crate) fn new(longest: Duration) -> QuietWait {
        QuietWait {
            longest,
            left: longest,
            busy: 0.0,
        }
    }

    /// Waits until other programs use almost no core, or until the time is over. Calls `go_on` with
    /// the share of the time that is over. Returns whether the machine is quiet now.
    pub(crate) fn wait(&mut self, go_on: &dyn Fn(f64) -> bool) -> bool {
        self.wait_with(go_on, &mut || foreign_cores(LOAD_WINDOW))
    }

    /// As [`wait`](QuietWait::wait), with the load from `measure_load`.
    fn wait_with(
        &mut self,
        go_on: &dyn Fn(f64) -> bool,
        measure_load: &mut dyn FnMut() -> f64,
    ) -> bool {
        while !self.left.is_zero() {
            if !go_on(1.0 - self.left.div_duration_f64(self.longest)) {
                return false;
            }
            let begun = Instant::now();
            self.busy = measure_load();
            if self.busy < QUIET {
                return true;
            }
            self.left = self.left.saturating_sub(begun.elapsed().max(LOAD_WINDOW));
        }
        false
    }

    /// Returns a warning if the whole time was not enough.
    pub(crate) fn warning(&self) -> Option<String> {
        let is_over = self.left.is_zero() && !self.longest.is_zero();
        is_over.then(|| {
            format!(
                "waited {:.0} s for other programs, which still used {:.1} cores",
                self.longest.as_secs_f64(),
                self.busy
            )
        })
    }
}

/// Returns the cores that programs of other sessions use. The load of this session does not count,
/// because it is the user's own job, such as a training run that the pipeline is to share the
/// machine with.
fn foreign_cores(over: Duration) -> f64 {
    let others = OtherProcesses::watch();
    let session = || {
        let session = session_cpu_time().unwrap_or_default();
        session.saturating_sub(process_cpu_time())
    };
    let before = session();
    thread::sleep(over);
    let own = session().saturating_sub(before).div_duration_f64(over);
    others.cores().unwrap_or(0.0) - own
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_ends_when_the_machine_is_quiet() {
        let mut wait = QuietWait::new(Duration::from_secs(20));
        let mut loads = [1.5, 0.9, 0.0].into_iter();

        let is_quiet = wait.wait_with(&|_| true, &mut || loads.next().unwrap_or(9.0));

        assert!(is_quiet && loads.next().is_none());
        assert_eq!(wait.left, Duration::from_secs(19));
        assert_eq!(wait.warning(), None);
    }

    #[test]
    fn the_wait_of_a_busy_machine_is_bounded_and_reported() {
        let mut wait = QuietWait::new(Duration::from_secs(2));
        let mut calls = 0;
        let mut measure_load = || {
            calls += 1;
            1.25
        };

        assert!(!wait.wait_with(&|_| true, &mut measure_load));
        assert!(
            !wait.wait_with(&|_| true, &mut measure_load),
            "no time is left"
        );

        assert_eq!(calls, 4);
        let warning = wait.warning().expect("it waited in vain");
        assert!(warning.contains("2 s") && warning.contains("1.2 cores"));
    }

    #[test]
    fn nothing_is_measured_without_time_or_after_a_stop() {
        let mut none = QuietWait::new(Duration::ZERO);
        assert!(!none.wait_with(&|_| true, &mut || unreachable!()));
        assert_eq!(none.warning(), None);

        let mut stopped = QuietWait::new(Duration::from_secs(9));
        assert!(!stopped.wait_with(&|_| false, &mut || unreachable!()));
    }
}
