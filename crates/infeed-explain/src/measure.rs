//! Measures an explanation in five parts: the records, the plain run, the storage, the cores, the
//! remedies.

use std::time::Duration;

use super::cached::{STAYS, kept_bytes, with_cache};
use super::calibration::WiderIntervals;
use super::case::Case;
use super::decoding::DecodingReport;
use super::difference::{PixelDifference, difference};
use super::findings::{
    Explanation, MeasuredMachine, NotTried, Remedy, Run, Subject, TrialSample, VERSION,
};
use super::interval::Interval;
use super::limit::Limit;
use super::placement::{PlacementRate, PlacementReport};
use super::placement_trials::PlacementTrial;
use super::prepare::{FilledCache, RecordSubset, RewriteStats};
use super::progress::{
    COPYING, DECODING, FEEDING, PREDICTING, Phases, READING, RUNNING, SENDING, TRYING, WAITING,
    WRITING,
};
use super::quiet::QuietWait;
use super::ready::{ready, refused};
use super::remedies::{Candidate, PixelChange, RemedyChange, candidates};
use super::run::PlainRun;
use super::starved::starved;
use super::storage::Storage;
use super::supply::{Supply, costliest, in_python};
use super::survey::{Survey, survey};
use super::trial::{LoaderReuse, OtherProcesses, Rates, Variant, interleave, interval, ratio};
use super::verdict::verdict;
use super::what_if::{WhatIfInputs, crossovers};
use super::{Progress, feeders, functions, now_s, what_if};
use infeed_core::error::Error;
use infeed_core::probe;
use infeed_raw::machine::last_level_cache_bytes;

/// Length of a turn.
const SLICE: Duration = Duration::from_millis(280);

/// Cores used by other processes above which the report has a note.
const DISTURBED: f64 = 0.1;

/// Difference of the unchanged pipeline from itself above which the report has a note.
const UNSTEADY: f64 = 0.1;

/// Spread of the cores' rate if it was computed from processor time.
const UNTRIED: f64 = 0.3;

/// Minimum share of the predicted rate that the plain run reaches if both agree.
const AGREES: f64 = 0.85;

/// Spread of a bus rate or step time that the user gave.
const GIVEN: f64 = 0.02;

