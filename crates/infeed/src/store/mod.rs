//! Where bytes lie: files of this machine and objects in buckets, read in one way.
//!
//! A [`Blob`] is one of either, open for reading. [`find`] opens what a user names: a path, a
//! pattern, a list by braces. What the bytes mean is not known here.

mod buffers;
mod local;
mod pattern;

use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use crate::error::Error;

pub(crate) use buffers::{Buffers, held_bytes, open_file, read_file};
pub use local::LocalFile;

/// Bytes that do not change while they are open: a file, or an object in a bucket.
///
/// Any thread may read any range at any time.
pub trait Blob: Send + Sync + Debug {
    /// Its path or URL, as a user would look it up.
    fn name(&self) -> &str;

    /// Number of bytes.
    fn len(&self) -> u64;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What differs if its content was changed: time and length of a file, the tag of an object.
    fn stamp(&self) -> String;

    /// Its path, if it is a file of this machine.
    fn path(&self) -> Option<&Path> {
        None
    }

    /// Bytes of memory that a read of so many holds.
    fn held_bytes(&self, length: u64) -> u64 {
        length
    }

    /// Bytes between two ranges that cost no more to read along than another request would.
    fn gap_bytes(&self) -> u64 {
        64 << 10
    }

    /// How many reads should be under way at once, where that differs from what a disk likes.
    fn parallel_reads(&self) -> Option<usize> {
        None
    }

    /// Reads a range. Brings all of it or fails, after what retries the storage deserves.
    ///
    /// # Errors
    ///
    /// What the storage said; [`io::ErrorKind::UnexpectedEof`] for a range beyond the end or a
    /// file that was cut meanwhile.
    fn read(&self, range: Range<u64>) -> io::Result<Bytes>;
}

/// Opens the blobs that patterns name, in the order of the patterns, those of one pattern sorted.
///
/// A pattern is a path or URL that may hold lists (`{a,b}`), ranges of numbers of one width
/// (`{0000..0146}`), and in its last parts `*`, `?` and `[…]`.
///
/// # Errors
///
/// [`Error::Config`] for a pattern that is none or that nothing matches, [`Error::Open`] for a
/// blob that is not there.
pub fn find<S: AsRef<str>>(patterns: &[S]) -> Result<Vec<Arc<dyn Blob>>, Error> {
    let mut blobs: Vec<Arc<dyn Blob>> = Vec::new();
    for pattern in patterns {
        for name in pattern::expand(pattern.as_ref())? {
            blobs.extend(local::matches(&name)?);
        }
    }
    if blobs.is_empty() {
        return Err(Error::config("source", "no files are named"));
    }
    Ok(blobs)
}

/// Opens one blob by its name, which is no pattern.
///
/// # Errors
///
/// [`Error::Open`] if it is not there.
pub(crate) fn open(name: &str) -> Result<Arc<dyn Blob>, Error> {
    Ok(Arc::new(LocalFile::new(Path::new(name))?))
}
