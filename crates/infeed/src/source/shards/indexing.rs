//! The indexes of shards: kept of an earlier look, told beside the shard, or found by looking
//! through it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::index::{Index, invalid};
use super::{Format, beside, kept};
use crate::error::Error;
use crate::store::Blob;

/// Threads that look shards through for where records begin: on a disk, and at most where each
/// read takes long and many go at once.
const INDEXERS: usize = 8;
const MOST_INDEXERS: usize = 64;

/// The indexes of all shards, in order; several are looked through at a time.
///
/// # Errors
///
/// [`Error::Open`] naming the first shard that cannot be read or is none.
pub(super) fn index_all(format: &dyn Format, blobs: &[Arc<dyn Blob>]) -> Result<Vec<Index>, Error> {
    let next = AtomicUsize::new(0);
    let reads = blobs.first().and_then(|blob| blob.parallel_reads());
    let threads = reads.unwrap_or(INDEXERS).clamp(INDEXERS, MOST_INDEXERS);
    let body = || {
        let mut mine: Vec<(usize, io::Result<Index>)> = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(blob) = blobs.get(at) else {
                return mine;
            };
            let index = index(format, at, &**blob);
            if index.is_err() {
                // Those before it are being looked at; none behind it matters.
                next.store(blobs.len(), Ordering::Relaxed);
            }
            mine.push((at, index));
        }
    };
    let mut all: Vec<(usize, io::Result<Index>)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.min(blobs.len()))
            .map(|_| scope.spawn(body))
            .collect();
        let done = threads.into_iter().map(|thread| thread.join());
        done.collect::<Result<Vec<_>, _>>()
    })
    .map_err(|_| Error::Panicked {
        text: "looking shards through".to_owned(),
    })?
    .into_iter()
    .flatten()
    .collect();
    all.sort_by_key(|(at, _)| *at);
    all.into_iter()
        .map(|(at, index)| index.map_err(|error| Error::open(blobs[at].name(), error)))
        .collect()
}

/// What was kept of an earlier look, what lies beside the shard, or what a look through it says.
fn index(format: &dyn Format, number: usize, blob: &dyn Blob) -> io::Result<Index> {
    let kept = format.kept_as().and_then(|tag| kept::Place::of(tag, blob));
    if let Some(index) = kept.as_ref().and_then(kept::Place::load)
        && index.fits(blob.len())
    {
        return Ok(index);
    }
    if format.kept_as().is_some()
        && let Some(text) = beside::text(blob)
    {
        match format
            .told(&text, blob)
            .filter(|index| index.fits(blob.len()))
        {
            Some(index) => return Ok(index),
            None => tracing::warn!(
                "the index beside {} is not its own; it is looked through instead",
                blob.name()
            ),
        }
    }
    let index = format.index(number, blob)?;
    if !index.fits(blob.len()) {
        return Err(invalid("where its records lie cannot be".to_owned()));
    }
    if let Some(place) = kept {
        place.save(&index);
    }
    Ok(index)
}
