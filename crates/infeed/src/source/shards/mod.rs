//! Records in shards: files that hold many, each record a span of bytes.
//!
//! What the formats differ in is a [`Format`]: where records begin, and what fields the bytes of
//! one hold. The rest is here, once: which shards there are, which spans are read together, what
//! a damaged record is called.

pub(crate) mod beside;
mod column;
mod example;
mod index;
mod indexing;
mod kept;
pub(crate) mod mds;
mod member;
mod npy;
pub(crate) mod tar;
#[cfg(test)]
mod tests;
pub(crate) mod tfrecord;
mod values;

use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::{Admit, Read, ReadError, Sink, Source, files_fingerprint, handle_bytes};
use crate::error::{Cause, Error};
use crate::order::window::Groups;
use crate::sample::{Field, FieldKind, Record, RecordId};
use crate::store::Blob;

use index::Index;
pub(crate) use values::{Told, Wanted, told_fields};

/// Bytes of neighbouring records that one read brings at most.
const READ_BYTES: u64 = 8 << 20;

/// How far apart in a run the records of one read may be where memory does not hold a whole run:
/// the read holds its bytes until the last of them is used.
const SPREAD: usize = 64;

/// Records that may tell what the fields are.
const FIRST_RECORDS: u64 = 16;

/// What shards hold: one format a file of this folder.
trait Format: Send + Sync + Debug {
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
    fn index(&self, number: usize, shard: &dyn Blob) -> io::Result<Index>;

