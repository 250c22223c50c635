//! What feeders give, in words with the numbers behind them.

use super::model::Supply;
use super::{FeederCount, FeederKnown, Feeding, NetworkKnown};
use crate::explain::interval::Interval;
use crate::explain::limit::{Limit, Resource};
use crate::explain::units::{bytes, per_s, time};

/// A rate that is less than this part of another is worth a word.
const NOTABLE: f64 = 0.9;

/// What the sentences are about besides the numbers.
#[derive(Clone, Copy, Debug)]
pub(in crate::explain) struct About {
    /// Samples a second that the step takes, if it is known.
    pub(in crate::explain) step: Option<f64>,
    /// Encoded bytes of a sample.
    pub(in crate::explain) record_bytes: f64,
    /// Whether records can only be read in whole groups.
    pub(in crate::explain) whole_groups: bool,
    /// Feeders that there are.
    pub(in crate::explain) there: u32,
}

/// Fills in what is said of the numbers.
pub(in crate::explain) fn tell(feeding: &mut Feeding, supply: &Supply, about: &About) {
    feeding.parts = parts(feeding, supply);
    let one = feeder(supply);
    for count in &mut feeding.counts {
        count.arithmetic = arithmetic(count, one, feeding.sample_bytes, supply);
    }
    feeding.said = [
        step(feeding, about),
        growth(feeding),
        given(feeding, about),
        wire(feeding),
        costly(feeding),
        bound(feeding),
        storage(feeding, supply, about),
        groups(about),
    ]
    .into_iter()
    .flatten()
    .collect();
}

impl Feeding {
    /// What helps where this limits.
    pub(in crate::explain) fn advice(&self, limit: Limit) -> Vec<String> {
        let found = match limit {
            Limit::Wire => Some(relief(self)),
            Limit::Feeders => more(self),
            Limit::Receive => Some(
                "receiving takes all cores here: fewer bytes a sample, or less beside it on this \
                 machine"
                    .to_owned(),
            ),
            _ => None,
        };
        found.into_iter().collect()
    }
}

/// What twice as many, or as many as keep the step fed, would gain over those that there are.
fn more(feeding: &Feeding) -> Option<String> {
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
            feeders(then.feeders),
            then.limit.subject()
        )
    })
}

/// Samples a second of one feeder, as far as its connection carries them.
fn feeder(supply: &Supply) -> f64 {
    let carried = supply.connection.unwrap_or(f64::INFINITY);
    supply.feeder.mid.min(carried)
}

/// What each part allows by itself.
fn parts(feeding: &Feeding, supply: &Supply) -> Vec<Resource> {
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
    if supply.own > 0.0 {
        let text = format!(
            "{:.0} workers / {} per sample = {:.0} samples/s here, with nothing to receive",
            supply.workers,
            time(supply.workers / supply.own),
            supply.own,
        );
        add(supply.own_limit, Interval::exact(supply.own), text);
    }
    let one = supply.feeder.mid;
    let text = match (feeding.known, feeding.feeder_cores) {
        (FeederKnown::Planned, Some(cores)) => format!(
            "{cores} cores / ({} to make + {} to send) per sample = {one:.0} samples/s of one \
             feeder, if its cores are like those here",
            time(feeding.make_s),
            time(feeding.send_s),
        ),
        (FeederKnown::Measured, _) => {
            format!(
                "{one:.0} samples/s of one feeder, the mean of those that were run by themselves"
            )
        }
        _ => format!(
            "{one:.0} samples/s of one feeder, the mean while they were asked for something"
        ),
    };
    add(Limit::Feeders, supply.feeder, text);
    if let Some(wire) = supply.wire {
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
        let rate = supply.cores / feeding.receive_s;
        let text = format!(
            "{:.0} cores / {} to receive a sample = {rate:.0} samples/s; making one takes {}",
            supply.cores,
            time(feeding.receive_s),
            time(feeding.make_s),
        );
        add(Limit::Receive, Interval::exact(rate), text);
    }
    parts
}

fn network(known: NetworkKnown) -> &'static str {
    match known {
        NetworkKnown::Loopback => "over loopback: a bound, not the network",
        NetworkKnown::Given => "as the network was told to carry",
        NetworkKnown::Reached => "reached while bytes came",
    }
}

fn arithmetic(count: &FeederCount, one: f64, sample_bytes: f64, supply: &Supply) -> String {
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
    let own = match supply.helps {
        true => format!("{:.0} here + ", count.own),
        false => String::new(),
    };
    format!(
        "{own}{fed} = {rate:.0} samples/s; {} come over the wire, and receiving takes {:.2} cores",
        per_s(count.fed * sample_bytes),
        count.receive_cores,
    )
}

