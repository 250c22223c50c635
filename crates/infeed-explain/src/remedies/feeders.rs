//! The remedy against a lack of cores: other machines that make batches, too.

use super::candidate::{Candidate, KnownRemedy, PixelChange, RemedyChange};

const PREFIX: &str = "feeders-";

/// No trial runs feeders: [`crate::feeders`] predicts or measures them.
pub(super) const REMEDIES: &[KnownRemedy] = &[KnownRemedy::Counted {
    prefix: PREFIX,
    counts: |_, _| Vec::new(),
    make: |id, _, count| with_feeders(id, count),
}];

/// Returns the remedy with `count` feeders.
pub(crate) fn candidate(count: u32) -> Candidate {
    with_feeders(format!("{PREFIX}{count}"), count as usize)
}

fn with_feeders(id: String, count: usize) -> Candidate {
    let name = match count {
        1 => "a feeder: another machine that also makes batches".to_owned(),
        n => format!("{n} feeders: other machines that also make batches"),
    };
    Candidate {
        id,
        name,
        command: "infeed feed PIPELINE --listen ADDRESS:7077 --token-file TOKEN".to_owned(),
        change: RemedyChange::Feeders,
        pixels: PixelChange::Identical("identical"),
    }
}

/// Returns the number of feeders of a remedy id. None for other remedies.
pub(crate) fn count_of(id: &str) -> Option<u32> {
    id.strip_prefix(PREFIX)?.parse().ok()
}
