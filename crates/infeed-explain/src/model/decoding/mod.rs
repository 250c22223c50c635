//! The gain of leaving JPEGs to a device's decoder, for each share of the records.
//!
//! Seed and record number choose the records, so a record costs the same in each mix and times add
//! up: the time of the cores, the time of copies and decoder, which share one stream, and the time
//! of kernels. The arithmetic interpolates between a measurement without the decoder and one with
//! all the files that the decoder takes.
//!
//! The decoder's pixels differ from the host's, so the engine never chooses a share by itself.

#[cfg(test)]
mod tests;
pub(crate) mod words;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::interval::Interval;
use crate::model::placement::{
    Cost, DeviceOrigin, EQUAL, PlacementModel, PlacementRate, placement_rate,
};

/// Number of equal parts that shares are given in.
pub(crate) const PARTS: u8 = 16;

/// The gain of each share of JPEGs that the device might decode.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct DecodingReport {
    /// Name of the device.
    pub device: String,
    /// Origin of the numbers of bus, decoder and device.
    #[serde(alias = "known")]
    pub origin: DeviceOrigin,
    /// Files per record that the decoder takes if all are left to it. The host decodes the others
    /// in every share.
    pub taken: f64,
    /// Records of 16 that the run left to the decoder.
    pub now: u8,
    /// Smallest number of records of 16 that reaches the best rate. 0 if decoding on the host does.
    pub share: u8,
    /// Share of the records, 0 to 1, at which neither cores nor decoder wait for the other. None if
    /// one of them is the limit in every mix.
    pub balance: Option<f64>,
    /// Rate with `share`, divided by the best rate with the host's pixels.
    pub gain: Interval,
    /// Rates without the decoder, with `share`, with the share that ran, and
    /// with all files, in ascending order of the share.
    pub candidates: Vec<DecodingRate>,
    /// The findings as sentences.
    pub notes: Vec<String>,
}

/// Rate with one share of the records.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct DecodingRate {
    /// Records of 16 that the device decodes.
    pub share: u8,
    /// Decoder time per sample, in seconds.
    pub decoder_s: f64,
    /// Rate and placement. With a share of 0, the best placement with the host's pixels.
    #[serde(flatten)]
    pub placement: PlacementRate,
}

impl DecodingRate {
    /// Value of the `decode=` argument.
    pub fn name(&self) -> String {
        share_name(self.share)
    }
}

pub(crate) fn share_name(share: u8) -> String {
    match share {
        0 => "cpu".to_owned(),
        PARTS.. => "gpu".to_owned(),
        share => format!("{share}/{PARTS}"),
    }
}

/// Measured costs without the device's decoder and with all the files it takes, both with images
/// resized on the device.
#[derive(Clone, Debug)]
pub(crate) struct DecodingCosts {
    pub(crate) none: Cost,
    pub(crate) all: Cost,
    /// As [`DecodingReport::taken`].
    pub(crate) taken: f64,
}

impl DecodingCosts {
    /// Interpolates the cost of a share of the records.
    fn cost(&self, share: f64) -> Cost {
        let (none, all) = (&self.none, &self.all);
        // The ends stay as they are: the time at a rate of 0, the lower end of a noisy measurement, is
        // infinite, and no part of it can be subtracted.
        let between = |none: f64, all: f64| match share {
            0.0 => none,
            1.0 => all,
            _ => none * (1.0 - share) + all * share,
        };
        // Times add up, rates do not.
        let rate = |none: f64, all: f64| 1.0 / between(1.0 / none, 1.0 / all);
        Cost {
            split: all.split,
            left: all.left.clone(),
            host: Interval {
                low: rate(none.host.low, all.host.low),
                mid: rate(none.host.mid, all.host.mid),
                high: rate(none.host.high, all.host.high),
            },
            bus_bytes: between(none.bus_bytes, all.bus_bytes),
            bus_s: between(none.bus_s, all.bus_s),
            decoder_s: between(none.decoder_s, all.decoder_s),
            device_s: between(none.device_s, all.device_s),
        }
    }

    fn rate_at(&self, share: u8, model: &PlacementModel) -> DecodingRate {
        let cost = self.cost(f64::from(share) / f64::from(PARTS));
        DecodingRate {
            share,
            decoder_s: cost.decoder_s,
            placement: placement_rate(&cost, model),
        }
    }

    /// Returns the share at which cores take as long for a record as copies and decoder do.
    fn balance(&self) -> Option<f64> {
        let ahead = |cost: &Cost| 1.0 / cost.host.mid - (cost.bus_s + cost.decoder_s);
        let (none, all) = (ahead(&self.none), ahead(&self.all));
        let crosses = none > 0.0 && all < 0.0;
        crosses.then(|| none / (none - all))
    }
}

/// Compares all shares with `host`, the best placement with the host's pixels. `now` of 16 records
/// ran on the decoder. The result has no sentences yet.
pub(crate) fn weigh(
    (device, origin): (String, DeviceOrigin),
    now: u8,
    host: &PlacementRate,
    ends: &DecodingCosts,
    model: &PlacementModel,
) -> DecodingReport {
    let mut candidates = vec![DecodingRate {
        share: 0,
        decoder_s: 0.0,
        placement: host.clone(),
    }];
    candidates.extend((1..=PARTS).map(|share| ends.rate_at(share, model)));
    let rate = |candidate: &DecodingRate| candidate.placement.rate.mid;
    let most = candidates.iter().map(rate).fold(0.0, f64::max);
    let fewest = candidates
        .iter()
        .find(|candidate| rate(candidate) * EQUAL >= most);
    let (share, with) = fewest.map_or((0, host.rate), |candidate| {
        (candidate.share, candidate.placement.rate)
    });
    let gain = match share {
        0 => Interval::exact(1.0),
        // The common part of both measurements varies in both, so their spreads do not add.
        _ => with.map(|rate| rate / host.rate.mid.max(1e-9)),
    };
    candidates.retain(|candidate| [0, share, now, PARTS].contains(&candidate.share));
    DecodingReport {
        device,
        origin,
        taken: ends.taken,
        now,
        share,
        balance: ends.balance(),
        gain,
        candidates,
        notes: Vec::new(),
    }
}
