//! The gain of a tried remedy for the whole dataset: the rate that the tightest resource then allows.

use super::candidate::{Candidate, RemedyChange};
use super::prepare::RewriteStats;
use super::trials::TrialResult;
use crate::case::Case;
use crate::findings::{Remedy, Subject};
use crate::measure::cache_hits::with_cache;
use crate::measure::storage::Storage;
use crate::model::interval::Interval;
use crate::model::limit::Limit;
use crate::model::supply::{GIVEN, Supply};

/// Returns the table: each remedy with the rate that the tightest resource then allows.
pub(crate) fn remedies(
    tried: Vec<TrialResult>,
    case: &Case,
    now: &Supply,
    storage: Option<&Storage>,
    subject: &Subject,
) -> Vec<Remedy> {
    let tried = tried.into_iter();
    let remedies = tried.map(|tried| remedy(case, now, storage, subject, tried));
    remedies.collect()
}

/// Sorts remedies: those that gain first, then those that lose no pixel unless `lossy` allows a
/// loss, then by gain. Remedies that need more feeders come last.
pub(crate) fn rank(remedies: &mut [Remedy], lossy: bool) {
    let class = |remedy: &Remedy| {
        let after = remedy.lossy && !lossy;
        (remedy.needs_feeders, !remedy.gains(), after)
    };
    remedies.sort_by(|a, b| {
        let by_class = class(a).cmp(&class(b));
        by_class.then(b.gain.mid.total_cmp(&a.gain.mid))
    });
}

fn remedy(
    case: &Case,
    now: &Supply,
    storage: Option<&Storage>,
    subject: &Subject,
    tried: TrialResult,
) -> Remedy {
    let TrialResult {
        candidate,
        gain,
        written,
        cached,
        quality,
        lossy,
    } = tried;
    let readers = match candidate.change {
        RemedyChange::Readers(readers) => readers,
        _ => case.readers(),
    };
    let reading = storage.map(|storage| {
        if written.is_some() && case.is_far() {
            // The new data lies on a local disk, whose rate the bucket does not predict.
            return Interval::exact(f64::INFINITY);
        }
        let (rate, bytes) = match &written {
            // Arrays are mapped and read in large pieces, so their bytes count and not their files.
            Some(written) => {
                let bytes = written.bytes_out as f64 / written.records.max(1) as f64;
                let files = files_of(case, &candidate, storage.record_files, bytes);
                (storage.rate_of(readers, files, bytes), bytes)
            }
            None => (storage.rate(readers), storage.record_bytes),
        };
        let limited = with_cache(case, rate, bytes * subject.records as f64);
        let limited = limited.unwrap_or(Interval::exact(f64::INFINITY));
        limited.map(|rate| rate / (1.0 - cached))
    });
    let (copy, step) = bus_and_step_rates(case, &candidate);
    let then = now
        .times_cores(gain)
        .with(Limit::Storage, reading)
        .with(Limit::Copy, copy)
        .with(Limit::Step, step);
    let rate = then.least();
    let before = now.least();
    let over = |a: f64, b: f64| if b > 0.0 { a / b } else { 1.0 };
    let total = |bytes: u64, of: &RewriteStats| {
        (bytes as f64 * subject.records as f64 / of.records.max(1) as f64) as u64
    };
    Remedy {
        arithmetic: format!(
            "from memory {:.2}x of now [{:.2} to {:.2}] in {} turns; then {} allows {:.0} \
             samples/s, where {} allows {:.0} now",
            gain.mid,
            gain.low,
            gain.high,
            case.rounds(),
            then.limit().name(),
            rate.mid,
            now.limit().name(),
            before.mid,
        ),
        limit: then.limit(),
        // A resource that does not change has the same measured rate before and after, so its
        // spread cancels. The spread of the ratio and of changed resources remains.
        gain: Interval {
            low: over(rate.low, before.mid),
            mid: over(rate.mid, before.mid),
            high: over(rate.high, before.mid),
        },
        step_time: Interval {
            low: subject.batch_rows as f64 / rate.high.max(1e-9),
            mid: subject.batch_rows as f64 / rate.mid.max(1e-9),
            high: subject.batch_rows as f64 / rate.low.max(1e-9),
        },
        rate,
        disk_bytes: written.as_ref().map_or(0, |w| total(w.bytes_out, w)),
        convert_s: written.as_ref().map_or(0.0, |w| {
            w.seconds * subject.records as f64 / w.records.max(1) as f64
        }),
        quality,
        lossy,
        needs_feeders: false,
        id: candidate.id,
        name: candidate.name,
        command: candidate.command,
    }
}

/// Returns the storage requests per record after the remedy is applied.
fn files_of(case: &Case, candidate: &Candidate, now: f64, bytes: f64) -> f64 {
    /// Bytes of neighbouring records that a shard source reads at once.
    const READ_BYTES: f64 = 8.0 * 1024.0 * 1024.0;
    match &candidate.change {
        RemedyChange::Pack { options } if options.to.is_shards() => match case.pipeline.shuffle {
            // In shuffled order, neighbours are rarely read together. One request per record, for
            // all fields.
            Some(_) => now.min(1.0),
            None => now.min(bytes / READ_BYTES),
        },
        _ => now,
    }
}

/// Returns the rates of the bus and the step with a remedy that changes the bytes on the bus. The
/// device then does the host's work. That takes the time to read the small row and write the large
/// one.
fn bus_and_step_rates(case: &Case, candidate: &Candidate) -> (Option<Interval>, Option<Interval>) {
    let RemedyChange::Description(pipeline) = &candidate.change else {
        return (None, None);
    };
    let sizes = case.row_bytes(&case.pipeline).zip(case.row_bytes(pipeline));
    let Some((before, after)) = sizes else {
        return (None, None);
    };
    let given = |rate: f64| Interval::exact(rate).widen(GIVEN);
    let copy = case.bus().map(|bus| given(bus / after));
    let planned_machine = case.conditions.planned_machine.as_ref();
    let device = planned_machine.and_then(|machine| machine.device_bytes_per_s);
    let step = case.conditions.step.zip(device).map(|(step, device)| {
        let expanding = if after < before {
            (before + after) / device
        } else {
            0.0
        };
        let rows = case.rows() as f64;
        given(rows / (step.as_secs_f64() + rows * expanding))
    });
    (copy, step)
}