/// Explains a pipeline.
///
/// # Errors
///
/// As opening and running the pipeline.
pub fn explain(case: &Case, progress: Progress<'_>) -> Result<Explanation, Error> {
    case.check_decode()?;
    case.conditions.what_if.check()?;
    let phases = phases(case, progress);
    let others = OtherProcesses::watch();
    let looked = survey(case)?;
    let mut quiet = QuietWait::new(case.longest_wait());
    if others.are_busy() {
        quiet.wait(&|share| phases.report(WAITING, share));
    }
    let others = OtherProcesses::watch();
    let mut plain = PlainRun::measure(case, &phases)?;
    // The trials also measure this pipeline, and both must meet the same machine.
    if others.are_busy() && quiet.wait(&|share| phases.report(WAITING, share)) {
        plain = PlainRun::measure(case, &phases)?;
    }
    let PlainRun {
        run,
        plan,
        utilisation,
        timeline,
        transfers,
        mut notes,
    } = plain;

    let storage = match phases.report(READING, 0.0) {
        true => case.storage(looked.sample.len() as u64)?,
        false => None,
    };
    let trials = Trials::run(case, &looked, &run, storage.as_ref(), &phases, &mut quiet)?;
    notes.extend(trials.note.clone());
    let mut warnings = Vec::new();
    if phases.is_stopped() {
        let tried = trials.tried.len();
        warnings.push(format!("stopped early: {tried} remedies were tried"));
    }
    warnings.extend(trials.unsteady());
    warnings.extend(quiet.warning());
    let subject = subject(case, &looked);
    let mut capacities = capacities(case, &run, storage.as_ref(), &trials, subject.bytes as f64);
    let reading = capacities.rate_of(Limit::Storage);
    let mut untried = Vec::new();
    let timing = |share| _ = phases.report(COPYING, share);
    let placement = match phases.is_stopped() {
        true => None,
        false => case.place_work(&trials.ways, reading, &mut untried, &timing)?,
    };
    let timing = |share| _ = phases.report(DECODING, share);
    let decoding = match &placement {
        Some(placement) => {
            case.decoding(&trials.ways, placement, reading, &mut untried, &timing)?
        }
        None => None,
    };
    notes.extend(case.no_decoder());
    if case.conditions.device.is_some()
        && let Some(now) = way_now(placement.as_ref(), decoding.as_ref())
        && let Some(placement) = &placement
    {
        capacities.add_device(now, &placement.device);
    }
    if let Some(storage) = storage.as_ref().filter(|_| case.throttle().is_none()) {
        notes.push(storage_note(storage, case, &subject));
    }
    if case.is_far() && trials.tried.iter().any(|tried| tried.written.is_some()) {
        notes.push(
            "rewritten data goes to a local disk, which is then read instead of the bucket; the \
             rate of that disk was not measured"
                .to_owned(),
        );
    }
    if let Some(cores) = others.cores().filter(|&cores| cores > DISTURBED) {
        warnings.push(format!(
            "other processes used {cores:.1} cores meanwhile; rates and gains are less certain \
             than their intervals"
        ));
    }
    let mut lasting = capacities.clone();
    if let Some(starved) = starved(&run, case.workers(), &capacities) {
        capacities.add(Limit::Storage, starved.rate, starved.arithmetic);
        if subject.fits_in_memory {
            notes.push(
                "the data was not yet in memory during this run, but will be later; the gains \
                 apply to later epochs"
                    .to_owned(),
            );
        } else {
            lasting = capacities.clone();
        }
    }
    let (own, control, sample) = (trials.base, trials.control, trials.sample);
    let (mut remedies, mut not_tried) = trials.remedies(case, &lasting, storage.as_ref(), &subject);
    let known = feeders::PlanInputs {
        run: &run,
        subject: &subject,
        own,
        capacities: &lasting,
        remedies: &remedies,
    };
    let fed = match phases.is_stopped() {
        true => Default::default(),
        false => feeders::feeding(case, &known, &|phase, share| phases.report(phase, share))?,
    };
    remedies.extend(fed.remedies);
    let inputs = WhatIfInputs {
        run: &run,
        subject: &subject,
        looked: &looked,
        storage: storage.as_ref(),
        own,
        now: &lasting,
    };
    let predicting = |share| phases.report(PREDICTING, share);
    let what_if = what_if::predict(case, &inputs, &predicting)?;
    rank(&mut remedies, case.conditions.lossy);
    not_tried.extend(untried);
    not_tried.extend(fed.not_tried);
    notes.extend(fed.notes);
    warnings.extend(slower_than_predicted(case, &run, &capacities));
    let waited = run.wait_s / (run.seconds - run.first_batch_s).max(1e-9);
    let stall = capacities.stall(waited.clamp(0.0, 1.0));
    Ok(Explanation {
        version: VERSION,
        infeed: env!("CARGO_PKG_VERSION").to_owned(),
        made_at_s: now_s(),
        machine: machine(case),
        plan,
        verdict: verdict(case, &run, &stall, &capacities, &remedies),
        run,
        stall,
        resources: capacities.all().to_vec(),
        control,
        sample,
        remedies,
        not_tried,
        placement,
        decoding,
        tried: None,
        feeding: fed.feeding,
        crossovers: crossovers(&capacities, case.rows()),
        what_if,
        transfers,
        utilisation,
        timeline,
        ledger: Vec::new(),
        warnings,
        notes,
        subject,
    })
}

/// Returns a warning if the plain run was slower than all resources allow. Something else then
/// limited it, or the trials met a faster machine.
fn slower_than_predicted(case: &Case, run: &Run, capacities: &Supply) -> Option<String> {
    let predicted = capacities.least().mid;
    let slow = run.samples_per_s < AGREES * predicted;
    // Too few batches to compare.
    (slow && run.batches >= 10 && case.conditions.planned_machine.is_none()).then(|| {
        format!(
            "the run reached {:.0} samples/s, and the limits predict {predicted:.0}: the machine \
             was busy, or a resource that is not listed is the limit; repeat on a quiet machine",
            run.samples_per_s
        )
    })
}

