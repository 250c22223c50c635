//! The option `--on-error`.

use clap::ValueEnum;
use infeed::OnError;

use crate::error::CliError;

/// Treatment of bad records.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum OnBadRecord {
    /// End the run
    Stop,
    /// Replace the record with another one
    Substitute,
    /// Leave the record out; its batch is shorter
    Skip,
}

impl From<OnBadRecord> for OnError {
    fn from(policy: OnBadRecord) -> OnError {
        match policy {
            OnBadRecord::Stop => OnError::Stop,
            OnBadRecord::Substitute => OnError::Substitute,
            OnBadRecord::Skip => OnError::Skip,
        }
    }
}

impl CliError {
    /// Returns the error of a command with `--on-error`. For a bad record, suggests another value,
    /// or a repair of the data if the value already replaces bad records.
    pub(crate) fn of_run(error: &infeed::Error, on_error: OnBadRecord) -> CliError {
        let fix = match on_error {
            _ if !error.is_bad_record() => "",
            OnBadRecord::Stop => "; use --on-error substitute to replace such records",
            OnBadRecord::Substitute | OnBadRecord::Skip => {
                "; too many records are bad: list them with `infeed inspect`, and repair or remove \
                 them"
            }
        };
        CliError::Failed(format!("{}{fix}", CliError::from_error(error)))
    }
}
