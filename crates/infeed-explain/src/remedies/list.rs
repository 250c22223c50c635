//! The remedies that fit a case, from the tables of all remedies.

use super::candidate::{Candidate, KnownRemedy};
use super::{arrange, feeders, open, processes, rewrite};
use crate::case::Case;
use crate::findings::UntriedRemedy;
use crate::measure::storage::Storage;
use crate::measure::survey::Records;
use infeed_core::error::Error;

/// All remedies, in the order of their trials.
const TABLES: [&[KnownRemedy]; 5] = [
    open::REMEDIES,
    processes::REMEDIES,
    arrange::REMEDIES,
    rewrite::REMEDIES,
    feeders::REMEDIES,
];

fn known_remedies() -> impl Iterator<Item = &'static KnownRemedy> {
    TABLES.into_iter().flatten()
}

/// Returns the remedies that make sense for this case, and the others with a reason.
pub(crate) fn candidates(
    case: &Case,
    records: Records,
    storage: Option<&Storage>,
) -> (Vec<Candidate>, Vec<UntriedRemedy>) {
    let found = known_remedies().flat_map(|remedy| remedy.candidates(case, records, storage));
    (
        found.collect(),
        processes::blocked_remedy(case).into_iter().collect(),
    )
}

/// Returns the remedy with this id.
pub(crate) fn by_id(case: &Case, records: Records, id: &str) -> Option<Candidate> {
    known_remedies().find_map(|remedy| remedy.by_id(case, records, id))
}

/// Checks the id of a remedy, or its number in a report, before anything is measured. Whether the
/// remedy fits the pipeline is only known afterwards.
///
/// # Errors
///
/// [`Error::Config`] with the list of ids.
pub fn check_id(id: &str) -> Result<(), Error> {
    let is_number = id.parse::<usize>().is_ok_and(|number| number > 0);
    if is_number || known_remedies().any(|remedy| remedy.has_id(id)) {
        return Ok(());
    }
    let mut ids: Vec<String> = known_remedies().map(KnownRemedy::shown_id).collect();
    ids.sort_unstable();
    let problem = format!(
        "no remedy `{id}`; use a number of the report, or one of {}",
        ids.join(", "),
    );
    Err(Error::config("apply", problem))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_id_belongs_to_one_remedy() {
        let ids: Vec<String> = known_remedies().map(KnownRemedy::shown_id).collect();
        let distinct: BTreeSet<&String> = ids.iter().collect();

        assert_eq!(distinct.len(), ids.len());
        for id in ids {
            let id = id.replace("-N", "-3");
            let owners = known_remedies().filter(|remedy| remedy.has_id(&id));
            assert_eq!(owners.count(), 1, "{id}");
            assert!(check_id(&id).is_ok(), "{id}");
        }
    }

    #[test]
    fn a_count_is_a_positive_number() {
        for id in [
            "workers-",
            "workers-0",
            "workers--1",
            "workers-two",
            "uint8-2",
        ] {
            assert!(check_id(id).is_err(), "{id}");
        }
    }
}
