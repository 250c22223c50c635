//! The sentences of a placement report: the choice, its basis, and changes that would alter it.

use super::{DeviceOrigin, FAR, PlacementRate, PlacementReport, ResourceChange, Split};
use crate::model::limit::Limit;
use infeed_core::units::{format_factor, format_percent};

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
pub(crate) fn describe_placement(placement: &mut PlacementReport) {
    placement.notes = placement_sentences(placement);
}

fn placement_sentences(placement: &PlacementReport) -> Vec<String> {
    let candidate = |split: Split| {
        placement
            .candidates
            .iter()
            .find(|candidate| candidate.split == split)
    };
    let Some(chosen) = candidate(placement.chosen) else {
        return Vec::new();
    };
    let mut sentences = vec![best_placement(placement, chosen)];
    sentences.extend(headroom(chosen));
    match placement.runner_up.and_then(candidate) {
        Some(next) => {
            sentences.push(format!(
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
            sentences.push(would_change(placement.change, next.split));
            sentences.extend(contention(placement));
        }
        None => sentences.push("no work can move to the device".to_owned()),
    }
    if placement.devices > 1 {
        sentences.push(format!(
            "the host's cores and its storage are shared by {} devices: each gets {} of them; the \
             rates are those of one device",
            placement.devices,
            fraction(placement.devices),
        ));
    }
    sentences.push(
        match placement.origin {
            DeviceOrigin::Measured => "bus and device are timed on the device's own clock",
            DeviceOrigin::Simulated => {
                "the device is simulated: bus and device have the configured rates, not those of a \
                real GPU"
            }
            DeviceOrigin::Planned => "bus and device are planned from data sheets, not measured",
        }
        .to_owned(),
    );
    sentences
}

/// Returns whether the two placements differ only in trials on the host's cores that may vary as
/// much.
fn unsure(chosen: &PlacementRate, next: &PlacementRate) -> bool {
    let cores = [chosen, next].map(|candidate| candidate.binding == Limit::Host);
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
    let faster = |candidate: &&PlacementRate| {
        candidate.split != chosen.split && candidate.rate.mid > chosen.rate.mid
    };
    if placement
        .candidates
        .iter()
        .any(|candidate| faster(&candidate))
    {
        text += "; placements that are up to 3 % faster send more bytes over the bus";
    }
    let now = placement
        .candidates
        .iter()
        .find(|candidate| candidate.split == placement.now);
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
            format!("{} {}", other.bound.placement_name(), format_factor(times))
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
        format_factor(by)
    )
}

fn contention(placement: &PlacementReport) -> Option<String> {
    let work = placement
        .candidates
        .iter()
        .any(|candidate| candidate.device_s > 0.0);
    match (placement.contention_measured, placement.turns_at) {
        _ if !work => None,
        (true, None) => Some(format!(
            "of the device's time for rows, {} lengthens the step, as measured",
            format_percent(placement.contention.mid)
        )),
        (true, Some(at)) => Some(format!(
            "of the device's time for rows, {} lengthens the step, as measured ({} to {}); at {} \
             the choice changes",
            format_percent(placement.contention.mid),
            format_percent(placement.contention.low),
            format_percent(placement.contention.high),
            format_percent(at),
        )),
        (false, None) => Some(
            "the share of row work that lengthens the step was not measured; the choice is the \
             same for 0 to 100 %"
                .to_owned(),
        ),
        (false, Some(at)) => Some(format!(
            "the share of row work that lengthens the step was not measured; 100 % is assumed, and \
             at {} or less the choice changes",
            format_percent(at)
        )),
    }
}
