//! Records in shards: files that hold many, each record a span of bytes.
//!
//! What the formats differ in is a [`Format`]: where records begin, and what fields the bytes of
//! one hold. The rest is here, once: which shards there are, which spans are read together, what
//! a damaged record is called.

use std::fmt::Debug;
use std::io;
use std::sync::Arc;

use bytes::Bytes;

use super::{Admit, Read, ReadError, Sink, Source};
use crate::error::{Cause, Error};
use crate::order::window::Groups;
use crate::sample::{Field, Record, RecordId};
use crate::store::Blob;

/// Bytes of neighbouring records that one read brings at most.
const READ_BYTES: u64 = 8 << 20;

/// How far apart in a run the records of one read may be where memory does not hold a whole run:
/// the read holds its bytes until the last of them is used.
const SPREAD: usize = 64;

/// Threads that look shards through for where records begin.
const INDEXERS: usize = 8;

/// What shards hold: one format a file of this folder.
pub(super) trait Format: Send + Sync + Debug {
    /// The fields of every record, in order.
    fn fields(&self) -> &[Field];

    /// Class names by label, where the dataset tells them.
    fn classes(&self) -> Option<&[String]> {
        None
    }

    /// Looks a shard through.
    ///
    /// # Errors
    ///
    /// What the storage said, or [`io::ErrorKind::InvalidData`] with offset and reason for bytes
    /// that are no shard of this format.
    fn index(&self, shard: &dyn Blob) -> io::Result<Index>;

    /// The whole content of a shard that can only be read so, from its stored bytes: of
    /// `length` bytes, as its index says.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidData`] if it does not unpack to `length` bytes.
    fn unpack(&self, _stored: Bytes, _length: u64) -> io::Result<Bytes> {
        Err(io::Error::other("it is not packed"))
    }

    /// The fields of the record that lies in these bytes.
    ///
    /// # Errors
    ///
    /// What is wrong with them.
    fn parse(&self, bytes: Bytes) -> Result<Vec<Bytes>, Cause>;
}

/// Where the records of a shard lie.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Index {
    /// First byte of each record and, after the last, one past its end: ascending. Of a packed
    /// shard, in its content.
    pub(super) starts: Vec<u64>,
    /// Whether the shard is packed (compressed as a whole), so that it can only be read whole.
    pub(super) packed: bool,
}

impl Index {
    /// Number of records.
    pub(super) fn len(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    /// One past the last byte.
    fn end(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0)
    }
}

#[derive(Debug)]
struct Shard {
    blob: Arc<dyn Blob>,
    index: Index,
}

/// A dataset of shards of one format.
#[derive(Debug)]
pub(super) struct Shards {
    format: Box<dyn Format>,
    shards: Vec<Shard>,
    groups: Arc<Groups>,
}

impl Shards {
    /// Looks all shards through, several at a time.
    ///
    /// # Errors
    ///
    /// [`Error::Open`] naming the first shard that cannot be read or is none; [`Error::Config`]
    /// if there are no records.
    pub(super) fn open(
        format: Box<dyn Format>,
        blobs: Vec<Arc<dyn Blob>>,
    ) -> Result<Shards, Error> {
        let indexes = index_all(&*format, &blobs)?;
        let shards: Vec<Shard> = blobs
            .into_iter()
            .zip(indexes)
            .map(|(blob, index)| Shard { blob, index })
            .collect();
        let ends = shards.iter().scan(0, |sum, shard| {
            *sum += shard.index.len() as u64;
            Some(*sum)
        });
        let groups = Groups {
            ends: ends.collect(),
            bytes: shards.iter().map(|shard| shard.index.end()).collect(),
            whole: shards.iter().any(|shard| shard.index.packed),
        };
        if groups.records() == 0 {
            return Err(Error::config("source", "the shards hold no records"));
        }
        Ok(Shards {
            format,
            shards,
            groups: Arc::new(groups),
        })
    }

