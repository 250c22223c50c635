//! Runs the remedies of a case in turn on the same records, next to the pipeline as it is.

use super::calibration::WiderIntervals;
use super::candidate::{Candidate, PixelChange};
use super::difference::{PixelDifference, difference};
use super::list::candidates;
use super::prepare::{FilledCache, RewriteStats};
use super::prepare_all::{prepare_all, reject};
use crate::case::Case;
use crate::device::trials::PlacementTrial;
use crate::findings::{Run, TrialSample, UntriedRemedy};
use crate::measure::progress::{Phases, TRYING, WAITING, WRITING};
use crate::measure::quiet::{OtherProcesses, QuietWait};
use crate::measure::storage::Storage;
use crate::measure::survey::Survey;
use crate::measure::trial::{LoaderReuse, Rates, TURN, interleave, interval, ratio};
use crate::measure::variant::{RecordSubset, Variant};
use crate::model::interval::Interval;
use infeed_core::error::Error;
use infeed_core::units::format_percent;
use infeed_raw::machine::last_level_cache_bytes;

/// Difference of the unchanged pipeline from itself above which the report has a note.
const UNSTEADY: f64 = 0.1;

/// Spread of the cores' rate if it was computed from processor time.
const UNTRIED: f64 = 0.3;

/// The measured remedies.
pub(crate) struct Trials {
    /// Samples per second of the pipeline as it is, from memory, with a consumer that is always
    /// ready.
    pub(crate) base: Interval,
    /// The unchanged pipeline against itself, in the same turns as the remedies. 1 without noise.
    /// None if the trials were stopped.
    pub(crate) control: Option<Interval>,
    pub(crate) sample: Option<TrialSample>,
    /// The reason for wider intervals.
    pub(crate) note: Option<String>,
    /// The placements on host and device, with the rate of the cores in each.
    pub(crate) placements: Vec<PlacementTrial>,
    pub(crate) tried: Vec<TrialResult>,
    pub(crate) not: Vec<UntriedRemedy>,
}

pub(crate) struct TrialResult {
    pub(crate) candidate: Candidate,
    pub(crate) gain: Interval,
    pub(crate) written: Option<RewriteStats>,
    /// Share of the records that a cache answers.
    pub(crate) cached: f64,
    pub(crate) quality: String,
    pub(crate) lossy: bool,
}

