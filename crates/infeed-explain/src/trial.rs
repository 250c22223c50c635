//! Runs variants of a pipeline in turn, one slice each, so that all meet the same machine load. The
//! ratio of two variants is then known better than the rate of either.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use infeed_raw::machine::{machine_cpu_time, on_cores, process_cpu_time, usable_cores};

use super::interval::Interval;
use infeed::loader::device::Placement;
use infeed::loader::{Loader, Options, Stats};
use infeed::pipeline::Pipeline;
use infeed_core::compare::{Estimate, Noise};
use infeed_core::error::Error;
use infeed_source::Source;

/// Batches left out at the start of each slice, because they touch memory for the first time: one
/// for each batch that may be in flight, and two for the consumer.
const WARM_UP_BATCHES: usize = 7;

/// The start ends at the latest after this fraction of a slice: 1/3.
const WARM_UP_SHARE: u32 = 3;

/// Maximum duration of a slice whose batches have no rows, in slice lengths.
const EMPTY: u32 = 20;

/// Number of attempts to run a slice that other processes do not disturb.
const ATTEMPTS: usize = 3;

/// One of this number of slices may run again. The limit ends trials on a machine that is never
/// quiet.
const SPARE: usize = 2;

/// Cores that other processes may use during a slice that counts at once.
const QUIET: f64 = 0.15;

/// Minimum half-width of an interval, as a share. Of 17 predictions on two datasets, 16 were within
/// it of the measured gain. The spread of a trial's own turns is smaller.
const MIN_SPREAD: f64 = 0.12;

/// A pipeline with its source and options.
#[derive(Clone, Debug)]
pub(super) struct Variant {
    pub(super) pipeline: Pipeline,
    pub(super) source: Arc<dyn Source>,
    pub(super) options: Options,
    pub(super) step: Option<Duration>,
    /// Placement for which rows are made. None: the host finishes the rows.
    pub(super) row_placement: Option<Placement>,
    /// Maximum number of cores that all threads of the trial use. None: all usable cores.
    pub(super) cores: Option<usize>,
    /// Whether the source has all records, of which the pipeline selects some. Feeders need that.
    pub(super) selects: bool,
}

/// Results of one slice.
pub(super) struct Slice {
    /// Samples per second after the start.
    pub(super) rate: f64,
    /// Counters of the loader from the first batch on.
    pub(super) stats: Stats,
}

impl Variant {
    fn open(&self) -> Result<Loader, Error> {
        // The trial already selects and repeats records, and weights do not change the cost of a
        // record.
        let pipeline = match self.selects {
            true => self.pipeline.clone(),
            false => self.pipeline.plain(),
        };
        let options = fixed(&self.options);
        let source = Arc::clone(&self.source);
        match self.row_placement {
            Some(placement) => pipeline.open_for_device(source, placement, &options),
            None => pipeline.open_over(source, &options),
        }
    }

    /// Returns samples per second of one slice.
    pub(super) fn slice(&self, length: Duration) -> Result<f64, Error> {
        self.watched(length).map(|slice| slice.rate)
    }

    /// Runs one slice and returns its rate and counters.
    pub(super) fn watched(&self, length: Duration) -> Result<Slice, Error> {
        match self.cores {
            Some(cores) => on_cores(cores, || self.run(length)),
            None => self.run(length),
        }
    }

    fn run(&self, length: Duration) -> Result<Slice, Error> {
        let loader = self.open()?;
        let begun = Instant::now();
        let mut batches = 0;
        let mut rows = 0;
        let mut timed: Option<Instant> = None;
        let mut end = begun;
        loop {
            let Some(batch) = loader.next_batch()? else {
                continue;
            };
            batches += 1;
            if timed.is_some() {
                rows += batch.samples();
                end = Instant::now();
            } else if batches >= WARM_UP_BATCHES || begun.elapsed() > length / WARM_UP_SHARE {
                timed = Some(Instant::now());
            }
            drop(batch);
            // A batch that takes longer than the slice is measured. Batches without rows, whose
            // records were all left out, end the slice after a multiple of its length.
            let enough = if rows > 0 { length } else { length * EMPTY };
            if timed.is_some() && begun.elapsed() >= enough {
                break;
            }
            if let Some(step) = self.step {
                thread::sleep(step);
            }
        }
        let span = timed.map_or(Duration::ZERO, |timed| end - timed);
        Ok(Slice {
            rate: rows as f64 / span.as_secs_f64().max(1e-9),
            stats: loader.stats()?,
        })
    }
}

