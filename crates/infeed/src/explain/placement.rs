//! Where the work belongs that can be done on either side of the copy: the rate of every way of
//! sharing it, which is the least of what storage, cores, bus and device allow.
//!
//! A way is one index into the operations of a row: what comes before it is the host's, what comes
//! behind it the device's. So nothing can go to the device and back.
//!
//! This is arithmetic over numbers that were measured or planned elsewhere.

#[cfg(test)]
mod tests;
mod words;

use serde::{Deserialize, Serialize};

use super::interval::Interval;

pub(super) use words::factor;

/// Rates closer than this are equal: then less work for the device counts, less for the host's cores,
/// fewer bytes.
pub(super) const EQUAL: f64 = 1.03;

/// A resource is looked at from this part of what it is to this many times that.
const FAR: f64 = 32.0;

/// Factor between two amounts of a resource that are looked at; what lies between is bisected.
const STRIDE: f64 = 1.01;

/// Up to where the host does the work on a row; one further down leaves more to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Split {
    /// To the end: finished rows cross the bus.
    Host,
    /// To the last bytes: they cross, and the device makes floats and one-hot masks of them.
    Device,
    /// To the decoded crops: they cross, and the device resizes them, too.
    #[serde(rename = "device-resize")]
    Resize,
}

impl Split {
    /// What `placement=` is called with, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Split::Host => "host",
            Split::Device => "device",
            Split::Resize => "device-resize",
        }
    }
}

/// What can limit a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// Reading encoded bytes.
    Storage,
    /// The host's cores.
    Host,
    /// The bus to the device.
    Bus,
    /// The device's decoder of JPEGs, which has the copies' stream.
    Decoder,
    /// The device's work on the rows, beside the step.
    Device,
    /// The step itself.
    Step,
}

impl Bound {
    /// Those of the ways of a [`Placing`], with the host's pixels, in the order data flows.
    pub const PLACING: [Bound; 5] = [
        Bound::Storage,
        Bound::Host,
        Bound::Bus,
        Bound::Device,
        Bound::Step,
    ];

    /// Those of the ways of a [`Decoding`](super::Decoding), in the order data flows.
    pub const DECODING: [Bound; 6] = [
        Bound::Storage,
        Bound::Host,
        Bound::Bus,
        Bound::Decoder,
        Bound::Device,
        Bound::Step,
    ];

    /// Lower-case name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Bound::Storage => "storage",
            Bound::Host => "host",
            Bound::Bus => "bus",
            Bound::Decoder => "decoder",
            Bound::Device => "device",
            Bound::Step => "step",
        }
    }
}

/// Where the numbers of bus and device are from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Known {
    /// Timed on the device's own clock.
    Measured,
    /// Timed on a simulated device, so they are what it was told to be.
    Simulated,
    /// Bytes over the rates of data sheets.
    Planned,
}

/// Where rows should be finished, and why.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Placing {
    /// The device, or the profile that stands in for one.
    pub device: String,
    /// Where its numbers are from.
    pub known: Known,
    /// Devices that share the host's cores and its storage; rates are those of one.
    pub devices: u32,
    /// Every way there is, the most work on the host first.
    pub ways: Vec<Way>,
    /// The way that ran, or would run unless another is asked for.
    pub now: Split,
    /// Whether files were left to the device's decoder besides: what ran is in no way of these, which all
    /// give the host's pixels.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub decodes: bool,
    /// The best.
    pub chosen: Split,
    /// The next; None where there is one way.
    pub runner_up: Option<Split>,
    /// Which share of the time that the device works on rows lengthens the step, 0 to 1; the choice is
    /// made for the middle.
    pub contention: Interval,
    /// Whether that share was measured. If not, all of it is assumed.
    pub contention_measured: bool,
    /// Within the interval of the contention, where the choice turns.
    pub turns_at: Option<f64>,
    /// The least change of one resource that makes the runner-up the best.
    pub change: Option<Change>,
    /// All that in sentences.
    pub said: Vec<String>,
}

/// One way to share the work.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Way {
    /// Where the row changes sides.
    pub split: Split,
    /// What is left to the device, a few words; empty if nothing is.
    pub left: String,
    /// Bytes of a sample over the bus.
    pub bus_bytes: f64,
    /// Time on the bus, a sample.
    pub bus_s: f64,
    /// Time of the device's work on a sample.
    pub device_s: f64,
    /// Samples a second: the least of all below.
    pub rate: Interval,
    /// Which one that is.
    pub binding: Bound,
    /// What each resource allows, in the order data flows; those without a limit are left out.
    pub allows: Vec<Allowed>,
    /// How the rates were come by.
    pub arithmetic: String,
}

impl Way {
    /// What a resource allows; None where it is no limit.
    pub fn allowed(&self, bound: Bound) -> Option<Interval> {
        let found = self.allows.iter().find(|allowed| allowed.bound == bound);
        found.map(|allowed| allowed.rate)
    }
}

