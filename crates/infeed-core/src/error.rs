//! Errors of the pipeline, from reading a record to delivering a batch.

use std::error::Error as StdError;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::printable::printable;
use crate::sample::RecordId;

/// Underlying error, from the part that detected it.
pub type Cause = Arc<dyn StdError + Send + Sync>;

/// Errors of infeed. Variants about data name the record.
///
/// `Display` describes only this layer; `source()` returns the cause. Cloning is cheap, because a
/// stopped loader returns the same error on every call.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes of a record could not be read, after retries. The loader never skips or
    /// substitutes such a record, because the error is not a property of the data.
    #[error("cannot read {record}")]
    Read {
        /// The record.
        record: RecordId,
        /// Error of the operating system.
        source: Arc<io::Error>,
    },

    /// A record is damaged or incomplete: a checksum differs, a header is broken, a file or field is
    /// missing, or its annotations belong to another image.
    #[error("cannot use {record}")]
    Damaged {
        /// The record.
        record: RecordId,
        /// Description of the damage.
        source: Cause,
    },

    /// The bytes of a field are invalid.
    #[error("cannot decode field `{field}` of {record}")]
    Decode {
        /// The record.
        record: RecordId,
        /// Name of the field.
        field: String,
        /// Description of the problem.
        source: Cause,
    },

    /// A transform cannot be applied to a record.
    #[error("cannot apply `{transform}` to {record}")]
    Transform {
        /// The record.
        record: RecordId,
        /// Name of the transform.
        transform: Arc<str>,
        /// Reason.
        source: Cause,
    },

    /// A record does not have the shape of its batch.
    #[error("{record} has {found} in field `{field}`, but the batch has {expected}; {fix}")]
    Shape {
        /// The record.
        record: RecordId,
        /// Name of the field.
        field: String,
        /// Shape of the record's field.
        found: String,
        /// Shape in the batch.
        expected: String,
        /// Suggested change.
        fix: Arc<str>,
    },

    /// A user function rejected a record, or returned an invalid result.
    #[error("function {function} failed on {record}")]
    Function {
        /// The record.
        record: RecordId,
        /// Name of the function.
        function: String,
        /// Exception of the function.
        source: Cause,
    },

    /// A user function rejected a batch, or returned an invalid result.
    #[error("function {function} failed on the batch of epoch {epoch}, step {step}")]
    BatchFunction {
        /// Number of the epoch.
        epoch: u64,
        /// Number of the step.
        step: u64,
        /// Name of the function.
        function: String,
        /// Exception of the function.
        source: Cause,
    },

    /// A process for a user function could not be started.
    #[error("cannot start a process for function {function}")]
    Process {
        /// Name of the function.
        function: String,
        /// Error of the operating system.
        source: Arc<io::Error>,
    },

    /// A record needs more memory than the loader may use for one record.
    #[error(
        "{record} needs {needed_bytes} bytes, but the memory limit leaves {limit_bytes} bytes for \
         {purpose}; raise memory="
    )]
    RecordTooLarge {
        /// The record.
        record: RecordId,
        /// Purpose of the memory.
        purpose: &'static str,
        /// Bytes needed.
        needed_bytes: u64,
        /// Bytes allowed.
        limit_bytes: u64,
    },

    /// More records were bad than the run allows.
    #[error(
        "{bad} bad records exceed max_bad={limit}; raise max_bad, or list the bad records with \
         `infeed inspect`; the last error"
    )]
    TooManyBad {
        /// Number of bad records so far.
        bad: u64,
        /// Number allowed.
        limit: u64,
        /// The record that exceeded the limit.
        record: RecordId,
        /// Problem of that record.
        source: Cause,
    },

    /// A dataset could not be opened or listed.
    #[error("cannot open {}", printable(&path.to_string_lossy()))]
    Open {
        /// File or folder.
        path: PathBuf,
        /// Reason.
        source: Cause,
    },

    /// A file of a packed dataset, or a recording, could not be written.
    #[error("cannot write {}", printable(&path.to_string_lossy()))]
    Write {
        /// File or folder.
        path: PathBuf,
        /// Error of the operating system.
        source: Arc<io::Error>,
    },

    /// The caller stopped the work. It can be resumed.
    #[error("stopped after {done} of {total} records; run the same command again to continue")]
    Interrupted {
        /// Number of finished records.
        done: u64,
        /// Number of records.
        total: u64,
    },

    /// The description of the pipeline is invalid.
    #[error("{part}: {problem}")]
    Config {
        /// Part of the description, such as `batch` or `transform 2 (Crop)`.
        part: String,
        /// The problem and its fix.
        problem: String,
    },

    /// The memory budget is below the minimum of the pipeline.
    #[error(
        "memory={budget_bytes} bytes is too small for two batches and the buffers that fill them \
         ({needed_bytes} bytes); raise memory to {}MiB or lower the batch size",
        .needed_bytes.div_ceil(1 << 20)
    )]
    Budget {
        /// Minimum number of bytes.
        needed_bytes: u64,
        /// Bytes of the budget.
        budget_bytes: u64,
    },

    /// Open loaders leave less memory than the minimum of the pipeline, and no budget is set.
    #[error(
        "half of the memory is for this user's loaders, and {left_bytes} bytes of it are left; two \
         batches and the buffers that fill them need {needed_bytes} bytes; close other loaders, \
         lower the batch size, or set memory to {}MiB",
        .needed_bytes.div_ceil(1 << 20)
    )]
    Reserved {
        /// Minimum number of bytes.
        needed_bytes: u64,
        /// Bytes that no loader has reserved.
        left_bytes: u64,
    },

    /// The operating system could not allocate memory.
    #[error(
        "out of memory: cannot allocate {bytes} bytes for a batch; lower the batch size or memory="
    )]
    OutOfMemory {
        /// Bytes requested.
        bytes: u64,
    },

    /// A device failed to accept or prepare a batch. Earlier batches on it may be lost.
    #[error("device {device} failed")]
    Device {
        /// Name of the device, such as `cuda:0`.
        device: String,
        /// The failed operation and the fix.
        source: Cause,
    },

    /// Threads could not be started.
    #[error("cannot start a thread; use fewer workers, or raise the system's limit of threads")]
    Thread {
        /// Error of the operating system.
        source: Arc<io::Error>,
    },

    /// A child process uses a loader that its parent opened before the fork.
    #[error(
        "the loader was opened before a fork, and its threads exist only in the parent process; \
         open the pipeline in the child"
    )]
    Forked,

    /// The loader was closed.
    #[error("the loader is closed; open the pipeline again")]
    Closed,

    /// A defect of infeed.
    #[error("a thread of the loader panicked ({text}); this is a bug in infeed; please report it")]
    Panicked {
        /// Name of the thread, and the panic message.
        text: String,
    },
}

