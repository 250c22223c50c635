//! Where bytes lie: files of this machine and objects in buckets, read in one way.
//!
//! A [`Blob`] is one of either, open for reading. [`find`] opens what a user names: a path, a
//! pattern, a list by braces. What the bytes mean is not known here.

mod buffers;
mod cache;
mod local;
mod pattern;
mod remote;

use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use crate::error::Error;

pub(crate) use buffers::{Buffers, held_bytes, open_file, read_file};
pub(crate) use cache::Cache;
pub use cache::{CacheUse, cache_use, set_cache};
pub use local::LocalFile;
pub(crate) use pattern::MOST as MOST_NAMES;
pub(crate) use remote::{
    Body, Bucket, BucketFolder, Created, Found, PARALLEL_READS, Wanted, below, look, read,
};
pub use remote::{Entry, Requests, configure, entries, is_url, objects, requests};

/// What the URL of a file of this machine begins with.
const FILE: &str = "file://";

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

/// Opens the one blob of this name, whatever signs are in it.
///
/// # Errors
///
/// [`Error::Open`] if it is not there, [`Error::Config`] for a URL that is none.
pub fn open(name: &str) -> Result<Arc<dyn Blob>, Error> {
    let path = local_path(name);
    match is_url(path) {
        true => remote::open(name),
        false => Ok(Arc::new(LocalFile::new(Path::new(path))?)),
    }
}

/// Opens the blobs that patterns name, in the order of the patterns, those of one pattern sorted.
///
/// A URL begins with `s3://`, `gs://`, `az://`, `abfss://`, `http://` or `https://`; `file://` is
/// a path. A pattern is a path or URL that may hold lists (`{a,b}`), ranges of numbers of one width
/// (`{0000..0146}`), and in its last parts `*`, `?` and `[…]`.
///
/// # Errors
///
/// [`Error::Config`] for a pattern that is none or that nothing matches, [`Error::Open`] for a
/// blob that is not there.
pub fn find<S: AsRef<str>>(patterns: &[S]) -> Result<Vec<Arc<dyn Blob>>, Error> {
    let mut blobs: Vec<Arc<dyn Blob>> = Vec::new();
    for pattern in patterns {
        let names = pattern::expand(pattern.as_ref())?;
        if is_url(pattern.as_ref()) && !pattern.as_ref().starts_with(FILE) {
            blobs.extend(remote::matches(&names)?);
            continue;
        }
        for name in &names {
            blobs.extend(local::matches(local_path(name))?);
        }
    }
    if blobs.is_empty() {
        return Err(Error::config("source", "no files are named"));
    }
    Ok(blobs)
}

/// The path that a `file://` URL stands for; any other name as it is.
pub(crate) fn local_path(name: &str) -> &str {
    name.strip_prefix(FILE).unwrap_or(name)
}

/// Opens blobs by their names, which are no patterns.
///
/// # Errors
///
/// [`Error::Open`] for the first that is not there.
pub(crate) fn open_all(names: &[String]) -> Result<Vec<Arc<dyn Blob>>, Error> {
    match names.first() {
        Some(name) if is_url(name) && !name.starts_with(FILE) => remote::named(names),
        _ => names.iter().map(|name| open(name)).collect(),
    }
}
