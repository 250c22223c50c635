//! Runs variants of a pipeline in turn, one slice each, so that all meet the same machine load. The
//! ratio of two variants is then known better than the rate of either.
//!
//! Short slices keep their loaders open between turns. A slice of 0.28 s of a new loader reaches 0.88
//! to 1.01 of the rate of a long run, because the kernel clears each page of a slab at its first use:
//! batches of 32 samples of 4.9 MB cost 0.43 ms of system time per sample instead of 0.07 ms. The same
//! slices of open loaders reach 0.99 to 1.04. With new loaders for the 14 variants of a dataset of PNG
//! pairs, the unchanged pipeline had 0.86 of its rate in a long run, and all gains were 15 % too high;
//! with open loaders, 1.00.
//!
//! An open loader fills its batches after its turn: with photographs it used 290 ms of processor time,
//! with PNG pairs 90 ms, where a slice on two cores has 560 ms. The next turn starts after that.

use std::thread;
use std::time::{Duration, Instant};

use infeed_raw::machine::{available_memory_bytes, process_cpu_time};

use super::quiet::{OtherProcesses, QUIET};
use super::variant::Variant;
use crate::model::interval::Interval;
use infeed::loader::{Loader, unreserved_memory_bytes};
use infeed_core::compare::{Estimate, Noise};
use infeed_core::error::Error;

/// Usual length of a turn.
pub(crate) const TURN: Duration = Duration::from_millis(280);

/// Share of the available and unreserved memory that the budgets of open loaders may take between
/// turns: 1/2. The user's other loaders find the rest.
const MEMORY_SHARE: u64 = 2;

/// Number of attempts to run a slice that other processes do not disturb.
const ATTEMPTS: usize = 3;

/// One of this number of slices may run again. The limit ends trials on a machine that is never
/// quiet.
const SPARE: usize = 2;

/// Share of a core below which the threads of open loaders rest.
const RESTING: f64 = 0.1;

/// Time between two samples of the threads of open loaders.
const REST_CHECK: Duration = Duration::from_millis(10);

/// Maximum wait for the threads of open loaders, in slice lengths.
const LONGEST_REST: u32 = 2;

/// Minimum half-width of an interval, as a share. Of 60 predictions on 15 datasets, 56 were within it
/// of the measured gain (`benchmarks/RESULTS.md`). The spread of a trial's own turns is smaller.
const MIN_SPREAD: f64 = 0.10;

/// Use of a loader in the later turns of its variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoaderReuse {
    /// Loaders stay open between turns if their memory fits. For short turns whose records come
    /// from memory: slow storage would read ahead for the next turn during those of others.
    KeepOpen,
    /// Each turn opens a loader, which continues where the last turn of its variant ended. The variants
    /// begin at different steps of an epoch. Turns that read the same records would find them in the
    /// page cache.
    Reopen,
}

/// Loaders of variants, while they take turns.
struct OpenLoaders<'a> {
    variants: &'a [Variant],
    reuse: LoaderReuse,
    loaders: Vec<Option<Loader>>,
    /// Epoch and step after the last turn of each variant.
    ended: Vec<Option<(u64, u64)>>,
}

