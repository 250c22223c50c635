//! The sentences and the arithmetic of a feeder report.

use super::rate::FeedingModel;
use super::{FeederCount, FeederOrigin, Feeding, NetworkOrigin};
use crate::model::interval::{Interval, PredictionOutcome};
use crate::model::limit::{Limit, Resource};
use infeed_core::units::{format_bytes, format_bytes_per_s, format_factor, format_seconds};

/// Ratio of two rates below which the report mentions the difference.
const NOTABLE: f64 = 0.9;

/// Facts that the sentences need in addition to the rates.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FeedingContext {
    /// Samples per second of the step, if it is known.
    pub(crate) step: Option<f64>,
    /// Encoded bytes of a sample.
    pub(crate) record_bytes: f64,
    /// Whether records can only be read in whole groups.
    pub(crate) whole_groups: bool,
    /// Number of existing feeders.
    pub(crate) there: u32,
}

/// Fills in the sentences about the numbers.
pub(crate) fn describe_feeding(
    feeding: &mut Feeding,
    model: &FeedingModel,
    context: &FeedingContext,
) {
    feeding.parts = feeding_parts(feeding, model);
    let one = feeder_rate(model);
    for count in &mut feeding.counts {
        count.arithmetic = feeding_arithmetic(count, one, feeding.sample_bytes, model);
    }
    feeding.notes = [
        step_demand(feeding, context),
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
    pub(crate) fn advice(&self, limit: Limit) -> Vec<String> {
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
            "{} instead of {there}: {}, then limited by {}",
            feeder_count(then.feeders),
            format_factor(gain),
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
            format_seconds(model.workers / model.own),
            model.own,
        );
        add(model.own_limit, Interval::exact(model.own), text);
    }
    let one = model.feeder.mid;
    let text = match (feeding.origin, feeding.feeder_cores) {
        (FeederOrigin::Planned, Some(cores)) => format!(
            "{cores} cores / ({} to make + {} to send) per sample = {one:.0} samples/s of one \
             feeder, if its cores are like those here",
            format_seconds(feeding.make_s),
            format_seconds(feeding.send_s),
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
            format_bytes_per_s(feeding.network.bytes_per_s),
            format_bytes(feeding.sample_bytes),
            wire.mid,
            network(feeding.network.origin),
        );
        add(Limit::Wire, wire, text);
    }
    if feeding.receive_s > 0.0 {
        let rate = model.cores / feeding.receive_s;
        let text = format!(
            "{:.0} cores / {} to receive a sample = {rate:.0} samples/s; making one takes {}",
            model.cores,
            format_seconds(feeding.receive_s),
            format_seconds(feeding.make_s),
        );
        add(Limit::Receive, Interval::exact(rate), text);
    }
    parts
}

fn network(origin: NetworkOrigin) -> &'static str {
    match origin {
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
    let from_feeders = match count.limit {
        Limit::Feeders => format!("{} x {one:.0}", count.feeders),
        Limit::Wire => format!("{:.0} that the wire carries", count.from_feeders),
        Limit::Receive => format!("{:.0} that these cores receive", count.from_feeders),
        limit => format!(
            "{:.0} of feeders, limited by {}",
            count.from_feeders,
            limit.subject()
        ),
    };
    let own = match model.helps {
        true => format!("{:.0} here + ", count.own),
        false => String::new(),
    };
    format!(
        "{own}{from_feeders} = {rate:.0} samples/s; {} arrive over the wire, and receiving takes {:.2} \
         cores",
        format_bytes_per_s(count.from_feeders * sample_bytes),
        count.receive_cores,
    )
}

/// Describes whether a number of feeders keeps the step fed.
fn step_demand(feeding: &Feeding, context: &FeedingContext) -> Option<String> {
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
        format!("one reaches {}, ", format_factor(one.gain.mid))
    });
    Some(format!(
        "{first}{} reach {}, and more feeders add nothing: limited by {}",
        feeder_count(last.feeders),
        format_factor(last.gain.mid),
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
    let by_bytes = |limit| matches!(limit, Limit::Wire | Limit::Receive);
    let limits = feeding.counts.iter().any(|count| by_bytes(count.limit));
    let measured = feeding.measured.is_some_and(|found| by_bytes(found.limit));
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
            format_bytes(large),
            format_bytes(small),
            large / small
        ),
        None => format!(
            "a sample has {} on the wire; smaller images, such as from a crop or a resize, have \
             fewer bytes",
            format_bytes(large)
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
            format_seconds(feeding.receive_s),
            format_seconds(feeding.make_s)
        )
    })
}

/// Warns that loopback is faster than a network.
fn loopback_bound(feeding: &Feeding) -> Option<String> {
    (feeding.network.origin == NetworkOrigin::Loopback).then(|| {
        format!(
            "the network was not measured: {} is the loopback rate, an upper bound for any \
             network; --network 10Gbit plans with a given rate",
            format_bytes_per_s(feeding.network.bytes_per_s)
        )
    })
}

/// Describes the bytes that a feeder reads from storage.
fn feeder_storage(
    feeding: &Feeding,
    model: &FeedingModel,
    context: &FeedingContext,
) -> Option<String> {
    (feeding.origin == FeederOrigin::Planned && context.record_bytes > 0.0).then(|| {
        format!(
            "the storage rate of feeders is not known: each must read {}",
            format_bytes_per_s(feeder_rate(model) * context.record_bytes)
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
