//! Storage of bytes: local files and objects in buckets, read through one trait.
//!
//! A [`Blob`] is a file or an object, open for reading. [`find`] opens the blobs that a user names
//! by a path, a pattern or a list in braces. This module does not interpret the bytes.

mod buffers;
mod cache;
pub(crate) mod links;
mod local;
// Also in tests, which check the errors in every build.
#[cfg(any(test, not(feature = "remote")))]
#[cfg_attr(feature = "remote", allow(dead_code, unreachable_pub, unused_imports))]
mod no_remote;
mod object;
mod pattern;
#[cfg(feature = "remote")]
mod remote;

use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use infeed_codec::decode::ForeignFile;
use infeed_core::error::Error;

pub use buffers::{BufferPool, held_bytes, open_file, read_file};
pub use cache::Cache;
pub use cache::{CacheCounts, cache_use, set_cache};
pub use cache::{
    CacheGroup, OtherFiles, RemovedPieces, VerifiedCache, list_cache, remove_cached, verify_cache,
};
pub use cache::{FoundPiece, RecordPieces};
pub use local::LocalFile;
#[cfg(not(feature = "remote"))]
use no_remote as remote;
pub use object::{
    CreateOutcome, FolderEntry, ListedObject, ObjectBody, PARALLEL_READS, RangeRequest,
    RequestCounts,
};
pub use pattern::MAX_NAMES;
pub use remote::{Bucket, BucketFolder, below, look, read};
pub use remote::{configure, entries, objects, requests};

/// Prefix of the URL of a local file.
const FILE: &str = "file://";

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

/// Opens the one blob of this name; no character in it is a wildcard.
///
/// # Errors
///
/// [`Error::Open`] if it does not exist, [`Error::Config`] for an invalid URL.
pub fn open(name: &str) -> Result<Arc<dyn Blob>, Error> {
    let path = local_path(name);
    match is_url(path) {
        true => remote::open(name),
        false => Ok(Arc::new(LocalFile::new(Path::new(path))?)),
    }
}

/// Names of files that a user gives: paths, patterns and URLs.
#[derive(Clone, Copy, Debug)]
pub struct FilePatterns<'a> {
    /// The names.
    pub names: &'a [String],
    /// Whether patterns match files through symbolic links. A path without wildcards is always
    /// followed.
    pub follow_links: bool,
}

/// As [`find_in`], for patterns that follow links.
///
/// # Errors
///
/// As [`find_in`].
pub fn find<S: AsRef<str>>(patterns: &[S]) -> Result<Vec<Arc<dyn Blob>>, Error> {
    let names: Vec<String> = patterns.iter().map(|one| one.as_ref().to_owned()).collect();
    find_in(FilePatterns {
        names: &names,
        follow_links: true,
    })
}

/// Opens the blobs that match patterns, in the order of the patterns; the matches of one pattern
/// are sorted.
///
/// A URL begins with `s3://`, `gs://`, `az://`, `abfss://`, `hf://datasets/`, `http://` or
/// `https://`; `file://` is a path. A pattern is a path or URL that may contain lists (`{a,b}`),
/// ranges of numbers of one width (`{0000..0146}`), and `*`, `?` and `[…]` in its last parts. Where a
/// file, folder or object has such a name, the name is no pattern.
///
/// # Errors
///
/// [`Error::Config`] for an invalid pattern or one without a match, [`Error::Open`] for a blob that
/// does not exist.
pub fn find_in(patterns: FilePatterns<'_>) -> Result<Vec<Arc<dyn Blob>>, Error> {
    let mut blobs: Vec<Arc<dyn Blob>> = Vec::new();
    for pattern in patterns.names {
        if is_url(pattern) && !pattern.starts_with(FILE) {
            blobs.extend(remote::matches(&pattern::expand(pattern)?)?);
            continue;
        }
        let (existing, rest) = local::split_existing(local_path(pattern));
        for rest in pattern::expand(rest)? {
            let name = format!("{existing}{rest}");
            blobs.extend(local::matches(&name, patterns.follow_links)?);
        }
    }
    if blobs.is_empty() {
        return Err(Error::config("source", "no files are named"));
    }
    Ok(blobs)
}

/// Whether a path is a URL rather than a file.
pub fn is_url(path: impl AsRef<Path>) -> bool {
    let text = path.as_ref().to_str().unwrap_or_default();
    // A single letter is a Windows drive.
    text.split_once("://").is_some_and(|(scheme, _)| {
        scheme.len() > 1
            && scheme
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    })
}

/// Path of a `file://` URL; any other name unchanged.
pub fn local_path(name: &str) -> &str {
    name.strip_prefix(FILE).unwrap_or(name)
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

/// Opens blobs by their names, without wildcards.
///
/// # Errors
///
/// [`Error::Open`] for the first that does not exist.
pub fn open_all(names: &[String]) -> Result<Vec<Arc<dyn Blob>>, Error> {
    match names.first() {
        Some(name) if is_url(name) && !name.starts_with(FILE) => remote::named(names),
        _ => names.iter().map(|name| open(name)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_a_scheme_of_at_least_two_characters() {
        for (path, expected) in [
            ("s3://bucket/x", true),
            ("ftp://host", true),
            ("/data/x", false),
            ("C://x", false),
            ("a b://x", false),
        ] {
            assert_eq!(is_url(path), expected, "{path}");
        }
    }
}
