//! The rate of another storage, and the reads that another size of memory answers.

use super::inputs::WhatIfInputs;
use crate::case::Case;
use crate::case::what_if::{DescribedStorage, WhatIf};
use crate::findings::what_if::PredictedChange;
use crate::measure::cache_hits::{STAYS, hit_share, kept_bytes};
use crate::model::interval::Interval;
use crate::model::limit::Limit;
use crate::model::supply::Supply;
use infeed_core::units::{format_bytes, format_bytes_per_s, format_percent, format_seconds};
use infeed_source::store;

/// Ends of the interval around typical numbers, as shares of the middle. Assumed: vendors publish
/// the best case.
const TYPICAL: (f64, f64) = (0.5, 1.25);

/// Spread of numbers that the user gave, as of a simulated storage.
const GIVEN: f64 = 0.03;

/// Rate of a storage without a cache.
struct ColdRate {
    rate: Interval,
    arithmetic: String,
}

/// Predicts storage and memory, and replaces the rate of the storage in `then`.
pub(super) fn changes(
    case: &Case,
    inputs: &WhatIfInputs<'_>,
    what_if: &WhatIf,
    then: &mut Supply,
) -> Vec<PredictedChange> {
    let mut changes = Vec::new();
    let cold = match &what_if.storage {
        Some(described) => {
            let mut change = PredictedChange::new("storage");
            let cold = described_rate(case, inputs, described, &mut change);
            if what_if.memory_bytes.is_none() {
                change.assumes(
                    "every read reaches the storage, as in the first epoch; --ram SIZE adds the \
                     page cache",
                );
            }
            changes.push(change);
            Some(cold)
        }
        None => measured_rate(case, inputs),
    };
    let data = inputs.subject.bytes as f64;
    let is_shuffled = case.pipeline.shuffle.is_some();
    let mut missed = 1.0;
    if let Some(memory) = what_if.memory_bytes {
        let mut change = PredictedChange::new("ram");
        let described = what_if.storage.as_ref();
        let objects = described.map_or(case.is_far(), |storage| storage.objects);
        let cache = STAYS * memory as f64;
        if cold.is_none() {
            change.says("the records are not read from files, so the page cache has no part");
        } else if objects {
            change.says(
                "the page cache keeps no objects of a bucket; INFEED_CACHE_DIR caches them on a \
                 disk",
            );
            // A bucket may already have a cache on a disk, whose size does not change.
            let kept = if described.is_none() {
                kept_bytes(case)
            } else {
                0.0
            };
            missed = 1.0 - hit_share(kept, data, is_shuffled);
        } else {
            let hit = hit_share(cache, data, is_shuffled);
            missed = 1.0 - hit;
            page_cache(&mut change, (cache, data, hit), is_shuffled);
        }
        let decoded = inputs.survey.pixel_bytes * inputs.subject.records as f64;
        if decoded > 0.0 {
            decoded_cache(&mut change, cache, decoded);
        }
        changes.push(change);
    }
    if let Some(ColdRate { rate, arithmetic }) = cold {
        then.take(Limit::Storage);
        if missed > 0.0 {
            let text = match missed < 1.0 {
                true => format!("{arithmetic}, with {} of the reads", format_percent(missed)),
                false => arithmetic,
            };
            then.add(Limit::Storage, rate.map(|rate| rate / missed), text);
        }
    }
    changes
}

