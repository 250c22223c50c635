//! A placement in sentences.

use super::super::units::{bytes, per_s};
use super::{Bound, Change, Cost, Known, Placing, Split, Supply, Way};

impl Split {
    /// What crosses the bus.
    fn what(self) -> &'static str {
        match self {
            Split::Host => "finished rows cross the bus",
            Split::Device => "bytes cross the bus and are expanded on the device",
            Split::Resize => "crops cross the bus and are resized on the device",
        }
    }
}

impl Bound {
    /// In a sentence.
    pub(in crate::explain) fn said(self) -> &'static str {
        match self {
            Bound::Storage => "storage",
            Bound::Host => "the host's cores",
            Bound::Bus => "the bus",
            Bound::Decoder => "the device's decoder",
            Bound::Device => "the device's work on rows beside the step",
            Bound::Step => "the step",
        }
    }
}

/// What was found, what it rests on, and what would change it.
pub(super) fn said(placing: &Placing) -> Vec<String> {
    let way = |split: Split| placing.ways.iter().find(|way| way.split == split);
    let Some(chosen) = way(placing.chosen) else {
        return Vec::new();
    };
    let mut said = vec![best(placing, chosen)];
    said.extend(headroom(chosen));
    match placing.runner_up.and_then(way) {
        Some(next) => {
            said.push(format!(
                "runner-up: \"{}\", where {}: {:.0} samples/s, limited by {}{}",
                next.split.name(),
                next.split.what(),
                next.rate.mid,
                next.binding.said(),
                match unsure(chosen, next) {
                    true => "; the two differ by no more than trials vary",
                    false => "",
                }
            ));
            said.push(would_change(placing.change, next.split));
            said.extend(contention(placing));
        }
        None => said.push("there is nothing that the device could do instead".to_owned()),
    }
    if placing.devices > 1 {
        said.push(format!(
            "the host's cores and its storage are shared by {} devices: each has {} of what they \
             give; the rates are those of one device",
            placing.devices,
            part(placing.devices),
        ));
    }
    said.push(
        match placing.known {
            Known::Measured => "bus and device are timed on the device's own clock",
            Known::Simulated => {
                "the device is simulated: bus and device are what it was told to be, not a card's"
            }
            Known::Planned => "bus and device are planned from data sheets, not measured",
        }
        .to_owned(),
    );
    said
}

/// Whether what tells two ways apart is trials on the host's cores alone, and those may vary as much.
fn unsure(chosen: &Way, next: &Way) -> bool {
    let cores = [chosen, next].map(|way| way.binding == Bound::Host);
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

fn best(placing: &Placing, chosen: &Way) -> String {
    let mut text = format!(
        "best: placement=\"{}\", where {}: {:.0} samples/s, limited by {}",
        chosen.split.name(),
        chosen.split.what(),
        chosen.rate.mid,
        chosen.binding.said(),
    );
    let faster = |way: &&Way| way.split != chosen.split && way.rate.mid >= chosen.rate.mid;
    if placing.ways.iter().any(|way| faster(&way)) {
        text += "; others that are no more than 3 % faster load the device more";
    }
    let now = placing.ways.iter().find(|way| way.split == placing.now);
    if let Some(now) = now.filter(|now| now.split != chosen.split && !placing.decodes) {
        text += &format!(
            "; now it is \"{}\", {:.0} samples/s",
            now.split.name(),
            now.rate.mid
        );
    }
    text
}

/// How much more each other resource could give.
fn headroom(chosen: &Way) -> Option<String> {
    let others = chosen.allows.iter().filter(|other| {
        // Without a difference the device's work is the step's.
        let same = chosen.binding == Bound::Step && other.bound == Bound::Device;
        other.bound != chosen.binding && !same
    });
    let told: Vec<String> = others
        .map(|other| {
            let times = other.rate.mid / chosen.rate.mid.max(1e-9);
            format!("{} {}", other.bound.name(), factor(times))
        })
        .collect();
    (!told.is_empty()).then(|| format!("headroom: {}", told.join(", ")))
}

fn would_change(change: Option<Change>, next: Split) -> String {
    let next = next.name();
    let Some(Change { bound, factor: by }) = change else {
        return format!(
            "no change of one resource, up to {:.0}x, would make \"{next}\" the best",
            super::FAR
        );
    };
    let what = match (bound, by > 1.0) {
        (Bound::Storage, true) => "faster storage",
        (Bound::Storage, false) => "slower storage",
        (Bound::Host, true) => "more cores",
        (Bound::Host, false) => "fewer cores",
        (Bound::Bus, true) => "a faster bus",
        (Bound::Bus, false) => "a slower bus",
        (Bound::Decoder, true) => "a faster decoder",
        (Bound::Decoder, false) => "a slower decoder",
        (Bound::Device, true) => "a device that is faster with rows",
        (Bound::Device, false) => "a device that is slower with rows",
        (Bound::Step, true) => "a faster step",
        (Bound::Step, false) => "a slower step",
    };
    format!(
        "what would change it: {what}, {} of now; then \"{next}\" is the best",
        factor(by)
    )
}

fn contention(placing: &Placing) -> Option<String> {
    let work = placing.ways.iter().any(|way| way.device_s > 0.0);
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    match (placing.contention_measured, placing.turns_at) {
        _ if !work => None,
        (true, None) => Some(format!(
            "of the device's time for rows, {} lengthens the step, as measured",
            percent(placing.contention.mid)
        )),
        (true, Some(at)) => Some(format!(
            "of the device's time for rows, {} lengthens the step, as measured ({} to {}); at {} \
             the choice turns",
            percent(placing.contention.mid),
            percent(placing.contention.low),
            percent(placing.contention.high),
            percent(at),
        )),
        (false, None) => Some(
            "how far work on rows lengthens a step beside it was not measured; from not at all to \
             all of it, the choice is the same"
                .to_owned(),
        ),
        (false, Some(at)) => Some(format!(
            "how far work on rows lengthens a step beside it was not measured; all of it is assumed, \
             and at {} or less the choice turns",
            percent(at)
        )),
    }
}

/// `0.52x`, with three figures at most.
pub(in crate::explain) fn factor(times: f64) -> String {
    match times {
        t if t < 9.995 => format!("{t:.2}x"),
        t if t < 99.95 => format!("{t:.1}x"),
        t => format!("{t:.0}x"),
    }
}

/// The rates of one way, in numbers.
pub(super) fn arithmetic(cost: &Cost, supply: &Supply) -> String {
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
