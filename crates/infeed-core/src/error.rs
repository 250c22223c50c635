//! Errors of the pipeline, from reading a record to delivering a batch.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::printable::{printable, printable_lines};
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
        "{record} needs {needed_bytes} bytes for {purpose}, but the memory budget leaves \
         {limit_bytes}{advice}"
    )]
    RecordTooLarge {
        /// The record.
        record: RecordId,
        /// Purpose of the memory.
        purpose: MemoryPurpose,
        /// Bytes needed.
        needed_bytes: u64,
        /// Bytes allowed.
        limit_bytes: u64,
        /// Source of the limit, and the fix.
        advice: MemoryAdvice,
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

    /// Open loaders or other programs leave less memory than the minimum of the pipeline, and no
    /// budget is set.
    #[error(
        "this loader needs {}MiB for two batches and the buffers that fill them, and {}MiB are left: \
         {reserved}; loaders without memory= reserve up to three quarters of the memory together, and \
         each one up to half of the free memory ({}MiB); close other loaders or programs, lower the \
         batch size, or set memory=\"{}MiB\"",
        .needed_bytes.div_ceil(1 << 20),
        .left_bytes >> 20,
        .free_bytes >> 21,
        .needed_bytes.div_ceil(1 << 20)
    )]
    Reserved {
        /// Minimum number of bytes.
        needed_bytes: u64,
        /// Bytes that this loader may reserve.
        left_bytes: u64,
        /// Bytes of memory that no program uses.
        free_bytes: u64,
        /// Reservations of other loaders.
        reserved: LoaderReservations,
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

    /// Returns the error and its causes on one line, separated by colons. Control characters are
    /// escaped, because names and causes come from data and servers. Descriptions and devices have
    /// messages of several lines.
    pub fn chain(&self) -> String {
        let text = with_causes(self);
        let shown = match self {
            Error::Config { .. } | Error::Device { .. } => printable_lines(&text),
            _ => printable(&text),
        };
        shown.into_owned()
    }

    /// Adds the fix to [`Error::RecordTooLarge`]: `advice` gets the purpose and the needed bytes.
    /// Returns other errors unchanged.
    pub fn with_memory_advice(
        mut self,
        advice: impl FnOnce(MemoryPurpose, u64) -> MemoryAdvice,
    ) -> Error {
        if let Error::RecordTooLarge {
            purpose,
            needed_bytes,
            advice: to,
            ..
        } = &mut self
        {
            *to = advice(*purpose, *needed_bytes);
        }
        self
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

    /// Whether the message of a bad record contains a fix for its own problem.
    pub fn has_fix(&self) -> bool {
        match self {
            Error::RecordTooLarge { .. } => true,
            Error::Damaged { source, .. } => source.is::<IncompleteRecord>(),
            _ => false,
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

/// Cause of an undamaged record that lacks a field which other records have. Holds the description.
#[derive(Debug, thiserror::Error)]
#[error("{0}; complete the record, or leave it out with on_error=\"substitute\" or \"skip\"")]
pub struct IncompleteRecord(pub String);

/// Purpose of the memory that a record needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryPurpose {
    /// The record's encoded bytes.
    Reading,
    /// Decoded pixels, and buffers of transforms and functions.
    Decoding,
    /// A row whose size differs by record.
    Row,
    /// Rows of a preview.
    Preview,
}

impl fmt::Display for MemoryPurpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MemoryPurpose::Reading => "reading",
            MemoryPurpose::Decoding => "decoding",
            MemoryPurpose::Row => "a row of its batch",
            MemoryPurpose::Preview => "a preview",
        })
    }
}

/// Source of a limit on the memory of a record, and the fix. Printed after the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryAdvice {
    /// Number of records whose sizes were known when the budget was divided, and number of all
    /// records. None if no sizes were known.
    pub sized: Option<(u64, u64)>,
    /// Smallest budget, in bytes, in which the record fits. None if unknown.
    pub memory_bytes: Option<u64>,
}

impl fmt::Display for MemoryAdvice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.sized {
            Some((sized, all)) if sized == all => {
                write!(f, "; opening read the sizes of all {all} records")?;
            }
            Some((sized, all)) => {
                write!(f, "; opening read the sizes of {sized} of {all} records")?;
            }
            None => {}
        }
        match self.memory_bytes {
            Some(bytes) => write!(f, "; set memory=\"{}MiB\" or more", bytes.div_ceil(1 << 20)),
            None => f.write_str("; raise memory="),
        }
    }
}

/// Memory that loaders without their own budget have reserved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoaderReservations {
    /// Bytes of loaders of this process.
    pub own_bytes: u64,
    /// Bytes of loaders of other processes.
    pub other_bytes: u64,
    /// Ids of those processes.
    pub processes: Vec<u32>,
}

impl fmt::Display for LoaderReservations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const LISTED: usize = 4;
        let mut parts = Vec::new();
        if self.own_bytes > 0 {
            let own = self.own_bytes >> 20;
            parts.push(format!("other loaders of this process reserve {own}MiB"));
        }
        let other = self.other_bytes >> 20;
        match &self.processes[..] {
            [] => {}
            [one] => parts.push(format!("loaders of process {one} reserve {other}MiB")),
            all => {
                let listed: Vec<String> = all.iter().take(LISTED).map(u32::to_string).collect();
                let rest = match all.len().saturating_sub(LISTED) {
                    0 => String::new(),
                    rest => format!(" and {rest} others"),
                };
                let listed = listed.join(", ");
                parts.push(format!(
                    "loaders of processes {listed}{rest} reserve {other}MiB"
                ));
            }
        }
        match parts.is_empty() {
            true => f.write_str("no other loader reserves memory"),
            false => f.write_str(&parts.join(" and ")),
        }
    }
}

/// Joins the messages of an error and its causes with colons. Leaves out a cause with which the
/// text ends already, because some libraries repeat causes in their messages. A cause that is only
/// part of a name stays.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        let before = text.strip_suffix(&more);
        let is_repeated = before.is_some_and(|before| before.is_empty() || before.ends_with(' '));
        if !is_repeated {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An error with its cause.
    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct ChainedError {
        text: &'static str,
        source: Option<Box<ChainedError>>,
    }

    fn error_chain(texts: &[&'static str]) -> Option<Box<ChainedError>> {
        let (text, causes) = texts.split_first()?;
        let source = error_chain(causes);
        Some(Box::new(ChainedError { text, source }))
    }

    #[test]
    fn repeated_causes_are_left_out_and_causes_that_a_name_contains_are_not() {
        let joined = |texts: &[&'static str]| {
            let error = error_chain(texts).expect("an error");
            with_causes(&*error)
        };

        assert_eq!(
            joined(&["cannot read a", "no file"]),
            "cannot read a: no file"
        );
        assert_eq!(
            joined(&["request failed: no route", "no route", "timeout"]),
            "request failed: no route: timeout"
        );
        assert_eq!(
            joined(&["cannot decode cat/truncated.png", "truncated"]),
            "cannot decode cat/truncated.png: truncated"
        );
        assert_eq!(
            joined(&["cannot decode cat/truncated", "truncated"]),
            "cannot decode cat/truncated: truncated"
        );
    }
}
