//! Feeders of a running loop, from the counters of its loader.

use super::host;
use crate::findings::Run;
use crate::model::feeders::rate::FeedingModel;
use crate::model::feeders::words::{FeedingContext, describe_feeding};
use crate::model::feeders::{FeederOrigin, Feeding, Network, NetworkOrigin};
use crate::model::interval::Interval;
use crate::model::limit::Limit;
use crate::model::supply::{COUNTED, Supply};
use infeed::loader::Stats;
use infeed::loader::remote::RemoteWorkerStats;
use infeed_core::units::{format_bytes, format_bytes_per_s, format_percent, format_seconds};

/// Share of all batches below which own cores only replace batches that feeders failed to deliver.
const HELPS: f64 = 0.05;

/// Samples that this machine's threads made, among the delivered samples.
pub(crate) fn made_here(stats: &Stats, run: &Run) -> f64 {
    let written = run.stages.iter().find(|stage| stage.name == "write");
    match (stats.remote.is_empty(), written) {
        (false, Some(written)) => written.samples as f64,
        _ => stats.samples as f64,
    }
}

/// Adds feeders, wire and receiving to the capacities and returns the statistics of each feeder.
/// None for a loader without feeders. `rows` is the batch size, and `small_bytes` the bytes of a
/// sample if expansion (cast, one-hot) were left to the device.
pub(crate) fn feeding_from_counters(
    stats: &Stats,
    run: &Run,
    all: &mut Supply,
    (rows, small_bytes): (u64, Option<f64>),
) -> Option<Feeding> {
    let feeders = &stats.remote;
    if feeders.is_empty() {
        return None;
    }
    let rows = rows as f64;
    let sum = |what: fn(&RemoteWorkerStats) -> f64| feeders.iter().map(what).sum::<f64>();
    let batches = sum(|feeder| feeder.batches as f64);
    let samples = (batches * rows).max(1.0);
    let received = sum(|feeder| feeder.bytes as f64);
    let receiving = stats.receiving.as_secs_f64();
    let elapsed = stats.elapsed.as_secs_f64().max(1e-9);
    let sample_bytes = received / samples;
    let receive_s = sum(|feeder| feeder.cpu.as_secs_f64()) / samples;
    let made_here = made_here(stats, run);
    let cpu: f64 = run.stages.iter().map(|stage| stage.cpu_s).sum();
    let mut feeding = Feeding {
        origin: FeederOrigin::Counted,
        make_s: cpu / made_here.max(1.0),
        receive_s,
        sample_bytes,
        small_bytes: small_bytes.filter(|small| *small < sample_bytes),
        network: Network {
            bytes_per_s: received / receiving.max(1e-9),
            origin: NetworkOrigin::Reached,
        },
        hosts: feeders
            .iter()
            .map(|feeder| host(feeder, feeder, (stats.batches, elapsed)))
            .collect(),
        ..Feeding::default()
    };
    let able = feeders
        .iter()
        .filter(|feeder| feeder.connected && feeder.batches > 0);
    let rates: Vec<f64> = able
        .map(|feeder| feeder_rate(feeder, rows, elapsed))
        .collect();
    if rates.is_empty() {
        feeding.notes = vec!["no connected feeder has made a batch".to_owned()];
        return Some(feeding);
    }
    let there = rates.len() as u32;
    let cores = infeed_raw::machine::usable_cores().max(1) as f64;
    let own = all.take_cores();
    let here = all.only(&[Limit::Storage]);
    all.take(Limit::Storage);
    let step = all.rate_of(Limit::Step);
    let model = FeedingModel {
        own: own.as_ref().map_or(0.0, |own| own.rate.mid),
        own_limit: own.map_or(Limit::Decode, |own| own.limit),
        here,
        helps: made_here > HELPS * stats.samples as f64,
        workers: (stats.workers as f64).min(cores),
        cores,
        receive_s,
        feeder: Interval::exact(rates.iter().sum::<f64>() / f64::from(there)).widen(COUNTED),
        connection: None,
        wire: (receiving > 0.0).then(|| {
            Interval::exact(feeding.network.bytes_per_s / sample_bytes.max(1e-9)).widen(COUNTED)
        }),
        ceilings: all.only(&[Limit::Copy, Limit::Device, Limit::Step]),
    };
    resources(all, &feeding, &model, (there, receiving / elapsed));
    let context = FeedingContext {
        step: step.map(|rate| rate.mid),
        record_bytes: 0.0,
        whole_groups: false,
        there,
    };
    feeding.enough = context.step.and_then(|step| model.enough(step));
    feeding.saturated = model.saturation_point();
    let wanted: Vec<u32> = feeding.enough.into_iter().chain([there]).collect();
    feeding.counts = model.counts(&wanted);
    describe_feeding(&mut feeding, &model, &context);
    Some(feeding)
}

/// Samples per second of one feeder. This is a lower bound, because the wait of requests that are
/// in flight together counts once for each request.
fn feeder_rate(feeder: &RemoteWorkerStats, rows: f64, elapsed: f64) -> f64 {
    let wait_s = feeder.wait.as_secs_f64().clamp(1e-9, elapsed);
    feeder.batches as f64 * rows / wait_s
}

/// Adds the rates that feeders, wire and receiving allow on top of this machine's own rate.
fn resources(all: &mut Supply, feeding: &Feeding, model: &FeedingModel, (there, busy): (u32, f64)) {
    let (own, _) = match model.helps {
        true => model.here.lower(model.own, model.own_limit, |r| r.mid),
        false => (0.0, model.own_limit),
    };
    let here = match model.helps {
        true => format!("{own:.0} here + "),
        false => String::new(),
    };
    let made = f64::from(there) * model.feeder.mid;
    let exact = |rate: f64| Interval::exact(rate).widen(COUNTED);
    let text = format!(
        "{here}{there} x {:.0} of feeders while requests were pending = {:.0} samples/s, from the \
        counters",
        model.feeder.mid,
        own + made
    );
    all.add(Limit::Feeders, exact(own + made), text);
    if let Some(wire) = model.wire {
        let rate = own + wire.mid;
        let text = format!(
            "{here}{} / {} per sample = {rate:.0} samples/s; bytes arrived {} of the time",
            format_bytes_per_s(feeding.network.bytes_per_s),
            format_bytes(feeding.sample_bytes),
            format_percent(busy.min(1.0)),
        );
        all.add(Limit::Wire, exact(rate), text);
    }
    if model.receive_s > 0.0 {
        let rate = model.cores / model.receive_s;
        let text = format!(
            "{:.0} cores / {} to receive a sample = {rate:.0} samples/s",
            model.cores,
            format_seconds(model.receive_s)
        );
        all.add(Limit::Receive, exact(rate), text);
    }
}
