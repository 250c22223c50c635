//! Writes rates and limits as text: of placements, shares of decoding, and feeders.

use super::decoding::{DecodingRate, DecodingReport, PARTS, named};
use super::feeding::{FeederCount, FeederOrigin, Feeding, FeedingModel, NetworkOrigin};
use super::interval::{Interval, PredictionOutcome};
use super::limit::{Limit, Resource};
use super::placement::{DeviceOrigin, FAR, PlacementRate, PlacementReport, ResourceChange, Split};
use super::units::{bytes, per_s, time};

/// Ratio of two rates below which the report mentions the difference.
const NOTABLE: f64 = 0.9;

impl Split {
    /// Describes the data that crosses the bus.
    fn what(self) -> &'static str {
        match self {
            Split::Host => "finished rows cross the bus",
            Split::Device => "bytes cross the bus and are expanded on the device",
            Split::Resize => "crops cross the bus and are resized on the device",
        }
    }
}

/// Fills in the sentences about the choice, its basis, and changes that would alter it.
pub(super) fn describe_placement(placement: &mut PlacementReport) {
    placement.said = placement_sentences(placement);
}

fn placement_sentences(placement: &PlacementReport) -> Vec<String> {
    let way = |split: Split| placement.ways.iter().find(|way| way.split == split);
    let Some(chosen) = way(placement.chosen) else {
        return Vec::new();
    };
    let mut said = vec![best_placement(placement, chosen)];
    said.extend(headroom(chosen));
    match placement.runner_up.and_then(way) {
        Some(next) => {
            said.push(format!(
                "runner-up: \"{}\", where {}: {:.0} samples/s, limited by {}{}",
                next.split.name(),
                next.split.what(),
                next.rate.mid,
                next.binding.subject_in_placement(),
                match unsure(chosen, next) {
                    true => "; the difference is within the variation of the trials",
                    false => "",
                }
            ));
            said.push(would_change(placement.change, next.split));
            said.extend(contention(placement));
        }
        None => said.push("no work can move to the device".to_owned()),
    }
    if placement.devices > 1 {
        said.push(format!(
            "the host's cores and its storage are shared by {} devices: each gets {} of them; the \
             rates are those of one device",
            placement.devices,
            fraction(placement.devices),
        ));
    }
    said.push(
        match placement.known {
            DeviceOrigin::Measured => "bus and device are timed on the device's own clock",
            DeviceOrigin::Simulated => {
                "the device is simulated: bus and device have the configured rates, not those of a \
                real GPU"
            }
            DeviceOrigin::Planned => "bus and device are planned from data sheets, not measured",
        }
        .to_owned(),
    );
    said
}

/// Returns whether the two placements differ only in trials on the host's cores that may vary as
/// much.
fn unsure(chosen: &PlacementRate, next: &PlacementRate) -> bool {
    let cores = [chosen, next].map(|way| way.binding == Limit::Host);
    cores == [true; 2] && next.rate.high >= chosen.rate.mid
}

fn fraction(devices: u32) -> String {
    match devices {
        2 => "half".to_owned(),
        3 => "a third".to_owned(),
        4 => "a quarter".to_owned(),
        5 => "a fifth".to_owned(),
        8 => "an eighth".to_owned(),
        n => format!("1/{n}"),
    }
}

fn best_placement(placement: &PlacementReport, chosen: &PlacementRate) -> String {
    let mut text = format!(
        "best: placement=\"{}\", where {}: {:.0} samples/s, limited by {}",
        chosen.split.name(),
        chosen.split.what(),
        chosen.rate.mid,
        chosen.binding.subject_in_placement(),
    );
    let faster = |way: &&PlacementRate| way.split != chosen.split && way.rate.mid > chosen.rate.mid;
    if placement.ways.iter().any(|way| faster(&way)) {
        text += "; placements that are up to 3 % faster send more bytes over the bus";
    }
    let now = placement.ways.iter().find(|way| way.split == placement.now);
    if let Some(now) = now.filter(|now| now.split != chosen.split && !placement.decodes) {
        text += &format!(
            "; now it is \"{}\", {:.0} samples/s",
            now.split.name(),
            now.rate.mid
        );
    }
    text
}

