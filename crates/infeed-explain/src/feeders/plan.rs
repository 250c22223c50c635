//! Plans feeders before the user starts one: machines like this one, behind a network whose rate is
//! configured or bounded by loopback. Also measures the feeders that the user named.

use super::measurement::{FeederMeasurements, measure_feeders};
use super::probe::{Loopback, loopback};
use super::{FeederFindings, PlanInputs};
use crate::case::Case;
use crate::findings::{Remedy, Run};
use crate::measure::progress::{FEEDING, Progress, SENDING};
use crate::model::feeders::rate::FeedingModel;
use crate::model::feeders::words::{FeedingContext, describe_feeding};
use crate::model::feeders::{FeederGain, FeederOrigin, Feeding, Network, NetworkOrigin};
use crate::model::interval::Interval;
use crate::model::limit::Limit;
use crate::remedies::feeders::{candidate as add_feeders, count_of};
use infeed_core::error::Error;
use infeed_feed::Local;

/// Share of a step's rate that a remedy may lack and still feed it.
const GIVEN_STEP: f64 = 0.02;

/// Bytes of a row's header on the wire: a flag, the record number and its hash.
const HEAD_BYTES: f64 = 17.0;

/// Spread of a network rate that is configured, and of one that was reached.
const NETWORK_SPREAD: f64 = 0.05;

/// Predicts the rate with feeders if the user asked for it, or if this machine's cores are the limit
/// and no remedy feeds the step. Measures the feeders that the user named.
///
/// # Errors
///
/// Returns the error of a named feeder that rejects this run.
pub(crate) fn feeding(
    case: &Case,
    known: &PlanInputs<'_>,
    progress: Progress<'_>,
) -> Result<FeederFindings, Error> {
    let conditions = &case.conditions;
    let named = conditions.feeders.as_ref();
    let is_requested =
        named.is_some() || conditions.network.is_some() || conditions.feeder_cores.is_some();
    if !is_requested && step_is_limit(case, known) {
        return Ok(FeederFindings::default());
    }
    if let Some(why) = useless(case, known.capacities.limit(), is_requested) {
        return Ok(why.map_or_else(FeederFindings::default, FeederFindings::without_plan));
    }
    progress(SENDING, 0.0);
    let bytes = case.wire_bytes(known.run);
    let wire = match loopback(bytes.0, case.rows()) {
        Ok(wire) => wire,
        // A planned feeder is one remedy of several, so its failure is not fatal unless the user
        // asked.
        Err(error) if !is_requested => return Ok(FeederFindings::without_plan(error.chain())),
        Err(error) => return Err(error),
    };
    let (model, mut feeding) = plan_feeders(case, known, &wire, bytes);
    let step = conditions.step;
    let context = FeedingContext {
        step: step.map(|step| case.rows() as f64 / step.as_secs_f64().max(1e-9)),
        record_bytes: known.subject.bytes as f64 / known.subject.records.max(1) as f64,
        whole_groups: case.own.groups().is_some_and(|groups| groups.whole),
        there: named.map_or(0, |named| named.hosts.count() as u32),
    };
    let mut notes = Vec::new();
    let mut measured = None;
    if let Some(named) = named {
        let going = |share| progress(FEEDING, share);
        let found = measure_feeders(case, named, &going)?;
        let predicted = model.with(context.there).gain;
        measured = add(case, &mut feeding, &model, (found, predicted), &mut notes);
    }
    fill(&mut feeding, measured.as_ref().unwrap_or(&model), &context);
    Ok(FeederFindings {
        // Remedies keep the prediction that was made before a feeder ran.
        remedies: remedies(case, known, &model, &context),
        feeding: Some(feeding),
        notes,
        ..FeederFindings::default()
    })
}

/// Returns whether the step is fed, with or without a remedy. Without a step there is nothing to
/// feed, and without remedies it is not known.
fn step_is_limit(case: &Case, known: &PlanInputs<'_>) -> bool {
    let Some(step) = case
        .conditions
        .step
        .filter(|_| case.conditions.try_remedies)
    else {
        return true;
    };
    let demand = case.rows() as f64 / step.as_secs_f64().max(1e-9);
    let useful = known.remedies.iter().filter(|remedy| remedy.gains());
    let rates = useful.map(|remedy| remedy.rate.mid);
    let best = rates.fold(known.capacities.least().mid, f64::max);
    best >= (1.0 - GIVEN_STEP) * demand
}

