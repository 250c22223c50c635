//! Where the records of a shard lie: found once by looking through it, or told beside it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use super::Format;
use super::{beside, kept};
use crate::error::Error;
use crate::store::Blob;

/// Threads that look shards through for where records begin: on a disk, and at most where each
/// read takes long and many go at once.
const INDEXERS: usize = 8;
const MOST_INDEXERS: usize = 64;

/// Most bytes of the content of a shard that can only be read whole.
pub(super) const PACKED_BYTES: u64 = 4 << 30;

/// Most records of such a shard: a small file may claim very many.
pub(super) const PACKED_RECORDS: usize = 1 << 24;

/// Where the records of a shard lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Index {
    /// First byte of each record and, after the last, one past its end: ascending.
    Plain(Vec<u64>),
    /// The same in the content of a file that is compressed as a whole, so that it can only be
    /// read whole.
    Packed(Vec<u64>),
    /// A compressed file that tells where its records lie once it is unpacked.
    Sealed {
        /// Number of records.
        records: u64,
        /// Bytes of the content.
        bytes: u64,
    },
}

impl Index {
    /// Number of records.
    pub(super) fn len(&self) -> u64 {
        match self {
            Index::Plain(starts) | Index::Packed(starts) => starts.len().saturating_sub(1) as u64,
            Index::Sealed { records, .. } => *records,
        }
    }

    /// One past the last byte of a record: of the file, or of its content.
    pub(super) fn end(&self) -> u64 {
        match self {
            Index::Plain(starts) | Index::Packed(starts) => starts.last().copied().unwrap_or(0),
            Index::Sealed { bytes, .. } => *bytes,
        }
    }

    /// Whether the file can only be read whole.
    pub(super) fn is_packed(&self) -> bool {
        !matches!(self, Index::Plain(_))
    }

    /// First byte of a record and one past its last; the whole content where only that tells.
    pub(super) fn span(&self, number: usize) -> (u64, u64) {
        match self {
            Index::Plain(starts) | Index::Packed(starts) => (starts[number], starts[number + 1]),
            Index::Sealed { bytes, .. } => (0, *bytes),
        }
    }

    /// Whether reads may rely on it.
    fn fits(&self, file_bytes: u64) -> bool {
        match self {
            Index::Plain(starts) => starts.is_sorted() && self.end() <= file_bytes,
            Index::Packed(starts) => starts.is_sorted(),
            Index::Sealed { .. } => true,
        }
    }
}

/// The indexes of all shards, in order; several are looked through at a time.
///
/// # Errors
///
/// [`Error::Open`] naming the first shard that cannot be read or is none.
pub(super) fn index_all(format: &dyn Format, blobs: &[Arc<dyn Blob>]) -> Result<Vec<Index>, Error> {
    let next = AtomicUsize::new(0);
    let reads = blobs.first().and_then(|blob| blob.parallel_reads());
    let threads = reads.unwrap_or(INDEXERS).clamp(INDEXERS, MOST_INDEXERS);
    let body = || {
        let mut mine: Vec<(usize, io::Result<Index>)> = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(blob) = blobs.get(at) else {
                return mine;
            };
            let index = index(format, at, &**blob);
            if index.is_err() {
                // Those before it are being looked at; none behind it matters.
                next.store(blobs.len(), Ordering::Relaxed);
            }
            mine.push((at, index));
        }
    };
    let mut all: Vec<(usize, io::Result<Index>)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.min(blobs.len()))
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

/// What was kept of an earlier look, what lies beside the shard, or what a look through it says.
fn index(format: &dyn Format, number: usize, blob: &dyn Blob) -> io::Result<Index> {
    let kept = format.kept_as().and_then(|tag| kept::Place::of(tag, blob));
    if let Some(index) = kept.as_ref().and_then(kept::Place::load)
        && index.fits(blob.len())
    {
        return Ok(index);
    }
    if format.kept_as().is_some()
        && let Some(text) = beside::text(blob)
    {
        match format
            .told(&text, blob)
            .filter(|index| index.fits(blob.len()))
        {
            Some(index) => return Ok(index),
            None => tracing::warn!(
                "the index beside {} is not its own; it is looked through instead",
                blob.name()
            ),
        }
    }
    let index = format.index(number, blob)?;
    if !index.fits(blob.len()) {
        return Err(invalid("where its records lie cannot be".to_owned()));
    }
    if let Some(place) = kept {
        place.save(&index);
    }
    Ok(index)
}

/// An error about bytes that are not what they should be.
pub(super) fn invalid(problem: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}

/// Bytes of a shard that is looked through, asked for in ascending order.
pub(super) trait Pieces {
    /// Number of bytes there are.
    fn len(&self) -> u64;

    /// `length` bytes from an offset on, or those up to the end.
    ///
    /// # Errors
    ///
    /// What the storage said.
    fn at(&mut self, offset: u64, length: usize) -> io::Result<Bytes>;
}

/// What is read ahead where most bytes are looked at, at least; where a request is dear, as much
/// as makes it cheap, at most.
const AHEAD_BYTES: u64 = 1 << 20;
const MOST_AHEAD_BYTES: u64 = 8 << 20;

/// What is read at once where most bytes are skipped.
const PIECE_BYTES: u64 = 4 << 10;

/// Small pieces of a blob, read together where they lie close to each other.
#[derive(Debug)]
pub(super) struct Scan<'a> {
    blob: &'a dyn Blob,
    window: Bytes,
    begin: u64,
    /// One past the last byte asked for.
    last: u64,
}

impl Scan<'_> {
    pub(super) fn over(blob: &dyn Blob) -> Scan<'_> {
        Scan {
            blob,
            window: Bytes::new(),
            begin: 0,
            last: 0,
        }
    }
}

impl Pieces for Scan<'_> {
    fn len(&self) -> u64 {
        self.blob.len()
    }

    fn at(&mut self, offset: u64, length: usize) -> io::Result<Bytes> {
        let end = offset.saturating_add(length as u64).min(self.blob.len());
        let offset = offset.min(end);
        let skipped = offset.saturating_sub(self.last);
        self.last = end;
        let window_end = self.begin + self.window.len() as u64;
        if offset < self.begin || end > window_end {
            let gap = self.blob.gap_bytes();
            let ahead = match skipped > gap {
                true => PIECE_BYTES,
                false => gap.saturating_mul(4).clamp(AHEAD_BYTES, MOST_AHEAD_BYTES),
            };
            let until = end.max(offset.saturating_add(ahead)).min(self.blob.len());
            self.window = self.blob.read(offset..until)?;
            self.begin = offset;
        }
        let from = (offset - self.begin) as usize;
        let to = (end - self.begin) as usize;
        match to <= self.window.len() {
            true => Ok(self.window.slice(from..to)),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl Pieces for Bytes {
    fn len(&self) -> u64 {
        Bytes::len(self) as u64
    }

    fn at(&mut self, offset: u64, length: usize) -> io::Result<Bytes> {
        let end = offset.saturating_add(length as u64).min(Pieces::len(self));
        Ok(self.slice(offset.min(end) as usize..end as usize))
    }
}