impl Error {
    /// Creates the error of an invalid description.
    pub fn config(part: impl Into<String>, problem: impl Into<String>) -> Error {
        Error::Config {
            part: part.into(),
            problem: problem.into(),
        }
    }

    /// Creates the error of something that needs a cargo feature which this build lacks.
    pub fn missing_feature(part: impl Into<String>, subject: &str, feature: &str) -> Error {
        let problem = format!(
            "{subject} needs the cargo feature `{feature}` of the crate `infeed`, which this build \
             lacks; enable it"
        );
        Error::config(part, problem)
    }

    /// Creates the error of a dataset that cannot be opened.
    pub fn open(path: impl Into<PathBuf>, source: impl StdError + Send + Sync + 'static) -> Error {
        Error::Open {
            path: path.into(),
            source: Arc::new(source),
        }
    }

    /// Creates the error of a file that cannot be written.
    pub fn write(path: impl Into<PathBuf>, source: io::Error) -> Error {
        Error::Write {
            path: path.into(),
            source: Arc::new(source),
        }
    }

    /// Returns the error and its causes on one line, separated by colons.
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut cause = self.source();
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text
    }

    /// Returns the record that the error is about, if any.
    pub fn record(&self) -> Option<&RecordId> {
        match self {
            Error::Read { record, .. }
            | Error::Damaged { record, .. }
            | Error::Decode { record, .. }
            | Error::Transform { record, .. }
            | Error::Shape { record, .. }
            | Error::Function { record, .. }
            | Error::RecordTooLarge { record, .. }
            | Error::TooManyBad { record, .. } => Some(record),
            _ => None,
        }
    }

    /// Whether the error is a property of the record's bytes. Such an error is the same on every
    /// run, so the loader may skip or substitute the record.
    pub fn is_bad_record(&self) -> bool {
        matches!(
            self,
            Error::Damaged { .. }
                | Error::Decode { .. }
                | Error::Transform { .. }
                | Error::Shape { .. }
                | Error::Function { .. }
                | Error::RecordTooLarge { .. }
        )
    }
}