/// Returns options with a fixed number of workers, because tuning during a trial would disturb it.
pub(super) fn fixed(options: &Options) -> Options {
    let mut fixed = options.clone();
    fixed.workers.get_or_insert_with(usable_cores);
    fixed
}

/// Rates of each variant, one number per round, or the error of a variant that does not run.
pub(super) type Rates = Vec<Result<Vec<f64>, Error>>;

/// Measures the cores that other processes use.
pub(super) struct OtherProcesses {
    begun: Instant,
    machine: Option<Duration>,
    own: Duration,
}

impl OtherProcesses {
    /// Starts the measurement.
    pub(super) fn watch() -> OtherProcesses {
        OtherProcesses {
            begun: Instant::now(),
            machine: machine_cpu_time(),
            own: process_cpu_time(),
        }
    }

    /// Returns the cores that others used since the start. None if the system does not report it.
    pub(super) fn cores(&self) -> Option<f64> {
        let machine = machine_cpu_time()?.checked_sub(self.machine?)?;
        let own = process_cpu_time().saturating_sub(self.own);
        let others = machine.saturating_sub(own).as_secs_f64();
        Some(others / self.begun.elapsed().as_secs_f64().max(1e-9))
    }
}

/// Runs all variants in turn, `rounds` times. Calls `go_on` before each slice with the share that
/// is done. If it returns false, returns the measurements so far.
pub(super) fn interleave(
    variants: &[Variant],
    rounds: usize,
    slice: Duration,
    go_on: &dyn Fn(f64) -> bool,
) -> Rates {
    let mut rates: Rates = variants.iter().map(|_| Ok(Vec::new())).collect();
    let total = (rounds * variants.len()) as f64;
    let mut spare = rounds * variants.len() / SPARE;
    for round in 0..rounds {
        // Each round starts with another variant, so that none always follows the same one.
        for turn in 0..variants.len() {
            let at = (turn + round) % variants.len();
            if !go_on((round * variants.len() + turn) as f64 / total) {
                return rates;
            }
            let Ok(measured) = &mut rates[at] else {
                continue;
            };
            match quiet_slice(&variants[at], slice, &mut spare) {
                Ok(rate) => measured.push(rate),
                Err(error) => rates[at] = Err(error),
            }
        }
    }
    rates
}

/// Returns samples per second of the quietest of a few slices. Stops at a slice that other
/// processes did not disturb, or when no repeats are left in `spare`.
fn quiet_slice(variant: &Variant, length: Duration, spare: &mut usize) -> Result<f64, Error> {
    let mut best: Option<(f64, f64)> = None;
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            if *spare == 0 {
                break;
            }
            *spare -= 1;
        }
        let others = OtherProcesses::watch();
        let rate = variant.slice(length)?;
        let cores = others.cores().unwrap_or(0.0);
        if best.is_none_or(|(least, _)| cores < least) {
            best = Some((cores, rate));
        }
        if cores < QUIET {
            break;
        }
    }
    Ok(best.map_or(0.0, |(_, rate)| rate))
}

/// Returns median and spread of repeated measurements: 1.5 times the standard error, and at least the
/// difference between equal trials.
pub(super) fn interval(numbers: &[f64]) -> Interval {
    let noise = Noise::Robust {
        errors: 1.5,
        least: MIN_SPREAD,
    };
    let Estimate { low, mid, high } = Estimate::new(numbers, noise);
    Interval {
        low: low.max(0.0),
        mid,
        high,
    }
}

/// Returns the ratio of two variants, round by round.
pub(super) fn ratio(over: &[f64], under: &[f64]) -> Interval {
    let ratios: Vec<f64> = over.iter().zip(under).map(|(a, b)| a / b).collect();
    interval(&ratios)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_disturbed_round_does_not_move_the_ratio() {
        let base = [100.0, 101.0, 99.0, 100.0, 50.0];
        let other = [200.0, 203.0, 197.0, 201.0, 199.0];

        let gain = ratio(&other, &base);

        assert!((gain.mid - 2.0).abs() < 0.02, "{gain:?}");
        assert!(gain.holds(2.0) && gain.high < 2.3, "{gain:?}");
    }

    #[test]
    fn an_interval_is_at_least_as_wide_as_the_spread_of_equal_trials() {
        let same = interval(&[5.0; 5]);

        assert_eq!(same.mid, 5.0);
        assert!((same.high / same.mid - 1.0 - MIN_SPREAD).abs() < 1e-9);
    }
}
