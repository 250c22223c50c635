//! Opens table files, several at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::store::Blob;
use infeed_core::error::Error;

/// Number of files that are opened in parallel.
const THREADS: usize = 8;

/// Calls `work` for every file, several at a time; returns the first error in the order of the
/// files.
///
/// # Errors
///
/// The error of `work`.
pub(crate) fn each<T: Send>(
    blobs: &[Arc<dyn Blob>],
    work: impl Fn(&Arc<dyn Blob>) -> Result<T, Error> + Sync,
) -> Result<Vec<T>, Error> {
    let next = AtomicUsize::new(0);
    let body = || {
        let mut mine: Vec<(usize, Result<T, Error>)> = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(blob) = blobs.get(at) else {
                return mine;
            };
            let done = work(blob);
            if done.is_err() {
                // The files before it are in progress; the files after it do not matter.
                next.store(blobs.len(), Ordering::Relaxed);
            }
            mine.push((at, done));
        }
    };
    let all: Result<Vec<_>, _> = std::thread::scope(|scope| {
        let count = THREADS.min(blobs.len());
        let threads: Vec<_> = (0..count).map(|_| scope.spawn(body)).collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    });
    let all = all.map_err(|_| Error::Panicked {
        text: "indexing files".to_owned(),
    })?;
    let mut all: Vec<_> = all.into_iter().flatten().collect();
    all.sort_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, done)| done).collect()
}