/// Describes the spare rate of each other resource.
fn headroom(chosen: &PlacementRate) -> Option<String> {
    let others = chosen.allows.iter().filter(|other| {
        // If the device's work makes no difference, it counts as part of the step.
        let same = chosen.binding == Limit::Step && other.bound == Limit::Device;
        other.bound != chosen.binding && !same
    });
    let factors: Vec<String> = others
        .map(|other| {
            let times = other.rate.mid / chosen.rate.mid.max(1e-9);
            format!("{} {}", other.bound.placement_name(), factor(times))
        })
        .collect();
    (!factors.is_empty()).then(|| format!("headroom: {}", factors.join(", ")))
}

fn would_change(change: Option<ResourceChange>, next: Split) -> String {
    let next = next.name();
    let Some(ResourceChange { bound, factor: by }) = change else {
        return format!(
            "no single resource, changed by up to {:.0}x, makes \"{next}\" the best",
            FAR
        );
    };
    let what = match (bound, by > 1.0) {
        (Limit::Storage, true) => "faster storage",
        (Limit::Storage, false) => "slower storage",
        (Limit::Host, true) => "more cores",
        (Limit::Host, false) => "fewer cores",
        (Limit::Copy, true) => "a faster bus",
        (Limit::Copy, false) => "a slower bus",
        (Limit::Decoder, true) => "a faster decoder",
        (Limit::Decoder, false) => "a slower decoder",
        (Limit::Device, true) => "a device that is faster with rows",
        (Limit::Device, false) => "a device that is slower with rows",
        (Limit::Step, true) => "a faster step",
        (Limit::Step, false) => "a slower step",
        (other, _) => other.subject_in_placement(),
    };
    format!(
        "a different choice needs {what}, {} of the present value; then \"{next}\" is the best",
        factor(by)
    )
}

fn contention(placement: &PlacementReport) -> Option<String> {
    let work = placement.ways.iter().any(|way| way.device_s > 0.0);
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    match (placement.contention_measured, placement.turns_at) {
        _ if !work => None,
        (true, None) => Some(format!(
            "of the device's time for rows, {} lengthens the step, as measured",
            percent(placement.contention.mid)
        )),
        (true, Some(at)) => Some(format!(
            "of the device's time for rows, {} lengthens the step, as measured ({} to {}); at {} \
             the choice changes",
            percent(placement.contention.mid),
            percent(placement.contention.low),
            percent(placement.contention.high),
            percent(at),
        )),
        (false, None) => Some(
            "the share of row work that lengthens the step was not measured; the choice is the \
             same for 0 to 100 %"
                .to_owned(),
        ),
        (false, Some(at)) => Some(format!(
            "the share of row work that lengthens the step was not measured; 100 % is assumed, and \
             at {} or less the choice changes",
            percent(at)
        )),
    }
}

/// Formats a factor such as `0.52x` with at most three digits.
fn factor(times: f64) -> String {
    match times {
        t if t < 9.995 => format!("{t:.2}x"),
        t if t < 99.95 => format!("{t:.1}x"),
        t => format!("{t:.0}x"),
    }
}

/// Fills in the sentences about the result, its basis and its cost.
pub(super) fn describe_decoding(decoding: &mut DecodingReport) {
    decoding.said = decoding_sentences(decoding);
}

fn decoding_sentences(decoding: &DecodingReport) -> Vec<String> {
    let way = |share: u8| decoding.ways.iter().find(|way| way.share == share);
    let mut said = Vec::new();
    if let Some(best) = way(decoding.share) {
        said.push(fastest(decoding, best));
    }
    if let Some(now) = way(decoding.now).filter(|_| decoding.now != decoding.share) {
        // The rate is that of the best placement, which may not be the one that runs.
        let at_best = if now.share == 0 { "at best " } else { "" };
        said.push(format!(
            "now it is decode={}, {at_best}{:.0} samples/s, limited by {}",
            now.name(),
            now.way.rate.mid,
            now.way.binding.subject_in_placement()
        ));
    }
    said.push(balance(decoding));
    if decoding.taken < 0.995 {
        said.push(format!(
            "the decoder can decode {:.0} % of the records assigned to it; the host decodes the \
             others, at every share",
            100.0 * decoding.taken
        ));
    }
    said.push(
        "the device's pixels differ slightly from the host's, so no share is chosen automatically; \
         a state contains the share of its run"
            .to_owned(),
    );
    said.push(
        match decoding.known {
            DeviceOrigin::Simulated => {
                "the device is simulated: its decoder has the configured rate, not that of a real \
                GPU"
            }
            DeviceOrigin::Measured | DeviceOrigin::Planned => {
                "copies and decoder are timed together on the device's own clock, over batches of \
                 these records"
            }
        }
        .to_owned(),
    );
    said
}