    /// The shard of a record, and its number there.
    fn place(&self, record: u64) -> (usize, usize) {
        let shard = self.groups.of(record);
        (shard, (record - self.groups.first(shard)) as usize)
    }

    /// Reads of spans that lie close to each other in a shard. With a `spread`, their records
    /// also lie close to each other in the run.
    fn merged(&self, run: &[u64], spread: usize) -> Vec<Read> {
        let mut spans: Vec<(usize, u64, u64, usize)> = run
            .iter()
            .enumerate()
            .map(|(place, &record)| {
                let (shard, number) = self.place(record);
                let starts = &self.shards[shard].index.starts;
                (shard, starts[number], starts[number + 1], place)
            })
            .collect();
        spans.sort_unstable();
        let mut reads: Vec<Read> = Vec::new();
        // Shard, bytes and places of the last of them.
        let mut last = (usize::MAX, 0..0, 0..0);
        for (shard, start, end, place) in spans {
            let whole = self.shards[shard].index.packed;
            let (of, bytes, places) = &last;
            let joined = bytes.start..bytes.end.max(end);
            let run_part = places.start.min(place)..places.end.max(place + 1);
            let near = *of == shard
                && (whole
                    || start
                        <= bytes
                            .end
                            .saturating_add(self.shards[shard].blob.gap_bytes())
                        && joined.end - joined.start <= READ_BYTES
                        && run_part.len() <= spread);
            match reads.last_mut().filter(|_| near) {
                Some(read) => {
                    read.records.push((place, run[place]));
                    last = (shard, joined, run_part);
                }
                None => {
                    reads.push(Read {
                        records: vec![(place, run[place])],
                        bytes: None,
                        key: shard as u64,
                    });
                    last = (shard, start..end, place..place + 1);
                }
            }
        }
        for read in &mut reads {
            read.bytes = (read.records.len() > 1).then(|| self.held_bytes(read));
        }
        reads
    }

    /// The bytes of the shard that a read needs.
    fn span(&self, read: &Read) -> std::ops::Range<u64> {
        let shard = &self.shards[read.key as usize];
        if shard.index.packed {
            return 0..shard.blob.len();
        }
        let numbers = read.records.iter().map(|&(_, record)| self.place(record).1);
        let (first, last) = numbers.fold((usize::MAX, 0), |(first, last), number| {
            (first.min(number), last.max(number))
        });
        let starts = &shard.index.starts;
        starts[first.min(last)]..starts[last + 1]
    }

    /// Bytes of memory that a read holds at most while it is made and used.
    fn held_bytes(&self, read: &Read) -> u64 {
        let shard = &self.shards[read.key as usize];
        let span = self.span(read);
        let stored = shard.blob.held_bytes(span.end - span.start);
        match shard.index.packed {
            true => stored.saturating_add(shard.index.end()),
            false => stored,
        }
    }
}

/// The most bytes that reads of several records hold together at any place of a run.
fn peak_bytes(reads: &[Read]) -> u64 {
    let mut edges: Vec<(usize, bool, u64)> = Vec::new();
    for read in reads {
        let (Some(bytes), Some(first), Some(last)) = (
            read.bytes,
            read.records.iter().map(|&(place, _)| place).min(),
            read.records.iter().map(|&(place, _)| place).max(),
        ) else {
            continue;
        };
        edges.push((first, true, bytes));
        edges.push((last + 1, false, bytes));
    }
    // What ends at a place goes before what begins there.
    edges.sort_unstable();
    let mut held = 0_u64;
    edges.iter().fold(0, |peak, &(_, begins, bytes)| {
        held = match begins {
            true => held.saturating_add(bytes),
            false => held.saturating_sub(bytes),
        };
        peak.max(held)
    })
}

impl Source for Shards {
    fn fields(&self) -> &[Field] {
        self.format.fields()
    }

    fn len(&self) -> u64 {
        self.groups.records()
    }

    fn id(&self, record: u64, _field: Option<usize>) -> RecordId {
        let (shard, number) = self.place(record);
        let shard = &self.shards[shard];
        let byte = shard.index.starts[number];
        RecordId {
            index: record,
            name: format!("record {number} of {} at byte {byte}", shard.blob.name()),
        }
    }

