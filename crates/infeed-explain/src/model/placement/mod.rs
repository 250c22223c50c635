//! Determines where to do the work that host and device can both do. Computes the rate of every
//! placement, which is the lowest rate that storage, cores, bus, device and step allow.
//!
//! A placement is one index into the operations of a row. The host does the operations before it
//! and the device does the rest, so a row never returns to the host.
//!
//! The numbers come from a measurement or a plan.

#[cfg(test)]
mod tests;
pub(crate) mod words;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::interval::Interval;
use crate::model::limit::Limit;
use crate::model::supply::Supply;
use infeed_core::units::{format_bytes, format_bytes_per_s, format_seconds};

/// Ratio below which two rates count as equal. Then fewer bytes on the bus win, as for
/// `placement="auto"`, then less device work, then less work of the host's cores.
pub(crate) const EQUAL: f64 = 1.03;

/// Resources are varied from 1/32 of the present amount to 32 times that.
pub(crate) const FAR: f64 = 32.0;

/// Factor between two amounts of a resource. The range between them is bisected.
const STRIDE: f64 = 1.01;

/// The operation up to which the host works on a row. A later variant leaves more to the device.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema, Serialize, Deserialize,
)]
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

/// Origin of the numbers of bus and device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
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
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct PlacementReport {
    /// Name of the device or of the profile.
    pub device: String,
    /// Origin of its numbers.
    #[serde(alias = "known")]
    pub origin: DeviceOrigin,
    /// Number of devices that share the host's cores and storage. Rates are those of one device.
    pub devices: u32,
    /// All possible placements, the one with most work on the host first.
    pub candidates: Vec<PlacementRate>,
    /// The placement that ran, or that runs by default.
    pub now: Split,
    /// Whether the run also left files to the device's decoder. Then `candidates` does not contain that
    /// run, because `candidates` decodes on the host.
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
    pub notes: Vec<String>,
}

/// One placement with its rates.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
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
    pub binding: Limit,
    /// The rate that each resource allows, in the order data flows. Resources without a limit are
    /// left out.
    pub allows: Vec<AllowedRate>,
    /// Arithmetic of the rates.
    pub arithmetic: String,
}

impl PlacementRate {
    /// Returns the rate that a resource allows. None if it is no limit.
    pub fn rate_of(&self, bound: Limit) -> Option<Interval> {
        let found = self.allows.iter().find(|allowed| allowed.bound == bound);
        found.map(|allowed| allowed.rate)
    }
}

/// The rate that a resource allows in one placement.
#[derive(Clone, Copy, Debug, JsonSchema, Serialize, Deserialize)]
pub struct AllowedRate {
    /// The resource.
    pub bound: Limit,
    /// Samples per second.
    pub rate: Interval,
}

/// A change of one resource.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct ResourceChange {
    /// The resource.
    pub bound: Limit,
    /// Factor of the change: 2 for twice as fast, 0.5 for half as fast.
    pub factor: f64,
}

/// Costs of one placement.
#[derive(Clone, Debug)]
pub(crate) struct Cost {
    pub(crate) split: Split,
    pub(crate) left: String,
    /// Samples per second that all of the host's cores allow.
    pub(crate) host: Interval,
    pub(crate) bus_bytes: f64,
    /// Seconds per sample.
    pub(crate) bus_s: f64,
    /// Seconds per sample of the device's decoder, which works in the stream of the copies.
    pub(crate) decoder_s: f64,
    /// Seconds per sample with no other work on the device.
    pub(crate) device_s: f64,
}

/// Rates that do not depend on the placement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlacementModel {
    /// Samples per second that the storage gives to all devices together. None if it is no limit.
    pub(crate) storage: Option<Interval>,
    /// Step time per sample in seconds. None if the consumer takes batches as fast as they arrive.
    pub(crate) step_s: Option<f64>,
    /// As [`PlacementReport::contention`].
    pub(crate) contention: Interval,
    pub(crate) contention_measured: bool,
    pub(crate) devices: u32,
}

