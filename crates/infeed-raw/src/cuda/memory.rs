//! Memory of a GPU.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::context::Context;
use super::driver::code;
use super::error::CudaError;
use super::event::Event;
use super::queue::Queue;
use super::reading::PendingRead;
use crate::host::HostSource;
use crate::slab::Slab;

/// Bytes that a kernel reads at once, all of which must be allocated: see `load_words` in
/// `kernels/target.h`.
const WORD: usize = 4;

/// Bytes on a GPU. Their initial contents are unspecified.
pub struct GpuMemory {
    context: Arc<Context>,
    address: u64,
    len: usize,
    /// Keeps the owner of foreign memory, which this type does not free.
    held: Option<Box<dyn Any + Send + Sync>>,
    kept: Mutex<FreeAfter>,
    table: Mutex<TableState>,
}

/// Whether a memory holds a kernel's table, and the event after which the table may be overwritten.
/// The host checked the table that a kernel reads, so the table must not change before the kernel
/// ends.
#[derive(Default)]
struct TableState {
    holds_table: bool,
    /// Whether any other data was ever written to this memory.
    is_written: bool,
    /// Recorded after the last command that used the table.
    last: Option<Event>,
}

/// Exclusive permission to write a memory.
pub(super) struct MemoryWriteGuard<'a> {
    table: MutexGuard<'a, TableState>,
    context: &'a Arc<Context>,
    queue: Queue,
}

impl MemoryWriteGuard<'_> {
    /// Waits on the host for the kernels that read a table in this memory. For commands that ignore
    /// the order of their stream.
    pub(super) fn wait(&self) -> Result<(), CudaError> {
        match &self.table.last {
            Some(last) => last.synchronize(),
            None => Ok(()),
        }
    }

    /// Records the end of the commands that were put on the queue under this guard.
    pub(super) fn finish(mut self) -> Result<(), CudaError> {
        if !self.table.holds_table {
            return Ok(());
        }
        let marked = self.context.event(false).and_then(|event| {
            event.record(self.queue)?;
            Ok(event)
        });
        match marked {
            Ok(event) => {
                self.table.last = Some(event);
                Ok(())
            }
            // If this fails too, the GPU runs no more commands.
            Err(_) => self.context.finish(self.queue),
        }
    }
}

/// Commands to wait for before a memory is freed, in addition to the streams of its context.
#[derive(Default)]
struct FreeAfter {
    /// The last table written to this memory, until the next one is written.
    table: Option<PendingRead>,
    /// Pinned memory from which tables are copied.
    staging: Staging,
    /// Recorded after commands on consumers' streams.
    used: Vec<Event>,
}

/// Pinned host memory for a table before it is copied. Copies from pageable memory would block the
/// caller until their stream reaches them.
#[derive(Default)]
enum Staging {
    #[default]
    NotAllocated,
    Allocated(Arc<Slab>),
    /// The driver cannot pin more memory.
    Unavailable,
}

impl GpuMemory {
    /// Address on the GPU; a multiple of 256.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the memory has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The context of the memory.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Returns bytes in pinned memory, which the caller copies to this memory and then
    /// [keeps](GpuMemory::keep); None if the driver cannot pin more. Waits for the copy that was kept
    /// before, which is normally long done.
    pub(super) fn stage(&self, bytes: &[u8]) -> Option<HostSource> {
        let mut kept = self.lock_kept();
        drop(kept.table.take());
        let has_room = match &kept.staging {
            Staging::NotAllocated => false,
            Staging::Allocated(slab) => slab.row_bytes() >= bytes.len(),
            Staging::Unavailable => return None,
        };
        if !has_room {
            // Sized for this table, not for the longest possible one.
            let len = bytes.len().next_power_of_two().min(self.len);
            let pinned = Slab::zeroed(1, len).ok().and_then(|mut slab| {
                self.context.pin(&mut slab).ok()?;
                Some(Arc::new(slab))
            });
            kept.staging = pinned.map_or(Staging::Unavailable, Staging::Allocated);
        }
        let Staging::Allocated(slab) = &mut kept.staging else {
            return None;
        };
        // No copy holds a share, except one whose end is unknown.
        let room = Arc::get_mut(slab)?.as_mut();
        room.get_mut(..bytes.len())?.copy_from_slice(bytes);
        let staged: HostSource = Arc::clone(slab) as _;
        Some(staged)
    }

    /// Keeps a copy into this memory until the next one. By then the copy is normally done, so
    /// nothing waits for it.
    pub(super) fn keep(&self, reading: PendingRead) {
        self.lock_kept().table = Some(reading);
    }

    /// Wraps another owner's memory, which this type does not free. Waits for all commands that use
    /// the memory before it drops `held`.
    ///
    /// # Safety
    ///
    /// While `held` lives, there are `len` bytes at `address` on the context's GPU, and these may
    /// be read and written.
    #[cfg(feature = "python")]
    pub(crate) unsafe fn foreign(
        context: &Arc<Context>,
        address: u64,
        len: usize,
        held: Box<dyn Any + Send + Sync>,
    ) -> GpuMemory {
        GpuMemory {
            context: Arc::clone(context),
            address,
            len,
            held: Some(held),
            kept: Mutex::default(),
            table: Mutex::default(),
        }
    }

