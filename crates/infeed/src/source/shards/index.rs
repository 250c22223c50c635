//! Where the records of a shard lie, and how a shard is looked through for them.

use std::io;

use bytes::Bytes;

use crate::store::Blob;

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
    pub(super) fn fits(&self, file_bytes: u64) -> bool {
        match self {
            Index::Plain(starts) => starts.is_sorted() && self.end() <= file_bytes,
            Index::Packed(starts) => starts.is_sorted(),
            Index::Sealed { .. } => true,
        }
    }
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
