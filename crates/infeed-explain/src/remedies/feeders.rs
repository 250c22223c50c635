//! The remedy against a lack of cores: other machines that make batches, too.

use super::candidate::{Candidate, PixelChange, RemedyChange};

pub(super) const FEEDERS: &str = "feeders-";

/// Returns the remedy with `count` feeders.
pub(crate) fn candidate(count: u32) -> Candidate {
    let name = match count {
        1 => "a feeder: another machine that also makes batches".to_owned(),
        n => format!("{n} feeders: other machines that also make batches"),
    };
    Candidate {
        id: format!("{FEEDERS}{count}"),
        name,
        command: "infeed feed PIPELINE --listen ADDRESS:7077 --token-file TOKEN".to_owned(),
        change: RemedyChange::Feeders,
        pixels: PixelChange::Identical("identical"),
    }
}

/// Returns the number of feeders of a remedy id. None for other remedies.
pub(crate) fn count_of(id: &str) -> Option<u32> {
    id.strip_prefix(FEEDERS)?.parse().ok()
}

pub(super) fn by_id(id: &str) -> Option<Candidate> {
    count_of(id).map(candidate)
}
