//! Records in shards: files that hold many records, each a span of bytes.
//!
//! A `ShardFormat` is what differs between formats: the offsets of records, and the fields in
//! their bytes. This module holds the common parts: the list of shards, the reads of neighbouring
//! spans, and the names of damaged records.

pub(crate) mod column;
pub(crate) mod example;
mod format;
pub(crate) mod index;
mod index_cache;
mod indexing;
pub(crate) mod member;
pub(crate) mod notes;
pub(crate) mod npy;
pub(crate) mod tar_scan;
#[cfg(test)]
mod tests;
pub(crate) mod text_index;
pub(crate) mod values;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::{
    Admission, Read, ReadError, Sink, Source, admit_read, files_fingerprint, handle_bytes,
};
use crate::left_out::LeftOut;
use crate::store::{self, Blob};
use infeed_core::error::{Cause, Error};
use infeed_core::order::window::Groups;
use infeed_core::sample::{Field, Record, RecordId};

pub(crate) use format::{ExtraBytes, ShardFormat};
use index::ShardIndex;
use notes::MemberNotes;
pub use values::{FieldRequest, KindHint, specified_fields};

/// Maximum bytes of neighbouring records per read.
const READ_BYTES: u64 = 8 << 20;

/// Maximum distance in a run between the records of one read, if memory does not hold a whole run:
/// the read holds its bytes until the last record is used.
const SPREAD: usize = 64;

/// Number of records that may decide the kinds of fields.
const FIRST_RECORDS: u64 = 16;

#[derive(Debug)]
struct Shard {
    /// Position among the shards.
    number: usize,
    blob: Arc<dyn Blob>,
    index: ShardIndex,
}

impl Shard {
    /// Returns the content of a packed shard, and the offsets of its records in it.
    fn content(
        &self,
        format: &dyn ShardFormat,
        stored: Bytes,
    ) -> io::Result<(Bytes, Option<Vec<u64>>)> {
        let content = format.unpack(self.number, stored, self.index.end())?;
        if content.len() as u64 != self.index.end() {
            return Err(index::invalid("it unpacks to another length".to_owned()));
        }
        let ShardIndex::Sealed { records, .. } = self.index else {
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
            false => Err(index::invalid(
                "its index has impossible record offsets".to_owned(),
            )),
        }
    }

