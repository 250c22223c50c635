//! Pools of slabs, so that batches reuse memory.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use infeed_raw::host::OutOfMemory;
use infeed_raw::slab::Slab;

/// Prepares every new slab, for example for copies to a device.
#[derive(Clone)]
pub struct PrepareSlab(pub Arc<dyn Fn(&mut Slab) + Send + Sync>);

impl fmt::Debug for PrepareSlab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrepareSlab")
    }
}

/// Slabs of one size, for reuse.
///
/// Fresh memory from the operating system costs a page fault every 4 KiB. A loader that allocates
/// memory for each batch spends most of its time on page faults.
#[derive(Debug)]
pub struct SlabPool {
    rows: usize,
    /// Bytes of a row in the layout with the longest rows.
    row_bytes: usize,
    ready: Option<PrepareSlab>,
    /// Most free slabs that the pool keeps.
    keep: usize,
    free: Mutex<IdleSlabs>,
    /// Slabs in finished batches.
    live: AtomicUsize,
}

impl SlabPool {
    /// Creates a pool for slabs of `rows` rows. It keeps at most `keep` free slabs.
    pub fn new(rows: usize, row_bytes: usize, keep: usize) -> Arc<SlabPool> {
        SlabPool::with_prepare(rows, row_bytes, keep, None)
    }

    pub(super) fn with_prepare(
        rows: usize,
        row_bytes: usize,
        keep: usize,
        ready: Option<PrepareSlab>,
    ) -> Arc<SlabPool> {
        let free = Mutex::new(IdleSlabs {
            slabs: VecDeque::new(),
            made: 0,
            room: row_bytes,
        });
        Arc::new(SlabPool {
            rows,
            row_bytes,
            ready,
            keep,
            free,
            live: AtomicUsize::new(0),
        })
    }

    /// Returns the largest size of a slab, in bytes.
    pub fn slab_bytes(&self) -> u64 {
        self.rows as u64 * self.row_bytes as u64
    }

    /// Returns the number of slabs in finished batches that are not dropped yet.
    pub fn live(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }

    /// Returns the number of free slabs.
    #[cfg(test)]
    pub(super) fn free(&self) -> usize {
        self.lock().slabs.len()
    }

    /// Returns a slab with rows of the largest size.
    pub(super) fn take_longest(&self) -> Result<Slab, OutOfMemory> {
        self.take(self.row_bytes)
    }

    /// Returns a slab with rows of `row_bytes` bytes.
    pub(super) fn take(&self, row_bytes: usize) -> Result<Slab, OutOfMemory> {
        let mut free = self.lock();
        let size = self.rows * free.room;
        // Drop one slab of an outdated size per new slab, not all at once in a consumer's call.
        let is_other = |slab: &Slab| slab.as_ref().len() != size;
        let other = match free.slabs.front() {
            Some(first) if is_other(first) => free.slabs.pop_front(),
            _ => None,
        };
        // Create all slabs before reusing one, and reuse the longest free slab first. Memory then
        // reaches its peak in the first steps and stays there.
        if free.made >= self.keep
            && let Some(slab) = free.slabs.pop_front()
            && let Some(slab) = slab.with_rows_of(row_bytes)
        {
            return Ok(slab);
        }
        free.made += 1;
        let room = free.room.max(row_bytes);
        drop(free);
        drop(other);
        let mut slab = Slab::zeroed(self.rows, room)?;
        if let Some(PrepareSlab(ready)) = &self.ready {
            ready(&mut slab);
        }
        slab.with_rows_of(row_bytes).ok_or(OutOfMemory {
            requested_bytes: usize::MAX,
        })
    }

    pub(super) fn give(&self, slab: Slab) {
        let mut free = self.lock();
        let fits = slab.as_ref().len() == self.rows * free.room;
        if fits && free.slabs.len() < self.keep {
            free.slabs.push_back(slab);
        }
    }

    /// Sets the row size of slabs from now on, in bytes. Slabs of another size are dropped as new
    /// ones are made.
    pub(super) fn make_room(&self, row_bytes: usize) {
        let mut free = self.lock();
        if std::mem::replace(&mut free.room, row_bytes) != row_bytes {
            free.made = 0;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, IdleSlabs> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Free slabs of a pool.
#[derive(Debug)]
struct IdleSlabs {
    slabs: VecDeque<Slab>,
    /// Number of slabs made of this size.
    made: usize,
    /// Row size of new slabs, in bytes.
    room: usize,
}

/// A slab in a finished batch. Dropping it returns the slab to its pool.
pub(super) struct PooledSlab {
    pub(super) slab: Option<Slab>,
    pool: Arc<SlabPool>,
}

impl PooledSlab {
    pub(super) fn new(slab: Slab, pool: &Arc<SlabPool>) -> PooledSlab {
        pool.live.fetch_add(1, Ordering::Relaxed);
        PooledSlab {
            slab: Some(slab),
            pool: Arc::clone(pool),
        }
    }
}

impl Drop for PooledSlab {
    fn drop(&mut self) {
        self.pool.live.fetch_sub(1, Ordering::Relaxed);
        if let Some(slab) = self.slab.take() {
            self.pool.give(slab);
        }
    }
}
