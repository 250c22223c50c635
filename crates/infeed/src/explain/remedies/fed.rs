//! The remedy of cores that do not suffice: other machines that make batches too.

use super::{Candidate, Change};

const FEEDERS: &str = "feeders-";

/// So many of them.
pub(in crate::explain) fn candidate(count: u32) -> Candidate {
    let name = match count {
        1 => "a feeder: another machine that makes batches too".to_owned(),
        n => format!("{n} feeders: other machines that make batches too"),
    };
    Candidate {
        id: format!("{FEEDERS}{count}"),
        name,
        command: "infeed feed PIPELINE --listen ADDRESS:7077 --token-file TOKEN".to_owned(),
        change: Change::Feeders,
        quality: Some("identical"),
    }
}

/// How many feeders a remedy of this name takes; None if it is another remedy.
pub(in crate::explain) fn count_of(id: &str) -> Option<u32> {
    id.strip_prefix(FEEDERS)?.parse().ok()
}

pub(super) fn by_id(id: &str) -> Option<Candidate> {
    count_of(id).map(candidate)
}
