//! Feeders before one is started: machines like this one, behind a network that was told or is bounded
//! by what this machine sends to itself. And beside those that there are, if some were named.

use super::given::{Given, given};
use super::probe::{Loopback, loopback};
use crate::error::Error;
use crate::explain::Progress;
use crate::explain::capacity::Capacities;
use crate::explain::case::Case;
use crate::explain::feeding::{
    About, Fed, FeederKnown, Feeding, Network, NetworkKnown, Supply, tell,
};
use crate::explain::findings::{NotTried, Remedy, Run, Subject};
use crate::explain::interval::Interval;
use crate::explain::limit::Limit;
use crate::explain::remedies::{count_of, fed};
use crate::loader::feeders::Local;

/// Bytes of a row's head on the wire: a flag, its record and its hash.
const HEAD_BYTES: f64 = 17.0;

/// Spread of a network that was told, and of one that was reached.
const TOLD: f64 = 0.05;

/// What an explanation knows already.
pub(in crate::explain) struct Known<'a> {
    pub(in crate::explain) run: &'a Run,
    pub(in crate::explain) subject: &'a Subject,
    /// Samples a second of this machine's cores, from memory.
    pub(in crate::explain) own: Interval,
    pub(in crate::explain) capacities: &'a Capacities,
}

/// What was found.
#[derive(Default)]
pub(in crate::explain) struct Found {
    pub(in crate::explain) feeding: Option<Feeding>,
    pub(in crate::explain) remedies: Vec<Remedy>,
    pub(in crate::explain) not_tried: Vec<NotTried>,
    pub(in crate::explain) notes: Vec<String>,
}

/// What feeders would give where this machine's cores limit, or were asked for; what those give that
/// were named.
///
/// # Errors
///
/// What refuses this run at a feeder that was named.
pub(in crate::explain) fn feeding(
    case: &Case,
    known: &Known<'_>,
    progress: Progress<'_>,
) -> Result<Found, Error> {
    let conditions = &case.conditions;
    let named = conditions.feeders.as_ref();
    let asked =
        named.is_some() || conditions.network.is_some() || conditions.feeder_cores.is_some();
    if !asked && !conditions.try_remedies {
        return Ok(Found::default());
    }
    if let Some(why) = useless(case, known.capacities.limit(), asked) {
        return Ok(why.map_or_else(Found::default, not_tried));
    }
    progress("sending batches from this machine to itself", 0.0);
    let bytes = case.wire_bytes(known.run);
    let wire = match loopback(bytes.0, case.rows()) {
        Ok(wire) => wire,
        // What is planned is one remedy of many; what was asked for has to be there.
        Err(error) if !asked => return Ok(not_tried(error.chain())),
        Err(error) => return Err(error),
    };
    let (supply, mut feeding) = planned(case, known, &wire, bytes);
    let step = conditions.step;
    let about = About {
        step: step.map(|step| case.rows() as f64 / step.as_secs_f64().max(1e-9)),
        record_bytes: known.subject.bytes as f64 / known.subject.records.max(1) as f64,
        whole_groups: case.own.groups().is_some_and(|groups| groups.whole),
        there: named.map_or(0, |named| named.hosts.count() as u32),
    };
    let mut notes = Vec::new();
    let mut measured = None;
    if let Some(named) = named {
        let going = |share| progress("running with feeders and without, in turn", share);
        let found = given(case, named, &going)?;
        let predicted = supply.with(about.there).gain;
        measured = add(case, &mut feeding, &supply, (found, predicted), &mut notes);
    }
    fill(&mut feeding, measured.as_ref().unwrap_or(&supply), &about);
    Ok(Found {
        // What a remedy predicts is known before a feeder runs.
        remedies: remedies(case, known, &supply, &about),
        feeding: Some(feeding),
        notes,
        ..Found::default()
    })
}

fn not_tried(why: String) -> Found {
    Found {
        not_tried: vec![NotTried {
            id: "feeders".to_owned(),
            name: "feeders: other machines that make batches too".to_owned(),
            why,
        }],
        ..Found::default()
    }
}

