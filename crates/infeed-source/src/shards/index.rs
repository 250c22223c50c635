//! Offsets of the records of a shard, and the reader that indexing uses.

use std::io;

use bytes::Bytes;

use super::notes::MemberNotes;
use crate::store::Blob;

/// Maximum bytes of the content of a shard that can only be read whole.
pub(crate) const PACKED_BYTES: u64 = 4 << 30;

/// Maximum number of records of such a shard: a small file may claim very many.
pub(crate) const PACKED_RECORDS: usize = 1 << 24;

/// Offsets of the records of a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ShardIndex {
    /// First byte of each record and, after the last, one past its end. Ascending.
    Plain(Vec<u64>),
    /// The same offsets in the content of a file that is compressed as a whole and can only be read
    /// whole.
    Packed(Vec<u64>),
    /// A compressed file whose record offsets are in its content.
    Sealed {
        /// Number of records.
        records: u64,
        /// Bytes of the content.
        bytes: u64,
    },
}

impl ShardIndex {
    /// Number of records.
    pub(crate) fn len(&self) -> u64 {
        match self {
            ShardIndex::Plain(starts) | ShardIndex::Packed(starts) => {
                starts.len().saturating_sub(1) as u64
            }
            ShardIndex::Sealed { records, .. } => *records,
        }
    }

    /// One past the last byte of the last record, in the file or in its content.
    pub(crate) fn end(&self) -> u64 {
        match self {
            ShardIndex::Plain(starts) | ShardIndex::Packed(starts) => {
                starts.last().copied().unwrap_or(0)
            }
            ShardIndex::Sealed { bytes, .. } => *bytes,
        }
    }

    /// Whether the file can only be read whole.
    pub(crate) fn is_packed(&self) -> bool {
        !matches!(self, ShardIndex::Plain(_))
    }

    /// First byte of a record and one past its last; the whole content if the offsets are in it.
    pub(crate) fn span(&self, number: usize) -> (u64, u64) {
        match self {
            ShardIndex::Plain(starts) | ShardIndex::Packed(starts) => {
                (starts[number], starts[number + 1])
            }
            ShardIndex::Sealed { bytes, .. } => (0, *bytes),
        }
    }

    /// Whether the offsets are consistent.
    pub(crate) fn fits(&self, file_bytes: u64) -> bool {
        match self {
            ShardIndex::Plain(starts) => starts.is_sorted() && self.end() <= file_bytes,
            ShardIndex::Packed(starts) => starts.is_sorted(),
            ShardIndex::Sealed { .. } => true,
        }
    }
}

/// Result of indexing a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IndexedShard {
    pub(crate) index: ShardIndex,
    /// Members of a tar shard by class; empty for other formats.
    pub(crate) notes: MemberNotes,
}

impl From<ShardIndex> for IndexedShard {
    fn from(index: ShardIndex) -> IndexedShard {
        let notes = MemberNotes::default();
        IndexedShard { index, notes }
    }
}

/// Error about invalid bytes.
pub(crate) fn invalid(problem: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem.into())
}

/// Bytes of a shard, read in ascending order.
pub(crate) trait ShardBytes {
    /// Number of bytes.
    fn len(&self) -> u64;

    /// Returns `length` bytes from an offset, or those up to the end.
    ///
    /// # Errors
    ///
    /// The storage's error.
    fn at(&mut self, offset: u64, length: usize) -> io::Result<Bytes>;
}

/// Minimum read-ahead if most bytes are used; and the maximum, if requests are expensive.
const AHEAD_BYTES: u64 = 1 << 20;
const MAX_AHEAD_BYTES: u64 = 8 << 20;

/// Bytes per read if most bytes are skipped.
const PIECE_BYTES: u64 = 4 << 10;

/// Reads small pieces of a blob, neighbouring ones together.
#[derive(Debug)]
pub(crate) struct PieceReader<'a> {
    blob: &'a dyn Blob,
    window: Bytes,
    begin: u64,
    /// One past the last requested byte.
    last: u64,
}

impl PieceReader<'_> {
    pub(crate) fn over(blob: &dyn Blob) -> PieceReader<'_> {
        PieceReader {
            blob,
            window: Bytes::new(),
            begin: 0,
            last: 0,
        }
    }
}

impl ShardBytes for PieceReader<'_> {
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
                false => gap.saturating_mul(4).clamp(AHEAD_BYTES, MAX_AHEAD_BYTES),
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

impl ShardBytes for Bytes {
    fn len(&self) -> u64 {
        Bytes::len(self) as u64
    }

    fn at(&mut self, offset: u64, length: usize) -> io::Result<Bytes> {
        let end = offset
            .saturating_add(length as u64)
            .min(ShardBytes::len(self));
        Ok(self.slice(offset.min(end) as usize..end as usize))
    }
}