/// What a resource allows in one way.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Allowed {
    /// The resource.
    pub bound: Bound,
    /// Samples a second.
    pub rate: Interval,
}

/// A change of one resource.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// Which.
    pub bound: Bound,
    /// How much there would have to be: 2 for twice as fast, 0.5 for half as fast.
    pub factor: f64,
}

/// What one way costs.
#[derive(Clone, Debug)]
pub(super) struct Cost {
    pub(super) split: Split,
    pub(super) left: String,
    /// Samples a second that all of the host's cores give.
    pub(super) host: Interval,
    pub(super) bus_bytes: f64,
    /// Of one sample.
    pub(super) bus_s: f64,
    /// Of one sample: the device's decoder, which works in the stream of the copies.
    pub(super) decoder_s: f64,
    /// Of one sample, with nothing beside it.
    pub(super) device_s: f64,
}

/// What all ways have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Supply {
    /// Samples a second that the storage gives to all devices together; None if it is no limit.
    pub(super) storage: Option<Interval>,
    /// Time of a step, a sample; None where batches are taken as fast as they come.
    pub(super) step_s: Option<f64>,
    /// As [`Placing::contention`].
    pub(super) contention: Interval,
    pub(super) contention_measured: bool,
    pub(super) devices: u32,
}

/// The contention that is not known: anything, and decided as if the device did one after the other.
pub(super) const UNKNOWN: Interval = Interval {
    low: 0.0,
    mid: 1.0,
    high: 1.0,
};

/// The device, where the numbers are from, and the way that is taken now.
#[derive(Clone, Debug)]
pub(super) struct About {
    pub(super) device: String,
    pub(super) known: Known,
    pub(super) now: Split,
    pub(super) decodes: bool,
}

/// Decides between ways, of which there is one at least.
pub(super) fn place(about: About, costs: &[Cost], supply: &Supply) -> Option<Placing> {
    let mut costs = costs.to_vec();
    costs.sort_by_key(|cost| cost.split);
    let ranked = ranked(&costs, supply);
    let chosen = *ranked.first()?;
    let runner_up = ranked.get(1).copied();
    let ways = costs.iter().map(|cost| way(cost, supply)).collect();
    let mut placing = Placing {
        device: about.device,
        known: about.known,
        devices: supply.devices.max(1),
        ways,
        now: about.now,
        decodes: about.decodes,
        chosen,
        runner_up,
        contention: supply.contention,
        contention_measured: supply.contention_measured,
        turns_at: turns_at(&costs, supply, chosen),
        change: runner_up.and_then(|wanted| change(&costs, supply, wanted)),
        said: Vec::new(),
    };
    placing.said = words::said(&placing);
    Some(placing)
}

/// A way with its rate.
pub(super) fn way(cost: &Cost, supply: &Supply) -> Way {
    let allows = allows(cost, supply);
    let (rate, binding) = least(&allows);
    Way {
        split: cost.split,
        left: cost.left.clone(),
        bus_bytes: cost.bus_bytes,
        bus_s: cost.bus_s,
        device_s: cost.device_s,
        rate,
        binding,
        arithmetic: words::arithmetic(cost, supply),
        allows,
    }
}

/// What each resource gives to one device.
fn allows(cost: &Cost, supply: &Supply) -> Vec<Allowed> {
    let ranks = f64::from(supply.devices.max(1));
    let shared = |rate: Interval| rate.map(|rate| rate / ranks);
    let inverse = |time: f64| Interval::exact(1.0 / time);
    let step_s = supply.step_s.unwrap_or(0.0);
    // Work on rows has a stream of its own, so it takes its time however well it hides.
    let beside = |share: f64| 1.0 / (step_s + share * cost.device_s).max(cost.device_s);
    let device = (cost.device_s > 0.0).then(|| Interval {
        low: beside(supply.contention.high),
        mid: beside(supply.contention.mid),
        high: beside(supply.contention.low),
    });
    // Copies and decoding take turns in one stream: what takes longer is the limit, for the time of both.
    let both = cost.bus_s + cost.decoder_s;
    let (bus_s, decoder_s) = match cost.decoder_s > cost.bus_s {
        true => (cost.bus_s, both),
        false => (both, cost.decoder_s),
    };
    let found = [
        (Bound::Storage, supply.storage.map(shared)),
        (Bound::Host, Some(shared(cost.host))),
        (Bound::Bus, (bus_s > 0.0).then(|| inverse(bus_s))),
        (
            Bound::Decoder,
            (decoder_s > 0.0).then(|| inverse(decoder_s)),
        ),
        (Bound::Device, device),
        (Bound::Step, (step_s > 0.0).then(|| inverse(step_s))),
    ];
    let found = found.into_iter().filter_map(|(bound, rate)| {
        let rate = rate.filter(|rate| rate.mid.is_finite())?;
        Some(Allowed { bound, rate })
    });
    found.collect()
}