fn fastest(decoding: &DecodingReport, best: &DecodingRate) -> String {
    let (rate, limit) = (best.way.rate.mid, best.way.binding.subject_in_placement());
    let by = match best.share {
        0 => {
            return format!(
                "decoding on the host is as fast as any share on the device: {rate:.0} samples/s, \
                 limited by {limit}"
            );
        }
        PARTS.. => "the device decodes all that it can".to_owned(),
        share => format!("the device decodes {share} records of {PARTS}"),
    };
    format!(
        "fastest: decode={}, where {by}: {rate:.0} samples/s, limited by {limit}, {} of the best \
         rate with the host's pixels",
        named(best.share),
        factor(decoding.gain.mid),
    )
}

fn balance(decoding: &DecodingReport) -> String {
    match decoding.balance {
        Some(at) => format!(
            "cores and decoder are equally fast with {:.1} records of {PARTS} on the decoder",
            at * f64::from(PARTS)
        ),
        None => "cores and decoder are equally fast at no share: one of them is slower at every \
                 share"
            .to_owned(),
    }
}

/// Facts that the sentences need in addition to the rates.
#[derive(Clone, Copy, Debug)]
pub(super) struct FeedingContext {
    /// Samples per second of the step, if it is known.
    pub(super) step: Option<f64>,
    /// Encoded bytes of a sample.
    pub(super) record_bytes: f64,
    /// Whether records can only be read in whole groups.
    pub(super) whole_groups: bool,
    /// Number of existing feeders.
    pub(super) there: u32,
}

/// Fills in the sentences about the numbers.
pub(super) fn describe_feeding(
    feeding: &mut Feeding,
    model: &FeedingModel,
    context: &FeedingContext,
) {
    feeding.parts = feeding_parts(feeding, model);
    let one = feeder_rate(model);
    for count in &mut feeding.counts {
        count.arithmetic = feeding_arithmetic(count, one, feeding.sample_bytes, model);
    }
    feeding.said = [
        step_fed(feeding, context),
        growth(feeding),
        measured_gain(feeding, context),
        wire_relief(feeding),
        costly_receiving(feeding),
        loopback_bound(feeding),
        feeder_storage(feeding, model, context),
        whole_groups(context),
    ]
    .into_iter()
    .flatten()
    .collect();
}

impl Feeding {
    /// Returns advice for a limit that concerns feeders.
    pub(super) fn advice(&self, limit: Limit) -> Vec<String> {
        let found = match limit {
            Limit::Wire => Some(relief(self)),
            Limit::Feeders => more_feeders(self),
            Limit::Receive => Some(
                "receiving takes all cores here: send fewer bytes per sample, or run less other \
                 work on this machine"
                    .to_owned(),
            ),
            _ => None,
        };
        found.into_iter().collect()
    }
}

/// Describes the gain from twice as many feeders, or from the number that feeds the step.
fn more_feeders(feeding: &Feeding) -> Option<String> {
    let there = feeding.hosts.iter().filter(|host| host.connected).count() as u32;
    let now = feeding.of(there)?;
    let enough = feeding.enough.filter(|enough| *enough > there);
    let then = feeding
        .of(enough.unwrap_or(2 * there))
        .or_else(|| feeding.counts.last())?;
    let gain = then.rate.mid / now.rate.mid;
    (then.feeders > there).then(|| {
        format!(
            "{} instead of {there}: {gain:.2}x, then limited by {}",
            feeder_count(then.feeders),
            then.limit.subject()
        )
    })
}

/// Samples per second of one feeder, bounded by its connection.
fn feeder_rate(model: &FeedingModel) -> f64 {
    let carried = model.connection.unwrap_or(f64::INFINITY);
    model.feeder.mid.min(carried)
}