/// The interval for unknown contention: any value, with a decision as if the device did step and
/// rows one after the other.
pub(crate) const UNKNOWN: Interval = Interval {
    low: 0.0,
    mid: 1.0,
    high: 1.0,
};

/// Name of the device, origin of the numbers, and the present placement.
#[derive(Clone, Debug)]
pub(crate) struct PlacementContext {
    pub(crate) device: String,
    pub(crate) origin: DeviceOrigin,
    pub(crate) now: Split,
    pub(crate) decodes: bool,
}

/// Chooses a placement, without sentences. None if `costs` is empty.
pub(crate) fn place(
    context: PlacementContext,
    costs: &[Cost],
    model: &PlacementModel,
) -> Option<PlacementReport> {
    let mut costs = costs.to_vec();
    costs.sort_by_key(|cost| cost.split);
    let ranked = rank(&costs, model);
    let chosen = *ranked.first()?;
    let runner_up = ranked.get(1).copied();
    let candidates = costs
        .iter()
        .map(|cost| placement_rate(cost, model))
        .collect();
    Some(PlacementReport {
        device: context.device,
        origin: context.origin,
        devices: model.devices.max(1),
        candidates,
        now: context.now,
        decodes: context.decodes,
        chosen,
        runner_up,
        contention: model.contention,
        contention_measured: model.contention_measured,
        turns_at: turns_at(&costs, model, chosen),
        change: runner_up.and_then(|wanted| change(&costs, model, wanted)),
        notes: Vec::new(),
    })
}

/// Computes the rate of a placement.
pub(crate) fn placement_rate(cost: &Cost, model: &PlacementModel) -> PlacementRate {
    let supply = supply(cost, model);
    let allows = Limit::DEVICE_DECODING.into_iter().filter_map(|bound| {
        let rate = supply.rate_of(bound)?;
        Some(AllowedRate { bound, rate })
    });
    PlacementRate {
        split: cost.split,
        left: cost.left.clone(),
        bus_bytes: cost.bus_bytes,
        bus_s: cost.bus_s,
        device_s: cost.device_s,
        rate: supply.least(),
        binding: binding(&supply),
        allows: allows.collect(),
        arithmetic: arithmetic(cost, model),
    }
}

/// Writes out the arithmetic of a placement's rates.
fn arithmetic(cost: &Cost, model: &PlacementModel) -> String {
    let mut parts = Vec::new();
    if cost.bus_s > 0.0 {
        parts.push(format!(
            "bus {} / {} per sample",
            format_bytes_per_s(cost.bus_bytes / cost.bus_s),
            format_bytes(cost.bus_bytes)
        ));
    }
    if cost.decoder_s > 0.0 {
        parts.push(format!(
            "decoder {} per sample in the copies' stream",
            format_seconds(cost.decoder_s)
        ));
    }
    let step = model.step_s.filter(|&step| step > 0.0);
    match (cost.device_s > 0.0, step) {
        (true, Some(step)) => parts.push(format!(
            "device 1 / ({} of step + {:.2} x {} of kernels per sample)",
            format_seconds(step),
            model.contention.mid,
            format_seconds(cost.device_s)
        )),
        (true, None) => parts.push(format!(
            "device 1 / {} of kernels per sample",
            format_seconds(cost.device_s)
        )),
        (false, Some(step)) => parts.push(format!("step 1 / {} per sample", format_seconds(step))),
        (false, None) => {}
    }
    parts.join("; ")
}