    fn classes(&self) -> Option<&[String]> {
        self.format.classes()
    }

    fn groups(&self) -> Option<Arc<Groups>> {
        Some(Arc::clone(&self.groups))
    }

    fn parallel_reads(&self) -> Option<usize> {
        let blobs = self.shards.iter().map(|shard| shard.blob.parallel_reads());
        blobs.max().flatten()
    }

    fn plan(&self, run: &[u64], room_bytes: u64) -> Vec<Read> {
        let reads = self.merged(run, usize::MAX);
        if peak_bytes(&reads) <= room_bytes {
            return reads;
        }
        self.merged(run, SPREAD)
    }

    fn read(
        &self,
        read: &Read,
        admit: &mut Admit<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<(), ReadError> {
        let Some(&(_, record)) = read.records.first() else {
            return Ok(());
        };
        let shard = &self.shards[read.key as usize];
        let span = self.span(read);
        let bytes = self.held_bytes(read);
        admit(bytes).map_err(|refused| ReadError::Refused {
            record,
            bytes,
            refused,
        })?;
        let brought = shard.blob.read(span.clone());
        let content = brought.and_then(|stored| match shard.index.packed {
            true => self.format.unpack(stored, shard.index.end()),
            false => Ok(stored),
        });
        let content = match content {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                let cause: Cause = Arc::new(error);
                for &(place, _) in &read.records {
                    sink(place, Err(Arc::clone(&cause)));
                }
                return Ok(());
            }
            Err(error) => {
                let field = None;
                return Err(ReadError::Io {
                    record,
                    field,
                    error,
                });
            }
        };
        let begin = if shard.index.packed { 0 } else { span.start };
        for &(place, record) in &read.records {
            let (_, number) = self.place(record);
            let starts = &shard.index.starts;
            let own = (starts[number] - begin) as usize..(starts[number + 1] - begin) as usize;
            let fields = self.format.parse(content.slice(own));
            let found = fields.map(|fields| Record {
                index: record,
                fields,
            });
            sink(place, found);
        }
        Ok(())
    }
}

/// The indexes of all shards, in order.
fn index_all(format: &dyn Format, blobs: &[Arc<dyn Blob>]) -> Result<Vec<Index>, Error> {
    let next = std::sync::atomic::AtomicUsize::new(0);
    let body = || {
        let mut mine: Vec<(usize, io::Result<Index>)> = Vec::new();
        loop {
            let at = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let Some(blob) = blobs.get(at) else {
                return mine;
            };
            let index = format.index(&**blob).and_then(|index| checked(index, blob));
            let failed = index.is_err();
            mine.push((at, index));
            if failed {
                // Those before it are being looked at; none behind it matters.
                next.store(blobs.len(), std::sync::atomic::Ordering::Relaxed);
            }
        }
    };
    let mut all: Vec<(usize, io::Result<Index>)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..INDEXERS.min(blobs.len()))
            .map(|_| scope.spawn(body))
            .collect();
        let done = threads.into_iter().map(|thread| thread.join());
        done.collect::<Result<Vec<_>, _>>()
    })
    .map_err(|_| Error::Panicked {
        text: "looking shards through".to_owned(),
    })?
    .into_iter()
    .flatten()
    .collect();
    all.sort_by_key(|(at, _)| *at);
    all.into_iter()
        .map(|(at, index)| index.map_err(|error| Error::open(blobs[at].name(), error)))
        .collect()
}

/// An index as the reads rely on it.
fn checked(index: Index, blob: &Arc<dyn Blob>) -> io::Result<Index> {
    let ascending = index.starts.is_sorted();
    let inside = index.packed || index.end() <= blob.len();
    if ascending && inside {
        return Ok(index);
    }
    let problem = "its index does not fit the file; remove the index, it is made again";
    Err(io::Error::new(io::ErrorKind::InvalidData, problem))
}