/// The least of all, and which it is: the step where the device's work on rows makes no difference.
fn least(allows: &[Allowed]) -> (Interval, Bound) {
    let least = |end: fn(&Interval) -> f64| {
        let ends = allows.iter().map(|allowed| end(&allowed.rate));
        ends.fold(f64::INFINITY, f64::min)
    };
    let rate = Interval {
        low: least(|rate| rate.low),
        mid: least(|rate| rate.mid),
        high: least(|rate| rate.high),
    };
    let step = allows.iter().find(|allowed| allowed.bound == Bound::Step);
    let first = allows
        .iter()
        .min_by(|a, b| a.rate.mid.total_cmp(&b.rate.mid));
    let binding = first.map_or(Bound::Host, |first| match step {
        Some(step) if first.bound == Bound::Device && step.rate.mid <= first.rate.mid * EQUAL => {
            Bound::Step
        }
        _ => first.bound,
    });
    (rate, binding)
}

/// All ways, the best first.
fn ranked(costs: &[Cost], supply: &Supply) -> Vec<Split> {
    let mut left: Vec<(&Cost, f64)> = costs
        .iter()
        .map(|cost| (cost, least(&allows(cost, supply)).0.mid))
        .collect();
    let mut ranked = Vec::with_capacity(left.len());
    while let Some(best) = left.iter().map(|(_, rate)| *rate).reduce(f64::max) {
        let equal = left.iter().enumerate();
        let equal = equal.filter(|(_, (_, rate))| rate * EQUAL >= best);
        let easiest = equal.min_by(|(_, (a, _)), (_, (b, _))| {
            let device = a.device_s.total_cmp(&b.device_s);
            let host = || b.host.mid.total_cmp(&a.host.mid);
            device
                .then_with(host)
                .then_with(|| a.bus_bytes.total_cmp(&b.bus_bytes))
        });
        // A rate that is no number is equal to none, not even to itself.
        let at = easiest.map_or(0, |(at, _)| at);
        ranked.push(left.remove(at).0.split);
    }
    ranked
}

/// The same with so many times as much of a resource.
fn with(costs: &[Cost], supply: &Supply, bound: Bound, factor: f64) -> (Vec<Cost>, Supply) {
    let (mut costs, mut supply) = (costs.to_vec(), *supply);
    for cost in &mut costs {
        match bound {
            Bound::Host => cost.host = cost.host.map(|rate| rate * factor),
            Bound::Bus => cost.bus_s /= factor,
            Bound::Decoder => cost.decoder_s /= factor,
            Bound::Device => cost.device_s /= factor,
            Bound::Storage | Bound::Step => {}
        }
    }
    match bound {
        Bound::Storage => supply.storage = supply.storage.map(|r| r.map(|rate| rate * factor)),
        Bound::Step => supply.step_s = supply.step_s.map(|time| time / factor),
        Bound::Host | Bound::Bus | Bound::Decoder | Bound::Device => {}
    }
    (costs, supply)
}

/// The least change of one resource that puts `wanted` first; None if none up to [`FAR`] does.
fn change(costs: &[Cost], supply: &Supply, wanted: Split) -> Option<Change> {
    let found = Bound::PLACING.into_iter().flat_map(|bound| {
        let wins = |factor: f64| {
            let (costs, supply) = with(costs, supply, bound, factor);
            ranked(&costs, &supply).first() == Some(&wanted)
        };
        let turns = |stride: f64| Some((bound, first_turn(stride, wins)?));
        [turns(STRIDE), turns(1.0 / STRIDE)].into_iter().flatten()
    });
    // More of one can be as much as less of another: then the first in the order of flow is told.
    let far = |factor: f64| (1e3 * factor.ln().abs()).round();
    let least = found.min_by(|(_, a), (_, b)| far(*a).total_cmp(&far(*b)));
    least.map(|(bound, factor)| Change { bound, factor })
}

/// The first factor on the way from 1, by strides, at which something holds.
fn first_turn(stride: f64, holds: impl Fn(f64) -> bool) -> Option<f64> {
    let strides = (FAR.ln() / stride.ln().abs()) as i32;
    let at = (1..=strides).find(|&at| holds(stride.powi(at)))?;
    let (mut before, mut after) = (stride.powi(at - 1), stride.powi(at));
    for _ in 0..20 {
        let middle = (before * after).sqrt();
        match holds(middle) {
            true => after = middle,
            false => before = middle,
        }
    }
    Some(after)
}

/// Where, within what the contention may be, the choice is another.
fn turns_at(costs: &[Cost], supply: &Supply, chosen: Split) -> Option<f64> {
    let is_other = |share: f64| {
        let mut supply = *supply;
        supply.contention.mid = share;
        ranked(costs, &supply).first() != Some(&chosen)
    };
    let Interval { low, mid, high } = supply.contention;
    let end = [low, high].into_iter().find(|&end| is_other(end))?;
    let (mut same, mut other) = (mid, end);
    for _ in 0..20 {
        let middle = (same + other) / 2.0;
        match is_other(middle) {
            true => other = middle,
            false => same = middle,
        }
    }
    Some(other)
}
