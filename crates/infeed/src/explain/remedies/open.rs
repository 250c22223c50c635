//! Remedies that open the same pipeline otherwise: more or fewer workers, more I/O threads.

use infeed_raw::machine::usable_cores;

use super::{Candidate, Change};
use crate::explain::case::Case;
use crate::explain::storage::Storage;

const WORKERS: &str = "workers-";
const READERS: &str = "io-threads-";

pub(super) fn add(case: &Case, storage: Option<&Storage>, found: &mut Vec<Candidate>) {
    let counts = worker_counts(case.workers(), usable_cores());
    found.extend(counts.into_iter().map(|count| workers(case, count)));
    let best = storage.and_then(Storage::best_readers);
    if let Some((count, _)) = best.filter(|(count, _)| *count > case.readers()) {
        found.push(readers(case, count));
    }
}

/// The remedy of this name, whose number need not be one that would be tried now.
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
        change: Change::Workers(count),
        quality: Some("identical"),
    }
}

fn readers(case: &Case, count: usize) -> Candidate {
    Candidate {
        id: format!("{READERS}{count}"),
        name: format!("more I/O threads: {count} instead of {}", case.readers()),
        command: format!("open(io_threads={count})"),
        change: Change::Readers(count),
        quality: Some("identical"),
    }
}

/// Numbers of workers worth a trial: around the present one, up to half as many again as cores.
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
