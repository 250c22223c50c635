//! What can go wrong between a record at rest and a batch in the consumer's hands.

use std::error::Error as StdError;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::printable::printable;
use crate::sample::RecordId;

/// The cause of an error, as the part that noticed it tells it.
pub type Cause = Arc<dyn StdError + Send + Sync>;

/// What can go wrong. Variants about data name the record.
///
/// `Display` says what this layer knows; the cause below it is in `source()` and not repeated.
/// Cloning is cheap: a loader that stopped gives the same error each time it is asked.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes of a record could not be read, after retries. Never skipped or substituted: it
    /// is no property of the data.
    #[error("cannot read {record}")]
    Read {
        /// Which record.
        record: RecordId,
        /// What the operating system said.
        source: Arc<io::Error>,
    },

    /// The bytes in the place of a record are none: a checksum differs, a header is broken.
    #[error("{record} is damaged")]
    Damaged {
        /// Which record.
        record: RecordId,
        /// What is wrong.
        source: Cause,
    },

    /// The bytes of a record are not what they should be.
    #[error("{record} is bad in field `{field}`")]
    Decode {
        /// Which record.
        record: RecordId,
        /// Which field of it.
        field: String,
        /// What is wrong.
        source: Cause,
    },

    /// A transform cannot be applied to a record.
    #[error("{record} does not go through `{transform}`")]
    Transform {
        /// Which record.
        record: RecordId,
        /// Which transform.
        transform: Arc<str>,
        /// Why.
        source: Cause,
    },

    /// A record does not have the shape its batch needs.
    #[error("{record} has {found} in field `{field}` where the batch has {expected}; {mend}")]
    Shape {
        /// Which record.
        record: RecordId,
        /// Which field of it.
        field: String,
        /// The shape it has.
        found: String,
        /// The shape it should have.
        expected: String,
        /// What to do.
        mend: Arc<str>,
    },

    /// A function of the user's did not take a record, or returned what it should not.
    #[error("{record} does not go through the function {function}")]
    Function {
        /// Which record.
        record: RecordId,
        /// Which function.
        function: String,
        /// What it raised.
        source: Cause,
    },

    /// A function of the user's did not take a batch, or returned what it should not.
    #[error("the batch of step {step}, epoch {epoch}, does not go through the function {function}")]
    BatchFunction {
        /// Which epoch.
        epoch: u64,
        /// Which step of it.
        step: u64,
        /// Which function.
        function: String,
        /// What it raised.
        source: Cause,
    },

    /// A process for a function of the user's could not be started.
    #[error("no process starts for the function {function}")]
    Process {
        /// Which function.
        function: String,
        /// What the operating system said.
        source: Arc<io::Error>,
    },

    /// A record needs more memory than the loader may ever use for one.
    #[error(
        "{record} needs {needed_bytes} bytes, over the {limit_bytes} that the loader's memory \
         leaves for {purpose}; open it with more memory"
    )]
    RecordTooLarge {
        /// Which record.
        record: RecordId,
        /// What for.
        purpose: &'static str,
        /// Bytes it needs.
        needed_bytes: u64,
        /// Bytes there are.
        limit_bytes: u64,
    },

    /// More records were bad than the run allows.
    #[error("{bad} bad records, over max_bad={limit}; the last is {record}")]
    TooManyBad {
        /// How many so far.
        bad: u64,
        /// How many are allowed.
        limit: u64,
        /// The one that was too many.
        record: RecordId,
        /// What is wrong with it.
        source: Cause,
    },

    /// A dataset could not be opened or listed.
    #[error("cannot open {}", printable(&path.to_string_lossy()))]
    Open {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: Cause,
    },

    /// A file of a packed dataset could not be written.
    #[error("cannot write {}", printable(&path.to_string_lossy()))]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// What the operating system said.
        source: Arc<io::Error>,
    },

    /// The caller asked for the end of work that can be taken up again.
    #[error("stopped after {done} of {total} records; the same command goes on from there")]
    Interrupted {
        /// Records that are finished.
        done: u64,
        /// Records there are.
        total: u64,
    },

    /// The description of the pipeline is wrong.
    #[error("{part}: {problem}")]
    Config {
        /// The part of the description, such as `batch` or `transform 2 (Crop)`.
        part: String,
        /// What is wrong with it, and the mend.
        problem: String,
    },

    /// The byte budget does not hold what the pipeline needs at least.
    #[error(
        "memory={budget_bytes} bytes holds less than two batches and what makes them \
         ({needed_bytes} bytes); raise it to {}MiB or lower the batch",
        .needed_bytes.div_ceil(1 << 20)
    )]
    Budget {
        /// Bytes needed at least.
        needed_bytes: u64,
        /// Bytes given.
        budget_bytes: u64,
    },

    /// The operating system gave no memory.
    #[error("the operating system gave no {bytes} bytes for a batch")]
    OutOfMemory {
        /// Bytes asked for.
        bytes: u64,
    },

    /// A device did not take or prepare a batch. What was sent to it before may be lost.
    #[error("no batch can be had from the device {device}")]
    Device {
        /// Which device, such as `cuda:0`.
        device: String,
        /// What it could not do, and the mend.
        source: Cause,
    },

    /// Threads could not be started.
    #[error("cannot start a thread")]
    Thread {
        /// What the operating system said.
        source: Arc<io::Error>,
    },

    /// The loader was opened in another process, of which this one is a fork.
    #[error(
        "this loader was opened before a fork and its threads are in the parent; open it in the child"
    )]
    Forked,

    /// The loader was closed.
    #[error("the loader is closed; open the pipeline again")]
    Closed,

    /// A defect in infeed itself.
    #[error(
        "a thread of the loader panicked ({text}); this is a defect of infeed, please report it"
    )]
    Panicked {
        /// Thread and panic message.
        text: String,
    },
}

impl Error {
    /// A wrong description.
    pub fn config(part: impl Into<String>, problem: impl Into<String>) -> Error {
        Error::Config {
            part: part.into(),
            problem: problem.into(),
        }
    }

    /// A dataset that does not open.
    pub fn open(path: impl Into<PathBuf>, source: impl StdError + Send + Sync + 'static) -> Error {
        Error::Open {
            path: path.into(),
            source: Arc::new(source),
        }
    }

    /// A file that cannot be written.
    pub fn write(path: impl Into<PathBuf>, source: io::Error) -> Error {
        Error::Write {
            path: path.into(),
            source: Arc::new(source),
        }
    }

    /// The whole chain in one line, causes after colons.
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

    /// The record it is about, if it is about one.
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

    /// Whether it lies in the bytes of a record, so that it is the same on every run and the
    /// record may be skipped or substituted.
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