/// Returns `Some` if feeders are not planned, with the reason if the user should see one.
fn useless(case: &Case, limit: Limit, is_requested: bool) -> Option<Option<String>> {
    let functions = &case.pipeline.python;
    if let Some(spec) = functions.iter().find(|spec| spec.handle.is_some()) {
        let why = format!(
            "{} exists only in this process; move it to a module",
            spec.function
        );
        return Some(Some(why));
    }
    if let Some(spec) = functions.first()
        && case.conditions.feeders.is_none()
    {
        let why = format!(
            "{} is a Python function, whose cost on other machines is not predicted; name running \
             feeders to measure them",
            spec.function
        );
        return Some(Some(why));
    }
    if case.decodes() {
        let why = "feeders send decoded images, and here the device's decoder needs files";
        return Some(Some(why.to_owned()));
    }
    if !case.handles.is_empty() {
        let why = "the records are in the memory of this process, which feeders cannot read";
        return Some(Some(why.to_owned()));
    }
    match limit {
        _ if is_requested => None,
        Limit::Decode | Limit::Transform | Limit::Memory => None,
        Limit::Storage => Some(Some(
            "storage is the limit here, and the read rate of other machines is not known; more \
             cores would not help"
                .to_owned(),
        )),
        _ => Some(None),
    }
}

/// Plans feeders that are machines like this one.
fn plan_feeders(
    case: &Case,
    known: &PlanInputs<'_>,
    wire: &Loopback,
    (sample_bytes, small_bytes): (f64, Option<f64>),
) -> (FeedingModel, Feeding) {
    let cores = infeed_raw::machine::usable_cores().max(1) as f64;
    let workers = (case.workers() as f64).min(cores);
    let feeder_cores = case.conditions.feeder_cores.unwrap_or(workers as usize);
    let send_s = wire.send_s * sample_bytes;
    let receive_s = wire.receive_s * sample_bytes;
    let make_s = |rate: f64| workers / rate.max(1e-9);
    let feeder = known
        .own
        .map(|rate| feeder_cores as f64 / (make_s(rate) + send_s));
    let network = match case.conditions.network {
        Some(bytes_per_s) => Network {
            bytes_per_s,
            origin: NetworkOrigin::Given,
        },
        None => Network {
            bytes_per_s: wire.all,
            origin: NetworkOrigin::Loopback,
        },
    };
    let connection = wire.connection.min(network.bytes_per_s) / sample_bytes;
    let all = known.capacities;
    let model = FeedingModel {
        own: known.own.mid,
        own_limit: match all.rate_of(Limit::Transform) {
            Some(_) => Limit::Transform,
            None => Limit::Decode,
        },
        here: all.only(&[Limit::Storage, Limit::Memory]),
        helps: helps(case),
        workers,
        cores,
        receive_s,
        feeder,
        connection: Some(connection),
        wire: Some(Interval::exact(network.bytes_per_s / sample_bytes).widen(NETWORK_SPREAD)),
        ceilings: all.only(&[Limit::Copy, Limit::Device, Limit::Step]),
    };
    let feeding = Feeding {
        origin: FeederOrigin::Planned,
        feeder_cores: Some(feeder_cores),
        make_s: make_s(known.own.mid),
        send_s,
        receive_s,
        sample_bytes,
        small_bytes,
        network,
        ..Feeding::default()
    };
    (model, feeding)
}

/// Returns whether this machine's cores make batches next to feeders.
fn helps(case: &Case) -> bool {
    let named = case.conditions.feeders.as_ref();
    named.is_none_or(|feeders| feeders.local == Local::Help)
}

/// Replaces planned rates by measured rates. None if no feeder was reached.
fn add(
    case: &Case,
    feeding: &mut Feeding,
    planned: &FeedingModel,
    (found, predicted): (FeederMeasurements, Interval),
    notes: &mut Vec<String>,
) -> Option<FeedingModel> {
    for host in &found.hosts {
        if let Some(problem) = &host.problem {
            notes.push(format!("{}: {problem}", host.host));
        }
    }
    let near = |host: &str| host.starts_with("127.") || host.starts_with("localhost");
    if found.hosts.iter().any(|host| near(&host.host)) {
        notes.push(
            "a feeder on this machine shares its cores; the prediction assumes other machines"
                .to_owned(),
        );
    }
    feeding.hosts = found.hosts;
    let feeder = found.feeder?;
    feeding.origin = FeederOrigin::Measured;
    feeding.sample_bytes = found.sample_bytes;
    feeding.receive_s = found.receive_s;
    if found.make_s > 0.0 {
        feeding.make_s = found.make_s;
    }
    if case.conditions.network.is_none() {
        feeding.network = Network {
            bytes_per_s: found.bytes_per_s,
            origin: NetworkOrigin::Reached,
        };
    }
    let wire = feeding.network.bytes_per_s / feeding.sample_bytes.max(1.0);
    let model = FeedingModel {
        feeder,
        connection: None,
        wire: Some(Interval::exact(wire).widen(NETWORK_SPREAD)),
        receive_s: feeding.receive_s,
        ..planned.clone()
    };
    let there = feeding.hosts.iter().filter(|host| host.connected).count() as u32;
    feeding.measured = Some(FeederGain {
        without: found.without,
        with: found.with,
        gain: found.gain,
        predicted,
        limit: model.with(there).limit,
        busy: found.busy,
    });
    Some(model)
}