    /// Reads the bytes of the first few records.
    fn first_records(&self, format: &dyn ShardFormat) -> io::Result<Vec<Bytes>> {
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
pub struct Shards {
    format: Box<dyn ShardFormat>,
    shards: Vec<Shard>,
    groups: Arc<Groups>,
    grown: ExtraBytes,
    left_out: Vec<LeftOut>,
}

impl Shards {
    /// Indexes all shards, several at a time, and reads the first records if only these determine
    /// the fields. Without `follow_links`, a text index that is a link is not used.
    ///
    /// # Errors
    ///
    /// [`Error::Open`] with the first shard that cannot be read or is invalid; [`Error::Config`] if
    /// there are no records, or two fields have one name.
    pub(crate) fn open(
        mut format: Box<dyn ShardFormat>,
        blobs: Vec<Arc<dyn Blob>>,
        follow_links: bool,
    ) -> Result<Shards, Error> {
        let indexed = indexing::index_all(&*format, &blobs, follow_links)?;
        let (indexes, notes): (Vec<ShardIndex>, Vec<MemberNotes>) = indexed
            .into_iter()
            .map(|one| (one.index, one.notes))
            .unzip();
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
        let names = shards.iter().map(|shard| shard.blob.name());
        let members: Vec<(&str, &MemberNotes)> = names.zip(&notes).collect();
        let Some(first) = shards.iter().find(|shard| shard.index.len() > 0) else {
            let left_out = format.left_out("", &members).into_iter();
            let left_out = left_out.map(|part| format!("; {part}")).collect::<String>();
            let problem = format!("the shards hold no records{left_out}");
            return Err(Error::config("source", problem));
        };
        let first_name = first.blob.name();
        let records = match format.is_settled() {
            true => Vec::new(),
            false => first
                .first_records(&*format)
                .map_err(|error| Error::open(first_name, error))?,
        };
        format
            .settle(&records, &members)
            .map_err(|source| Error::Open {
                path: first_name.into(),
                source,
            })?;
        let left_out = format.left_out(first_name, &members);
        for (at, field) in format.fields().iter().enumerate() {
            if format.fields()[..at]
                .iter()
                .any(|one| one.name == field.name)
            {
                let problem = format!("two fields have the name `{}`", field.name);
                return Err(Error::config("source", problem));
            }
        }
        let ends = shards.iter().scan(0, |sum, shard| {
            *sum += shard.index.len();
            Some(*sum)
        });
        let fields = format.fields().len();
        let bytes = shards.iter().map(|shard| match shard.index.is_packed() {
            // All of its records wait for workers at the same time.
            true => shard.index.end() + handle_bytes(shard.index.len(), fields),
            false => shard.index.end(),
        });
        let groups = Groups {
            ends: ends.collect(),
            bytes: bytes.collect(),
            whole: shards.iter().any(|shard| shard.index.is_packed()),
        };
        Ok(Shards {
            grown: format.extra_bytes(),
            format,
            shards,
            groups: Arc::new(groups),
            left_out,
        })
    }

    /// Returns the shard of a record, and its number in the shard.
    fn locate(&self, record: u64) -> (usize, usize) {
        let shard = self.groups.of(record);
        (shard, (record - self.groups.first(shard)) as usize)
    }

    /// Plans reads of neighbouring spans of a shard. With a `spread`, the records of a read are
    /// also close to each other in the run.
    fn merge_reads(&self, run: &[u64], spread: usize) -> Vec<Read> {
        let mut spans: Vec<(usize, u64, u64, usize)> = run
            .iter()
            .enumerate()
            .map(|(position, &record)| {
                let (shard, number) = self.locate(record);
                let (start, end) = self.shards[shard].index.span(number);
                (shard, start, end, position)
            })
            .collect();
        spans.sort_unstable();
        let mut reads: Vec<Read> = Vec::new();
        let most_bytes = READ_BYTES / (1 + self.grown.by_byte);
        // Shard, bytes and run positions of the last read.
        let mut last = (usize::MAX, 0..0, 0..0);
        for (shard, start, end, position) in spans {
            let whole = self.shards[shard].index.is_packed();
            let (of, bytes, positions) = &last;
            let joined = bytes.start..bytes.end.max(end);
            let run_part = positions.start.min(position)..positions.end.max(position + 1);
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
                    read.records.push((position, run[position]));
                    last = (shard, joined, run_part);
                }
                None => {
                    reads.push(Read {
                        records: vec![(position, run[position])],
                        bytes: None,
                        key: shard as u64,
                        draws: Vec::new(),
                    });
                    last = (shard, start..end, position..position + 1);
                }
            }
        }
        for read in &mut reads {
            read.bytes = (read.records.len() > 1).then(|| self.held_bytes(read));
        }
        reads
    }

    /// Bytes of the shard that a read needs.
    fn span(&self, read: &Read) -> std::ops::Range<u64> {
        let shard = &self.shards[read.key as usize];
        if shard.index.is_packed() {
            return 0..shard.blob.len();
        }
        let numbers = read
            .records
            .iter()
            .map(|&(_, record)| self.locate(record).1);
        let (first, last) = numbers.fold((usize::MAX, 0), |(first, last), number| {
            (first.min(number), last.max(number))
        });
        shard.index.span(first.min(last)).0..shard.index.span(last).1
    }

