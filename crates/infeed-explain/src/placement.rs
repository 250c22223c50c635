//! Determines where to do the work that host and device can both do. Computes the rate of every
//! placement, which is the lowest rate that storage, cores, bus, device and step allow.
//!
//! A placement is one index into the operations of a row. The host does the operations before it
//! and the device does the rest, so a row never returns to the host.
//!
//! The numbers come from a measurement or a plan.

#[cfg(test)]
mod tests;
mod words;

use serde::{Deserialize, Serialize};

use super::interval::Interval;

pub(super) use words::factor;

/// Ratio below which two rates count as equal. Then less device work wins, then less work of the
/// host's cores, then fewer bytes.
pub(super) const EQUAL: f64 = 1.03;

/// Resources are varied from 1/32 of the present amount to 32 times that.
const FAR: f64 = 32.0;

/// Factor between two amounts of a resource. The range between them is bisected.
const STRIDE: f64 = 1.01;

/// The operation up to which the host works on a row. A later variant leaves more to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Split {
    /// All operations: finished rows cross the bus.
    Host,
    /// All but the expansion: uint8 rows cross, and the device makes floats and one-hot masks of
    /// them.
    Device,
    /// Up to the decoded crops: they cross, and the device also resizes them.
    #[serde(rename = "device-resize")]
    Resize,
}

impl Split {
    /// Value of the `placement=` argument, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Split::Host => "host",
            Split::Device => "device",
            Split::Resize => "device-resize",
        }
    }
}

/// A resource that can limit a placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlacementLimit {
    /// Reads of encoded bytes.
    Storage,
    /// The host's cores.
    Host,
    /// The bus to the device.
    Bus,
    /// The device's JPEG decoder, which shares the stream of the copies.
    Decoder,
    /// The device's work on the rows, next to the step.
    Device,
    /// The step itself.
    Step,
}

impl PlacementLimit {
    /// The resources of a [`PlacementReport`], which decodes on the host, in the order data flows.
    pub const HOST_DECODING: [PlacementLimit; 5] = [
        PlacementLimit::Storage,
        PlacementLimit::Host,
        PlacementLimit::Bus,
        PlacementLimit::Device,
        PlacementLimit::Step,
    ];

    /// The resources of a [`Decoding`](super::Decoding), in the order data flows.
    pub const DEVICE_DECODING: [PlacementLimit; 6] = [
        PlacementLimit::Storage,
        PlacementLimit::Host,
        PlacementLimit::Bus,
        PlacementLimit::Decoder,
        PlacementLimit::Device,
        PlacementLimit::Step,
    ];

    /// Returns the lower-case name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            PlacementLimit::Storage => "storage",
            PlacementLimit::Host => "host",
            PlacementLimit::Bus => "bus",
            PlacementLimit::Decoder => "decoder",
            PlacementLimit::Device => "device",
            PlacementLimit::Step => "step",
        }
    }
}

/// Origin of the numbers of bus and device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceOrigin {
    /// Timed on the device's own clock.
    Measured,
    /// Timed on a simulated device, so the numbers are those of its configuration.
    Simulated,
    /// Bytes divided by the rates of data sheets.
    Planned,
}

/// The best placement and its reasons.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PlacementReport {
    /// Name of the device or of the profile.
    pub device: String,
    /// Origin of its numbers.
    pub known: DeviceOrigin,
    /// Number of devices that share the host's cores and storage. Rates are those of one device.
    pub devices: u32,
    /// All possible placements, the one with most work on the host first.
    pub ways: Vec<PlacementRate>,
    /// The placement that ran, or that runs by default.
    pub now: Split,
    /// Whether the run also left files to the device's decoder. Then `ways` does not contain that
    /// run, because `ways` decodes on the host.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub decodes: bool,
    /// The best placement.
    pub chosen: Split,
    /// The second best. None if there is only one placement.
    pub runner_up: Option<Split>,
    /// Share of the device's time for rows that lengthens the step, 0 to 1. The choice uses the
    /// middle.
    pub contention: Interval,
    /// Whether `contention` was measured. If not, the engine assumes 1.
    pub contention_measured: bool,
    /// Contention within the interval at which another placement becomes the best.
    pub turns_at: Option<f64>,
    /// Smallest change of one resource that makes the second best the best.
    pub change: Option<ResourceChange>,
    /// The findings as sentences.
    pub said: Vec<String>,
}