impl<'a> OpenLoaders<'a> {
    fn new(variants: &'a [Variant], reuse: LoaderReuse) -> OpenLoaders<'a> {
        OpenLoaders {
            variants,
            reuse,
            loaders: variants.iter().map(|_| None).collect(),
            ended: vec![None; variants.len()],
        }
    }

    /// Returns samples per second of one slice of a variant.
    fn slice(&mut self, at: usize, length: Duration) -> Result<f64, Error> {
        let variant = &self.variants[at];
        variant.on_its_cores(|| self.slice_here(at, length))
    }

    /// Runs one slice on the cores of the calling thread.
    fn slice_here(&mut self, at: usize, length: Duration) -> Result<f64, Error> {
        let variant = &self.variants[at];
        let loader = match self.loaders[at].take() {
            Some(loader) => loader,
            None => {
                let loader = variant.open()?;
                if self.stays_open(&loader)? {
                    // Its pages are touched in a slice that does not count.
                    variant.rate(&loader, length)?;
                } else {
                    let begin = loader.steps()? * at as u64 / self.variants.len() as u64;
                    let (epoch, step) = self.ended[at].unwrap_or((0, begin));
                    loader.seek(epoch, step)?;
                }
                loader
            }
        };
        let rate = variant.rate(&loader, length)?;
        self.ended[at] = Some(loader.next_place());
        if self.reuse == LoaderReuse::KeepOpen {
            // The next variant must not share the cores with its threads.
            rest(length * LONGEST_REST);
            self.loaders[at] = Some(loader);
        }
        Ok(rate)
    }

    /// Returns whether the loader of a variant stays open after its turn. All do or none does,
    /// because open and new loaders are not comparable. The first loader decides.
    fn stays_open(&mut self, loader: &Loader) -> Result<bool, Error> {
        if self.reuse == LoaderReuse::KeepOpen && self.loaders.iter().all(Option::is_none) {
            let all = loader.stats()?.budget_bytes * self.variants.len() as u64;
            if all > available_memory_bytes().min(unreserved_memory_bytes()) / MEMORY_SHARE {
                self.reuse = LoaderReuse::Reopen;
            }
        }
        Ok(self.reuse == LoaderReuse::KeepOpen)
    }
}

/// Rates of each variant, one number per round, or the error of a variant that does not run.
pub(crate) type Rates = Vec<Result<Vec<f64>, Error>>;

/// Runs all variants in turn, `rounds` times. Calls `go_on` before each slice with the share that
/// is done. If it returns false, returns the measurements so far.
pub(crate) fn interleave(
    variants: &[Variant],
    reuse: LoaderReuse,
    rounds: usize,
    slice: Duration,
    go_on: &dyn Fn(f64) -> bool,
) -> Rates {
    let mut rates: Rates = variants.iter().map(|_| Ok(Vec::new())).collect();
    let mut loaders = OpenLoaders::new(variants, reuse);
    let total = (rounds * variants.len()) as f64;
    let mut spare = rounds * variants.len() / SPARE;
    for round in 0..rounds {
        for (turn, at) in turns(round, variants.len()).enumerate() {
            if !go_on((round * variants.len() + turn) as f64 / total) {
                return rates;
            }
            let Ok(measured) = &mut rates[at] else {
                continue;
            };
            match quiet_slice(&mut || loaders.slice(at, slice), &mut spare) {
                Ok(rate) => measured.push(rate),
                Err(error) => rates[at] = Err(error),
            }
        }
    }
    rates
}

/// Returns the variants in the order of a round. Each round starts with another one, and every second
/// round runs backwards, so that none always follows the same one.
fn turns(round: usize, count: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |turn| match round % 2 {
        0 => (turn + round) % count,
        _ => (count - 1 - turn + round) % count,
    })
}

/// Waits until the threads of this process use almost no processor time, or for `longest`.
fn rest(longest: Duration) {
    let end = Instant::now() + longest;
    loop {
        let (begun, before) = (Instant::now(), process_cpu_time());
        thread::sleep(REST_CHECK);
        let used = process_cpu_time().saturating_sub(before);
        if used < begun.elapsed().mul_f64(RESTING) || Instant::now() >= end {
            return;
        }
    }
}

