//! Memory of a GPU, and pinned host memory.

use std::any::Any;
use std::ffi::{c_uint, c_void};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::context::Context;
use super::driver::code;
use super::error::CudaError;
use super::event::Event;
use super::queue::Queue;
use super::reading::{HostSource, PendingRead};
use crate::slab::Slab;

/// `CU_MEMHOSTREGISTER_PORTABLE`: pinned for every GPU of the process.
const PORTABLE: c_uint = 1;

/// Bytes that a kernel reads at once, all of which must be allocated: see `load_words` in
/// `kernels/target.h`.
const WORD: usize = 4;

/// Bytes on a GPU. Their initial contents are unspecified.
pub struct Memory {
    context: Arc<Context>,
    address: u64,
    len: usize,
    /// Keeps the owner of memory that is not freed here.
    held: Option<Box<dyn Any + Send + Sync>>,
    kept: Mutex<FreeAfter>,
    table: Mutex<TableState>,
}

/// Whether a memory holds a kernel's table, and the event after which it may be overwritten. The
/// host checked the table that a kernel reads, so it must not change before the kernel ends.
#[derive(Default)]
struct TableState {
    is_one: bool,
    /// Whether anything else was ever written there.
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
    /// Waits on the host for the kernels that read a table here. For commands that their stream
    /// does not hold back.
    pub(super) fn wait(&self) -> Result<(), CudaError> {
        match &self.table.last {
            Some(last) => last.synchronize(),
            None => Ok(()),
        }
    }

    /// Records the end of the commands that were put on the queue under this guard.
    pub(super) fn done(mut self) -> Result<(), CudaError> {
        if !self.table.is_one {
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
            // If that fails too, the GPU runs no more commands.
            Err(_) => self.context.finish(self.queue),
        }
    }
}

/// Commands to wait for before a memory is freed, in addition to the streams of its context.
#[derive(Default)]
struct FreeAfter {
    /// The last table written here, until the next one is.
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
    Unmade,
    Made(Arc<Slab>),
    /// The driver cannot pin more memory.
    Refused,
}

impl Memory {
    /// Address on the GPU; a multiple of 256.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The context of the memory.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Returns bytes in pinned memory, to be copied here and then [kept](Memory::keep); None if the
    /// driver cannot pin more. Waits for the copy that was kept before, which is normally long
    /// done.
    pub(super) fn stage(&self, bytes: &[u8]) -> Option<HostSource> {
        let mut kept = self.kept();
        drop(kept.table.take());
        let has_room = match &kept.staging {
            Staging::Unmade => false,
            Staging::Made(slab) => slab.row_bytes() >= bytes.len(),
            Staging::Refused => return None,
        };
        if !has_room {
            // Sized for the table at hand, not for the longest possible one.
            let len = bytes.len().next_power_of_two().min(self.len);
            let pinned = Slab::zeroed(1, len).ok().and_then(|mut slab| {
                self.context.pin(&mut slab).ok()?;
                Some(Arc::new(slab))
            });
            kept.staging = pinned.map_or(Staging::Refused, Staging::Made);
        }
        let Staging::Made(slab) = &mut kept.staging else {
            return None;
        };
        // No copy holds a share, except one whose end is unknown.
        let room = Arc::get_mut(slab)?.as_mut();
        room.get_mut(..bytes.len())?.copy_from_slice(bytes);
        let staged: HostSource = Arc::clone(slab) as _;
        Some(staged)
    }

    /// Keeps a copy into this memory until the next one, when it is long done, so that nothing
    /// waits for it.
    pub(super) fn keep(&self, reading: PendingRead) {
        self.kept().table = Some(reading);
    }

    /// Wraps another owner's memory, which is not freed here. Commands that use it are waited for
    /// before `held` is dropped.
    ///
    /// # Safety
    ///
    /// While `held` lives, there are `len` bytes at `address` on the context's GPU that may be read
    /// and written.
    #[cfg(feature = "python")]
    pub(crate) unsafe fn foreign(
        context: &Arc<Context>,
        address: u64,
        len: usize,
        held: Box<dyn Any + Send + Sync>,
    ) -> Memory {
        Memory {
            context: Arc::clone(context),
            address,
            len,
            held: Some(held),
            kept: Mutex::default(),
            table: Mutex::default(),
        }
    }

    /// Whether no command on a queue uses the memory any more, as far as is known without a wait.
    pub fn is_idle(&self) -> bool {
        let kept = self.kept();
        kept.table.is_none()
            && kept
                .used
                .iter()
                .all(|used| matches!(used.is_done(), Ok(true)))
    }

    /// Records that a command just put on a queue uses the memory. Frees wait for the context's own
    /// streams anyway.
    pub(super) fn used_on(&self, queue: Queue) -> Result<(), CudaError> {
        if queue.is_own() && self.held.is_none() {
            return Ok(());
        }
        let event = self.context.event(false)?;
        event.record(queue)?;
        let mut kept = self.kept();
        kept.used.retain(|used| !matches!(used.is_done(), Ok(true)));
        kept.used.push(event);
        Ok(())
    }