/// One placement with its rates.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PlacementRate {
    /// The point at which the row moves to the device.
    pub split: Split,
    /// Work of the device in a few words. Empty if it has none.
    pub left: String,
    /// Bytes of a sample on the bus.
    pub bus_bytes: f64,
    /// Time of a sample on the bus, in seconds.
    pub bus_s: f64,
    /// Device time for a sample, in seconds.
    pub device_s: f64,
    /// Samples per second: the lowest of `allows`.
    pub rate: Interval,
    /// The resource with the lowest rate.
    pub binding: PlacementLimit,
    /// The rate that each resource allows, in the order data flows. Resources without a limit are
    /// left out.
    pub allows: Vec<AllowedRate>,
    /// Arithmetic of the rates.
    pub arithmetic: String,
}

impl PlacementRate {
    /// Returns the rate that a resource allows. None if it is no limit.
    pub fn allowed(&self, bound: PlacementLimit) -> Option<Interval> {
        let found = self.allows.iter().find(|allowed| allowed.bound == bound);
        found.map(|allowed| allowed.rate)
    }
}

/// The rate that a resource allows in one placement.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct AllowedRate {
    /// The resource.
    pub bound: PlacementLimit,
    /// Samples per second.
    pub rate: Interval,
}

/// A change of one resource.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResourceChange {
    /// The resource.
    pub bound: PlacementLimit,
    /// Factor of the change: 2 for twice as fast, 0.5 for half as fast.
    pub factor: f64,
}

/// Costs of one placement.
#[derive(Clone, Debug)]
pub(super) struct Cost {
    pub(super) split: Split,
    pub(super) left: String,
    /// Samples per second that all of the host's cores allow.
    pub(super) host: Interval,
    pub(super) bus_bytes: f64,
    /// Seconds per sample.
    pub(super) bus_s: f64,
    /// Seconds per sample of the device's decoder, which works in the stream of the copies.
    pub(super) decoder_s: f64,
    /// Seconds per sample with no other work on the device.
    pub(super) device_s: f64,
}

/// Rates that do not depend on the placement.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlacementSupply {
    /// Samples per second that the storage gives to all devices together. None if it is no limit.
    pub(super) storage: Option<Interval>,
    /// Step time per sample in seconds. None if the consumer takes batches as fast as they arrive.
    pub(super) step_s: Option<f64>,
    /// As [`PlacementReport::contention`].
    pub(super) contention: Interval,
    pub(super) contention_measured: bool,
    pub(super) devices: u32,
}

/// The interval for unknown contention: any value, with a decision as if the device did step and
/// rows one after the other.
pub(super) const UNKNOWN: Interval = Interval {
    low: 0.0,
    mid: 1.0,
    high: 1.0,
};

/// Name of the device, origin of the numbers, and the present placement.
#[derive(Clone, Debug)]
pub(super) struct PlacementContext {
    pub(super) device: String,
    pub(super) known: DeviceOrigin,
    pub(super) now: Split,
    pub(super) decodes: bool,
}

/// Chooses a placement. None if `costs` is empty.
pub(super) fn place(
    context: PlacementContext,
    costs: &[Cost],
    supply: &PlacementSupply,
) -> Option<PlacementReport> {
    let mut costs = costs.to_vec();
    costs.sort_by_key(|cost| cost.split);
    let ranked = ranked(&costs, supply);
    let chosen = *ranked.first()?;
    let runner_up = ranked.get(1).copied();
    let ways = costs.iter().map(|cost| way(cost, supply)).collect();
    let mut placement = PlacementReport {
        device: context.device,
        known: context.known,
        devices: supply.devices.max(1),
        ways,
        now: context.now,
        decodes: context.decodes,
        chosen,
        runner_up,
        contention: supply.contention,
        contention_measured: supply.contention_measured,
        turns_at: turns_at(&costs, supply, chosen),
        change: runner_up.and_then(|wanted| change(&costs, supply, wanted)),
        said: Vec::new(),
    };
    placement.said = words::said(&placement);
    Some(placement)
}

