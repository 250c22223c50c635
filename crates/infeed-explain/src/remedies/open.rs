//! Remedies that change how the pipeline is opened: more or fewer workers, more I/O threads, a cache
//! of decoded records.

use infeed_raw::machine::usable_cores;

use super::candidate::{Candidate, KnownRemedy, PixelChange, RemedyChange};
use crate::case::Case;
use crate::measure::storage::Storage;
use crate::measure::survey::Records;

pub(super) const REMEDIES: &[KnownRemedy] = &[
    KnownRemedy::Counted {
        prefix: "workers-",
        counts: |case, _| worker_counts(case.workers(), usable_cores()),
        make: workers,
    },
    KnownRemedy::Single {
        id: "cache-decoded",
        make: cache,
    },
    KnownRemedy::Counted {
        prefix: "io-threads-",
        counts: reader_counts,
        make: readers,
    },
];

fn workers(id: String, case: &Case, count: usize) -> Candidate {
    let word = if count > case.workers() {
        "more"
    } else {
        "fewer"
    };
    Candidate {
        id,
        name: format!("{word} workers: {count} instead of {}", case.workers()),
        command: format!("open(workers={count})"),
        change: RemedyChange::Workers(count),
        pixels: PixelChange::Identical("identical"),
    }
}

fn cache(id: String, case: &Case, _: Records) -> Option<Candidate> {
    let pipeline = &case.pipeline;
    let has_versions = pipeline.python.iter().any(|spec| spec.version.is_some());
    let is_kept = pipeline.decode.is_some() || has_versions;
    let is_useful = case.conditions.open.cache.is_none() && is_kept;
    is_useful.then(|| Candidate {
        id,
        name: "decoded records stay in memory".to_owned(),
        command: "open(cache=\"auto\")".to_owned(),
        change: RemedyChange::Cache,
        pixels: PixelChange::Identical("identical, from the second epoch on"),
    })
}

fn readers(id: String, case: &Case, count: usize) -> Candidate {
    Candidate {
        id,
        name: format!("more I/O threads: {count} instead of {}", case.readers()),
        command: format!("open(io_threads={count})"),
        change: RemedyChange::Readers(count),
        pixels: PixelChange::Identical("identical"),
    }
}

/// Returns the number of I/O threads with the highest measured rate, if it is larger than now.
fn reader_counts(case: &Case, storage: Option<&Storage>) -> Vec<usize> {
    let best = storage.and_then(Storage::best_readers);
    let count = best.map(|(count, _)| count);
    count
        .filter(|count| *count > case.readers())
        .into_iter()
        .collect()
}

/// Returns numbers of workers worth a trial: up to 1.5 times the cores.
fn worker_counts(now: usize, cores: usize) -> Vec<usize> {
    let mut counts = vec![cores / 2, cores, cores + cores.div_ceil(2)];
    counts.retain(|&count| count > 0 && count != now);
    counts.sort_unstable();
    counts.dedup();
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_tried_below_at_and_above_the_cores() {
        assert_eq!(worker_counts(2, 2), [1, 3]);
        assert_eq!(worker_counts(1, 1), [2]);
        assert_eq!(worker_counts(4, 16), [8, 16, 24]);
    }
}
