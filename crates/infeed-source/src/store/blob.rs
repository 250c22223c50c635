//! The trait of files and objects that are open for reading.

use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::path::Path;

use bytes::Bytes;

use infeed_codec::decode::ForeignFile;
use infeed_core::error::Error;

/// Bytes at the beginning of a blob that show whether it holds data at all.
const HEAD_BYTES: u64 = 1 << 10;

/// Bytes that do not change while they are open: a file, or an object in a bucket.
///
/// Any thread may read any range at any time.
pub trait Blob: Send + Sync + Debug {
    /// Path or URL, as a user would look it up.
    fn name(&self) -> &str;

    /// Number of bytes.
    fn len(&self) -> u64;

    /// Whether there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Text that differs if the content was changed: time and length of a file, the tag of an
    /// object.
    fn stamp(&self) -> String;

    /// Path of a local file; None for an object.
    fn path(&self) -> Option<&Path> {
        None
    }

    /// Bytes of memory that a read of `length` bytes holds.
    fn held_bytes(&self, length: u64) -> u64 {
        length
    }

    /// Bytes between two ranges that cost no more to read than another request would.
    fn gap_bytes(&self) -> u64 {
        64 << 10
    }

    /// Number of parallel reads, where a disk's number does not fit.
    fn parallel_reads(&self) -> Option<usize> {
        None
    }

    /// Reads a range. Returns all of it or an error, after the retries that suit the storage.
    ///
    /// # Errors
    ///
    /// The storage's error; [`io::ErrorKind::UnexpectedEof`] for a range beyond the end or a file
    /// that was cut meanwhile.
    fn read(&self, range: Range<u64>) -> io::Result<Bytes>;
}

/// Number of reads at a time that the storage of these files benefits from.
pub(crate) fn parallel_reads<'a>(files: impl Iterator<Item = &'a dyn Blob>) -> Option<usize> {
    files.map(Blob::parallel_reads).max().flatten()
}

/// Error about a blob that cannot be opened as a shard. If its bytes are invalid, the message ends with
/// a fix.
pub(crate) fn unreadable(blob: &dyn Blob, error: io::Error) -> Error {
    let kind = error.kind();
    let invalid = matches!(
        kind,
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof
    );
    if invalid && let Some(found) = in_place_of_data(blob) {
        return Error::open(blob.name(), io::Error::new(kind, found.to_string()));
    }
    let text = error.to_string();
    // A fix stands after a semicolon.
    match invalid && !text.contains("; ") {
        true => {
            let fixed = format!("{text}; copy the file again, or leave it out of the dataset");
            Error::open(blob.name(), io::Error::new(kind, fixed))
        }
        false => Error::open(blob.name(), error),
    }
}

/// Recognizes a blob that holds something in place of any data.
fn in_place_of_data(blob: &dyn Blob) -> Option<ForeignFile> {
    let head = blob.read(0..blob.len().min(HEAD_BYTES)).ok()?;
    ForeignFile::in_place_of_data(&head)
}
