//! Feeders in a build without the cargo feature `feed`: none are planned or measured.

use super::{FeederFindings, PlanInputs};
use crate::case::Case;
use crate::findings::Remedy;
use crate::measure::progress::Progress;
use crate::remedies::feeders::count_of;
use infeed_core::error::Error;

/// Reports that feeders are not planned, if the user asked for a plan.
pub(crate) fn feeding(
    case: &Case,
    _known: &PlanInputs<'_>,
    _progress: Progress<'_>,
) -> Result<FeederFindings, Error> {
    let conditions = &case.conditions;
    if conditions.network.is_none() && conditions.feeder_cores.is_none() {
        return Ok(FeederFindings::default());
    }
    let why = "this build was compiled without the cargo feature `feed`; build infeed with its \
               default features, or install the wheel, which has it"
        .to_owned();
    Ok(FeederFindings::not_tried(why))
}

/// Checks that a remedy can be applied. A remedy with feeders cannot.
///
/// # Errors
///
/// [`Error::Config`] for a remedy with feeders.
pub fn applies(_case: &Case, remedy: &Remedy) -> Result<(), Error> {
    match count_of(&remedy.id) {
        None => Ok(()),
        Some(_) => {
            let problem = format!(
                "`{}` needs the cargo feature `feed`, which this build lacks; build infeed with \
                 its default features, or install the wheel, which has it",
                remedy.id
            );
            Err(Error::config("apply", problem))
        }
    }
}
