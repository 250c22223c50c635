//! Opens tables in files: several files at a time, with libraries that may panic on bytes that are
//! not a table.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::Error;
use crate::panics::contain;
use crate::store::Blob;

/// Files that are looked at together.
const THREADS: usize = 8;

/// Does something with every file, several at a time; the first error in their order is told.
///
/// # Errors
///
/// That of `work`.
pub(in crate::source) fn each<T: Send>(
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
                // Those before it are under way; none behind it matters.
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
        text: "looking files through".to_owned(),
    })?;
    let mut all: Vec<_> = all.into_iter().flatten().collect();
    all.sort_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, done)| done).collect()
}

/// Runs a library that parses untrusted bytes. If the library panics, the file is at fault and not
/// the run. `work` owns or only reads what it uses, so nothing half done survives the panic.
pub(in crate::source) fn contained<T>(
    work: impl FnOnce() -> Result<T, String>,
) -> Result<T, String> {
    contain(work).unwrap_or_else(|_| Err("its parts do not fit together".to_owned()))
}