/// Returns the phases of an explanation with their usual lengths.
fn phases<'a>(case: &Case, progress: Progress<'a>) -> Phases<'a> {
    let conditions = &case.conditions;
    let remedies = if conditions.try_remedies { 10.0 } else { 0.0 };
    // One more for the slice of each new loader that does not count.
    let turns = (case.rounds() + 1) as f64 * case.turn(SLICE).as_secs_f64();
    let device = if conditions.device.is_some() {
        3.0
    } else {
        0.0
    };
    let feeders = if conditions.feeders.is_some() {
        12.0
    } else {
        0.0
    };
    let phases = vec![
        (RUNNING, conditions.seconds),
        (READING, 1.0),
        (WRITING, 0.7 * remedies),
        (TRYING, (2.0 + remedies) * turns),
        (COPYING, device),
        (DECODING, device),
        (SENDING, 0.5),
        (FEEDING, feeders),
        (PREDICTING, turns * conditions.what_if.variants() as f64),
    ];
    Phases::new(progress, phases)
}

/// Returns the placement that ran, with the host's or the device's decoder.
fn way_now<'a>(
    placement: Option<&'a PlacementReport>,
    decoding: Option<&'a DecodingReport>,
) -> Option<&'a PlacementRate> {
    let placement = placement?;
    // Without files for the decoder, the device only resizes.
    let Some(decoding) = decoding.filter(|_| placement.decodes) else {
        return placement.ways.iter().find(|way| way.split == placement.now);
    };
    let now = decoding.ways.iter().find(|way| way.share == decoding.now);
    now.map(|now| &now.way)
}

impl Case {
    /// Measures the storage of this case, with other records than the `taken` ones of the trials.
    pub(super) fn storage(&self, taken: u64) -> Result<Option<Storage>, Error> {
        let records = self.cold_sample(taken);
        Storage::measure(&self.source, &records, self.readers(), self.throttle())
    }
}

fn storage_note(storage: &Storage, case: &Case, subject: &Subject) -> String {
    let cold = storage.rate(case.readers()).mid;
    let megabytes = storage.bytes_per_s(case.readers()) / 1e6;
    let when = match (case.is_far(), kept_bytes(case)) {
        (false, _) if subject.fits_in_memory => {
            "the first epoch; later ones find the data in memory"
        }
        (false, _) => "every epoch, because the data is larger than half of the memory",
        (true, kept) if kept <= 0.0 => {
            "every epoch, because bucket objects are not cached; set INFEED_CACHE_DIR to cache \
             them on this machine"
        }
        (true, kept) if subject.bytes as f64 <= kept => {
            "the first epoch; later ones find the data in the cache on this machine"
        }
        (true, _) => "every epoch, because the data is larger than the cache on this machine",
    };
    format!(
        "cold, the storage reads {cold:.0} samples/s ({megabytes:.0} MB/s); this applies to \
        {when}"
    )
}

fn subject(case: &Case, looked: &Survey) -> Subject {
    let bytes = looked.record_bytes * case.own.len() as f64;
    let memory = infeed_raw::machine::memory_limit_bytes() as f64;
    Subject {
        name: case.name.clone(),
        pipeline: case.pipeline.to_toml().unwrap_or_default(),
        records: case.own.len(),
        bytes: bytes as u64,
        batch_rows: case.rows(),
        workers: case.workers(),
        readers: case.readers(),
        step_s: case.conditions.step.map(|step| step.as_secs_f64()),
        fits_in_memory: bytes < STAYS * memory && (!case.is_far() || bytes <= kept_bytes(case)),
    }
}

fn machine(case: &Case) -> MeasuredMachine {
    let found = probe::machine();
    MeasuredMachine {
        cpu: found.cpu,
        cores: found.cores,
        memory_bytes: found.memory_bytes,
        system: found.system,
        memory_bytes_per_s: probe::Probe::path()
            .and_then(|path| probe::Probe::load(&path))
            .map(|known| known.memory_all_cores_bytes_per_s),
        profile: case
            .conditions
            .planned_machine
            .as_ref()
            .map(|machine| machine.name.clone()),
    }
}

