//! Where records come from: one trait, one kind of place a file.

pub mod arrow;
pub mod batches;
pub mod chosen;
pub mod columns;
pub mod folder;
mod listing;
pub mod memory;
pub mod mix;
pub mod npy;
pub mod npz;
pub mod pairs;
pub mod parquet;
pub mod selected;
pub(crate) mod shards;
pub mod subset;
pub mod throttled;
pub mod walk;

pub use listing::image_files;

use std::collections::HashMap;
use std::fmt::Debug;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::error::{Cause, Error};
use crate::exec::budget::Refused;
use crate::order::window::Groups;
use crate::random::{hash, hash_bytes};
use crate::sample::{DType, Field, FieldKind, Record, RecordId};
use crate::store::Blob;
use subset::Subset;

/// Gives the records of a dataset by number.
///
/// A source holds no progress: any thread may call any method at any time. Its records, their
/// number and their order are fixed while it is open.
///
/// The engine asks it to [`plan`](Source::plan) each run of coming records, so that what lies
/// together is read together (one range, one shard), and then performs the reads on I/O threads.
pub trait Source: Send + Sync + Debug {
    /// The fields of every record, in order.
    fn fields(&self) -> &[Field];

    /// Number of records.
    fn len(&self) -> u64;

    /// Whether there are no records.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What differs if this is another dataset: names and counts enter, where it lies does not.
    /// Looks at no bytes that opening did not.
    fn fingerprint(&self) -> u64 {
        fingerprint(self.len(), self.fields())
    }

    /// Names a record (of which `field`, where fields lie apart) as a user would look it up.
    fn id(&self, record: u64, field: Option<usize>) -> RecordId;

    /// The files that hold a record and no other, one a field that lies in a file; empty where
    /// records do not lie in files of their own.
    fn files(&self, _record: u64) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Files of this machine from which a record is read, with others or by itself; empty where it
    /// does not come from files of this machine.
    fn places(&self, record: u64) -> Vec<PathBuf> {
        self.files(record)
    }

    /// What a record is called in its dataset, such as `cat/1.jpg`, where the dataset was listed
    /// record by record.
    fn name(&self, _record: u64) -> Option<String> {
        None
    }

    /// The file that a record lies in with others, by path or URL.
    fn shard(&self, _record: u64) -> Option<&str> {
        None
    }

    /// Class names by label, where the source knows them.
    fn classes(&self) -> Option<&[String]> {
        None
    }

    /// The label of a record, where it is known without reading one.
    fn label(&self, _record: u64) -> Option<i64> {
        None
    }

    /// The numbers of its records in the source they are chosen of, where it is a selection. Their
    /// [ids](Source::id) have those numbers, too.
    fn selection(&self) -> Option<&Subset> {
        None
    }

    /// How many coming records [`plan`](Source::plan) is given at a time. A source whose records
    /// lie in shards asks for enough to use a shard whole.
    fn run_length(&self) -> u64 {
        1024
    }

    /// Records that lie together and are cheap to read only together; None where each is as cheap
    /// by itself. Shuffling then goes by windows of groups.
    fn groups(&self) -> Option<Arc<Groups>> {
        None
    }

    /// The sources that this one mixes by weights, where it does: each then has an order of its
    /// own.
    fn mixed(&self) -> Option<(&[Arc<dyn Source>], &mix::Weights)> {
        None
    }

    /// What reading took in Python so far, for records that come from there.
    fn python(&self) -> Option<PythonTime> {
        None
    }

    /// How many reads should be under way at once, where that differs from what a disk likes:
    /// a bucket answers each after tens of milliseconds, and hundreds at once.
    fn parallel_reads(&self) -> Option<usize> {
        None
    }

    /// Cuts a run of coming records into reads. Each record of the run is in exactly one read,
    /// where a record occurs twice in a run, both occurrences.
    ///
    /// Reads of several records should together hold `room_bytes` at most at any place of the
    /// run; if one group alone holds more, so be it: the loader then refuses, with the figures.
    ///
    /// The default reads every record by itself.
    fn plan(&self, run: &[u64], _room_bytes: u64) -> Vec<Read> {
        single_reads(run)
    }

    /// Performs a read: gives each of its records to `sink`, with its place in the run, in any
    /// order. Before it allocates, it asks `admit` once for all the bytes it may hold; what is
    /// resident anyway (arrays, mapped files) needs no leave. Once all records are made it may ask
    /// again, for less: what is left to hold until the last of them is used.
    ///
    /// # Errors
    ///
    /// [`ReadError::Io`] if the storage failed. Bytes that are no record go to the sink as such:
    /// they may be skipped, and are the same on every run.
    fn read(
        &self,
        read: &Read,
        admit: &mut Admit<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<(), ReadError>;
}

/// What items of a Python object took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PythonTime {
    /// Items fetched.
    pub items: u64,
    /// Time I/O threads waited for the interpreter's lock.
    pub waited: Duration,
    /// Time they spent in Python, holding the lock as far as Python did not release it.
    pub inside: Duration,
}

/// What a read found: a record, or why the bytes in its place are none.
pub type Found = Result<Record, Cause>;

/// Takes what a read found, with its place in the run.
pub type Sink<'a> = dyn FnMut(usize, Found) + 'a;

/// Gives leave to hold bytes, or waits for it. Asked a second time in a read, it takes back what the
/// first leave was over that.
pub type Admit<'a> = dyn FnMut(u64) -> Result<(), Refused> + 'a;

