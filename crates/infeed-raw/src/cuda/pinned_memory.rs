//! Pinned host memory of a context, and its reuse by the next loader.
//!
//! Calls of other threads can wait while the driver pins or unpins memory, and then a validation
//! loader that opens and closes during training delays the training. So memory that a loader drops
//! stays pinned for the next loader on the same GPU, up to as many bytes as the open loaders have
//! pinned. When the last loader closes, the driver unpins everything.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::host::HostBytes;

/// Reciprocal of the share by which idle memory may be longer than needed.
const SURPLUS: usize = 4;

/// Memory that a context has pinned.
#[derive(Default)]
pub(super) struct PinnedMemory(Mutex<PinnedState>);

#[derive(Default)]
struct PinnedState {
    /// Bytes of memory in use.
    used_bytes: usize,
    /// Memory without a user, the oldest first.
    idle: Vec<PinnedPages>,
    idle_bytes: usize,
}

/// Pinned pages that belong to one memory.
pub(super) struct PinnedPages {
    pub(super) memory: HostBytes,
    /// Pinned bytes: whole pages from the first byte of the memory on.
    pub(super) len: usize,
}

impl PinnedMemory {
    /// Takes idle memory for `len` bytes. Its contents are those of its last user.
    pub(super) fn take(&self, len: usize) -> Option<PinnedPages> {
        let mut state = self.lock();
        let fits = |pages: &&PinnedPages| (len..=len + len / SURPLUS).contains(&pages.len);
        let best = state
            .idle
            .iter()
            .filter(fits)
            .map(|pages| pages.len)
            .min()?;
        let at = state.idle.iter().position(|pages| pages.len == best)?;
        let pages = state.idle.remove(at);
        state.idle_bytes -= pages.len;
        state.used_bytes += pages.len;
        Some(pages)
    }

    /// Counts bytes that were pinned for a user.
    pub(super) fn add(&self, len: usize) {
        self.lock().used_bytes += len;
    }

    /// Keeps memory that was in use. Returns the memory to unpin.
    pub(super) fn give(&self, pages: PinnedPages) -> Vec<PinnedPages> {
        let mut state = self.lock();
        state.used_bytes -= pages.len;
        state.idle_bytes += pages.len;
        state.idle.push(pages);
        let mut surplus = Vec::new();
        while state.idle_bytes > state.used_bytes && !state.idle.is_empty() {
            let oldest = state.idle.remove(0);
            state.idle_bytes -= oldest.len;
            surplus.push(oldest);
        }
        surplus
    }

    fn lock(&self) -> MutexGuard<'_, PinnedState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
