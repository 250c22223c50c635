//! `infeed feed` and the options of feeders in a build without the cargo feature `feed`: each is an
//! error that names the feature. The help does not list them.

use std::ffi::OsString;

use infeed_explain::Feeders;

use crate::error::{CliError, CommandResult};

pub(crate) use NoFeederArgs as FeederArgs;

/// Reason of every error in this file, with the fix.
const LACKS_FEED: &str = "this build was compiled without the cargo feature `feed`; build infeed \
                          with its default features, or install the wheel, which has it";

/// Examples with feeders in the help of `infeed explain`: none.
pub(crate) const EXPLAIN_EXAMPLES: &str = "";

/// Accepts all arguments of `infeed feed`, because a message about one of them would hide the
/// reason.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct NoFeedArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    _rest: Vec<OsString>,
}

/// Returns the error that names the feature.
pub(crate) fn run(_args: &NoFeedArgs) -> CommandResult {
    Err(CliError::Usage(format!(
        "cannot run a feeder: {LACKS_FEED}"
    )))
}

/// The options of feeders. No value is valid.
#[derive(clap::Args)]
pub(crate) struct NoFeederArgs {
    #[arg(long, hide = true, value_name = "HOSTS", value_parser = absent)]
    feeders: Option<String>,
    #[arg(long, hide = true, value_name = "FILE", value_parser = absent)]
    token_file: Option<String>,
    #[arg(long, hide = true, value_parser = absent)]
    local: Option<String>,
}

fn absent(_value: &str) -> Result<String, &'static str> {
    Err(LACKS_FEED)
}

impl NoFeederArgs {
    /// Returns false.
    pub(crate) fn are_given(&self) -> bool {
        let NoFeederArgs {
            feeders,
            token_file,
            local,
        } = self;
        [feeders, token_file, local].iter().any(|it| it.is_some())
    }

    /// Returns no feeders.
    pub(crate) fn feeders(&self) -> Result<Option<Feeders>, CliError> {
        Ok(None)
    }
}