impl Trials {
    /// Prepares the remedies of a case and runs them in turn with the pipeline as it is and with
    /// the placements of its device.
    ///
    /// # Errors
    ///
    /// As opening and running the pipeline. The failure of a remedy is no error.
    pub(crate) fn run(
        case: &Case,
        survey: &Survey,
        run: &Run,
        storage: Option<&Storage>,
        phases: &Phases<'_>,
        quiet: &mut QuietWait,
    ) -> Result<Trials, Error> {
        let (found, mut not) = if case.conditions.try_remedies {
            candidates(case, survey.records, storage)
        } else {
            Default::default()
        };
        let scratch =
            tempfile::tempdir().map_err(|error| Error::open("a temporary folder", error))?;
        let writing = |share| phases.report(WRITING, share);
        let (kept, sample) = prepare_all(
            case,
            (found, &mut not),
            (&survey.sample, run.samples_per_s),
            scratch.path(),
            &writing,
        )?;
        let base = case.variant(&RecordSubset::Trial {
            records: &sample,
            samples_per_s: run.samples_per_s,
        })?;
        // The base runs first and last in each round, because every gain is a ratio to it.
        let mut variants: Vec<Variant> = vec![base.clone()];
        variants.extend(kept.iter().map(|(_, prepared, _)| prepared.variant.clone()));
        let placements = case.placement_trials(&base);
        variants.extend(placements.variants().cloned());
        variants.push(base);
        let going = |share| phases.report(TRYING, share);
        let turn = case.turn(TURN);
        let run_all = || {
            interleave(
                &variants,
                LoaderReuse::KeepOpen,
                case.rounds(),
                turn,
                &going,
            )
        };
        let mut others = OtherProcesses::watch();
        let mut rates = run_all();
        let disagree = control(&rates).is_some_and(|control| distance(control) > UNSTEADY);
        if disagree && quiet.wait(&|share| phases.report(WAITING, share)) {
            others = OtherProcesses::watch();
            rates = run_all();
        }
        let wider = WiderIntervals::of(case, survey, others.cores().unwrap_or(0.0));
        let control = control(&rates);
        let last = rates.pop().unwrap_or_else(|| Ok(Vec::new()))?;
        let shared = rates.split_off(1 + kept.len());
        let mut rates = rates.into_iter();
        let first = rates.next().unwrap_or_else(|| Ok(Vec::new()))?;
        let both = first.iter().zip(&last);
        let base_rates: Vec<f64> = both.map(|(a, b)| (a + b) / 2.0).collect();
        if base_rates.is_empty() {
            return Ok(Trials::none(case, run, not));
        }
        let unsteady = control.map_or(0.0, distance);
        let factor = wider.as_ref().map_or(1.0, |wider| wider.factor);
        let mut tried = Vec::new();
        for ((candidate, prepared, left_out), rates) in kept.into_iter().zip(rates) {
            let rates = match rates {
                Ok(rates) if !rates.is_empty() => rates,
                Ok(_) => continue,
                Err(error) => {
                    not.push(reject(&candidate, &error));
                    continue;
                }
            };
            let (mut quality, lossy) = match candidate.pixels {
                PixelChange::Identical(text) => (text.to_owned(), false),
                PixelChange::Compared(loss) => match difference(&variants[0], &prepared.variant) {
                    Ok(PixelDifference::None) => ("identical".to_owned(), false),
                    Ok(PixelDifference::Lossy(text)) => (format!("{loss}; {text}"), true),
                    Err(error) => (format!("{loss}; not compared: {}", error.chain()), true),
                },
            };
            if left_out > 0 {
                let all = survey.sample.len();
                quality = format!("{quality}; leaves out {left_out} of {all} records tried");
            }
            let gain = ratio(&rates, &base_rates).widen(unsteady).spread(factor);
            let cached = prepared.cached.as_ref().map_or(0.0, FilledCache::share);
            if let Some(cache) = &prepared.cached {
                quality = format!("{quality}; {}", cache.description(&run.stages));
            }
            tried.push(TrialResult {
                gain: match &prepared.cached {
                    // The others take as long as now.
                    Some(_) => gain.map(|gain| 1.0 / (cached / gain + 1.0 - cached)),
                    None => gain,
                },
                cached,
                candidate,
                written: prepared.written,
                quality,
                lossy,
            });
        }
        let base = interval(&base_rates);
        let row_bytes = case.row_bytes(&case.pipeline).unwrap_or(0.0);
        Ok(Trials {
            base,
            control,
            note: wider
                .filter(|_| !tried.is_empty())
                .map(|found| found.note()),
            sample: Some(TrialSample {
                records: sample.len() as u64,
                encoded_bytes: (sample.len() as f64 * survey.record_bytes) as u64,
                row_bytes: (sample.len() as f64 * row_bytes) as u64,
                cache_bytes: last_level_cache_bytes(),
            }),
            placements: placements.with_rates(shared, (&base_rates, base), &mut not),
            tried,
            not,
        })
    }

    /// Returns the result without trials. The rate of the cores follows from the processor time of
    /// the plain run, which a full load of all cores may not reach.
    fn none(case: &Case, run: &Run, not: Vec<UntriedRemedy>) -> Trials {
        let cpu_s: f64 = run.stages.iter().map(|stage| stage.cpu_s).sum();
        let rate = case.workers() as f64 * run.samples as f64 / cpu_s.max(1e-9);
        Trials {
            base: Interval::exact(rate).widen(UNTRIED),
            control: None,
            sample: None,
            note: None,
            placements: Vec::new(),
            tried: Vec::new(),
            not,
        }
    }

    /// Returns a note if two runs of the same pipeline differ too much to compare remedies.
    pub(crate) fn unsteady(&self) -> Option<String> {
        let distance = distance(self.control?);
        (distance > UNSTEADY).then(|| {
            format!(
                "two runs of the unchanged pipeline in the same turns differed by {}: this \
                 machine is too busy now for narrow intervals; close other programs and repeat",
                format_percent(distance)
            )
        })
    }
}

/// Returns the ratio of the first variant to the last one, which is the same pipeline. None if one of
/// them did not run.
fn control(rates: &Rates) -> Option<Interval> {
    match (rates.first()?, rates.last()?) {
        (Ok(first), Ok(last)) if !last.is_empty() => Some(ratio(first, last)),
        _ => None,
    }
}

/// Returns the relative difference of two equal trials.
fn distance(control: Interval) -> f64 {
    (control.mid - 1.0).abs()
}
