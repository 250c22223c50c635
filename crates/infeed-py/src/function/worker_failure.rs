//! The command that starts a worker process, and the failures of its calls.

use std::process::ExitStatus;

use infeed::function::FunctionFailure;

/// Program, arguments, and the pickled function.
pub(super) type LaunchCommand = (String, Vec<String>, Vec<u8>);

/// Reason why a call has no answer.
#[derive(Debug)]
pub(super) enum WorkerFailure {
    /// The function raised an exception, or returned an invalid value.
    Failed(FunctionFailure),
    /// The process ended.
    Ended(Option<ExitStatus>),
}

impl From<FunctionFailure> for WorkerFailure {
    fn from(failed: FunctionFailure) -> WorkerFailure {
        WorkerFailure::Failed(failed)
    }
}