/// Fills in the numbers and the sentences for a model.
fn fill(feeding: &mut Feeding, model: &FeedingModel, context: &FeedingContext) {
    feeding.enough = context.step.and_then(|step| model.enough(step));
    feeding.saturated = model.saturation_point();
    let wanted: Vec<u32> = feeding.enough.into_iter().chain([context.there]).collect();
    feeding.counts = model.counts(&wanted);
    describe_feeding(feeding, model, context);
}

/// Returns the remedies: the number of feeders that keeps the step fed, or else one, and the number
/// that exists.
fn remedies(
    case: &Case,
    known: &PlanInputs<'_>,
    model: &FeedingModel,
    context: &FeedingContext,
) -> Vec<Remedy> {
    let enough = context.step.and_then(|step| model.enough(step));
    let wanted = match (enough, context.step) {
        (Some(enough), _) => enough,
        (None, Some(_)) => model.saturation_point().unwrap_or(1),
        (None, None) => 1,
    };
    let mut counts = vec![wanted, context.there];
    counts.retain(|count| *count > 0);
    counts.sort_unstable();
    counts.dedup();
    counts
        .into_iter()
        .map(|count| remedy(case, known, model, context, count))
        .collect()
}

fn remedy(
    case: &Case,
    known: &PlanInputs<'_>,
    model: &FeedingModel,
    context: &FeedingContext,
    count: u32,
) -> Remedy {
    let candidate = add_feeders(count);
    let found = model.with(count);
    let rows = known.subject.batch_rows as f64;
    let rate = found.rate;
    let step_of = |rate: f64| rows / rate.max(1e-9);
    let name = case.name.as_str();
    Remedy {
        id: candidate.id,
        name: candidate.name,
        command: candidate.command.replace("PIPELINE", &quote(name)),
        rate,
        gain: found.gain,
        step_time: Interval {
            low: step_of(rate.high),
            mid: step_of(rate.mid),
            high: step_of(rate.low),
        },
        disk_bytes: 0,
        convert_s: 0.0,
        quality: "identical".to_owned(),
        lossy: false,
        needs_feeders: count > context.there,
        limit: found.limit,
        arithmetic: format!(
            "{:.0} here + {:.0} of feeders = {:.0} samples/s, limited by {}",
            found.own,
            found.from_feeders,
            rate.mid,
            found.limit.subject()
        ),
    }
}

/// Quotes a name so that a shell reads it as one word.
fn quote(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-:".contains(c);
    match !name.is_empty() && name.chars().all(plain) {
        true => name.to_owned(),
        false => format!("'{}'", name.replace('\'', r"'\''")),
    }
}

impl Case {
    /// Returns the bytes of a sample on the wire, and the smaller number of bytes if the device did
    /// the expansion (cast, one-hot). None if that is not smaller.
    fn wire_bytes(&self, run: &Run) -> (f64, Option<f64>) {
        let small = self.small_bytes();
        let row = match self.expands() {
            true => small,
            false => self.row_bytes(&self.pipeline),
        };
        // Rows of varying size count with the mean size that the run wrote.
        let write = run.stages.iter().find(|stage| stage.name == "write");
        let seen = write.map_or(0.0, |write| {
            write.bytes_out as f64 / write.samples.max(1) as f64
        });
        let row = row.unwrap_or(seen);
        let small = small.filter(|small| !self.expands() && *small < row);
        (row + HEAD_BYTES, small.map(|small| small + HEAD_BYTES))
    }
}

/// Checks that a remedy can be applied under the conditions of a case. A feeder remedy needs hosts.
///
/// # Errors
///
/// [`Error::Config`] with the number of feeders that the remedy needs.
pub fn applies(case: &Case, remedy: &Remedy) -> Result<(), Error> {
    let Some(wanted) = count_of(&remedy.id) else {
        return Ok(());
    };
    let named = case.conditions.feeders.as_ref();
    let there = named.map_or(0, |feeders| feeders.hosts.count());
    if there == wanted as usize {
        return Ok(());
    }
    let problem = format!(
        "`{}` is measured with running feeders: {there} are named; start {wanted} (`{}`) and name \
         them",
        remedy.id, remedy.command
    );
    Err(Error::config("apply", problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_blanks_is_one_word_to_a_shell() {
        assert_eq!(quote("train.toml"), "train.toml");
        assert_eq!(quote("my photos"), "'my photos'");
        assert_eq!(quote("it's"), r"'it'\''s'");
    }
}
