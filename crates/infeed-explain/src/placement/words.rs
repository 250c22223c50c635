//! Sentences about a placement.

use super::super::units::{bytes, per_s};
use super::{
    Cost, DeviceOrigin, PlacementLimit, PlacementRate, PlacementReport, PlacementSupply,
    ResourceChange, Split,
};

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

impl PlacementLimit {
    /// Name in a sentence.
    pub(crate) fn said(self) -> &'static str {
        match self {
            PlacementLimit::Storage => "storage",
            PlacementLimit::Host => "the host's cores",
            PlacementLimit::Bus => "the bus",
            PlacementLimit::Decoder => "the device's decoder",
            PlacementLimit::Device => "the device's work on rows next to the step",
            PlacementLimit::Step => "the step",
        }
    }
}

/// Returns sentences about the choice, its basis, and changes that would alter it.
pub(super) fn said(placement: &PlacementReport) -> Vec<String> {
    let way = |split: Split| placement.ways.iter().find(|way| way.split == split);
    let Some(chosen) = way(placement.chosen) else {
        return Vec::new();
    };
    let mut said = vec![best(placement, chosen)];
    said.extend(headroom(chosen));
    match placement.runner_up.and_then(way) {
        Some(next) => {
            said.push(format!(
                "runner-up: \"{}\", where {}: {:.0} samples/s, limited by {}{}",
                next.split.name(),
                next.split.what(),
                next.rate.mid,
                next.binding.said(),
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
            part(placement.devices),
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
    let cores = [chosen, next].map(|way| way.binding == PlacementLimit::Host);
    cores == [true; 2] && next.rate.high >= chosen.rate.mid
}

fn part(devices: u32) -> String {
    match devices {
        2 => "half".to_owned(),
        3 => "a third".to_owned(),
        4 => "a quarter".to_owned(),
        5 => "a fifth".to_owned(),
        8 => "an eighth".to_owned(),
        n => format!("1/{n}"),
    }
}

fn best(placement: &PlacementReport, chosen: &PlacementRate) -> String {
    let mut text = format!(
        "best: placement=\"{}\", where {}: {:.0} samples/s, limited by {}",
        chosen.split.name(),
        chosen.split.what(),
        chosen.rate.mid,
        chosen.binding.said(),
    );
    let faster =
        |way: &&PlacementRate| way.split != chosen.split && way.rate.mid >= chosen.rate.mid;
    if placement.ways.iter().any(|way| faster(&way)) {
        text += "; placements that are up to 3 % faster load the device more";
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
        let same = chosen.binding == PlacementLimit::Step && other.bound == PlacementLimit::Device;
        other.bound != chosen.binding && !same
    });
    let factors: Vec<String> = others
        .map(|other| {
            let times = other.rate.mid / chosen.rate.mid.max(1e-9);
            format!("{} {}", other.bound.name(), factor(times))
        })
        .collect();
    (!factors.is_empty()).then(|| format!("headroom: {}", factors.join(", ")))
}

fn would_change(change: Option<ResourceChange>, next: Split) -> String {
    let next = next.name();
    let Some(ResourceChange { bound, factor: by }) = change else {
        return format!(
            "no single resource, changed by up to {:.0}x, makes \"{next}\" the best",
            super::FAR
        );
    };
    let what = match (bound, by > 1.0) {
        (PlacementLimit::Storage, true) => "faster storage",
        (PlacementLimit::Storage, false) => "slower storage",
        (PlacementLimit::Host, true) => "more cores",
        (PlacementLimit::Host, false) => "fewer cores",
        (PlacementLimit::Bus, true) => "a faster bus",
        (PlacementLimit::Bus, false) => "a slower bus",
        (PlacementLimit::Decoder, true) => "a faster decoder",
        (PlacementLimit::Decoder, false) => "a slower decoder",
        (PlacementLimit::Device, true) => "a device that is faster with rows",
        (PlacementLimit::Device, false) => "a device that is slower with rows",
        (PlacementLimit::Step, true) => "a faster step",
        (PlacementLimit::Step, false) => "a slower step",
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
pub(crate) fn factor(times: f64) -> String {
    match times {
        t if t < 9.995 => format!("{t:.2}x"),
        t if t < 99.95 => format!("{t:.1}x"),
        t => format!("{t:.0}x"),
    }
}

/// Writes out the arithmetic of a placement's rates.
pub(super) fn arithmetic(cost: &Cost, supply: &PlacementSupply) -> String {
    let mut parts = Vec::new();
    if cost.bus_s > 0.0 {
        parts.push(format!(
            "bus {} / {} per sample",
            per_s(cost.bus_bytes / cost.bus_s),
            bytes(cost.bus_bytes)
        ));
    }
    let us = |time: f64| format!("{:.2} µs", 1e6 * time);
    if cost.decoder_s > 0.0 {
        parts.push(format!(
            "decoder {} per sample in the copies' stream",
            us(cost.decoder_s)
        ));
    }
    let step = supply.step_s.filter(|&step| step > 0.0);
    match (cost.device_s > 0.0, step) {
        (true, Some(step)) => parts.push(format!(
            "device 1 / ({} of step + {:.2} x {} of kernels per sample)",
            us(step),
            supply.contention.mid,
            us(cost.device_s)
        )),
        (true, None) => parts.push(format!(
            "device 1 / {} of kernels per sample",
            us(cost.device_s)
        )),
        (false, Some(step)) => parts.push(format!("step 1 / {} per sample", us(step))),
        (false, None) => {}
    }
    parts.join("; ")
}