/// Computes the rate of a placement.
pub(super) fn way(cost: &Cost, supply: &PlacementSupply) -> PlacementRate {
    let allows = allows(cost, supply);
    let (rate, binding) = least(&allows);
    PlacementRate {
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

/// Computes the rate that each resource gives to one device.
fn allows(cost: &Cost, supply: &PlacementSupply) -> Vec<AllowedRate> {
    let ranks = f64::from(supply.devices.max(1));
    let shared = |rate: Interval| rate.map(|rate| rate / ranks);
    let inverse = |time: f64| Interval::exact(1.0 / time);
    let step_s = supply.step_s.unwrap_or(0.0);
    // Work on rows has its own stream. It takes its own time even if the step hides it completely.
    let with_share = |share: f64| 1.0 / (step_s + share * cost.device_s).max(cost.device_s);
    let device = (cost.device_s > 0.0).then(|| Interval {
        low: with_share(supply.contention.high),
        mid: with_share(supply.contention.mid),
        high: with_share(supply.contention.low),
    });
    // Copies and decoding take turns in one stream. The longer of the two is the limit, and its
    // rate is that of both together.
    let both = cost.bus_s + cost.decoder_s;
    let (bus_s, decoder_s) = match cost.decoder_s > cost.bus_s {
        true => (cost.bus_s, both),
        false => (both, cost.decoder_s),
    };
    let found = [
        (PlacementLimit::Storage, supply.storage.map(shared)),
        (PlacementLimit::Host, Some(shared(cost.host))),
        (PlacementLimit::Bus, (bus_s > 0.0).then(|| inverse(bus_s))),
        (
            PlacementLimit::Decoder,
            (decoder_s > 0.0).then(|| inverse(decoder_s)),
        ),
        (PlacementLimit::Device, device),
        (
            PlacementLimit::Step,
            (step_s > 0.0).then(|| inverse(step_s)),
        ),
    ];
    let found = found.into_iter().filter_map(|(bound, rate)| {
        let rate = rate.filter(|rate| rate.mid.is_finite())?;
        Some(AllowedRate { bound, rate })
    });
    found.collect()
}

/// Returns the lowest rate and its resource. Returns the step if the device's work on rows makes no
/// difference.
fn least(allows: &[AllowedRate]) -> (Interval, PlacementLimit) {
    let least = |end: fn(&Interval) -> f64| {
        let ends = allows.iter().map(|allowed| end(&allowed.rate));
        ends.fold(f64::INFINITY, f64::min)
    };
    let rate = Interval {
        low: least(|rate| rate.low),
        mid: least(|rate| rate.mid),
        high: least(|rate| rate.high),
    };
    let step = allows
        .iter()
        .find(|allowed| allowed.bound == PlacementLimit::Step);
    let first = allows
        .iter()
        .min_by(|a, b| a.rate.mid.total_cmp(&b.rate.mid));
    let binding = first.map_or(PlacementLimit::Host, |first| match step {
        Some(step)
            if first.bound == PlacementLimit::Device && step.rate.mid <= first.rate.mid * EQUAL =>
        {
            PlacementLimit::Step
        }
        _ => first.bound,
    });
    (rate, binding)
}

/// Ranks all placements, best first.
fn ranked(costs: &[Cost], supply: &PlacementSupply) -> Vec<Split> {
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
        // A rate of NaN is not equal to any rate, not even to itself.
        let at = easiest.map_or(0, |(at, _)| at);
        ranked.push(left.remove(at).0.split);
    }
    ranked
}

/// Returns costs and supply with `factor` times as much of a resource.
fn with(
    costs: &[Cost],
    supply: &PlacementSupply,
    bound: PlacementLimit,
    factor: f64,
) -> (Vec<Cost>, PlacementSupply) {
    let (mut costs, mut supply) = (costs.to_vec(), *supply);
    for cost in &mut costs {
        match bound {
            PlacementLimit::Host => cost.host = cost.host.map(|rate| rate * factor),
            PlacementLimit::Bus => cost.bus_s /= factor,
            PlacementLimit::Decoder => cost.decoder_s /= factor,
            PlacementLimit::Device => cost.device_s /= factor,
            PlacementLimit::Storage | PlacementLimit::Step => {}
        }
    }
    match bound {
        PlacementLimit::Storage => {
            supply.storage = supply.storage.map(|r| r.map(|rate| rate * factor))
        }
        PlacementLimit::Step => supply.step_s = supply.step_s.map(|time| time / factor),
        PlacementLimit::Host
        | PlacementLimit::Bus
        | PlacementLimit::Decoder
        | PlacementLimit::Device => {}
    }
    (costs, supply)
}

/// Returns the smallest change of one resource that puts `wanted` first. None if no change up to
/// [`FAR`] does.
fn change(costs: &[Cost], supply: &PlacementSupply, wanted: Split) -> Option<ResourceChange> {
    let found = PlacementLimit::HOST_DECODING.into_iter().flat_map(|bound| {
        let wins = |factor: f64| {
            let (costs, supply) = with(costs, supply, bound, factor);
            ranked(&costs, &supply).first() == Some(&wanted)
        };
        let turns = |stride: f64| Some((bound, first_turn(stride, wins)?));
        [turns(STRIDE), turns(1.0 / STRIDE)].into_iter().flatten()
    });
    // If two changes are equally small, the first in the order of the data flow is reported.
    let far = |factor: f64| (1e3 * factor.ln().abs()).round();
    let least = found.min_by(|(_, a), (_, b)| far(*a).total_cmp(&far(*b)));
    least.map(|(bound, factor)| ResourceChange { bound, factor })
}

/// Returns the first factor, in strides from 1, at which `holds` is true.
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

/// Returns the contention, within its interval, at which the choice changes.
fn turns_at(costs: &[Cost], supply: &PlacementSupply, chosen: Split) -> Option<f64> {
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