/// Returns the rate that each part allows alone.
fn feeding_parts(feeding: &Feeding, model: &FeedingModel) -> Vec<Resource> {
    let mut parts = Vec::new();
    let mut add = |limit, rate: Interval, arithmetic: String| {
        if rate.mid.is_finite() {
            parts.push(Resource {
                limit,
                rate,
                arithmetic,
            });
        }
    };
    if model.own > 0.0 {
        let text = format!(
            "{:.0} workers / {} per sample = {:.0} samples/s here, with nothing to receive",
            model.workers,
            time(model.workers / model.own),
            model.own,
        );
        add(model.own_limit, Interval::exact(model.own), text);
    }
    let one = model.feeder.mid;
    let text = match (feeding.known, feeding.feeder_cores) {
        (FeederOrigin::Planned, Some(cores)) => format!(
            "{cores} cores / ({} to make + {} to send) per sample = {one:.0} samples/s of one \
             feeder, if its cores are like those here",
            time(feeding.make_s),
            time(feeding.send_s),
        ),
        (FeederOrigin::Measured, _) => {
            format!("{one:.0} samples/s of one feeder, the mean of the feeders measured alone")
        }
        _ => format!("{one:.0} samples/s of one feeder, the mean while requests were pending"),
    };
    add(Limit::Feeders, model.feeder, text);
    if let Some(wire) = model.wire {
        let text = format!(
            "{} / {} per sample = {:.0} samples/s, {}",
            per_s(feeding.network.bytes_per_s),
            bytes(feeding.sample_bytes),
            wire.mid,
            network(feeding.network.known),
        );
        add(Limit::Wire, wire, text);
    }
    if feeding.receive_s > 0.0 {
        let rate = model.cores / feeding.receive_s;
        let text = format!(
            "{:.0} cores / {} to receive a sample = {rate:.0} samples/s; making one takes {}",
            model.cores,
            time(feeding.receive_s),
            time(feeding.make_s),
        );
        add(Limit::Receive, Interval::exact(rate), text);
    }
    parts
}

fn network(known: NetworkOrigin) -> &'static str {
    match known {
        NetworkOrigin::Loopback => "over loopback: an upper bound for any network",
        NetworkOrigin::Given => "the configured rate of the network",
        NetworkOrigin::Reached => "reached while bytes arrived",
    }
}

fn feeding_arithmetic(
    count: &FeederCount,
    one: f64,
    sample_bytes: f64,
    model: &FeedingModel,
) -> String {
    let rate = count.rate.mid;
    if count.feeders == 0 {
        return format!(
            "{rate:.0} samples/s here, limited by {}",
            count.limit.subject()
        );
    }
    let fed = match count.limit {
        Limit::Feeders => format!("{} x {one:.0}", count.feeders),
        Limit::Wire => format!("{:.0} that the wire carries", count.fed),
        Limit::Receive => format!("{:.0} that these cores receive", count.fed),
        limit => format!(
            "{:.0} of feeders, limited by {}",
            count.fed,
            limit.subject()
        ),
    };
    let own = match model.helps {
        true => format!("{:.0} here + ", count.own),
        false => String::new(),
    };
    format!(
        "{own}{fed} = {rate:.0} samples/s; {} arrive over the wire, and receiving takes {:.2} \
         cores",
        per_s(count.fed * sample_bytes),
        count.receive_cores,
    )
}

/// Describes whether a number of feeders keeps the step fed.
fn step_fed(feeding: &Feeding, context: &FeedingContext) -> Option<String> {
    let step = context.step?;
    Some(match feeding.enough {
        Some(0) => format!(
            "no feeder is needed: this machine alone reaches the step's {step:.0} samples/s"
        ),
        Some(enough) => {
            let with = feeding.of(enough).map_or(step, |count| count.rate.mid);
            let feeders = match enough {
                1 => "1 feeder keeps".to_owned(),
                n => format!("{n} feeders keep"),
            };
            format!("{feeders} the step fed: {with:.0} samples/s of the {step:.0} that it takes")
        }
        None => {
            let most = feeding
                .counts
                .iter()
                .max_by(|a, b| a.rate.mid.total_cmp(&b.rate.mid))?;
            format!(
                "no number of feeders keeps the step fed: it takes {step:.0} samples/s, and {} \
                 allows {:.0} with {}",
                most.limit.subject(),
                most.rate.mid,
                feeder_count(most.feeders),
            )
        }
    })
}