/// Computes the rate that each resource gives to one device.
fn supply(cost: &Cost, model: &PlacementModel) -> Supply {
    let ranks = f64::from(model.devices.max(1));
    let shared = |rate: Interval| rate.map(|rate| rate / ranks);
    let inverse = |time: f64| Interval::exact(1.0 / time);
    let step_s = model.step_s.unwrap_or(0.0);
    // Work on rows has its own stream. It takes its own time even if the step hides it completely.
    let with_share = |share: f64| 1.0 / (step_s + share * cost.device_s).max(cost.device_s);
    let device = (cost.device_s > 0.0).then(|| Interval {
        low: with_share(model.contention.high),
        mid: with_share(model.contention.mid),
        high: with_share(model.contention.low),
    });
    // Copies and decoding take turns in one stream. The longer of the two is the limit, and its
    // rate is that of both together.
    let both = cost.bus_s + cost.decoder_s;
    let (bus_s, decoder_s) = match cost.decoder_s > cost.bus_s {
        true => (cost.bus_s, both),
        false => (both, cost.decoder_s),
    };
    let mut supply = Supply::default();
    supply.add_rate(Limit::Storage, model.storage.map(shared));
    supply.add_rate(Limit::Host, Some(shared(cost.host)));
    supply.add_rate(Limit::Copy, (bus_s > 0.0).then(|| inverse(bus_s)));
    let decoder = (decoder_s > 0.0).then(|| inverse(decoder_s));
    supply.add_rate(Limit::Decoder, decoder);
    supply.add_rate(Limit::Device, device);
    supply.add_rate(Limit::Step, (step_s > 0.0).then(|| inverse(step_s)));
    supply
}

/// Returns the resource with the lowest rate. Returns the step if the device's work on rows makes no
/// difference.
fn binding(supply: &Supply) -> Limit {
    let Some(first) = supply.all().first() else {
        return Limit::Host;
    };
    let step = supply.rate_of(Limit::Step);
    match step {
        Some(step) if first.limit == Limit::Device && step.mid <= first.rate.mid * EQUAL => {
            Limit::Step
        }
        _ => first.limit,
    }
}

/// Ranks all placements, best first.
fn rank(costs: &[Cost], model: &PlacementModel) -> Vec<Split> {
    let mut left: Vec<(&Cost, f64)> = costs
        .iter()
        .map(|cost| (cost, supply(cost, model).least().mid))
        .collect();
    let mut ranked = Vec::with_capacity(left.len());
    while let Some(best) = left.iter().map(|(_, rate)| *rate).reduce(f64::max) {
        let equal = left.iter().enumerate();
        let equal = equal.filter(|(_, (_, rate))| rate * EQUAL >= best);
        let easiest = equal.min_by(|(_, (a, _)), (_, (b, _))| {
            let bytes = a.bus_bytes.total_cmp(&b.bus_bytes);
            bytes
                .then_with(|| a.device_s.total_cmp(&b.device_s))
                .then_with(|| b.host.mid.total_cmp(&a.host.mid))
        });
        // A rate of NaN is not equal to any rate, not even to itself.
        let at = easiest.map_or(0, |(at, _)| at);
        ranked.push(left.remove(at).0.split);
    }
    ranked
}

/// Returns costs and model with `factor` times as much of a resource.
fn with(
    costs: &[Cost],
    model: &PlacementModel,
    bound: Limit,
    factor: f64,
) -> (Vec<Cost>, PlacementModel) {
    let (mut costs, mut model) = (costs.to_vec(), *model);
    for cost in &mut costs {
        match bound {
            Limit::Host => cost.host = cost.host.map(|rate| rate * factor),
            Limit::Copy => cost.bus_s /= factor,
            Limit::Decoder => cost.decoder_s /= factor,
            Limit::Device => cost.device_s /= factor,
            _ => {}
        }
    }
    match bound {
        Limit::Storage => model.storage = model.storage.map(|r| r.map(|rate| rate * factor)),
        Limit::Step => model.step_s = model.step_s.map(|time| time / factor),
        _ => {}
    }
    (costs, model)
}

/// Returns the smallest change of one resource that puts `wanted` first. None if no change up to
/// [`FAR`] does.
fn change(costs: &[Cost], model: &PlacementModel, wanted: Split) -> Option<ResourceChange> {
    let found = Limit::HOST_DECODING.into_iter().flat_map(|bound| {
        let wins = |factor: f64| {
            let (costs, model) = with(costs, model, bound, factor);
            rank(&costs, &model).first() == Some(&wanted)
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
fn turns_at(costs: &[Cost], model: &PlacementModel, chosen: Split) -> Option<f64> {
    let is_other = |share: f64| {
        let mut model = *model;
        model.contention.mid = share;
        rank(costs, &model).first() != Some(&chosen)
    };
    let Interval { low, mid, high } = model.contention;
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
