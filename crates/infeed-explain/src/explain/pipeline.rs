//! Explains a pipeline by measuring it in five parts: the records, the plain run, the storage, the
//! cores, the remedies.

use super::capacities::capacities;
use super::starvation::storage_limit;
use super::verdict::verdict;
use crate::case::Case;
use crate::findings::{Explanation, MeasuredMachine, Run, Subject, VERSION, now_s};
use crate::measure::cache_hits::{STAYS, kept_bytes};
use crate::measure::plain_run::PlainRun;
use crate::measure::progress::{
    COPYING, DECODING, FEEDING, PREDICTING, Phases, Progress, READING, RUNNING, SENDING, TRYING,
    WAITING, WRITING,
};
use crate::measure::quiet::{OtherProcesses, QuietWait};
use crate::measure::storage::Storage;
use crate::measure::survey::{Survey, survey};
use crate::measure::trial::TURN;
use crate::model::crossover::crossovers;
use crate::model::decoding::DecodingReport;
use crate::model::limit::Limit;
use crate::model::placement::{PlacementRate, PlacementReport};
use crate::model::supply::Supply;
use crate::remedies::gain::{rank, remedies};
use crate::remedies::trials::Trials;
use crate::what_if::inputs::WhatIfInputs;
use crate::{feeders, what_if};
use infeed_core::error::Error;
use infeed_core::probe;

/// Cores used by other processes above which the report has a note.
const DISTURBED: f64 = 0.1;

/// Minimum share of the predicted rate that the plain run reaches if both agree.
const AGREES: f64 = 0.85;

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
    let survey = survey(case)?;
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
        true => case.storage(survey.sample.len() as u64)?,
        false => None,
    };
    let trials = Trials::run(case, &survey, &run, storage.as_ref(), &phases, &mut quiet)?;
    notes.extend(trials.note.clone());
    let mut warnings = Vec::new();
    if phases.is_stopped() {
        let tried = trials.tried.len();
        warnings.push(format!("stopped early: {tried} remedies were tried"));
    }
    warnings.extend(trials.unsteady());
    warnings.extend(quiet.warning());
    let subject = subject(case, &survey);
    let mut capacities = capacities(
        case,
        &run,
        storage.as_ref(),
        trials.base,
        subject.bytes as f64,
    );
    let reading = capacities.rate_of(Limit::Storage);
    let mut untried = Vec::new();
    let timing = |share| _ = phases.report(COPYING, share);
    let placement = match phases.is_stopped() {
        true => None,
        false => case.place_work(&trials.placements, reading, &mut untried, &timing)?,
    };
    let timing = |share| _ = phases.report(DECODING, share);
    let decoding = match &placement {
        Some(placement) => case.decoding(
            &trials.placements,
            placement,
            reading,
            &mut untried,
            &timing,
        )?,
        None => None,
    };
    notes.extend(case.no_decoder());
    if case.conditions.device.is_some()
        && let Some(now) = placement_now(placement.as_ref(), decoding.as_ref())
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
    if let Some(storage_limit) = storage_limit(&run, case.workers(), &capacities) {
        capacities.add(Limit::Storage, storage_limit.rate, storage_limit.arithmetic);
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
    let mut not_tried = trials.not;
    let mut remedies = remedies(trials.tried, case, &lasting, storage.as_ref(), &subject);
    let known = feeders::PlanInputs {
        run: &run,
        subject: &subject,
        own,
        capacities: &lasting,
        remedies: &remedies,
    };
    let feeder_findings = match phases.is_stopped() {
        true => Default::default(),
        false => feeders::feeding(case, &known, &|phase, share| phases.report(phase, share))?,
    };
    remedies.extend(feeder_findings.remedies);
    let inputs = WhatIfInputs {
        run: &run,
        subject: &subject,
        survey: &survey,
        storage: storage.as_ref(),
        own,
        now: &lasting,
    };
    let predicting = |share| phases.report(PREDICTING, share);
    let what_if = what_if::predict(case, &inputs, &predicting)?;
    rank(&mut remedies, case.conditions.lossy);
    not_tried.extend(untried);
    not_tried.extend(feeder_findings.not_tried);
    notes.extend(feeder_findings.notes);
    warnings.extend(slow_run_warning(case, &run, &capacities));
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
        feeding: feeder_findings.feeding,
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
fn slow_run_warning(case: &Case, run: &Run, capacities: &Supply) -> Option<String> {
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
    let turns = (case.rounds() + 1) as f64 * case.turn(TURN).as_secs_f64();
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
fn placement_now<'a>(
    placement: Option<&'a PlacementReport>,
    decoding: Option<&'a DecodingReport>,
) -> Option<&'a PlacementRate> {
    let placement = placement?;
    // Without files for the decoder, the device only resizes.
    let Some(decoding) = decoding.filter(|_| placement.decodes) else {
        return placement
            .candidates
            .iter()
            .find(|candidate| candidate.split == placement.now);
    };
    let now = decoding
        .candidates
        .iter()
        .find(|candidate| candidate.share == decoding.now);
    now.map(|now| &now.placement)
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

fn subject(case: &Case, survey: &Survey) -> Subject {
    let bytes = survey.record_bytes * case.own.len() as f64;
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
