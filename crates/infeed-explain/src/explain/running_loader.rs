//! Explains a running loader from its counters, without trials.

use std::sync::Arc;

use super::verdict::verdict;
use crate::case::{Case, Conditions};
use crate::feeders::counters::{feeding_from_counters, made_here};
use crate::findings::{
    Explanation, MeasuredMachine, QueuePoint, Run, Subject, TunedPlacement, UntriedRemedy, VERSION,
    Verdict, now_s,
};
use crate::measure::consumer::transfers_of;
use crate::measure::functions;
use crate::measure::plain_run::{selection_note, spans};
use crate::model::crossover::crossovers;
use crate::model::feeders::Feeding;
use crate::model::interval::Interval;
use crate::model::limit::Limit;
use crate::model::stages::stage_costs;
use crate::model::supply::{COUNTED, Supply, costliest, in_python};
use crate::model::transfers::Transfers;
use infeed::loader::device::{DeviceLoader, PlacementState, TriedPlacement};
use infeed::loader::{Loader, Stats};
use infeed::pipeline::Pipeline;
use infeed_core::error::Error;
use infeed_core::probe;
use infeed_core::units::{format_bytes, format_bytes_per_s, format_percent, format_seconds};
use infeed_device::Device;
use infeed_device::ring::{GapTotals, Ring, RingStats};

/// Explains a running loader of `pipeline` from its counters so far; with a cache, those of the last
/// and the current epoch.
///
/// # Errors
///
/// [`Error::Closed`], and [`Error::Config`] before the first batch.
pub fn running(name: &str, pipeline: &Pipeline, loader: &Loader) -> Result<Explanation, Error> {
    explain_loader(name, pipeline, loader, None)
}

/// Facts about a loader on a device that its counters lack.
struct DeviceFacts {
    transfers: Transfers,
    tried: TunedPlacement,
    /// One entry per ring.
    sent: Vec<RingStats>,
}

/// As [`running`], for a loader whose batches go to a device. Adds transfers and the times of bus
/// and kernels on the device's clock.
///
/// # Errors
///
/// As [`running`], and [`Error::Device`] if the device failed.
pub fn running_on<D: Device>(
    name: &str,
    pipeline: &Pipeline,
    loader: &DeviceLoader<D>,
) -> Result<Explanation, Error> {
    let transfers = transfers_of(loader)?;
    let sent = loader.rings().iter().map(Ring::stats);
    let device_facts = DeviceFacts {
        transfers,
        tried: tuned_placement(&loader.placement()),
        sent: sent.collect::<Result<_, Error>>()?,
    };
    explain_loader(name, pipeline, loader.loader(), Some(device_facts))
}

fn tuned_placement(placed: &PlacementState) -> TunedPlacement {
    let of = |other: &TriedPlacement| (other.placement.name().to_owned(), other.ratio);
    TunedPlacement {
        choice: placed.choice.name().to_owned(),
        settled: placed.settled,
        others: placed.others.iter().map(of).collect(),
        step_s: placed.step.map(|step| step.as_secs_f64()),
        text: placed.why.clone(),
    }
}

