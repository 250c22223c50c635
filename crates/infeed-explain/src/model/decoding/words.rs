//! The sentences of a decoding report: the result, its basis and its cost.

use super::{DecodingRate, DecodingReport, PARTS, share_name};
use crate::model::placement::DeviceOrigin;
use infeed_core::units::{format_factor, format_percent};

/// Fills in the sentences about the result, its basis and its cost.
pub(crate) fn describe_decoding(decoding: &mut DecodingReport) {
    decoding.notes = decoding_sentences(decoding);
}

fn decoding_sentences(decoding: &DecodingReport) -> Vec<String> {
    let candidate = |share: u8| {
        decoding
            .candidates
            .iter()
            .find(|candidate| candidate.share == share)
    };
    let mut sentences = Vec::new();
    if let Some(best) = candidate(decoding.share) {
        sentences.push(fastest(decoding, best));
    }
    if let Some(now) = candidate(decoding.now).filter(|_| decoding.now != decoding.share) {
        // The rate is that of the best placement, which may not be the one that runs.
        let at_best = if now.share == 0 { "at best " } else { "" };
        sentences.push(format!(
            "now it is decode={}, {at_best}{:.0} samples/s, limited by {}",
            now.name(),
            now.placement.rate.mid,
            now.placement.binding.subject_in_placement()
        ));
    }
    sentences.push(balance(decoding));
    if decoding.taken < 0.995 {
        sentences.push(format!(
            "the decoder can decode {} of the records assigned to it; the host decodes the \
             others, at every share",
            format_percent(decoding.taken)
        ));
    }
    sentences.push(
        "the device's pixels differ slightly from the host's, so no share is chosen automatically; \
         a state contains the share of its run"
            .to_owned(),
    );
    sentences.push(
        match decoding.origin {
            DeviceOrigin::Simulated => {
                "the device is simulated: its decoder has the configured rate, not that of a real \
                GPU"
            }
            DeviceOrigin::Measured | DeviceOrigin::Planned => {
                "copies and decoder are timed together on the device's own clock, over batches of \
                 these records"
            }
        }
        .to_owned(),
    );
    sentences
}

fn fastest(decoding: &DecodingReport, best: &DecodingRate) -> String {
    let (rate, limit) = (
        best.placement.rate.mid,
        best.placement.binding.subject_in_placement(),
    );
    let by = match best.share {
        0 => {
            return format!(
                "decoding on the host is as fast as any share on the device: {rate:.0} samples/s, \
                 limited by {limit}"
            );
        }
        PARTS.. => "the device decodes all that it can".to_owned(),
        share => format!("the device decodes {share} records of {PARTS}"),
    };
    format!(
        "fastest: decode={}, where {by}: {rate:.0} samples/s, limited by {limit}, {} of the best \
         rate with the host's pixels",
        share_name(best.share),
        format_factor(decoding.gain.mid),
    )
}

fn balance(decoding: &DecodingReport) -> String {
    match decoding.balance {
        Some(at) => format!(
            "cores and decoder are equally fast with {:.1} records of {PARTS} on the decoder",
            at * f64::from(PARTS)
        ),
        None => "cores and decoder are equally fast at no share: one of them is slower at every \
                 share"
            .to_owned(),
    }
}
