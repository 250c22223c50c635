//! The rate that each resource of a case allows, from what was measured.

use crate::case::Case;
use crate::findings::Run;
use crate::measure::cache_hits::with_cache;
use crate::measure::functions;
use crate::measure::storage::Storage;
use crate::model::interval::Interval;
use crate::model::limit::Limit;
use crate::model::supply::{GIVEN, Supply, costliest, in_python};
use infeed_core::probe;
use infeed_core::units::{format_bytes, format_bytes_per_s, format_percent, format_seconds};

/// Returns the rate that each resource allows now. `own` is the rate of the cores from memory, and
/// `bytes` the size of the data.
pub(super) fn capacities(
    case: &Case,
    run: &Run,
    storage: Option<&Storage>,
    own: Interval,
    bytes: f64,
) -> Supply {
    let mut all = Supply::default();
    let workers = case.workers();
    let cores = own;
    let measured = format!(
        "{workers} workers / {} per sample = {:.0} samples/s, measured with the data in \
         memory",
        format_seconds(workers as f64 / cores.mid.max(1e-9)),
        cores.mid,
    );
    let cores = (costliest(&run.stages), cores, measured);
    let (limit, rate, text) = functions::workers(run, &case.pipeline, cores);
    all.add(limit, rate, text);
    let reading = storage.and_then(|storage| {
        let cold = storage.rate(case.readers());
        Some((storage, cold, with_cache(case, cold, bytes)?))
    });
    if let Some((storage, cold, rate)) = reading {
        let kept = 1.0 - cold.mid / rate.mid;
        let kept = if kept > 0.005 {
            format!(", with {} of the reads from memory", format_percent(kept))
        } else {
            String::new()
        };
        all.add(
            Limit::Storage,
            rate,
            format!(
                "{} / {} per sample = {:.0} samples/s with {} I/O threads, \
                 cold{kept}",
                format_bytes_per_s(cold.mid * storage.record_bytes),
                format_bytes(storage.record_bytes),
                rate.mid,
                case.readers(),
            ),
        );
    }
    if let Some((rate, text)) = case.own.python().and_then(in_python) {
        all.add(Limit::Python, rate, text);
    }
    if let Some((rate, text)) = memory(case, run) {
        all.add(Limit::Memory, rate.map(|rate| rate.max(own.mid)), text);
    }
    if let Some((bus, sample_bytes)) = case.bus().zip(case.row_bytes(&case.pipeline)) {
        let rate = bus / sample_bytes;
        all.add(
            Limit::Copy,
            Interval::exact(rate).widen(GIVEN),
            format!(
                "{} / {} per sample = {rate:.0} samples/s",
                format_bytes_per_s(bus),
                format_bytes(sample_bytes)
            ),
        );
    }
    if let Some(step) = case.conditions.step {
        let rate = case.rows() as f64 / step.as_secs_f64().max(1e-9);
        all.add(
            Limit::Step,
            Interval::exact(rate).widen(GIVEN),
            format!(
                "{} samples / {} per step = {rate:.0} samples/s",
                case.rows(),
                format_seconds(step.as_secs_f64())
            ),
        );
    }
    all
}

/// Returns the memory bandwidth limit for pixels that are moved, not decoded.
fn memory(case: &Case, run: &Run) -> Option<(Interval, String)> {
    let decoded = run
        .stages
        .iter()
        .any(|s| s.name == "decode" && s.samples > 0);
    let write = run.stages.iter().find(|stage| stage.name == "write")?;
    if decoded || write.samples == 0 {
        return None;
    }
    let bandwidth = probe::memory_bandwidth(case.workers());
    let moved = (write.bytes_in + write.bytes_out) as f64 / write.samples as f64;
    let rate = bandwidth / moved.max(1.0);
    let text = format!(
        "{} / {} read and written per sample = {rate:.0} samples/s",
        format_bytes_per_s(bandwidth),
        format_bytes(moved)
    );
    Some((Interval::exact(rate).widen(0.1), text))
}
