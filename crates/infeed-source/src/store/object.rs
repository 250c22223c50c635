//! Descriptions of objects in buckets, of requests for them, and of their results.

use std::fs::File;
use std::ops::Range;

use bytes::Bytes;

/// Parallel reads that a bucket answers as fast as one. Each waits tens of milliseconds for its
/// first byte; 64 records of 100 kB in flight fill a line of 10 Gbit/s at 5 ms, or 2 Gbit/s at 25
/// ms. Cloud services accept this many; a small web server may need fewer.
pub const PARALLEL_READS: usize = 64;

/// An object or folder of a bucket, or a file or folder of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderEntry {
    /// Name in its folder.
    pub name: String,
    /// Whether it is a folder.
    pub is_folder: bool,
}

/// An object of a list.
#[derive(Debug, PartialEq, Eq)]
pub struct ListedObject {
    /// Key as in URLs, below the listed folder.
    pub key: String,
    /// Bytes of the object.
    pub length: u64,
    /// Version of the object, when the server reports one.
    pub version: Option<u64>,
}

/// A range of a version of an object.
#[derive(Clone, Debug)]
pub struct RangeRequest<'a> {
    /// Key of the object in its bucket.
    pub key: &'a str,
    /// Bytes of the object to fetch.
    pub range: Range<u64>,
    /// Length of the whole object.
    pub length: u64,
    /// Version that the bytes must have.
    pub version: Option<u64>,
}

/// Content of an object.
#[derive(Clone, Copy, Debug)]
pub enum ObjectBody<'a> {
    /// Bytes in memory.
    Bytes(&'a Bytes),
    /// A local file and its length.
    File(&'a File, u64),
}

/// Result of creating an object that must not replace another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateOutcome {
    /// The object was written.
    New,
    /// An object with the same bytes exists.
    Same,
    /// An object with other bytes exists.
    Other,
}

/// Requests of this process so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestCounts {
    /// Requests made, including repetitions.
    pub requests: u64,
    /// Requests made because an earlier one failed.
    pub retries: u64,
    /// Requests made because an earlier one was slow.
    pub hedges: u64,
    /// Of those, the requests that answered first.
    pub hedges_won: u64,
    /// Bytes received.
    pub bytes: u64,
}
