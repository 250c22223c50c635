//! Remedies that change how the pipeline is opened: more or fewer workers, more I/O threads, a cache
//! of decoded records.

use infeed_raw::machine::usable_cores;

use super::candidate::{Candidate, PixelChange, RemedyChange};
use crate::case::Case;
use crate::measure::storage::Storage;

pub(super) const CACHE: &str = "cache-decoded";
pub(super) const WORKERS: &str = "workers-";
pub(super) const READERS: &str = "io-threads-";

pub(super) fn add(case: &Case, storage: Option<&Storage>, found: &mut Vec<Candidate>) {
    let counts = worker_counts(case.workers(), usable_cores());
    found.extend(counts.into_iter().map(|count| workers(case, count)));
    let pipeline = &case.pipeline;
    let has_versions = pipeline.python.iter().any(|spec| spec.version.is_some());
    let is_kept = pipeline.decode.is_some() || has_versions;
    if case.conditions.open.cache.is_none() && is_kept {
        found.push(cache());
    }
    let best = storage.and_then(Storage::best_readers);
    if let Some((count, _)) = best.filter(|(count, _)| *count > case.readers()) {
        found.push(readers(case, count));
    }
}

fn cache() -> Candidate {
    Candidate {
        id: CACHE.to_owned(),
        name: "decoded records stay in memory".to_owned(),
        command: "open(cache=\"auto\")".to_owned(),
        change: RemedyChange::Cache,
        pixels: PixelChange::Identical("identical, from the second epoch on"),
    }
}

/// Returns the remedy with this id. Its number may be one that is not tried now.
pub(super) fn by_id(case: &Case, id: &str) -> Option<Candidate> {
    let number = |prefix| id.strip_prefix(prefix)?.parse().ok();
    let by_workers = number(WORKERS).map(|count| workers(case, count));
    by_workers.or_else(|| number(READERS).map(|count| readers(case, count)))
}

fn workers(case: &Case, count: usize) -> Candidate {
    let word = if count > case.workers() {
        "more"
    } else {
        "fewer"
    };
    Candidate {
        id: format!("{WORKERS}{count}"),
        name: format!("{word} workers: {count} instead of {}", case.workers()),
        command: format!("open(workers={count})"),
        change: RemedyChange::Workers(count),
        pixels: PixelChange::Identical("identical"),
    }
}

fn readers(case: &Case, count: usize) -> Candidate {
    Candidate {
        id: format!("{READERS}{count}"),
        name: format!("more I/O threads: {count} instead of {}", case.readers()),
        command: format!("open(io_threads={count})"),
        change: RemedyChange::Readers(count),
        pixels: PixelChange::Identical("identical"),
    }
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