    /// What an index is kept under, so that a shard is looked through once; None where that costs
    /// nothing worth keeping.
    fn kept_as(&self) -> Option<&'static str> {
        None
    }

    /// The index in a text file next to the shard, if its lines account for every record byte of
    /// the shard and a few reads agree with it.
    fn told(&self, _text: &str, _shard: &dyn Blob) -> Option<Index> {
        None
    }

    /// Unpacks shard `number`, which can only be read whole, from its stored bytes: to `length`
    /// bytes, as its index says.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidData`] if it does not unpack to `length` bytes, or is not what the
    /// dataset's hashes say.
    fn unpack(&self, _number: usize, _stored: Bytes, _length: u64) -> io::Result<Bytes> {
        Err(io::Error::other("it is not packed"))
    }

    /// Where the records lie in the content of a shard whose index is [`Index::Sealed`].
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidData`] if it does not hold so many records.
    fn starts(&self, _content: &Bytes, _records: u64) -> io::Result<Vec<u64>> {
        Err(io::Error::other("it is not sealed"))
    }

    /// What parsing may make of a record's bytes beside slices of them.
    fn grown(&self) -> Grown {
        Grown::default()
    }

    /// Whether all fields are known without a record.
    fn is_settled(&self) -> bool {
        true
    }

    /// Settles the fields that only records tell, by the bytes of the first few. Called once,
    /// before any [`parse`](Format::parse).
    ///
    /// # Errors
    ///
    /// Why they tell nothing.
    fn settle(&mut self, _records: &[Bytes]) -> Result<(), Cause> {
        Ok(())
    }

    /// The fields of the record that lies in these bytes.
    ///
    /// # Errors
    ///
    /// What is wrong with them.
    fn parse(&self, bytes: Bytes) -> Result<Vec<Bytes>, Cause>;
}

/// Bytes that values take which are no slices of their record: numbers that were written in another
/// way, in varints or in decimal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Grown {
    /// At most so many for each record.
    by_record: u64,
    /// And so many for each byte of one.
    by_byte: u64,
}

impl Grown {
    /// Of fields whose numbers take `shortest` bytes at least where they lie.
    fn of<'a>(fields: impl Iterator<Item = &'a Field>, shortest: u64) -> Grown {
        let mut grown = Grown::default();
        for field in fields {
            match &field.kind {
                FieldKind::Ragged { dtype } => {
                    let by_byte = (dtype.bytes() as u64).div_ceil(shortest);
                    grown.by_byte = grown.by_byte.max(by_byte);
                    // The last number has nothing behind it.
                    grown.by_record += dtype.bytes() as u64;
                }
                kind @ FieldKind::Tensor { .. } => {
                    grown.by_record += kind.record_bytes().unwrap_or(0) as u64;
                }
                _ => {}
            }
        }
        grown
    }
}

#[derive(Debug)]
struct Shard {
    /// Position among the shards.
    number: usize,
    blob: Arc<dyn Blob>,
    index: Index,
}

impl Shard {
    /// The content of a packed shard, and where its records lie there.
    fn content(&self, format: &dyn Format, stored: Bytes) -> io::Result<(Bytes, Option<Vec<u64>>)> {
        let content = format.unpack(self.number, stored, self.index.end())?;
        if content.len() as u64 != self.index.end() {
            return Err(index::invalid("it unpacks to another length".to_owned()));
        }
        let Index::Sealed { records, .. } = self.index else {
            return Ok((content, None));
        };
        let starts = format.starts(&content, records)?;
        let fits = starts.is_sorted()
            && starts.len() as u64 == records + 1
            && starts
                .last()
                .is_some_and(|&end| end <= content.len() as u64);
        match fits {
            true => Ok((content, Some(starts))),
            false => Err(index::invalid("where its records lie cannot be".to_owned())),
        }
    }

    /// The bytes of the first few records.
    fn first_records(&self, format: &dyn Format) -> io::Result<Vec<Bytes>> {
        let count = self.index.len().min(FIRST_RECORDS) as usize;
        if self.index.is_packed() {
            let stored = self.blob.read(0..self.blob.len())?;
            let (content, starts) = self.content(format, stored)?;
            let span = |number: usize| match &starts {
                Some(starts) => (starts[number], starts[number + 1]),
                None => self.index.span(number),
            };
            let one = |number| {
                let (start, end) = span(number);
                content.slice(start as usize..end as usize)
            };
            return Ok((0..count).map(one).collect());
        }
        let one = |number| {
            let (start, end) = self.index.span(number);
            self.blob.read(start..end)
        };
        (0..count).map(one).collect()
    }
}

/// A dataset of shards of one format.
#[derive(Debug)]
pub(crate) struct Shards {
    format: Box<dyn Format>,
    shards: Vec<Shard>,
    groups: Arc<Groups>,
    grown: Grown,
}

impl Shards {
    /// Looks all shards through, several at a time, and at the first records where only those
    /// tell what the fields are.
    ///
    /// # Errors
    ///
    /// [`Error::Open`] naming the first shard that cannot be read or is none; [`Error::Config`]
    /// if there are no records, or two fields have one name.
    fn open(mut format: Box<dyn Format>, blobs: Vec<Arc<dyn Blob>>) -> Result<Shards, Error> {
        let indexes = indexing::index_all(&*format, &blobs)?;
        let shards: Vec<Shard> = blobs
            .into_iter()
            .zip(indexes)
            .enumerate()
            .map(|(number, (blob, index))| Shard {
                number,
                blob,
                index,
            })
            .collect();
        let Some(first) = shards.iter().find(|shard| shard.index.len() > 0) else {
            return Err(Error::config("source", "the shards hold no records"));
        };
        if !format.is_settled() {
            let wrong = |error: io::Error| Error::open(first.blob.name(), error);
            let records = first.first_records(&*format).map_err(wrong)?;
            format.settle(&records).map_err(|source| Error::Open {
                path: first.blob.name().into(),
                source,
            })?;
        }
        for (at, field) in format.fields().iter().enumerate() {
            if format.fields()[..at]
                .iter()
                .any(|one| one.name == field.name)
            {
                let problem = format!("two fields are called `{}`", field.name);
                return Err(Error::config("source", problem));
            }
        }
        let ends = shards.iter().scan(0, |sum, shard| {
            *sum += shard.index.len();
            Some(*sum)
        });
        let fields = format.fields().len();
        let bytes = shards.iter().map(|shard| match shard.index.is_packed() {
            // All of its records wait for their workers together.
            true => shard.index.end() + handle_bytes(shard.index.len(), fields),
            false => shard.index.end(),
        });
        let groups = Groups {
            ends: ends.collect(),
            bytes: bytes.collect(),
            whole: shards.iter().any(|shard| shard.index.is_packed()),
        };
        Ok(Shards {
            grown: format.grown(),
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
                let (start, end) = self.shards[shard].index.span(number);
                (shard, start, end, place)
            })
            .collect();
        spans.sort_unstable();
        let mut reads: Vec<Read> = Vec::new();
        let most_bytes = READ_BYTES / (1 + self.grown.by_byte);
        // Shard, bytes and places of the last of them.
        let mut last = (usize::MAX, 0..0, 0..0);
        for (shard, start, end, place) in spans {
            let whole = self.shards[shard].index.is_packed();
            let (of, bytes, places) = &last;
            let joined = bytes.start..bytes.end.max(end);
            let run_part = places.start.min(place)..places.end.max(place + 1);
            let near = *of == shard
                && (whole
                    || start
                        <= bytes
                            .end
                            .saturating_add(self.shards[shard].blob.gap_bytes())
                        && joined.end - joined.start <= most_bytes
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
        if shard.index.is_packed() {
            return 0..shard.blob.len();
        }
        let numbers = read.records.iter().map(|&(_, record)| self.place(record).1);
        let (first, last) = numbers.fold((usize::MAX, 0), |(first, last), number| {
            (first.min(number), last.max(number))
        });
        shard.index.span(first.min(last)).0..shard.index.span(last).1
    }

    /// Bytes of memory that a read holds at most while it is made and used.
    fn held_bytes(&self, read: &Read) -> u64 {
        let shard = &self.shards[read.key as usize];
        let span = self.span(read);
        let stored = shard.blob.held_bytes(span.end - span.start);
        let (content, beside) = match shard.index.is_packed() {
            true => (shard.index.end(), stored),
            false => (
                span.end - span.start,
                stored - (span.end - span.start).min(stored),
            ),
        };
        let records = read.records.len() as u64;
        let grown = content
            .saturating_mul(self.grown.by_byte)
            .saturating_add(records.saturating_mul(self.grown.by_record));
        let parts = [content, beside, grown, self.handles(read)];
        parts.into_iter().fold(0, u64::saturating_add)
    }

    /// Bytes of the handles of a read's records.
    fn handles(&self, read: &Read) -> u64 {
        let shard = &self.shards[read.key as usize];
        let starts = match shard.index {
            // Where they lie is found out with each read.
            Index::Sealed { records, .. } => (records + 1) * size_of::<u64>() as u64,
            _ => 0,
        };
        starts + handle_bytes(read.records.len() as u64, self.fields().len())
    }
}

/// Bytes of fields that are no slices of the content they were parsed from.
fn own_bytes(content: &Bytes, fields: &[Bytes]) -> u64 {
    let within = content.as_ptr_range();
    let own = fields
        .iter()
        .filter(|field| !within.contains(&field.as_ptr()));
    own.map(|field| field.len() as u64).sum()
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
        let name = match &shard.index {
            Index::Plain(starts) => {
                format!(
                    "record {number} of {} at byte {}",
                    shard.blob.name(),
                    starts[number]
                )
            }
            Index::Packed(starts) => format!(
                "record {number} of {} at byte {} unpacked",
                shard.blob.name(),
                starts[number]
            ),
            Index::Sealed { .. } => format!("record {number} of {}", shard.blob.name()),
        };
        RecordId {
            index: record,
            name,
        }
    }

    fn fingerprint(&self) -> u64 {
        let blobs = self.shards.iter().map(|shard| &*shard.blob);
        files_fingerprint(self.fields(), blobs, &self.groups)
    }

    fn places(&self, record: u64) -> Vec<PathBuf> {
        let (shard, _) = self.place(record);
        let path = self.shards[shard].blob.path();
        path.map(Path::to_owned).into_iter().collect()
    }

    fn shard(&self, record: u64) -> Option<&str> {
        Some(self.shards[self.place(record).0].blob.name())
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
        for spread in [usize::MAX, SPREAD] {
            let reads = self.merged(run, spread);
            if peak_bytes(&reads) <= room_bytes {
                return reads;
            }
        }
        // Large records: each by itself, but for shards that can only be read whole.
        self.merged(run, 1)
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
        let content = brought.and_then(|stored| match shard.index.is_packed() {
            true => shard.content(&*self.format, stored),
            false => Ok((stored, None)),
        });
        let (content, starts) = match content {
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
        let begin = if shard.index.is_packed() {
            0
        } else {
            span.start
        };
        let mut grown = 0;
        for &(place, record) in &read.records {
            let (_, number) = self.place(record);
            let (start, end) = match &starts {
                Some(starts) => (starts[number], starts[number + 1]),
                None => shard.index.span(number),
            };
            let own = (start - begin) as usize..(end - begin) as usize;
            let fields = self.format.parse(content.slice(own));
            let found = fields.map(|fields| {
                grown += own_bytes(&content, &fields);
                Record {
                    index: record,
                    fields,
                }
            });
            sink(place, found);
        }
        if self.grown != Grown::default() || shard.index.is_packed() {
            // What was stored is gone, and values seldom grow as they might have.
            let resident = match shard.index.is_packed() {
                true => content.len() as u64,
                false => shard.blob.held_bytes(content.len() as u64),
            };
            let kept = resident + grown + self.handles(read);
            admit(kept.min(bytes)).map_err(|refused| ReadError::Refused {
                record,
                bytes,
                refused,
            })?;
        }
        Ok(())
    }
}
