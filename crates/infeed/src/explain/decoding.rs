//! What leaving JPEGs to a device's decoder gives, in every share of the records.
//!
//! Which records those are, seed and number say, so a record costs the same in every mix and times add
//! up: those of the cores, those of copies and decoder, which take turns in one stream, and those of
//! kernels. This is arithmetic over what was measured without that decoder and with all it takes.
//!
//! Its pixels are not the host's, so no share is ever chosen for the user.

#[cfg(test)]
mod tests;
mod words;

use serde::{Deserialize, Serialize};

use super::interval::Interval;
use super::placement::{Cost, EQUAL, Known, Supply, Way, way};

/// Parts that a share is given in.
const PARTS: u8 = 16;

/// Who could decode JPEGs, and what each share of the device's would give.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Decoding {
    /// The device.
    pub device: String,
    /// Where the numbers of bus, decoder and device are from.
    pub known: Known,
    /// Files that the decoder takes where all are left to it, a record; the others are the host's in every
    /// share.
    pub taken: f64,
    /// Records of 16 that were left to the decoder in what ran.
    pub now: u8,
    /// The fewest of 16 with which it runs as fast as with any number; 0 where the host's decoding does.
    pub share: u8,
    /// Share of the records, 0 to 1, at which neither cores nor decoder wait for the other; None where one
    /// of them limits in every mix.
    pub balance: Option<f64>,
    /// Rate with [`share`](Decoding::share) over the best rate with the host's pixels.
    pub gain: Interval,
    /// The host's decoding, the share above, the one that ran and all, the fewest records of the device's
    /// first.
    pub ways: Vec<DecodingWay>,
    /// All that in sentences.
    pub said: Vec<String>,
}

/// One share of the records.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DecodingWay {
    /// Records of 16 that are the device's.
    pub share: u8,
    /// Time of its decoder, a sample.
    pub decoder_s: f64,
    /// The rest: of no records, the best way with the host's pixels.
    #[serde(flatten)]
    pub way: Way,
}

impl DecodingWay {
    /// What `decode=` is called with.
    pub fn name(&self) -> String {
        named(self.share)
    }
}

fn named(share: u8) -> String {
    match share {
        0 => "cpu".to_owned(),
        PARTS.. => "gpu".to_owned(),
        share => format!("{share}/{PARTS}"),
    }
}

/// What was measured, without the device's decoder and with all that it takes; both with images resized on
/// the device.
#[derive(Clone, Debug)]
pub(super) struct Ends {
    pub(super) none: Cost,
    pub(super) all: Cost,
    /// As [`Decoding::taken`].
    pub(super) taken: f64,
}

impl Ends {
    /// What a share of the records costs that lies between.
    fn cost(&self, share: f64) -> Cost {
        let (none, all) = (&self.none, &self.all);
        let between = |none: f64, all: f64| none + (all - none) * share;
        // Times add up, and rates do not.
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

    fn way(&self, share: u8, supply: &Supply) -> DecodingWay {
        let cost = self.cost(f64::from(share) / f64::from(PARTS));
        DecodingWay {
            share,
            decoder_s: cost.decoder_s,
            way: way(&cost, supply),
        }
    }

    /// Where the cores take as long for a record as copies and decoder do.
    fn balance(&self) -> Option<f64> {
        let ahead = |cost: &Cost| 1.0 / cost.host.mid - (cost.bus_s + cost.decoder_s);
        let (none, all) = (ahead(&self.none), ahead(&self.all));
        let crosses = none > 0.0 && all < 0.0;
        crosses.then(|| none / (none - all))
    }
}

/// Weighs all shares against `host`, the best way with the host's pixels, of which `now` of 16 ran.
pub(super) fn weigh(
    (device, known): (String, Known),
    now: u8,
    host: &Way,
    ends: &Ends,
    supply: &Supply,
) -> Decoding {
    let mut ways = vec![DecodingWay {
        share: 0,
        decoder_s: 0.0,
        way: host.clone(),
    }];
    ways.extend((1..=PARTS).map(|share| ends.way(share, supply)));
    let rate = |way: &DecodingWay| way.way.rate.mid;
    let most = ways.iter().map(rate).fold(0.0, f64::max);
    let fewest = ways.iter().find(|way| rate(way) * EQUAL >= most);
    let (share, with) = fewest.map_or((0, host.rate), |way| (way.share, way.way.rate));
    let gain = match share {
        0 => Interval::exact(1.0),
        // What both are measured with varies in both, so their own spreads do not add.
        _ => with.map(|rate| rate / host.rate.mid.max(1e-9)),
    };
    ways.retain(|way| [0, share, now, PARTS].contains(&way.share));
    let mut decoding = Decoding {
        device,
        known,
        taken: ends.taken,
        now,
        share,
        balance: ends.balance(),
        gain,
        ways,
        said: Vec::new(),
    };
    decoding.said = words::said(&decoding);
    decoding
}