    /// Whether no command on a queue uses the memory any more, as far as this is known without a
    /// wait.
    pub fn is_idle(&self) -> bool {
        let kept = self.lock_kept();
        kept.table.is_none()
            && kept
                .used
                .iter()
                .all(|used| matches!(used.is_done(), Ok(true)))
    }

    /// Records that a command just put on a queue uses the memory. A free always waits for the
    /// context's own streams.
    pub(super) fn used_on(&self, queue: Queue) -> Result<(), CudaError> {
        if queue.is_own() && self.held.is_none() {
            return Ok(());
        }
        let event = self.context.event(false)?;
        event.record(queue)?;
        let mut kept = self.lock_kept();
        kept.used.retain(|used| !matches!(used.is_done(), Ok(true)));
        kept.used.push(event);
        Ok(())
    }

    /// Returns the permission to put a command on a queue that writes the memory, after the kernels
    /// that read a table in it.
    pub(super) fn to_write(&self, queue: Queue) -> Result<MemoryWriteGuard<'_>, CudaError> {
        let mut writing = self.write_guard(queue)?;
        writing.table.is_written = true;
        Ok(writing)
    }

    fn write_guard(&self, queue: Queue) -> Result<MemoryWriteGuard<'_>, CudaError> {
        let table = self.table();
        if let Some(last) = &table.last {
            last.hold(queue)?;
        }
        let context = &self.context;
        Ok(MemoryWriteGuard {
            table,
            context,
            queue,
        })
    }

    /// Returns the permission to write a table to this memory and to launch the kernel that reads
    /// it.
    pub(super) fn to_write_table(&self, queue: Queue) -> Result<MemoryWriteGuard<'_>, CudaError> {
        let mut writing = self.write_guard(queue)?;
        if !writing.table.holds_table && writing.table.is_written {
            // Earlier writes by other commands must be done first. Needed once for each memory.
            let bound = self.context.bind()?;
            self.context.finish_own(&bound);
            for used in &self.lock_kept().used {
                used.synchronize()?;
            }
        }
        writing.table.holds_table = true;
        Ok(writing)
    }

    fn table(&self) -> MutexGuard<'_, TableState> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_kept(&self) -> MutexGuard<'_, FreeAfter> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks that the `bytes` bytes from `at` are inside of the memory.
    pub(super) fn check(&self, at: usize, bytes: usize) -> Result<(), CudaError> {
        let len = self.len;
        if at.checked_add(bytes).is_none_or(|end| end > len) {
            return Err(CudaError::OutOfRange { at, bytes, len });
        }
        Ok(())
    }
}

impl Context {
    /// Allocates memory on this GPU.
    ///
    /// # Errors
    ///
    /// [`CudaError::OutOfMemory`], with the free bytes.
    ///
    /// # Cost
    ///
    /// A few hundred microseconds; more without a pool (see `pool.rs`) while other work runs.
    pub fn memory(self: &Arc<Context>, len: usize) -> Result<GpuMemory, CudaError> {
        let bound = self.bind()?;
        let mut address = 0;
        // The driver cannot allocate zero bytes, and kernels read the last bytes in words.
        let bytes = len.max(1).next_multiple_of(WORD);
        let code = match &self.pool {
            Some(pool) => {
                let (found, code) = self.allocate_in_order(pool, bytes, &bound);
                address = found;
                code
            }
            // SAFETY: writes one address; the context is current.
            None => unsafe { (self.driver.memory_alloc)(&raw mut address, bytes) },
        };
        drop(bound);
        if code == code::OUT_OF_MEMORY {
            let (free, total) = self.memory_info().unwrap_or_default();
            return Err(CudaError::OutOfMemory {
                gpu: self.gpu().name.clone(),
                requested: len,
                free,
                total,
            });
        }
        self.driver.check("cuMemAlloc", code)?;
        Ok(GpuMemory {
            context: Arc::clone(self),
            address,
            len,
            held: None,
            kept: Mutex::default(),
            table: Mutex::default(),
        })
    }
}

impl Drop for GpuMemory {
    fn drop(&mut self) {
        let kept = std::mem::take(&mut *self.lock_kept());
        // Waits for a copy into this memory that is in flight.
        drop(kept.table);
        drop(kept.staging);
        let table = std::mem::take(&mut *self.table());
        if self.held.is_none()
            && let Some(pool) = &self.context.pool
        {
            // The kernel that reads a table here is on one of the context's streams, or is done
            // before `last`.
            let mut used = kept.used;
            used.extend(table.last);
            // A failed device frees nothing, and in a forked child the address belongs to other
            // memory.
            let _ = self.context.free_later(pool, self.address, &used);
            return;
        }
        for used in kept.used {
            // An error here is that of an earlier command, which other calls return.
            let _ = used.synchronize();
        }
        drop(table);
        let Ok(bound) = self.context.bind() else {
            // In a forked child, the address belongs to other memory.
            std::mem::forget(self.held.take());
            return;
        };
        if self.held.is_some() {
            return;
        }
        // Commands of other libraries on their own streams are unknown here. The driver waits for
        // all work of the GPU before it frees memory, but does not guarantee that.
        self.context.finish_own(&bound);
        // SAFETY: allocated in `memory`, freed once.
        unsafe { (self.context.driver.memory_free)(self.address) };
    }
}

impl fmt::Debug for GpuMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory")
            .field("address", &format_args!("{:#x}", self.address))
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}