/// Returns samples per second of the quietest of a few runs of `slice`. Stops at a slice that other
/// processes did not disturb, or when no repeats are left in `spare`.
fn quiet_slice(
    slice: &mut dyn FnMut() -> Result<f64, Error>,
    spare: &mut usize,
) -> Result<f64, Error> {
    let mut best: Option<(f64, f64)> = None;
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            if *spare == 0 {
                break;
            }
            *spare -= 1;
        }
        let others = OtherProcesses::watch();
        let rate = slice()?;
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
pub(crate) fn interval(numbers: &[f64]) -> Interval {
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
pub(crate) fn ratio(over: &[f64], under: &[f64]) -> Interval {
    let ratios: Vec<f64> = over.iter().zip(under).map(|(a, b)| a / b).collect();
    interval(&ratios)
}

#[cfg(test)]
mod tests {
    use super::*;
    use infeed::loader::Options;
    use infeed::pipeline::{Pipeline, SourceSpec};
    use infeed_codec::transform::RandomResizedCrop;
    use infeed_sample::{Subsampling, jpeg};

    /// A pipeline over one image, with a memory budget in bytes.
    fn variant(root: &std::path::Path, memory: Option<u64>) -> Variant {
        let image = infeed_testkit::data::picture(1, 40, 32);
        let bytes = jpeg(&image, 4, Subsampling::Quarter).expect("encodes");
        std::fs::create_dir_all(root.join("all")).expect("a folder");
        std::fs::write(root.join("all/0.jpg"), bytes).expect("writes");
        let pipeline = Pipeline::new(SourceSpec::folder(root))
            .decode()
            .transform(RandomResizedCrop::new(16));
        let mut options = Options::default();
        options.memory = memory;
        Variant {
            source: pipeline.source.open(&[]).expect("a folder"),
            pipeline,
            options,
            step: None,
            row_placement: None,
            selects: false,
            cores: None,
        }
    }

    /// The number of loaders that are open after each of two variants had a turn.
    fn open_after_a_turn(variant: Variant, reuse: LoaderReuse) -> usize {
        let both = [variant.clone(), variant];
        let mut loaders = OpenLoaders::new(&both, reuse);
        for at in 0..both.len() {
            let rate = loaders.slice(at, Duration::from_millis(20)).expect("runs");
            assert!(rate > 0.0);
        }
        loaders.loaders.iter().flatten().count()
    }

    #[test]
    fn loaders_stay_open_between_the_turns_of_a_trial() {
        let root = tempfile::tempdir().expect("a temporary folder");
        // With its own budget, because other tests may have reserved most of the memory.
        let variant = variant(root.path(), Some(32 << 20));

        assert_eq!(open_after_a_turn(variant.clone(), LoaderReuse::KeepOpen), 2);
        assert_eq!(open_after_a_turn(variant, LoaderReuse::Reopen), 0);
    }

    #[test]
    fn a_new_loader_continues_where_the_last_turn_of_its_variant_ended() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let variants = [variant(root.path(), None)];
        let mut loaders = OpenLoaders::new(&variants, LoaderReuse::Reopen);
        loaders.slice(0, Duration::from_millis(20)).expect("runs");
        // Later than any epoch that a turn reaches.
        loaders.ended[0] = Some((1_000_000, 0));

        loaders.slice(0, Duration::from_millis(20)).expect("runs");

        assert!(loaders.ended[0] > Some((1_000_000, 0)));
    }

    #[test]
    fn an_open_loader_rests_after_its_turn() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let mut variant = variant(root.path(), None);
        // The loader fills several such batches after the slice.
        variant.pipeline.batch.size = Some(1000);
        let variants = [variant];
        let mut loaders = OpenLoaders::new(&variants, LoaderReuse::KeepOpen);
        loaders.slice(0, Duration::from_millis(200)).expect("runs");

        let before = process_cpu_time();
        thread::sleep(Duration::from_millis(50));

        let used = process_cpu_time() - before;
        assert!(used < Duration::from_millis(25), "{used:?}");
    }

    #[test]
    fn each_variant_has_several_predecessors() {
        let mut before = vec![std::collections::BTreeSet::new(); 4];
        for round in 0..4 {
            let order: Vec<usize> = turns(round, 4).collect();
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3]);
            for pair in order.windows(2) {
                before[pair[1]].insert(pair[0]);
            }
        }

        assert!(before.iter().all(|found| found.len() > 1), "{before:?}");
    }

    #[test]
    fn no_loader_stays_open_if_the_budgets_of_all_exceed_their_share_of_memory() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let budget = available_memory_bytes() / MEMORY_SHARE * 3 / 4;
        let variant = variant(root.path(), Some(budget));

        assert_eq!(open_after_a_turn(variant, LoaderReuse::KeepOpen), 0);
    }

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