/// Why feeders are not planned: with a reason that is told, or without one.
fn useless(case: &Case, limit: Limit, asked: bool) -> Option<Option<String>> {
    let functions = &case.pipeline.python;
    if let Some(spec) = functions.iter().find(|spec| spec.handle.is_some()) {
        let why = format!(
            "{} is in this process alone; put it in a module",
            spec.function
        );
        return Some(Some(why));
    }
    if let Some(spec) = functions.first()
        && case.conditions.feeders.is_none()
    {
        let why = format!(
            "{} is Python, and what it takes elsewhere is not predicted; name feeders that run, and \
             they are measured",
            spec.function
        );
        return Some(Some(why));
    }
    if case.decodes() {
        let why = "they leave no files to a device's decoder, which has some here";
        return Some(Some(why.to_owned()));
    }
    if !case.handles.is_empty() {
        let why = "the records are in the memory of this process, and feeders read their own";
        return Some(Some(why.to_owned()));
    }
    match limit {
        _ if asked => None,
        Limit::Decode | Limit::Transform | Limit::Memory => None,
        Limit::Storage => Some(Some(
            "storage limits here, and whether other machines read faster is not known; with cores \
             to spare they would not help"
                .to_owned(),
        )),
        _ => Some(None),
    }
}

/// Machines like this one.
fn planned(
    case: &Case,
    known: &Known<'_>,
    wire: &Loopback,
    (sample_bytes, small_bytes): (f64, Option<f64>),
) -> (Supply, Feeding) {
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
            known: NetworkKnown::Given,
        },
        None => Network {
            bytes_per_s: wire.all,
            known: NetworkKnown::Loopback,
        },
    };
    let connection = wire.connection.min(network.bytes_per_s) / sample_bytes;
    let all = known.capacities;
    let of = |limits: &[Limit]| -> Vec<(Limit, Interval)> {
        let found = limits.iter();
        found
            .filter_map(|&limit| Some((limit, all.rate_of(limit)?)))
            .collect()
    };
    let supply = Supply {
        own: known.own.mid,
        own_limit: match all.rate_of(Limit::Transform) {
            Some(_) => Limit::Transform,
            None => Limit::Decode,
        },
        here: of(&[Limit::Storage, Limit::Memory]),
        helps: helps(case),
        workers,
        cores,
        receive_s,
        feeder,
        connection: Some(connection),
        wire: Some(Interval::exact(network.bytes_per_s / sample_bytes).widen(TOLD)),
        ceilings: of(&[Limit::Copy, Limit::Device, Limit::Step]),
    };
    let feeding = Feeding {
        known: FeederKnown::Planned,
        feeder_cores: Some(feeder_cores),
        make_s: make_s(known.own.mid),
        send_s,
        receive_s,
        sample_bytes,
        small_bytes,
        network,
        ..Feeding::default()
    };
    (supply, feeding)
}

/// Whether this machine's cores help feeders.
fn helps(case: &Case) -> bool {
    let named = case.conditions.feeders.as_ref();
    named.is_none_or(|feeders| feeders.local == Local::Help)
}

/// Puts what was measured in the place of what was planned; None where no feeder was reached.
fn add(
    case: &Case,
    feeding: &mut Feeding,
    planned: &Supply,
    (found, predicted): (Given, Interval),
    notes: &mut Vec<String>,
) -> Option<Supply> {
    for host in &found.hosts {
        if let Some(problem) = &host.problem {
            notes.push(format!("{}: {problem}", host.host));
        }
    }
    let near = |host: &str| host.starts_with("127.") || host.starts_with("localhost");
    if found.hosts.iter().any(|host| near(&host.host)) {
        notes.push(
            "a feeder on this machine shares its cores: what was predicted is about other machines"
                .to_owned(),
        );
    }
    feeding.hosts = found.hosts;
    let feeder = found.feeder?;
    feeding.known = FeederKnown::Measured;
    feeding.sample_bytes = found.sample_bytes;
    feeding.receive_s = found.receive_s;
    if found.make_s > 0.0 {
        feeding.make_s = found.make_s;
    }
    if case.conditions.network.is_none() {
        feeding.network = Network {
            bytes_per_s: found.bytes_per_s,
            known: NetworkKnown::Reached,
        };
    }
    let wire = feeding.network.bytes_per_s / feeding.sample_bytes.max(1.0);
    let supply = Supply {
        feeder,
        connection: None,
        wire: Some(Interval::exact(wire).widen(TOLD)),
        receive_s: feeding.receive_s,
        ..planned.clone()
    };
    let there = feeding.hosts.iter().filter(|host| host.connected).count() as u32;
    feeding.measured = Some(Fed {
        without: found.without,
        with: found.with,
        gain: found.gain,
        predicted,
        limit: supply.with(there).limit,
        busy: found.busy,
    });
    Some(supply)
}