/// The measured remedies.
struct Trials {
    /// Samples per second of the pipeline as it is, from memory, with a consumer that is always
    /// ready.
    base: Interval,
    /// The unchanged pipeline against itself, in the same turns as the remedies. 1 without noise.
    /// None if the trials were stopped.
    control: Option<Interval>,
    sample: Option<TrialSample>,
    /// The reason for wider intervals.
    note: Option<String>,
    /// The placements on host and device, with the rate of the cores in each.
    ways: Vec<PlacementTrial>,
    tried: Vec<TrialResult>,
    not: Vec<NotTried>,
}

struct TrialResult {
    candidate: Candidate,
    gain: Interval,
    written: Option<RewriteStats>,
    /// Share of the records that a cache answers.
    cached: f64,
    quality: String,
    lossy: bool,
}

impl Trials {
    fn run(
        case: &Case,
        looked: &Survey,
        run: &Run,
        storage: Option<&Storage>,
        phases: &Phases<'_>,
        quiet: &mut QuietWait,
    ) -> Result<Trials, Error> {
        let (found, mut not) = if case.conditions.try_remedies {
            candidates(case, looked.records, storage)
        } else {
            Default::default()
        };
        let scratch =
            tempfile::tempdir().map_err(|error| Error::open("a temporary folder", error))?;
        let writing = |share| phases.report(WRITING, share);
        let (kept, sample) = ready(
            case,
            (found, &mut not),
            (&looked.sample, run.samples_per_s),
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
        let ways = case.ways(&base);
        variants.extend(ways.variants().cloned());
        variants.push(base);
        let going = |share| phases.report(TRYING, share);
        let turn = case.turn(SLICE);
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
        let wider = WiderIntervals::of(case, looked, others.cores().unwrap_or(0.0));
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
                    not.push(refused(&candidate, &error));
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
                let all = looked.sample.len();
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
                encoded_bytes: (sample.len() as f64 * looked.record_bytes) as u64,
                row_bytes: (sample.len() as f64 * row_bytes) as u64,
                cache_bytes: last_level_cache_bytes(),
            }),
            ways: ways.tried(shared, (&base_rates, base), &mut not),
            tried,
            not,
        })
    }

    /// Returns the result without trials. The rate of the cores follows from the processor time of
    /// the plain run, which a full load of all cores may not reach.
    fn none(case: &Case, run: &Run, not: Vec<NotTried>) -> Trials {
        let cpu_s: f64 = run.stages.iter().map(|stage| stage.cpu_s).sum();
        let rate = case.workers() as f64 * run.samples as f64 / cpu_s.max(1e-9);
        Trials {
            base: Interval::exact(rate).widen(UNTRIED),
            control: None,
            sample: None,
            note: None,
            ways: Vec::new(),
            tried: Vec::new(),
            not,
        }
    }

    /// Returns a note if two runs of the same pipeline differ too much to compare remedies.
    fn unsteady(&self) -> Option<String> {
        let distance = distance(self.control?);
        (distance > UNSTEADY).then(|| {
            format!(
                "two runs of the unchanged pipeline in the same turns differed by {:.0} %: this \
                 machine is too busy now for narrow intervals; close other programs and repeat",
                100.0 * distance
            )
        })
    }

    /// Returns the table: each remedy with the rate that the tightest resource then allows.
    fn remedies(
        self,
        case: &Case,
        now: &Supply,
        storage: Option<&Storage>,
        subject: &Subject,
    ) -> (Vec<Remedy>, Vec<NotTried>) {
        let tried = self.tried.into_iter();
        let remedies = tried.map(|tried| remedy(case, now, storage, subject, tried));
        (remedies.collect(), self.not)
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

/// Sorts remedies: those that gain first, then those that lose no pixel unless `lossy` allows a
/// loss, then by gain. Remedies that need more feeders come last.
fn rank(remedies: &mut [Remedy], lossy: bool) {
    let class = |remedy: &Remedy| {
        let after = remedy.lossy && !lossy;
        (remedy.needs_feeders, !remedy.gains(), after)
    };
    remedies.sort_by(|a, b| {
        let by_class = class(a).cmp(&class(b));
        by_class.then(b.gain.mid.total_cmp(&a.gain.mid))
    });
}

fn remedy(
    case: &Case,
    now: &Supply,
    storage: Option<&Storage>,
    subject: &Subject,
    tried: TrialResult,
) -> Remedy {
    let TrialResult {
        candidate,
        gain,
        written,
        cached,
        quality,
        lossy,
    } = tried;
    let readers = match candidate.change {
        RemedyChange::Readers(readers) => readers,
        _ => case.readers(),
    };
    let reading = storage.map(|storage| {
        if written.is_some() && case.is_far() {
            // The new data lies on a local disk, whose rate the bucket does not predict.
            return Interval::exact(f64::INFINITY);
        }
        let (rate, bytes) = match &written {
            // Arrays are mapped and read in large pieces, so their bytes count and not their files.
            Some(written) => {
                let bytes = written.bytes_out as f64 / written.records.max(1) as f64;
                let files = files_of(case, &candidate, storage.record_files, bytes);
                (storage.rate_of(readers, files, bytes), bytes)
            }
            None => (storage.rate(readers), storage.record_bytes),
        };
        let limited = with_cache(case, rate, bytes * subject.records as f64);
        let limited = limited.unwrap_or(Interval::exact(f64::INFINITY));
        limited.map(|rate| rate / (1.0 - cached))
    });
    let (copy, step) = placed(case, &candidate);
    let then = now
        .times_cores(gain)
        .with(Limit::Storage, reading)
        .with(Limit::Copy, copy)
        .with(Limit::Step, step);
    let rate = then.least();
    let before = now.least();
    let over = |a: f64, b: f64| if b > 0.0 { a / b } else { 1.0 };
    let total = |bytes: u64, of: &RewriteStats| {
        (bytes as f64 * subject.records as f64 / of.records.max(1) as f64) as u64
    };
    Remedy {
        arithmetic: format!(
            "from memory {:.2}x of now [{:.2} to {:.2}] in {} turns; then {} allows {:.0} \
             samples/s, where {} allows {:.0} now",
            gain.mid,
            gain.low,
            gain.high,
            case.rounds(),
            then.limit().name(),
            rate.mid,
            now.limit().name(),
            before.mid,
        ),
        limit: then.limit(),
        // A resource that does not change has the same measured rate before and after, so its
        // spread cancels. The spread of the ratio and of changed resources remains.
        gain: Interval {
            low: over(rate.low, before.mid),
            mid: over(rate.mid, before.mid),
            high: over(rate.high, before.mid),
        },
        step_time: Interval {
            low: subject.batch_rows as f64 / rate.high.max(1e-9),
            mid: subject.batch_rows as f64 / rate.mid.max(1e-9),
            high: subject.batch_rows as f64 / rate.low.max(1e-9),
        },
        rate,
        disk_bytes: written.as_ref().map_or(0, |w| total(w.bytes_out, w)),
        convert_s: written.as_ref().map_or(0.0, |w| {
            w.seconds * subject.records as f64 / w.records.max(1) as f64
        }),
        quality,
        lossy,
        needs_feeders: false,
        id: candidate.id,
        name: candidate.name,
        command: candidate.command,
    }
}

/// Returns the storage requests per record after the remedy is applied.
fn files_of(case: &Case, candidate: &Candidate, now: f64, bytes: f64) -> f64 {
    /// Bytes of neighbouring records that a shard source reads at once.
    const READ_BYTES: f64 = 8.0 * 1024.0 * 1024.0;
    match &candidate.change {
        RemedyChange::Pack { options } if options.to.is_shards() => match case.pipeline.shuffle {
            // In shuffled order, neighbours are rarely read together. One request per record, for
            // all fields.
            Some(_) => now.min(1.0),
            None => now.min(bytes / READ_BYTES),
        },
        _ => now,
    }
}

/// Returns the rates of the bus and the step with a remedy that changes the bytes on the bus. The
/// device then does the host's work. That takes the time to read the small row and write the large
/// one.
fn placed(case: &Case, candidate: &Candidate) -> (Option<Interval>, Option<Interval>) {
    let RemedyChange::Description(pipeline) = &candidate.change else {
        return (None, None);
    };
    let sizes = case.row_bytes(&case.pipeline).zip(case.row_bytes(pipeline));
    let Some((before, after)) = sizes else {
        return (None, None);
    };
    let given = |rate: f64| Interval::exact(rate).widen(GIVEN);
    let copy = case.bus().map(|bus| given(bus / after));
    let planned_machine = case.conditions.planned_machine.as_ref();
    let device = planned_machine.and_then(|machine| machine.device_bytes_per_s);
    let step = case.conditions.step.zip(device).map(|(step, device)| {
        let expanding = if after < before {
            (before + after) / device
        } else {
            0.0
        };
        let rows = case.rows() as f64;
        given(rows / (step.as_secs_f64() + rows * expanding))
    });
    (copy, step)
}

/// Returns the rate that each resource allows now.
fn capacities(
    case: &Case,
    run: &Run,
    storage: Option<&Storage>,
    trials: &Trials,
    bytes: f64,
) -> Supply {
    let mut all = Supply::default();
    let workers = case.workers();
    let cores = trials.base;
    let measured = format!(
        "{workers} workers / {:.2} ms per sample = {:.0} samples/s, measured with the data in \
         memory",
        1e3 * workers as f64 / cores.mid.max(1e-9),
        cores.mid,
    );
    let cores = (costliest(&run.stages), cores, measured);
    let (limit, rate, text) = functions::workers(run, &case.pipeline, cores);
    all.add(limit, rate, text);
    let reading = storage.and_then(|storage| {
        let cold = storage.rate(case.readers());
        Some((storage, cold, with_cache(case, cold, bytes)?))
    });
    if let Some((storage, cold, rate)) = reading {
        let kept = 1.0 - cold.mid / rate.mid;
        let kept = if kept > 0.005 {
            format!(", with {:.0} % of the reads from memory", 100.0 * kept)
        } else {
            String::new()
        };
        all.add(
            Limit::Storage,
            rate,
            format!(
                "{:.1} MB/s / {:.1} kB per sample = {:.0} samples/s with {} I/O threads, \
                 cold{kept}",
                cold.mid * storage.record_bytes / 1e6,
                storage.record_bytes / 1e3,
                rate.mid,
                case.readers(),
            ),
        );
    }
    if let Some((rate, text)) = case.own.python().and_then(in_python) {
        all.add(Limit::Python, rate, text);
    }
    if let Some((rate, text)) = memory(case, run) {
        all.add(
            Limit::Memory,
            rate.map(|rate| rate.max(trials.base.mid)),
            text,
        );
    }
    if let Some((bus, sample_bytes)) = case.bus().zip(case.row_bytes(&case.pipeline)) {
        let rate = bus / sample_bytes;
        all.add(
            Limit::Copy,
            Interval::exact(rate).widen(GIVEN),
            format!(
                "{:.1} GB/s / {:.1} kB per sample = {rate:.0} samples/s",
                bus / 1e9,
                sample_bytes / 1e3
            ),
        );
    }
    if let Some(step) = case.conditions.step {
        let rate = case.rows() as f64 / step.as_secs_f64().max(1e-9);
        all.add(
            Limit::Step,
            Interval::exact(rate).widen(GIVEN),
            format!(
                "{} samples / {:.1} ms per step = {rate:.0} samples/s",
                case.rows(),
                1e3 * step.as_secs_f64()
            ),
        );
    }
    all
}

/// Returns the memory bandwidth limit for pixels that are moved, not decoded.
fn memory(case: &Case, run: &Run) -> Option<(Interval, String)> {
    let decoded = run
        .stages
        .iter()
        .any(|s| s.name == "decode" && s.samples > 0);
    let write = run.stages.iter().find(|stage| stage.name == "write")?;
    if decoded || write.samples == 0 {
        return None;
    }
    let bandwidth = probe::memory_bandwidth(case.workers());
    let moved = (write.bytes_in + write.bytes_out) as f64 / write.samples as f64;
    let rate = bandwidth / moved.max(1.0);
    let text = format!(
        "{:.1} GB/s / {:.0} kB read and written per sample = {rate:.0} samples/s",
        bandwidth / 1e9,
        moved / 1e3
    );
    Some((Interval::exact(rate).widen(0.1), text))
}
