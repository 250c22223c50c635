//! Objects in buckets and on web servers.
//!
//! The protocols, credentials and signatures are `object_store`'s. What is here: which client a
//! URL needs (`bucket.rs`), what the environment says of it (`settings.rs`, `profile.rs`), reads
//! that come whole or fail with the reason (`fetch.rs`), a second request where the first hangs
//! (`pace.rs`), lists (`list.rs`), and objects that are written (`write.rs`).

mod bucket;
mod each_process;
mod fetch;
mod list;
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

use super::Blob;
use super::buffers::{Buffers, held_bytes};
use super::cache::Cache;
pub(crate) use bucket::Bucket;
pub(crate) use fetch::Wanted;
pub use fetch::{Requests, requests};
pub use list::{Entry, entries, objects};
pub(crate) use list::{Found, below, look};
pub(super) use list::{matches, named, open};
pub use settings::configure;
pub use url::is_url;
pub(crate) use write::{Body, BucketFolder, Created};

/// Reads at once that a bucket answers as fast as one: each waits tens of milliseconds for its
/// first byte, and 64 records of 100 kB under way fill a line of 10 Gbit/s at 5 ms, of 2 Gbit/s
/// at 25 ms. Services ask for no fewer; a web server of one's own may like fewer.
pub(crate) const PARALLEL_READS: usize = 64;

/// A request is worth as many bytes: about 20 ms before the first byte, at the 50 MB/s that
/// one connection gives.
const GAP_BYTES: u64 = 1 << 20;

/// An object, known by its length and version.
pub(crate) struct Object {
    bucket: Arc<Bucket>,
    key: String,
    name: String,
    length: u64,
    version: Option<u64>,
    stamp: String,
    cache: Option<Arc<Cache>>,
    buffers: Arc<Buffers>,
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
            Some(_) => held_bytes(Cache::widened(length, self.length)),
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
                "{} has {} bytes, none at {}",
                self.name, self.length, range.end
            );
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, problem));
        }
        let wanted = Wanted {
            key: &self.key,
            range,
            length: self.length,
            version: self.version,
        };
        read(&self.bucket, &wanted, self.cache.as_deref(), &self.buffers)
    }
}

/// Reads a range, from the cache what is there.
///
/// # Errors
///
/// As [`Bucket::read`].
pub(crate) fn read(
    bucket: &Bucket,
    wanted: &Wanted<'_>,
    cache: Option<&Cache>,
    buffers: &Arc<Buffers>,
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
        let wanted = Wanted {
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