/// The numbers and the words of what a supply gives.
fn fill(feeding: &mut Feeding, supply: &Supply, about: &About) {
    feeding.enough = about.step.and_then(|step| supply.enough(step));
    feeding.saturated = supply.saturated();
    let wanted: Vec<u32> = feeding.enough.into_iter().chain([about.there]).collect();
    feeding.counts = supply.counts(&wanted);
    tell(feeding, supply, about);
}

/// The remedy: as many as keep the step fed, or the first; and as many as there are.
fn remedies(case: &Case, known: &Known<'_>, supply: &Supply, about: &About) -> Vec<Remedy> {
    let enough = about.step.and_then(|step| supply.enough(step));
    let wanted = match (enough, about.step) {
        (Some(enough), _) => enough,
        (None, Some(_)) => supply.saturated().unwrap_or(1),
        (None, None) => 1,
    };
    let mut counts = vec![wanted, about.there];
    counts.retain(|count| *count > 0);
    counts.sort_unstable();
    counts.dedup();
    counts
        .into_iter()
        .map(|count| remedy(case, known, supply, count))
        .collect()
}

fn remedy(case: &Case, known: &Known<'_>, supply: &Supply, count: u32) -> Remedy {
    let candidate = fed(count);
    let found = supply.with(count);
    let rows = known.subject.batch_rows as f64;
    let rate = found.rate;
    let step_of = |rate: f64| rows / rate.max(1e-9);
    let name = case.name.as_str();
    Remedy {
        id: candidate.id,
        name: candidate.name,
        command: candidate.command.replace("PIPELINE", &quoted(name)),
        rate,
        gain: found.gain,
        step_time: Interval {
            low: step_of(rate.high),
            mid: step_of(rate.mid),
            high: step_of(rate.low),
        },
        disk_bytes: 0,
        convert_s: 0.0,
        quality: candidate.quality.unwrap_or_default().to_owned(),
        limit: found.limit,
        arithmetic: format!(
            "{:.0} here + {:.0} of feeders = {:.0} samples/s, limited by {}",
            found.own,
            found.fed,
            rate.mid,
            found.limit.subject()
        ),
    }
}

/// A name as a shell takes it for one word.
fn quoted(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-:".contains(c);
    match !name.is_empty() && name.chars().all(plain) {
        true => name.to_owned(),
        false => format!("'{}'", name.replace('\'', r"'\''")),
    }
}

impl Case {
    /// Bytes of a sample on the wire, and what they would be if what makes rows larger were left to a
    /// device, where that is less.
    fn wire_bytes(&self, run: &Run) -> (f64, Option<f64>) {
        let small = self.small_bytes();
        let row = match self.expands() {
            true => small,
            false => self.row_bytes(&self.pipeline),
        };
        // Rows that differ in size are as large as those that were seen.
        let write = run.stages.iter().find(|stage| stage.name == "write");
        let seen = write.map_or(0.0, |write| {
            write.bytes_out as f64 / write.samples.max(1) as f64
        });
        let row = row.unwrap_or(seen);
        let small = small.filter(|small| !self.expands() && *small < row);
        (row + HEAD_BYTES, small.map(|small| small + HEAD_BYTES))
    }
}

/// Whether a remedy can be applied under the conditions of a case: feeders have to be named.
///
/// # Errors
///
/// [`Error::Config`] saying how many are wanted.
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
        "`{}` is measured with feeders that run: start {wanted} (`{}`) and name them, here {there} \
         are",
        remedy.id, remedy.command
    );
    Err(Error::config("apply", problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_blanks_is_one_word_to_a_shell() {
        assert_eq!(quoted("train.toml"), "train.toml");
        assert_eq!(quoted("my photos"), "'my photos'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