/// Whether a number of feeders keeps the step fed.
fn step(feeding: &Feeding, about: &About) -> Option<String> {
    let step = about.step?;
    Some(match feeding.enough {
        Some(0) => format!(
            "no feeder is needed: this machine alone gives the {step:.0} samples/s that the step takes"
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
                feeders(most.feeders),
            )
        }
    })
}

/// How far more of them gain.
fn growth(feeding: &Feeding) -> Option<String> {
    let last = feeding
        .of(feeding.saturated?)
        .filter(|last| last.feeders > 0)?;
    let first = feeding.of(1).filter(|first| first.feeders < last.feeders);
    let first = first.map_or(String::new(), |one| {
        format!("one gives {:.2}x, ", one.gain.mid)
    });
    Some(format!(
        "{first}{} give {:.2}x, and more of them no more: limited by {}",
        feeders(last.feeders),
        last.gain.mid,
        last.limit.subject(),
    ))
}

/// What those that there are gave, beside what was predicted of them.
fn given(feeding: &Feeding, about: &About) -> Option<String> {
    let found = feeding.measured.as_ref()?;
    let verdict = match found.predicted.holds(found.gain.mid) {
        true => "within",
        false => "outside",
    };
    Some(format!(
        "measured, in turn: {:.0} samples/s with {}, {:.0} without: {:.2}x, {verdict} the {:.2}x \
         [{:.2} to {:.2}] that machines like this one would give; limited by {}",
        found.with,
        feeders(about.there),
        found.without,
        found.gain.mid,
        found.predicted.mid,
        found.predicted.low,
        found.predicted.high,
        found.limit.subject(),
    ))
}

/// What to do about bytes that limit, with more feeders or already: on the wire, or where they are received.
fn wire(feeding: &Feeding) -> Option<String> {
    let bytes = |limit| matches!(limit, Limit::Wire | Limit::Receive);
    let limits = feeding.counts.iter().any(|count| bytes(count.limit));
    let measured = feeding.measured.is_some_and(|found| bytes(found.limit));
    (limits || measured).then(|| format!("where the wire or receiving limits: {}", relief(feeding)))
}

/// What makes the wire carry more.
fn relief(feeding: &Feeding) -> String {
    let large = feeding.sample_bytes;
    let small = feeding.small_bytes.filter(|small| *small < NOTABLE * large);
    let smaller = match small {
        Some(small) => format!(
            "a sample crosses as {}; left as bytes for a device (device=), or as uint8 batches, it \
             would be {}, and the wire would carry {:.1} times as many",
            bytes(large),
            bytes(small),
            large / small
        ),
        None => format!(
            "a sample crosses as {}; smaller images, such as a crop or a resize to fewer pixels, \
             would be fewer bytes",
            bytes(large)
        ),
    };
    format!("{smaller}; a faster link, or this machine's own cores (local=\"help\"), are the rest")
}

/// Receiving that costs about what making does.
fn costly(feeding: &Feeding) -> Option<String> {
    (feeding.receive_s > 0.5 * feeding.make_s && feeding.make_s > 0.0).then(|| {
        format!(
            "receiving a sample takes {} of a core here and making it {}: feeders save little of \
             this machine's cores",
            time(feeding.receive_s),
            time(feeding.make_s)
        )
    })
}

/// That loopback is no network.
fn bound(feeding: &Feeding) -> Option<String> {
    (feeding.network.known == NetworkKnown::Loopback).then(|| {
        format!(
            "the network was not measured: {} are what this machine sends to itself, which no \
             network passes; --network 10Gbit plans with one",
            per_s(feeding.network.bytes_per_s)
        )
    })
}

/// What a feeder has to read.
fn storage(feeding: &Feeding, supply: &Supply, about: &About) -> Option<String> {
    (feeding.known == FeederKnown::Planned && about.record_bytes > 0.0).then(|| {
        format!(
            "the storage of feeders is not known: each would read {} for this",
            per_s(feeder(supply) * about.record_bytes)
        )
    })
}

fn groups(about: &About) -> Option<String> {
    about.whole_groups.then(|| {
        "records lie in groups that can only be read whole, so a feeder reads the groups of its whole \
         window for a batch: it gives less than this says"
            .to_owned()
    })
}

fn feeders(count: u32) -> String {
    match count {
        1 => "1 feeder".to_owned(),
        n => format!("{n} feeders"),
    }
}