    /// Permission to put a command on a queue that writes the memory, after the kernels that read a
    /// table here.
    pub(super) fn to_write(&self, queue: Queue) -> Result<MemoryWriteGuard<'_>, CudaError> {
        let mut writing = self.leave(queue)?;
        writing.table.is_written = true;
        Ok(writing)
    }

    fn leave(&self, queue: Queue) -> Result<MemoryWriteGuard<'_>, CudaError> {
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

    /// Permission to write a table here and to launch the kernel that reads it.
    pub(super) fn to_write_table(&self, queue: Queue) -> Result<MemoryWriteGuard<'_>, CudaError> {
        let mut writing = self.leave(queue)?;
        if !writing.table.is_one && writing.table.is_written {
            // Earlier writes of other commands must not come between. Needed once for each memory.
            let bound = self.context.bind()?;
            self.context.finish_own(&bound);
            for used in &self.kept().used {
                used.synchronize()?;
            }
        }
        writing.table.is_one = true;
        Ok(writing)
    }

    fn table(&self) -> MutexGuard<'_, TableState> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept(&self) -> MutexGuard<'_, FreeAfter> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks that `bytes` bytes from `at` on are inside.
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
    pub fn memory(self: &Arc<Context>, len: usize) -> Result<Memory, CudaError> {
        let bound = self.bind()?;
        let mut address = 0;
        // The driver cannot allocate zero bytes, and kernels read the last bytes by the word.
        let bytes = len.max(1).next_multiple_of(WORD);
        let code = match &self.pool {
            Some(pool) => {
                let (found, code) = pool.allocate(self.driver, bytes, &bound);
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
                asked: len,
                free,
                total,
            });
        }
        self.driver.check("cuMemAlloc", code)?;
        Ok(Memory {
            context: Arc::clone(self),
            address,
            len,
            held: None,
            kept: Mutex::default(),
            table: Mutex::default(),
        })
    }

    /// Pins a slab, so that the GPU reads and writes it directly and at the full rate of the bus.
    /// It stays pinned for every GPU until its memory is freed, also while it is cut into rows. The
    /// contents of a slab below 2 MiB move to separate pages for that.
    ///
    /// The host reads and writes the memory at full speed: it is not write-combined. On Linux, a
    /// forked child sees zeros there, so the pages belong to this process alone.
    ///
    /// # Errors
    ///
    /// The driver's error: it may be unable to pin more. Copies from the slab still work, at a
    /// fraction of the rate, and block their caller.
    ///
    /// # Cost
    ///
    /// Touches every page: about a second for 4 GiB, once for each slab.
    pub fn pin(self: &Arc<Context>, slab: &mut Slab) -> Result<(), CudaError> {
        let bytes = slab.memory_mut();
        if bytes.is_held() || bytes.is_empty() {
            return Ok(());
        }
        let pages = bytes
            .whole_pages()
            .map_err(|error| CudaError::Mismatch(error.to_string()))?;
        let Some((start, len)) = pages else {
            return Err(CudaError::Mismatch(
                "memory cannot be pinned on this system".to_owned(),
            ));
        };
        // A fork would share the pages copy-on-write: the next write here would go to a new page
        // while the GPU keeps reading the old one.
        bytes.withhold(true);
        let _bound = self.bind()?;
        let start = start.as_ptr().cast::<c_void>();
        // SAFETY: whole pages that this slab alone has, valid until it frees them; the guard that
        // it gets below undoes this before that.
        let code = unsafe { (self.driver.host_register)(start, len, PORTABLE) };
        if let Err(error) = self.driver.check("cuMemHostRegister", code) {
            bytes.withhold(false);
            return Err(error);
        }
        bytes.hold(Box::new(Pinned {
            context: Arc::clone(self),
            address: start.expose_provenance(),
        }));
        Ok(())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let kept = std::mem::take(&mut *self.kept());
        // Waits for a copy into this memory that is in flight.
        drop(kept.table);
        drop(kept.staging);
        let table = std::mem::take(&mut *self.table());
        if self.held.is_none()
            && let Some(pool) = &self.context.pool
        {
            // The kernel that reads a table here is on one of the context's streams, or before
            // `last`.
            let mut used = kept.used;
            used.extend(table.last);
            // A failed device frees nothing, and in a forked child the address belongs to other
            // memory.
            let _ = self.context.free_later(pool, self.address, &used);
            return;
        }
        for used in kept.used {
            // The error of an earlier command, which other calls return.
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
        // Commands of other libraries on their streams are not known here. The driver waits for all
        // work of the GPU before it frees, but does not promise to.
        self.context.finish_own(&bound);
        // SAFETY: allocated in `memory`, freed once.
        unsafe { (self.context.driver.memory_free)(self.address) };
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory")
            .field("address", &format_args!("{:#x}", self.address))
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

/// Host memory registered with the driver. The slab's memory holds this and drops it before it
/// frees its pages.
struct Pinned {
    context: Arc<Context>,
    address: usize,
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Ok(_bound) = self.context.bind() {
            let start = std::ptr::with_exposed_provenance_mut(self.address);
            // SAFETY: registered in `pin`, undone once, and its pages are still there. No copy is
            // under way: each holds a share of the memory it reads.
            unsafe { (self.context.driver.host_unregister)(start) };
        }
    }
}
