//! The trait of all sources, and the results of reading from one.

use std::fmt::Debug;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::fingerprints::fingerprint;
use super::left_out::LeftOut;
use super::reads::{Read, single_reads};
use super::resident_rows::ResidentRows;
use super::subset::Subset;
use infeed_core::error::{Cause, Error, MemoryAdvice, MemoryPurpose};
use infeed_core::exec::budget::BudgetError;
use infeed_core::order::window::Groups;
use infeed_core::sample::{Field, Record, RecordId};

/// Reads the records of a dataset by number.
///
/// A source keeps no reading position: any thread may call any method at any time. The records,
/// their number and their order are fixed while the source is open.
///
/// The engine asks the source to [`plan`](Source::plan) each run of coming records, so that
/// neighbouring records are read together (one range, one shard). I/O threads then perform the
/// reads.
pub trait Source: Send + Sync + Debug {
    /// Fields of every record, in order.
    fn fields(&self) -> &[Field];

    /// Number of records.
    fn len(&self) -> u64;

    /// Whether there are no records.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Hash that differs between datasets. It covers names and counts, but not the location of the
    /// dataset. Computing it reads no bytes that opening did not read.
    fn fingerprint(&self) -> u64 {
        fingerprint(self.len(), self.fields())
    }

    /// Identifies a record as a user would look it up. `field` selects the file where each field
    /// has its own.
    fn id(&self, record: u64, field: Option<usize>) -> RecordId;

    /// Paths of the files that contain only this record, one per field that is stored in a file.
    /// Empty where a file holds several records.
    fn files(&self, _record: u64) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Local files from which a record is read, shared with other records or not. Empty where the
    /// record does not come from local files.
    fn local_files(&self, record: u64) -> Vec<PathBuf> {
        self.files(record)
    }

    /// Bytes of a field that is in memory although other fields of its record are in files, such as
    /// the boxes of an image.
    fn field_in_memory(&self, _record: u64, _field: usize) -> Option<Bytes> {
        None
    }

    /// Name of a record in its dataset, such as `cat/1.jpg`, where the dataset was listed record by
    /// record.
    fn name(&self, _record: u64) -> Option<String> {
        None
    }

    /// Path or URL of the file that holds a record together with others.
    fn shard(&self, _record: u64) -> Option<&str> {
        None
    }

    /// Class names by label, where the source knows them.
    fn classes(&self) -> Option<&[String]> {
        None
    }

    /// Parts of the dataset that no record contains, and that the user has not excluded.
    fn left_out(&self) -> Vec<LeftOut> {
        Vec::new()
    }

    /// Label of a record, where it is known without reading a record.
    fn label(&self, _record: u64) -> Option<i64> {
        None
    }

    /// Numbers of the records in the source that they are selected from, where this source is a
    /// selection. The [ids](Source::id) of the records have the same numbers.
    fn selection(&self) -> Option<&Subset> {
        None
    }

    /// Number of coming records that [`plan`](Source::plan) receives at a time. A source with
    /// shards asks for enough records to use a shard completely.
    fn run_length(&self) -> u64 {
        1024
    }

    /// Groups of neighbouring records that are cheap to read only together. None where each record
    /// is as cheap by itself. Shuffling then uses windows of groups.
    fn groups(&self) -> Option<Arc<Groups>> {
        None
    }

    /// The records, if they are in memory or in mapped files. Each one is then as cheap by itself as
    /// together with others.
    fn resident(&self) -> Option<&dyn ResidentRows> {
        None
    }

    /// Sources that this one mixes by weights, if it does. Each of them then has its own order.
    fn weighted_parts(&self) -> Option<(&[Arc<dyn Source>], &SourceShares)> {
        None
    }

    /// Time that reading has taken in Python so far, for records that come from Python.
    fn python(&self) -> Option<PythonTime> {
        None
    }

    /// Version of the records, where its user states that records from Python never change. Sources
    /// with an equal version have the same records. None where reading may give other data.
    fn version(&self) -> Option<u64> {
        None
    }

    /// Number of parallel reads, where a disk's number does not fit: a bucket answers each request
    /// after tens of milliseconds, but hundreds at once.
    fn parallel_reads(&self) -> Option<usize> {
        None
    }

    /// Divides a run of coming records into reads. Each record of the run is in exactly one read; a
    /// record that occurs twice in a run has both occurrences in that read.
    ///
    /// At any position of the run, the reads of several records together hold at most `room_bytes`.
    /// If one group alone holds more, the loader rejects it with the figures.
    ///
    /// The default reads every record by itself.
    fn plan(&self, run: &[u64], _room_bytes: u64) -> Vec<Read> {
        single_reads(run)
    }

