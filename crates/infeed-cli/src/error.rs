//! What the user is told when a command fails, in one line: the place, the reason, the mend.

use std::fmt;

/// Why a command did not do its work.
#[derive(Debug)]
pub(crate) enum CliError {
    /// The arguments make no sense; exit status 2.
    Usage(String),
    /// The work failed; exit status 1.
    Failed(String),
    /// The work is done, but for records that were bad; exit status 3.
    LeftOut(String),
    /// Nobody reads the standard output any more: nothing is told, and the exit status is what a shell
    /// gives to a program that a closed pipe ended.
    Closed,
}

impl CliError {
    /// The error with its causes, joined by colons.
    pub(crate) fn failed(error: &dyn std::error::Error) -> CliError {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            let more = error.to_string();
            // Some libraries print their cause as part of their own message.
            if !text.ends_with(&more) {
                text.push_str(": ");
                text.push_str(&more);
            }
            cause = error.source();
        }
        CliError::Failed(text)
    }

    /// The error of a command with `--on-error`, which it names if the error is a bad record.
    pub(crate) fn of_run(error: &infeed::Error) -> CliError {
        let fix = match error.is_bad_record() {
            true => "; --on-error substitute goes on without such records",
            false => "",
        };
        CliError::Failed(format!("{}{fix}", CliError::failed(error)))
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
