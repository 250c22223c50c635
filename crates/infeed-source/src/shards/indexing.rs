//! Finds the index of a shard: from the cache, from a text index next to the shard, or by reading
//! the shard.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::format::ShardFormat;
use super::index::{IndexedShard, invalid};
use super::{index_cache, text_index};
use crate::store::{Blob, unreadable};
use infeed_core::error::Error;

/// Threads that index shards: on a disk, and the maximum if each read is slow and many run in
/// parallel.
const INDEXERS: usize = 8;
const MAX_INDEXERS: usize = 64;

/// Returns the indexes of all shards, in order; indexes several at a time.
///
/// # Errors
///
/// [`Error::Open`] with the first shard that cannot be read or is invalid.
pub(super) fn index_all(
    format: &dyn ShardFormat,
    blobs: &[Arc<dyn Blob>],
    follow_links: bool,
) -> Result<Vec<IndexedShard>, Error> {
    let next = AtomicUsize::new(0);
    let reads = blobs.first().and_then(|blob| blob.parallel_reads());
    let threads = reads.unwrap_or(INDEXERS).clamp(INDEXERS, MAX_INDEXERS);
    let body = || {
        let mut mine: Vec<(usize, io::Result<IndexedShard>)> = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(blob) = blobs.get(at) else {
                return mine;
            };
            let index = index(format, at, &**blob, follow_links);
            if index.is_err() {
                // The shards before it are in progress; those after it do not matter.
                next.store(blobs.len(), Ordering::Relaxed);
            }
            mine.push((at, index));
        }
    };
    let mut all: Vec<(usize, io::Result<IndexedShard>)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.min(blobs.len()))
            .map(|_| scope.spawn(body))
            .collect();
        let done = threads.into_iter().map(|thread| thread.join());
        done.collect::<Result<Vec<_>, _>>()
    })
    .map_err(|_| Error::Panicked {
        text: "indexing shards".to_owned(),
    })?
    .into_iter()
    .flatten()
    .collect();
    all.sort_by_key(|(at, _)| *at);
    all.into_iter()
        .map(|(at, index)| index.map_err(|error| unreadable(&*blobs[at], error)))
        .collect()
}

/// Returns the cached index, the text index next to the shard, or the result of reading the shard.
fn index(
    format: &dyn ShardFormat,
    number: usize,
    blob: &dyn Blob,
    follow_links: bool,
) -> io::Result<IndexedShard> {
    let kept = format
        .kept_as()
        .and_then(|tag| index_cache::IndexCacheFile::of(tag, blob));
    if let Some(shard) = kept.as_ref().and_then(index_cache::IndexCacheFile::load)
        && shard.index.fits(blob.len())
    {
        format.check(&shard.notes)?;
        return Ok(shard);
    }
    if format.kept_as().is_some()
        && let Some(text) = text_index::text(blob, follow_links)
    {
        match format
            .text_index(&text, blob)
            .filter(|shard| shard.index.fits(blob.len()))
        {
            Some(shard) => {
                format.check(&shard.notes)?;
                return Ok(shard);
            }
            None => tracing::warn!(
                "the index next to {} belongs to another shard; the shard is read instead",
                blob.name()
            ),
        }
    }
    let shard = format.index(number, blob)?;
    if !shard.index.fits(blob.len()) {
        return Err(invalid(
            "its index has impossible record offsets".to_owned(),
        ));
    }
    if let Some(place) = kept {
        place.save(&shard);
    }
    format.check(&shard.notes)?;
    Ok(shard)
}