    /// Maximum bytes of memory that a read holds from its start until its last record is used.
    fn held_bytes(&self, read: &Read) -> u64 {
        let shard = &self.shards[read.key as usize];
        let span = self.span(read);
        let stored = shard.blob.held_bytes(span.end - span.start);
        let (content, extra) = match shard.index.is_packed() {
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
        let parts = [content, extra, grown, self.handles(read)];
        parts.into_iter().fold(0, u64::saturating_add)
    }

    /// Bytes of the handles of a read's records.
    fn handles(&self, read: &Read) -> u64 {
        let shard = &self.shards[read.key as usize];
        let starts = match shard.index {
            // The offsets of the records are computed in each read.
            ShardIndex::Sealed { records, .. } => (records + 1) * size_of::<u64>() as u64,
            _ => 0,
        };
        starts + handle_bytes(read.records.len() as u64, self.fields().len())
    }
}

/// Bytes of fields that are not slices of the content they were parsed from.
fn own_bytes(content: &Bytes, fields: &[Bytes]) -> u64 {
    let within = content.as_ptr_range();
    let own = fields
        .iter()
        .filter(|field| !within.contains(&field.as_ptr()));
    own.map(|field| field.len() as u64).sum()
}

/// Maximum bytes that reads of several records hold together at any position of a run.
fn peak_bytes(reads: &[Read]) -> u64 {
    let mut edges: Vec<(usize, bool, u64)> = Vec::new();
    for read in reads {
        let (Some(bytes), Some(first), Some(last)) = (
            read.bytes,
            read.records.iter().map(|&(position, _)| position).min(),
            read.records.iter().map(|&(position, _)| position).max(),
        ) else {
            continue;
        };
        edges.push((first, true, bytes));
        edges.push((last + 1, false, bytes));
    }
    // A read that ends at a position is counted before one that begins there.
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
        let (shard, number) = self.locate(record);
        let shard = &self.shards[shard];
        let name = match &shard.index {
            ShardIndex::Plain(starts) => {
                format!(
                    "record {number} of {} at byte {}",
                    shard.blob.name(),
                    starts[number]
                )
            }
            ShardIndex::Packed(starts) => format!(
                "record {number} of {} at byte {} unpacked",
                shard.blob.name(),
                starts[number]
            ),
            ShardIndex::Sealed { .. } => format!("record {number} of {}", shard.blob.name()),
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

    fn local_files(&self, record: u64) -> Vec<PathBuf> {
        let (shard, _) = self.locate(record);
        let path = self.shards[shard].blob.path();
        path.map(Path::to_owned).into_iter().collect()
    }

    fn shard(&self, record: u64) -> Option<&str> {
        Some(self.shards[self.locate(record).0].blob.name())
    }

    fn classes(&self) -> Option<&[String]> {
        self.format.classes()
    }

    fn left_out(&self) -> Vec<LeftOut> {
        self.left_out.clone()
    }

    fn groups(&self) -> Option<Arc<Groups>> {
        Some(Arc::clone(&self.groups))
    }

    fn parallel_reads(&self) -> Option<usize> {
        store::parallel_reads(self.shards.iter().map(|shard| &*shard.blob))
    }

    fn plan(&self, run: &[u64], room_bytes: u64) -> Vec<Read> {
        for spread in [usize::MAX, SPREAD] {
            let reads = self.merge_reads(run, spread);
            if peak_bytes(&reads) <= room_bytes {
                return reads;
            }
        }
        // Large records: one per read, except in shards that can only be read whole.
        self.merge_reads(run, 1)
    }

    fn read(
        &self,
        read: &Read,
        admit: &mut Admission<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<(), ReadError> {
        let Some(&(_, record)) = read.records.first() else {
            return Ok(());
        };
        let shard = &self.shards[read.key as usize];
        let span = self.span(read);
        let bytes = self.held_bytes(read);
        admit_read(admit, record, bytes)?;
        let brought = shard.blob.read(span.clone());
        let content = brought.and_then(|stored| match shard.index.is_packed() {
            true => shard.content(&*self.format, stored),
            false => Ok((stored, None)),
        });
        let (content, starts) = match content {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                let cause: Cause = Arc::new(error);
                for &(position, _) in &read.records {
                    sink(position, Err(Arc::clone(&cause)));
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
        for &(position, record) in &read.records {
            let (_, number) = self.locate(record);
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
            sink(position, found);
        }
        if self.grown != ExtraBytes::default() || shard.index.is_packed() {
            // The stored bytes are freed, and values rarely reach their upper bound.
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
