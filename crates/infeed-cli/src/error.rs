//! Errors of a command. Each prints one line: the location, the reason, the fix.

use std::fmt;
use std::path::Path;

use infeed_core::error::with_causes;
use infeed_core::printable::printable_lines;

/// The result of every command.
pub(crate) type CommandResult = Result<(), CliError>;

/// The reason why a command failed.
#[derive(Debug)]
pub(crate) enum CliError {
    /// Invalid arguments. Exit status 2.
    Usage(String),
    /// The work failed. Exit status 1.
    Failed(String),
    /// The work is done, but bad records were left out. Exit status 3.
    LeftOut(String),
    /// The reader of the standard output has closed it. The command prints nothing more and exits
    /// with the status that a shell reports for a program killed by a closed pipe.
    Closed,
}

impl CliError {
    /// Joins the error and its causes with colons.
    pub(crate) fn from_error(error: &dyn std::error::Error) -> CliError {
        CliError::Failed(printable_lines(&with_causes(error)).into_owned())
    }

    /// Returns the error of a file.
    pub(crate) fn at(path: &Path, error: &dyn fmt::Display) -> CliError {
        CliError::Failed(format!("{}: {error}", path.display()))
    }

    pub(crate) fn status(&self) -> u8 {
        match self {
            CliError::Usage(_) => 2,
            CliError::Failed(_) => 1,
            CliError::LeftOut(_) => 3,
            CliError::Closed => 141,
        }
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CliError::Usage(text) | CliError::Failed(text) | CliError::LeftOut(text) => {
                f.write_str(text)
            }
            CliError::Closed => f.write_str("the standard output is closed"),
        }
    }
}