fn explain_loader(
    name: &str,
    pipeline: &Pipeline,
    loader: &Loader,
    device_facts: Option<DeviceFacts>,
) -> Result<Explanation, Error> {
    let stats = loader.recent_stats()?;
    let source = loader.source()?;
    let sent = device_facts
        .as_ref()
        .map_or(&[][..], |device_facts| &device_facts.sent);
    let run = run_from(&stats, sent)?;
    let (transfers, tried) = match device_facts {
        Some(device_facts) => (Some(device_facts.transfers), Some(device_facts.tried)),
        None => (None, None),
    };
    let rows = (stats.samples / stats.batches.max(1)).max(1);
    let mut capacities = capacities(&stats, &run, pipeline, rows);
    if let Some(transfers) = &transfers {
        capacities.add_transfers(transfers, rows);
    }
    let mut conditions = Conditions::default();
    conditions.open.workers = Some(stats.workers);
    conditions.open.readers = Some(stats.readers);
    conditions.step = Some(std::time::Duration::from_secs_f64(
        run.step_s / stats.batches.max(1) as f64,
    ));
    let mut described = pipeline.clone();
    (described.batch.size, described.batch.per_rank) = (None, Some(rows));
    let case = Case::over(name, &described, &[], Arc::clone(&source), conditions)?;
    let small_bytes = match &transfers {
        // The device already does the expansion, so the rows are as small as possible.
        Some(_) => None,
        None => case.small_bytes(),
    };
    let feeding = feeding_from_counters(&stats, &run, &mut capacities, (rows, small_bytes));
    let after_first = (run.seconds - run.first_batch_s).max(1e-9);
    let stall = capacities.stall((run.wait_s / after_first).clamp(0.0, 1.0));
    let found = probe::machine();
    Ok(Explanation {
        version: VERSION,
        infeed: env!("CARGO_PKG_VERSION").to_owned(),
        made_at_s: now_s(),
        machine: MeasuredMachine {
            cpu: found.cpu,
            cores: found.cores,
            memory_bytes: found.memory_bytes,
            system: found.system,
            memory_bytes_per_s: None,
            profile: None,
        },
        subject: Subject {
            name: name.to_owned(),
            pipeline: pipeline.to_toml().unwrap_or_default(),
            records: source.len(),
            bytes: (read_bytes(&stats) * source.len() as f64) as u64,
            batch_rows: rows,
            workers: stats.workers,
            readers: stats.readers,
            step_s: Some(run.step_s / stats.batches.max(1) as f64),
            fits_in_memory: false,
        },
        plan: loader.plan()?,
        verdict: with_feeder_advice(
            verdict(&case, &run, &stall, &capacities, &[]),
            feeding.as_ref(),
        ),
        resources: capacities.all().to_vec(),
        control: None,
        sample: None,
        remedies: Vec::new(),
        not_tried: vec![UntriedRemedy {
            id: "all".to_owned(),
            name: "remedies".to_owned(),
            why: "they are not tried on a running loader; `infeed explain` tries them".to_owned(),
        }],
        placement: None,
        decoding: None,
        tried,
        feeding,
        crossovers: crossovers(&capacities, rows),
        what_if: None,
        transfers,
        utilisation: None,
        timeline: spans(loader.timeline()?),
        ledger: Vec::new(),
        warnings: Vec::new(),
        // `take_notices` is for the consumer, which has not read the notices yet.
        notes: selection_note(loader.selection())
            .into_iter()
            .chain(stats.tuned.iter().map(|tuned| tuned.text.clone()))
            .chain(cache_note(&stats))
            .collect(),
        run,
        stall,
    })
}

/// Describes the use of a cache of decoded records.
fn cache_note(stats: &Stats) -> Option<String> {
    let cache = stats.decoded_cache?;
    let samples = cache.hits + cache.misses;
    let share = format_percent(cache.hits as f64 / samples.max(1) as f64);
    // Counters of the first epoch begin with its first batch.
    let of = match stats.first_batch {
        Some(first) if first.is_zero() => "of the last and the current epoch",
        _ => "of the first epoch, which fills it",
    };
    Some(format!(
        "{share} of the samples {of} come from the cache of decoded records"
    ))
}

/// Adds advice about feeders to a verdict.
fn with_feeder_advice(mut verdict: Verdict, feeding: Option<&Feeding>) -> Verdict {
    let about = feeding.map(|feeding| feeding.advice(verdict.limit));
    verdict.advice.extend(about.unwrap_or_default());
    verdict
}

/// Returns the encoded bytes of one record.
fn read_bytes(stats: &Stats) -> f64 {
    let read = stats.stages.first();
    read.map_or(0.0, |(_, read)| {
        read.bytes_out as f64 / read.samples.max(1) as f64
    })
}

/// Returns the time in seconds, up to `most`, that the loop waited for data after its first batch:
/// on the host, or for the slowest of its devices.
pub(crate) fn waiting_s(stats: &Stats, sent: &[RingStats], most: f64) -> f64 {
    // The first batch is counted separately.
    let host = stats.wait.saturating_sub(stats.first_wait).as_secs_f64();
    let later = |gaps: &GapTotals| gaps.waited.saturating_sub(gaps.first).as_secs_f64();
    let waits = sent.iter().map(|ring| {
        let (gaps, late) = (&ring.gaps, &ring.late);
        if gaps.batches <= late.batches {
            // The loop waited until the batch was sent, and it may also have waited for the bytes.
            return host + later(late);
        }
        // The device's clock includes the host's waits as far as the device was idle. Gaps that are
        // not known yet count like the others.
        let known = gaps.batches.saturating_sub(1).max(1) as f64;
        later(gaps) * stats.batches.saturating_sub(1) as f64 / known
    });
    let waited = waits.reduce(f64::max).unwrap_or(host);
    waited.clamp(0.0, most)
}