/// Returns the rate of a described storage.
fn described_rate(
    case: &Case,
    inputs: &WhatIfInputs<'_>,
    described: &DescribedStorage,
    change: &mut PredictedChange,
) -> ColdRate {
    let throttle = described.throttle;
    // A source in memory has no files. It counts as one file for each record.
    let files = inputs.storage.map_or(1.0, |storage| storage.record_files);
    let record = inputs.survey.record_bytes;
    let readers = match (case.conditions.open.readers, described.objects) {
        (None, true) => store::PARALLEL_READS,
        _ => case.readers(),
    };
    let latency = throttle.latency.as_secs_f64();
    let by_bytes = throttle.bytes_per_s / record.max(1.0);
    let by_requests = throttle.requests_per_s / files.max(1e-9);
    let by_latency = match latency > 0.0 {
        true => readers as f64 / (latency * files.max(1e-9)),
        false => f64::INFINITY,
    };
    let rate = throttle.rate(readers, files, record);
    for (name, value) in [
        ("bytes_per_s", throttle.bytes_per_s),
        ("requests_per_s", throttle.requests_per_s),
        ("latency_s", latency),
        ("reads_in_flight", readers as f64),
        ("record_bytes", record),
        ("record_files", files),
        ("cold_rate", rate),
    ] {
        change.value(name, value);
    }
    change.says(format!(
        "bandwidth: {} / {} per sample = {by_bytes:.0} samples/s",
        format_bytes_per_s(throttle.bytes_per_s),
        format_bytes(record),
    ));
    change.says(format!(
        "requests: {:.0}/s / {files:.2} per sample = {by_requests:.0} samples/s",
        throttle.requests_per_s,
    ));
    if by_latency.is_finite() {
        change.says(format!(
            "latency: {readers} reads in flight / ({files:.2} x {}) = {by_latency:.0} samples/s",
            format_seconds(latency),
        ));
    }
    change.says(format!(
        "all three: {rate:.0} samples/s, if each read takes its latency and its share of the \
         slower of the other two"
    ));
    let interval = match described.source {
        Some(source) => {
            change.assumes(format!("typical numbers, 0.5 to 1.25 of them: {source}"));
            Interval {
                low: TYPICAL.0 * rate,
                mid: rate,
                high: TYPICAL.1 * rate,
            }
        }
        None => {
            change.assumes("the three numbers hold for reads of this size");
            Interval::exact(rate).widen(GIVEN)
        }
    };
    ColdRate {
        rate: interval,
        arithmetic: format!("{} allows {rate:.0} samples/s", described.name),
    }
}

/// Returns the measured rate of this machine's storage. None if nothing is read from files.
fn measured_rate(case: &Case, inputs: &WhatIfInputs<'_>) -> Option<ColdRate> {
    let storage = inputs.storage?;
    let rate = storage.rate(case.readers());
    let arithmetic = format!("cold, the storage here allows {:.0} samples/s", rate.mid);
    Some(ColdRate { rate, arithmetic })
}

fn page_cache(change: &mut PredictedChange, (cache, data, hit): (f64, f64, f64), shuffled: bool) {
    change.value("cache_bytes", cache);
    change.value("data_bytes", data);
    change.value("hit_share", hit);
    let order = match shuffled {
        true => "shuffled",
        false => "in file order",
    };
    change.says(format!(
        "page cache: {} for {} of data, {order}: it answers {} of the reads",
        format_bytes(cache),
        format_bytes(data),
        format_percent(hit),
    ));
    change.assumes("half of the memory keeps pages, and pages leave in the order of their use");
}

/// The cache of decoded records keeps what it has, so each byte of it answers in every epoch.
fn decoded_cache(change: &mut PredictedChange, cache: f64, decoded: f64) {
    let hit = (cache / decoded).min(1.0);
    change.value("decoded_bytes", decoded);
    change.value("decoded_hit_share", hit);
    change.says(format!(
        "as decoded pixels, the images have {}: open(cache=...) with the same memory would answer \
         {} of the reads",
        format_bytes(decoded),
        format_percent(hit),
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_a_cache_have_its_sizes_and_its_share() {
        let mut change = PredictedChange::new("ram");

        page_cache(&mut change, (32e9, 64e9, hit_share(32e9, 64e9, true)), true);
        decoded_cache(&mut change, 32e9, 320e9);

        assert_eq!(
            change.arithmetic,
            [
                "page cache: 32 GB for 64 GB of data, shuffled: it answers 15 % of the reads",
                "as decoded pixels, the images have 320 GB: open(cache=...) with the same memory \
                 would answer 10 % of the reads",
            ]
        );
        assert!((change.values["hit_share"] - 0.153_426).abs() < 1e-6);
    }
}
