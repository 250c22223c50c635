//! The remedies that fit a case, and the ids of all remedies.

use super::candidate::Candidate;
use super::{arrange, feeders, open, processes, rewrite};
use crate::case::Case;
use crate::findings::UntriedRemedy;
use crate::measure::storage::Storage;
use crate::measure::survey::Records;
use infeed_core::error::Error;

/// Returns the remedies that make sense for this case, and the others with a reason.
pub(crate) fn candidates(
    case: &Case,
    records: Records,
    storage: Option<&Storage>,
) -> (Vec<Candidate>, Vec<UntriedRemedy>) {
    let mut found = Vec::new();
    let mut not = Vec::new();
    open::add(case, storage, &mut found);
    processes::add(case, &mut found, &mut not);
    arrange::add(case, &mut found);
    rewrite::add(case, records, &mut found);
    (found, not)
}

/// Returns the remedy with this id.
pub(crate) fn by_id(case: &Case, records: Records, id: &str) -> Option<Candidate> {
    let opened = open::by_id(case, id)
        .or_else(|| processes::by_id(case, id))
        .or_else(|| feeders::by_id(id));
    opened.or_else(|| {
        let (found, _) = candidates(case, records, None);
        found.into_iter().find(|candidate| candidate.id == id)
    })
}

/// Ids of remedies without a number. Images can also be resized or cropped and written as JPEG.
const IDS: &[&str] = &[
    open::CACHE,
    "class-index",
    "crop",
    "crop-jpeg-95",
    "dct-scale",
    "decoded",
    "jpeg-90",
    "jpeg-95",
    "lossless",
    "png-stored",
    "png-up",
    "resize",
    "resize-jpeg-95",
    "restart-index",
    "shards",
    "uint8",
    "unverified",
];

/// Checks the id of a remedy, or its number in a report, before anything is measured. Whether the
/// remedy fits the pipeline is only known afterwards.
///
/// # Errors
///
/// [`Error::Config`] with the list of ids.
pub fn check_id(id: &str) -> Result<(), Error> {
    let counted = [
        open::WORKERS,
        open::READERS,
        processes::PROCESSES,
        feeders::FEEDERS,
    ];
    let is_count = |text: &str| text.parse::<usize>().is_ok_and(|count| count > 0);
    let numbered = |prefix: &&str| id.strip_prefix(*prefix).is_some_and(is_count);
    if is_count(id) || IDS.contains(&id) || counted.iter().any(numbered) {
        return Ok(());
    }
    let counted = counted.map(|prefix| format!("{prefix}N"));
    let problem = format!(
        "no remedy `{id}`; use a number of the report, or one of {}, {}",
        IDS.join(", "),
        counted.join(", "),
    );
    Err(Error::config("apply", problem))
}
