//! Remedies that open the same pipeline otherwise: more or fewer workers, more I/O threads.

use infeed_raw::machine::usable_cores;

use super::{Candidate, Change};
use crate::explain::case::Case;
use crate::explain::storage::Storage;

pub(super) fn add(case: &Case, storage: Option<&Storage>, found: &mut Vec<Candidate>) {
    for workers in worker_counts(case.workers(), usable_cores()) {
        let word = if workers > case.workers() {
            "more"
        } else {
            "fewer"
        };
        found.push(Candidate {
            id: format!("workers-{workers}"),
            name: format!("{word} workers: {workers} instead of {}", case.workers()),
            command: format!("open(workers={workers})"),
            change: Change::Workers(workers),
            quality: Some("identical"),
        });
    }
    let Some((readers, _)) = storage.and_then(Storage::best_readers) else {
        return;
    };
    if readers > case.readers() {
        found.push(Candidate {
            id: format!("io-threads-{readers}"),
            name: format!("more I/O threads: {readers} instead of {}", case.readers()),
            command: format!("open(io_threads={readers})"),
            change: Change::Readers(readers),
            quality: Some("identical"),
        });
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
