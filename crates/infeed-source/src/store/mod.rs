//! Storage of bytes: local files and objects in buckets, read through one trait.
//!
//! A [`Blob`] is a file or an object, open for reading. [`find`] opens the blobs that a user names
//! by a path, a pattern or a list in braces. This module does not interpret the bytes.

mod blob;
mod buffers;
mod cache;
pub(crate) mod links;
mod local;
mod names;
// Also in tests, which check the errors in every build.
#[cfg(any(test, not(feature = "remote")))]
#[cfg_attr(feature = "remote", allow(dead_code, unreachable_pub, unused_imports))]
mod no_remote;
mod object;
mod pattern;
#[cfg(feature = "remote")]
mod remote;

use std::path::Path;
use std::sync::Arc;

use infeed_core::error::Error;
use names::FILE;

pub use blob::Blob;
pub(crate) use blob::{parallel_reads, unreadable};
pub use buffers::{BufferPool, held_bytes, open_file, read_file};
pub use cache::Cache;
pub use cache::{CacheCounts, cache_use, set_cache};
pub use cache::{
    CacheGroup, OtherFiles, RemovedPieces, VerifiedCache, list_cache, remove_cached, verify_cache,
};
pub use cache::{FoundPiece, RecordPieces};
pub use local::LocalFile;
pub use names::{FilePatterns, is_url, local_path};
#[cfg(not(feature = "remote"))]
use no_remote as remote;
pub use object::{
    CreateOutcome, FolderEntry, ListedObject, ObjectBody, PARALLEL_READS, RangeRequest,
    RequestCounts,
};
pub use pattern::MAX_NAMES;
pub use remote::{Bucket, BucketFolder, below, query_objects, read};
pub use remote::{configure, entries, objects, requests};

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

/// Opens blobs by their names, without wildcards.
///
/// # Errors
///
/// [`Error::Open`] for the first that does not exist.
pub fn open_all(names: &[String]) -> Result<Vec<Arc<dyn Blob>>, Error> {
    match names.first() {
        Some(name) if is_url(name) && !name.starts_with(FILE) => remote::open_urls(names),
        _ => names.iter().map(|name| open(name)).collect(),
    }
}