/// Describes up to which number feeders gain.
fn growth(feeding: &Feeding) -> Option<String> {
    let last = feeding
        .of(feeding.saturated?)
        .filter(|last| last.feeders > 0)?;
    let first = feeding.of(1).filter(|first| first.feeders < last.feeders);
    let first = first.map_or(String::new(), |one| {
        format!("one reaches {:.2}x, ", one.gain.mid)
    });
    Some(format!(
        "{first}{} reach {:.2}x, and more feeders add nothing: limited by {}",
        feeder_count(last.feeders),
        last.gain.mid,
        last.limit.subject(),
    ))
}

/// Describes the measured gain of existing feeders next to the prediction.
fn measured_gain(feeding: &Feeding, context: &FeedingContext) -> Option<String> {
    let found = feeding.measured.as_ref()?;
    let verdict = match found.predicted.outcome(found.gain.mid) {
        PredictionOutcome::Held => "within",
        PredictionOutcome::TooWide => "within, although the interval is too wide to count,",
        PredictionOutcome::Missed => "outside",
    };
    Some(format!(
        "measured, in turn: {:.0} samples/s with {}, {:.0} without: {:.2}x, {verdict} the {:.2}x \
         [{:.2} to {:.2}] predicted for machines like this one; limited by {}",
        found.with,
        feeder_count(context.there),
        found.without,
        found.gain.mid,
        found.predicted.mid,
        found.predicted.low,
        found.predicted.high,
        found.limit.subject(),
    ))
}

/// Describes a remedy if bytes are the limit, on the wire or where they are received.
fn wire_relief(feeding: &Feeding) -> Option<String> {
    let bytes = |limit| matches!(limit, Limit::Wire | Limit::Receive);
    let limits = feeding.counts.iter().any(|count| bytes(count.limit));
    let measured = feeding.measured.is_some_and(|found| bytes(found.limit));
    (limits || measured).then(|| format!("where the wire or receiving limits: {}", relief(feeding)))
}

/// Describes changes that let the wire carry more.
fn relief(feeding: &Feeding) -> String {
    let large = feeding.sample_bytes;
    let small = feeding.small_bytes.filter(|small| *small < NOTABLE * large);
    let smaller = match small {
        Some(small) => format!(
            "a sample has {} on the wire; as encoded bytes for a device (device=), or as uint8 \
             batches, it would have {}, and the wire would carry {:.1} times as many samples",
            bytes(large),
            bytes(small),
            large / small
        ),
        None => format!(
            "a sample has {} on the wire; smaller images, such as from a crop or a resize, have \
             fewer bytes",
            bytes(large)
        ),
    };
    format!("{smaller}; otherwise use a faster link, or this machine's cores (local=\"help\")")
}

/// Describes receiving that costs about as much as making.
fn costly_receiving(feeding: &Feeding) -> Option<String> {
    (feeding.receive_s > 0.5 * feeding.make_s && feeding.make_s > 0.0).then(|| {
        format!(
            "receiving a sample takes {} of a core and making one {}: feeders save little of this \
             machine's cores",
            time(feeding.receive_s),
            time(feeding.make_s)
        )
    })
}

/// Warns that loopback is faster than a network.
fn loopback_bound(feeding: &Feeding) -> Option<String> {
    (feeding.network.known == NetworkOrigin::Loopback).then(|| {
        format!(
            "the network was not measured: {} is the loopback rate, an upper bound for any \
             network; --network 10Gbit plans with a given rate",
            per_s(feeding.network.bytes_per_s)
        )
    })
}

/// Describes the bytes that a feeder reads from storage.
fn feeder_storage(
    feeding: &Feeding,
    model: &FeedingModel,
    context: &FeedingContext,
) -> Option<String> {
    (feeding.known == FeederOrigin::Planned && context.record_bytes > 0.0).then(|| {
        format!(
            "the storage rate of feeders is not known: each must read {}",
            per_s(feeder_rate(model) * context.record_bytes)
        )
    })
}

fn whole_groups(context: &FeedingContext) -> Option<String> {
    context.whole_groups.then(|| {
        "records are in groups that are read as a whole, so a feeder reads all groups of its \
         window for each batch and reaches less than predicted"
            .to_owned()
    })
}

fn feeder_count(count: u32) -> String {
    match count {
        1 => "1 feeder".to_owned(),
        n => format!("{n} feeders"),
    }
}