/// A fingerprint of no more than the number of records and the names of fields.
pub(crate) fn fingerprint(len: u64, fields: &[Field]) -> u64 {
    let names = fields.iter().map(|field| hash_bytes(field.name.as_bytes()));
    hash(&[len, hash(&names.collect::<Vec<_>>())])
}

/// A fingerprint of records in files that are read in groups, whose order follows from the files'
/// and from where groups end: names without their folders, lengths and ends enter too.
fn files_fingerprint<'a>(
    fields: &[Field],
    files: impl Iterator<Item = &'a dyn Blob>,
    groups: &Groups,
) -> u64 {
    let files = files.map(|file| {
        let name = file.name().rsplit(['/', '\\']).next();
        hash(&[hash_bytes(name.unwrap_or_default().as_bytes()), file.len()])
    });
    hash(&[
        fingerprint(groups.records(), fields),
        hash(&files.collect::<Vec<_>>()),
        hash(&groups.ends),
    ])
}

/// Whether a field holds a record's label: an integer called so.
fn is_label(field: &Field) -> bool {
    let FieldKind::Tensor { dtype, shape } = &field.kind else {
        return false;
    };
    field.name == "label" && shape.is_empty() && whole(*dtype, &[0; 8]).is_some()
}

/// The integer in the bytes of a scalar.
fn whole(dtype: DType, bytes: &[u8]) -> Option<i64> {
    let bytes = bytes.get(..dtype.bytes())?;
    Some(match dtype {
        DType::UInt8 => i64::from(bytes[0]),
        DType::Int8 => i64::from(bytes[0] as i8),
        DType::UInt16 => i64::from(u16::from_le_bytes(bytes.try_into().ok()?)),
        DType::Int16 => i64::from(i16::from_le_bytes(bytes.try_into().ok()?)),
        DType::UInt32 => i64::from(u32::from_le_bytes(bytes.try_into().ok()?)),
        DType::Int32 => i64::from(i32::from_le_bytes(bytes.try_into().ok()?)),
        DType::UInt64 => u64::from_le_bytes(bytes.try_into().ok()?).try_into().ok()?,
        DType::Int64 => i64::from_le_bytes(bytes.try_into().ok()?),
        _ => return None,
    })
}

/// Bytes of a record's handles while it waits for a worker, and those of each field: where records are
/// small and come together, these are most of what a read holds.
const RECORD_BYTES: u64 = 720;
const FIELD_BYTES: u64 = size_of::<Bytes>() as u64;

/// Bytes of the handles of so many records.
pub(crate) fn handle_bytes(records: u64, fields: usize) -> u64 {
    records.saturating_mul(RECORD_BYTES + FIELD_BYTES * fields as u64)
}

/// Every record of a run in a read of its own.
pub fn single_reads(run: &[u64]) -> Vec<Read> {
    let single = |(place, &record)| Read {
        records: vec![(place, record)],
        bytes: None,
        key: 0,
    };
    run.iter().enumerate().map(single).collect()
}

/// A read for every group of which a run has records, in the order of the first of them. Its key is
/// the number of the group.
fn group_reads(run: &[u64], groups: &Groups) -> Vec<Read> {
    let mut reads: Vec<Read> = Vec::new();
    let mut of: HashMap<usize, usize> = HashMap::new();
    for (place, &record) in run.iter().enumerate() {
        let group = groups.of(record);
        let at = *of.entry(group).or_insert_with(|| {
            reads.push(Read {
                records: Vec::new(),
                bytes: Some(groups.bytes[group]),
                key: group as u64,
            });
            reads.len() - 1
        });
        reads[at].records.push((place, record));
    }
    reads
}

/// Reads one record by itself, without a budget.
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
        Some(found) => found.map_err(|cause| damaged(source, record, cause)),
        None => Err(Error::Panicked {
            text: format!("the source brought no {}", source.id(record, None)),
        }),
    }
}

/// The error of a record whose bytes are none.
pub fn damaged(source: &dyn Source, record: u64, cause: Cause) -> Error {
    Error::Damaged {
        record: source.id(record, None),
        source: cause,
    }
}

/// One read that a source planned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// The records it brings, with their places in the run.
    pub records: Vec<(usize, u64)>,
    /// Bytes it will hold until the last of its records is used. A read of several records must
    /// know them beforehand, for the engine to see that all held at once fit the budget.
    pub bytes: Option<u64>,
    /// The source's own name for what it reads, such as the number of a shard.
    pub key: u64,
}

/// Why a read brought nothing.
#[derive(Debug)]
pub enum ReadError {
    /// The storage failed, at this record.
    Io {
        /// Which record.
        record: u64,
        /// Which field, where fields lie apart.
        field: Option<usize>,
        /// What it said.
        error: io::Error,
    },
    /// Leave for the bytes was refused.
    Refused {
        /// Which record.
        record: u64,
        /// Bytes asked for.
        bytes: u64,
        /// Why.
        refused: Refused,
    },
}

impl ReadError {
    /// The same of a source that has another number for the record.
    fn numbered(mut self, number: impl FnOnce(u64) -> u64) -> ReadError {
        let (ReadError::Io { record, .. } | ReadError::Refused { record, .. }) = &mut self;
        *record = number(*record);
        self
    }

    /// The error that users see, naming the record as the source does.
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
                purpose: "reading",
                needed_bytes: bytes,
                limit_bytes: match refused {
                    Refused::TooLarge { limit } => limit,
                    Refused::Closed => 0,
                },
            },
        }
    }
}
