//! The options of feeders in a build without the cargo feature `feed`: there are none.

use infeed_explain::Feeders;

use crate::error::CliError;

pub(crate) use NoFeederArgs as FeederArgs;

/// Examples with feeders in the help of `infeed explain`: none.
pub(crate) const EXPLAIN_EXAMPLES: &str = "";

#[derive(clap::Args)]
pub(crate) struct NoFeederArgs {}

impl NoFeederArgs {
    /// Returns false.
    pub(crate) fn are_given(&self) -> bool {
        false
    }

    /// Returns no feeders.
    pub(crate) fn feeders(&self) -> Result<Option<Feeders>, CliError> {
        Ok(None)
    }
}
