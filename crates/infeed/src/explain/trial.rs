//! Variants of a pipeline run in turn, a slice each, so that all of them meet the same machine:
//! what one gains over another is then known better than the rate of either.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use infeed_raw::machine::{machine_cpu_time, process_cpu_time, usable_cores};

use super::interval::Interval;
use crate::error::Error;
use crate::loader::ahead::Placement;
use crate::loader::{Loader, Options, Stats};
use crate::pipeline::Pipeline;
use crate::source::Source;

/// Batches left out at the beginning of each slice: memory that is touched for the first time
/// belongs to them, one for each that may be under way and two for the consumer.
const WARM_UP_BATCHES: usize = 7;

/// Share of a slice after which the beginning is over in any case.
const WARM_UP_SHARE: u32 = 3;

/// Slices' lengths that batches without rows are taken for.
const EMPTY: u32 = 20;

/// Slices that are tried for one that others leave alone.
const ATTEMPTS: usize = 3;

/// One slice in so many may be run again: where the machine is never quiet, it has no end.
const SPARE: usize = 2;

/// Cores that others may use during a slice that counts at once.
const QUIET: f64 = 0.15;

/// Least half-width of an interval, as a share. Of 17 predictions on two data sets 16 were within
/// it of what applying the remedy gave; the spread of a trial's own turns is smaller than that.
const LEAST_SPREAD: f64 = 0.12;

/// One way to run.
#[derive(Clone, Debug)]
pub(super) struct Variant {
    pub(super) pipeline: Pipeline,
    pub(super) source: Arc<dyn Source>,
    pub(super) options: Options,
    pub(super) step: Option<Duration>,
    /// For whom rows are made: a device, with so much left to it; None: they are finished.
    pub(super) aim: Option<Placement>,
    /// Whether the source is all there is, of which the pipeline selects: feeders know it so.
    pub(super) selects: bool,
}

/// What one slice gave.
pub(super) struct Slice {
    /// Samples a second, after its beginning.
    pub(super) rate: f64,
    /// What its loader counted from the first batch on.
    pub(super) stats: Stats,
}

impl Variant {
    fn open(&self) -> Result<Loader, Error> {
        // The records are selected and repeated here; what one costs, weights do not change.
        let pipeline = match self.selects {
            true => self.pipeline.clone(),
            false => self.pipeline.plain(),
        };
        let options = fixed(&self.options);
        let source = Arc::clone(&self.source);
        match self.aim {
            Some(placement) => pipeline.open_for_device(source, placement, &options),
            None => pipeline.open_over(source, &options),
        }
    }

    /// Samples a second during one slice.
    pub(super) fn slice(&self, length: Duration) -> Result<f64, Error> {
        self.watched(length).map(|slice| slice.rate)
    }

    /// One slice with what was counted in it.
    pub(super) fn watched(&self, length: Duration) -> Result<Slice, Error> {
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
            // A batch that takes longer than the slice is measured all the same; batches without a
            // row, all of whose records were left out, are not waited for without end.
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

/// Options with a number of workers: one that changes while it is measured would be measured too.
pub(super) fn fixed(options: &Options) -> Options {
    let mut fixed = options.clone();
    fixed.workers.get_or_insert_with(usable_cores);
    fixed
}

/// Rates of each variant, a number a round; or why it does not run.
pub(super) type Rates = Vec<Result<Vec<f64>, Error>>;

/// How many cores other processes use meanwhile.
pub(super) struct Others {
    begun: Instant,
    machine: Option<Duration>,
    own: Duration,
}

impl Others {
    /// Begins to look.
    pub(super) fn watch() -> Others {
        Others {
            begun: Instant::now(),
            machine: machine_cpu_time(),
            own: process_cpu_time(),
        }
    }

    /// Cores that others used since; None where that cannot be told.
    pub(super) fn cores(&self) -> Option<f64> {
        let machine = machine_cpu_time()?.checked_sub(self.machine?)?;
        let own = process_cpu_time().saturating_sub(self.own);
        let others = machine.saturating_sub(own).as_secs_f64();
        Some(others / self.begun.elapsed().as_secs_f64().max(1e-9))
    }
}

/// Runs all variants in turn, `rounds` times. `go_on` is asked before each slice with the share
/// that is done; where it says no, what was measured so far is given back.
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
        // Each round begins elsewhere, so that no variant always follows the same one.
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

/// Samples a second during the quietest of a few slices: one that other processes did not disturb
/// ends the search, and so does the last of the slices to `spare`.
fn quiet_slice(variant: &Variant, length: Duration, spare: &mut usize) -> Result<f64, Error> {
    let mut best: Option<(f64, f64)> = None;
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            if *spare == 0 {
                break;
            }
            *spare -= 1;
        }
        let others = Others::watch();
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

/// Median of numbers; 0 of none.
pub(super) fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[middle],
        _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

/// Median and spread of repeated measurements: 1.5 times the standard error as the median absolute
/// deviation tells it, and no less than what equal trials differ by.
pub(super) fn interval(numbers: &[f64]) -> Interval {
    let mid = median(numbers);
    let deviations: Vec<f64> = numbers.iter().map(|number| (number - mid).abs()).collect();
    // 1.4826 makes the median absolute deviation a standard deviation for normal errors.
    let standard = 1.4826 * median(&deviations) / (numbers.len().max(1) as f64).sqrt();
    let half = (1.5 * standard).max(LEAST_SPREAD * mid);
    Interval {
        low: (mid - half).max(0.0),
        mid,
        high: mid + half,
    }
}

/// The ratio of two variants, round by round.
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
    fn an_interval_is_never_narrower_than_what_equal_trials_differ_by() {
        let same = interval(&[5.0; 5]);

        assert_eq!(same.mid, 5.0);
        assert!((same.high / same.mid - 1.0 - LEAST_SPREAD).abs() < 1e-9);
        assert_eq!(median(&[]), 0.0);
    }
}
