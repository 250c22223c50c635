//! What a device's decoder gives, in sentences.

use super::super::placement::{Known, factor};
use super::{Decoding, DecodingWay, PARTS, named};

/// What was found, what it rests on, and what it costs.
pub(super) fn said(decoding: &Decoding) -> Vec<String> {
    let way = |share: u8| decoding.ways.iter().find(|way| way.share == share);
    let mut said = Vec::new();
    if let Some(best) = way(decoding.share) {
        said.push(fastest(decoding, best));
    }
    if let Some(now) = way(decoding.now).filter(|_| decoding.now != decoding.share) {
        // Its rate is that of the best placement, which may not be the one that runs.
        let at_best = if now.share == 0 { "at best " } else { "" };
        said.push(format!(
            "now it is decode={}, {at_best}{:.0} samples/s, limited by {}",
            now.name(),
            now.way.rate.mid,
            now.way.binding.said()
        ));
    }
    said.push(balance(decoding));
    if decoding.taken < 0.995 {
        said.push(format!(
            "the decoder takes {:.0} % of the records that are left to it; the host decodes the others, in \
             every share",
            100.0 * decoding.taken
        ));
    }
    said.push(
        "the device's pixels are near the host's and not the same, so no share is chosen by itself; a \
         state says which it was"
            .to_owned(),
    );
    said.push(
        match decoding.known {
            Known::Simulated => {
                "the device is simulated: its decoder is as fast as it was told to be, not as a card's"
            }
            Known::Measured | Known::Planned => {
                "copies and decoder are timed together on the device's own clock, over batches of \
                 these records"
            }
        }
        .to_owned(),
    );
    said
}

fn fastest(decoding: &Decoding, best: &DecodingWay) -> String {
    let (rate, limit) = (best.way.rate.mid, best.way.binding.said());
    let by = match best.share {
        0 => {
            return format!(
                "the host's decoding runs as fast as any share of the device's: {rate:.0} samples/s, \
                 limited by {limit}"
            );
        }
        PARTS.. => "the device decodes all it takes".to_owned(),
        share => format!("the device decodes {share} records of {PARTS}"),
    };
    format!(
        "fastest: decode={}, where {by}: {rate:.0} samples/s, limited by {limit}, {} of the best with the \
         host's pixels",
        named(best.share),
        factor(decoding.gain.mid),
    )
}

fn balance(decoding: &Decoding) -> String {
    match decoding.balance {
        Some(at) => format!(
            "neither cores nor decoder would wait for the other with {:.1} records of {PARTS} left to it",
            at * f64::from(PARTS)
        ),
        None => "there is no share at which cores and decoder are equally fast: one of them is the slower in \
                 every mix"
            .to_owned(),
    }
}