    /// Performs a read: passes each of its records to `sink`, with its position in the run, in any
    /// order. Before it allocates, the source calls `admit` once with all the bytes that it may
    /// hold. Resident memory (arrays, mapped files) needs no admission. Once all records exist, the
    /// source may call `admit` again with fewer bytes: those that it holds until the last record is
    /// used.
    ///
    /// # Errors
    ///
    /// [`ReadError::Io`] if the storage failed. Bytes that are not a valid record go to the sink as
    /// an error: the record may be skipped, and the error is the same on every run.
    fn read(
        &self,
        read: &Read,
        admit: &mut Admission<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<(), ReadError>;
}

/// Shares of the mixed sources.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceShares {
    /// Share of each part, relative to the others.
    pub shares: Vec<f64>,
    /// Positions of an epoch. None: as many as there are records.
    pub epoch: Option<u64>,
}

/// Time that fetching items from a Python object took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PythonTime {
    /// Items fetched.
    pub items: u64,
    /// Time I/O threads waited for the interpreter's lock.
    pub waited: Duration,
    /// Time they spent in Python, holding the lock as far as Python did not release it.
    pub inside: Duration,
}

/// A record, or the reason why its bytes are not a valid record.
pub type RecordResult = Result<Record, Cause>;

/// Receives the result for each record, with its position in the run.
pub type Sink<'a> = dyn FnMut(usize, RecordResult) + 'a;

/// Reserves bytes of memory, and waits until they are available. A second call in the same read
/// releases the bytes that the first call reserved beyond the new number.
pub type Admission<'a> = dyn FnMut(u64) -> Result<(), BudgetError> + 'a;

/// Reason why a read returned no record.
#[derive(Debug)]
pub enum ReadError {
    /// The storage failed at a record.
    Io {
        /// Number of the record.
        record: u64,
        /// Index of the field, where each field has its own file.
        field: Option<usize>,
        /// Error of the storage.
        error: io::Error,
    },
    /// The memory was not granted.
    Refused {
        /// Number of the record.
        record: u64,
        /// Bytes requested.
        bytes: u64,
        /// Reason.
        refused: BudgetError,
    },
}

impl ReadError {
    /// Returns the same error with the record's number in an enclosing source.
    pub(crate) fn with_number(mut self, number: impl FnOnce(u64) -> u64) -> ReadError {
        let (ReadError::Io { record, .. } | ReadError::Refused { record, .. }) = &mut self;
        *record = number(*record);
        self
    }

    /// Converts to the error that users see, with the record's name in the source.
    pub fn about(self, source: &dyn Source) -> Error {
        match self {
            ReadError::Io {
                record,
                field,
                error,
            } => Error::Read {
                record: source.id(record, field),
                source: Arc::new(error),
            },
            ReadError::Refused {
                record,
                bytes,
                refused,
            } => Error::RecordTooLarge {
                record: source.id(record, None),
                purpose: MemoryPurpose::Reading,
                needed_bytes: bytes,
                limit_bytes: match refused {
                    BudgetError::TooLarge { limit } => limit,
                    BudgetError::Closed => 0,
                },
                advice: MemoryAdvice::default(),
            },
        }
    }
}

/// Asks whether the bytes of a read fit into memory, on behalf of its first record.
pub(crate) fn admit_read(
    admit: &mut Admission<'_>,
    record: u64,
    bytes: u64,
) -> Result<(), ReadError> {
    admit(bytes).map_err(|refused| ReadError::Refused {
        record,
        bytes,
        refused,
    })
}

/// Reads one record by itself, without a memory budget.
///
/// # Errors
///
/// [`Error::Read`] or [`Error::Damaged`].
pub fn read_one(source: &dyn Source, record: u64) -> Result<Record, Error> {
    let mut found = None;
    for read in source.plan(&[record], u64::MAX) {
        source
            .read(&read, &mut |_| Ok(()), &mut |_, one| found = Some(one))
            .map_err(|error| error.about(source))?;
    }
    match found {
        Some(found) => found.map_err(|cause| damage_error(source, record, cause)),
        None => Err(Error::Panicked {
            text: format!("the source did not return {}", source.id(record, None)),
        }),
    }
}

/// Builds the error of a record whose bytes are not valid.
pub fn damage_error(source: &dyn Source, record: u64, cause: Cause) -> Error {
    Error::Damaged {
        record: source.id(record, None),
        source: cause,
    }
}