fn run_from(stats: &Stats, sent: &[RingStats]) -> Result<Run, Error> {
    let Some(first) = stats.first_batch else {
        let problem = "the loader has not delivered a batch yet; explain it after some steps";
        return Err(Error::config("explain", problem));
    };
    let seconds = stats.elapsed.as_secs_f64();
    let first_batch_s = first.as_secs_f64();
    let after_first = (seconds - first_batch_s).max(1e-9);
    let wait_s = waiting_s(stats, sent, after_first);
    Ok(Run {
        samples_per_s: stats.samples as f64 / seconds.max(1e-9),
        samples: stats.samples,
        batches: stats.batches,
        seconds,
        first_batch_s,
        wait_s,
        step_s: (after_first - wait_s).max(0.0),
        stages: stage_costs(stats),
        queue: vec![QueuePoint {
            at_s: seconds,
            ready: stats.ready,
            waiting: wait_s / after_first,
        }],
    })
}

impl Supply {
    /// Adds the rates that bus and kernels reached next to the device's other work, for batches of
    /// `rows` rows.
    fn add_transfers(&mut self, transfers: &Transfers, rows: u64) {
        let rate = |batches: u64, time: f64| (rows * batches) as f64 / time;
        if transfers.timed > 0 && transfers.copying_s > 0.0 {
            let rate = rate(transfers.timed, transfers.copying_s);
            let text = format!(
                "{} / {} per sample = {rate:.0} samples/s, copies to {} timed as they were made",
                format_bytes_per_s(transfers.timed_bytes as f64 / transfers.copying_s),
                format_bytes(transfers.batch_bytes() / rows as f64),
                transfers.device,
            );
            self.add(Limit::Copy, Interval::exact(rate).widen(COUNTED), text);
        }
        if transfers.expanding_s > 0.0 {
            let rate = rate(transfers.expanded, transfers.expanding_s);
            let text = format!(
                "1 / {} of kernels per sample = {rate:.0} samples/s, timed next to other \
                 work of {}",
                format_seconds(1.0 / rate),
                transfers.device,
            );
            self.add(Limit::Device, Interval::exact(rate).widen(COUNTED), text);
        }
    }
}

fn capacities(stats: &Stats, run: &Run, pipeline: &Pipeline, rows: u64) -> Supply {
    let mut all = Supply::default();
    let samples = made_here(stats, run).max(1.0);
    let wall = |name: &str| {
        let found = run.stages.iter().find(|stage| stage.name == name);
        found.map_or(0.0, |stage| stage.wall_s)
    };
    let from_counters = |limit, threads: usize, what: &str, time: f64| {
        let rate = threads as f64 * samples / time;
        let text = format!(
            "{threads} {what} / {} per sample = {rate:.0} samples/s, from the counters",
            format_seconds(time / samples)
        );
        (time > 0.0).then(|| (limit, Interval::exact(rate).widen(COUNTED), text))
    };
    let cores = wall("decode") + wall("transform") + wall("write") + wall("python");
    let cores = from_counters(costliest(&run.stages), stats.workers, "workers", cores);
    let cores = cores.map(|cores| functions::workers(run, pipeline, cores));
    let reading = from_counters(Limit::Storage, stats.readers, "I/O threads", wall("read"));
    for (limit, rate, text) in [cores, reading].into_iter().flatten() {
        all.add(limit, rate, text);
    }
    if let Some((rate, text)) = stats.python.and_then(in_python) {
        all.add(Limit::Python, rate, text);
    }
    if run.step_s > 0.0 {
        let step = run.step_s / stats.batches.max(1) as f64;
        let rate = rows as f64 / step;
        let text = format!(
            "{rows} samples / {} per step = {rate:.0} samples/s",
            format_seconds(step)
        );
        all.add(Limit::Step, Interval::exact(rate).widen(COUNTED), text);
    }
    all
}
