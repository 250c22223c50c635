//! Objects in buckets and on web servers.
//!
//! `object_store` implements protocols, credentials and signatures. This module adds: the client
//! for a URL (`bucket.rs`; `hub/` for the Hugging Face Hub), its settings (`settings.rs`,
//! `profile.rs`, `client_options.rs`), reads that return all bytes or fail with the reason
//! (`fetch.rs`), a second request when the first hangs (`pace.rs`), the number of requests
//! (`counts.rs`), lists (`list.rs`, `list_limits.rs`), and written objects (`write.rs`).

mod answers;
mod bucket;
mod client_options;
mod counts;
mod each_process;
mod fetch;
mod hub;
mod list;
mod list_limits;
mod pace;
mod process;
mod profile;
mod settings;
mod url;
mod write;

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::buffers::{BufferPool, held_bytes};
use super::cache::Cache;
use super::{Blob, PARALLEL_READS, RangeRequest};
pub use bucket::Bucket;
pub use counts::requests;
pub use list::{below, entries, objects, query_objects};
pub(super) use list::{matches, open, open_urls};
pub use settings::configure;
pub use write::BucketFolder;

/// Bytes that cost as much as a request: about 20 ms before the first byte, at 50 MB/s per
/// connection.
const GAP_BYTES: u64 = 1 << 20;

/// An object with its length and version.
pub(super) struct Object {
    bucket: Arc<Bucket>,
    key: String,
    name: String,
    length: u64,
    version: Option<u64>,
    stamp: String,
    cache: Option<Arc<Cache>>,
    buffers: Arc<BufferPool>,
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Object")
            .field("name", &self.name)
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

impl Blob for Object {
    fn name(&self) -> &str {
        &self.name
    }

    fn len(&self) -> u64 {
        self.length
    }

    fn stamp(&self) -> String {
        self.stamp.clone()
    }

    fn held_bytes(&self, length: u64) -> u64 {
        match &self.cache {
            Some(_) => held_bytes(Cache::max_read_bytes(length, self.length)),
            None => held_bytes(length),
        }
    }

    fn gap_bytes(&self) -> u64 {
        GAP_BYTES
    }

    fn parallel_reads(&self) -> Option<usize> {
        Some(PARALLEL_READS)
    }

    fn read(&self, range: Range<u64>) -> io::Result<Bytes> {
        if range.end > self.length {
            let problem = format!(
                "{} has {} bytes; it ends before byte {}",
                self.name, self.length, range.end
            );
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, problem));
        }
        let wanted = RangeRequest {
            key: &self.key,
            range,
            length: self.length,
            version: self.version,
        };
        read(&self.bucket, &wanted, self.cache.as_deref(), &self.buffers)
    }
}

/// Reads a range; takes the cached parts from the cache.
///
/// # Errors
///
/// As [`Bucket::read`].
pub fn read(
    bucket: &Bucket,
    wanted: &RangeRequest<'_>,
    cache: Option<&Cache>,
    buffers: &Arc<BufferPool>,
) -> io::Result<Bytes> {
    let (Some(cache), Some(version)) = (cache, wanted.version) else {
        return bucket.read(wanted, buffers);
    };
    let identity = format!(
        "{} {version:016x} {}",
        bucket.identity(wanted.key),
        wanted.length
    );
    let fetch = |range: Range<u64>| {
        let wanted = RangeRequest {
            range,
            ..wanted.clone()
        };
        bucket.read(&wanted, buffers)
    };
    cache.read(
        &identity,
        wanted.range.clone(),
        wanted.length,
        fetch,
        buffers,
    )
}
