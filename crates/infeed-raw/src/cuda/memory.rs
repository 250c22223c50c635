//! Bytes on a card, and host memory that the card reads at the full rate of the bus.

use std::any::Any;
use std::ffi::{c_uint, c_void};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::context::Context;
use super::driver::code;
use super::error::CudaError;
use super::event::Event;
use super::queue::Queue;
use super::reading::{HostSource, Reading};
use crate::slab::Slab;

/// `CU_MEMHOSTREGISTER_PORTABLE`: pinned for every card of the process.
const PORTABLE: c_uint = 1;

/// Bytes that a kernel reads at once, whose memory must be there: see `load_words` in
/// `kernels/target.h`.
const WORD: usize = 4;

/// Bytes on a card. What they are before they are written is not specified.
pub struct Memory {
    context: Arc<Context>,
    address: u64,
    len: usize,
    /// What keeps memory that somebody else frees.
    held: Option<Box<dyn Any + Send + Sync>>,
    kept: Mutex<Kept>,
    table: Mutex<Table>,
}

/// Whether a memory holds a kernel's table, and then, behind which moment it may be written. What a
/// kernel reads there was checked on the host, so nobody may write it between that and the kernel's end.
#[derive(Default)]
struct Table {
    is_one: bool,
    /// Whether anything else was ever to be written there.
    is_written: bool,
    /// Behind the last command that used it.
    last: Option<Event>,
}

/// Leave to write a memory: while this is held nobody else gets it.
pub(super) struct Writing<'a> {
    table: MutexGuard<'a, Table>,
    context: &'a Arc<Context>,
    queue: Queue,
}

impl Writing<'_> {
    /// Waits on the host for the kernels that read a table here, for commands that their stream does not
    /// hold back.
    pub(super) fn wait(&self) -> Result<(), CudaError> {
        match &self.table.last {
            Some(last) => last.synchronize(),
            None => Ok(()),
        }
    }

    /// Marks the end of the commands that were put on the queue since.
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
            // If that cannot be waited for either, the card runs nothing any more.
            Err(_) => self.context.finish(self.queue),
        }
    }
}

/// What is waited for before a memory is freed, besides the streams of its context.
#[derive(Default)]
struct Kept {
    /// The last table of views that was written here, until the next one is.
    table: Option<Reading>,
    /// Where tables are copied from.
    staging: Staging,
    /// Behind commands on consumers' streams.
    used: Vec<Event>,
}

/// Pinned memory of the host, where a table goes before it is copied. Copies from other memory wait for
/// their stream, and with them who asks for one.
#[derive(Default)]
enum Staging {
    #[default]
    Unmade,
    Made(Arc<Slab>),
    /// The driver pins no more.
    Refused,
}

impl Memory {
    /// Address on the card; a multiple of 256.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The context it is of.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Bytes in pinned memory, to be copied here and then [kept](Memory::keep); none if the driver
    /// has no such memory. Waits for the copy that was kept before, which by then is long done.
    pub(super) fn stage(&self, bytes: &[u8]) -> Option<HostSource> {
        let mut kept = self.kept();
        drop(kept.table.take());
        let has_room = match &kept.staging {
            Staging::Unmade => false,
            Staging::Made(slab) => slab.row_bytes() >= bytes.len(),
            Staging::Refused => return None,
        };
        if !has_room {
            // As long as a table of its kind, and not as the longest that could be.
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
        // Nobody else has it, but for a copy of which it is unknown whether it is done.
        let room = Arc::get_mut(slab)?.as_mut();
        room.get_mut(..bytes.len())?.copy_from_slice(bytes);
        let staged: HostSource = Arc::clone(slab) as _;
        Some(staged)
    }

    /// Keeps a copy into this memory until the next one, for whose sake nobody waits: by then it
    /// is long done.
    pub(super) fn keep(&self, reading: Reading) {
        self.kept().table = Some(reading);
    }

    /// Memory of somebody else, which is not freed here. What is enqueued there is waited for before
    /// `held` is dropped.
    ///
    /// # Safety
    ///
    /// As long as `held` lives there are `len` bytes at `address` of the context's card, which may be
    /// read and written.
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

    /// Whether nothing that was put on a queue uses it any more, as far as is known without a wait.
    pub fn is_idle(&self) -> bool {
        let kept = self.kept();
        kept.table.is_none()
            && kept
                .used
                .iter()
                .all(|used| matches!(used.is_done(), Ok(true)))
    }

    /// Remembers that a command that was just put on a queue uses this. Our own streams are waited
    /// for anyhow before memory is freed.
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

    /// Leave to put a command on a queue that writes this, behind the kernels that read a table here.
    pub(super) fn to_write(&self, queue: Queue) -> Result<Writing<'_>, CudaError> {
        let mut writing = self.leave(queue)?;
        writing.table.is_written = true;
        Ok(writing)
    }

    fn leave(&self, queue: Queue) -> Result<Writing<'_>, CudaError> {
        let table = self.table();
        if let Some(last) = &table.last {
            last.hold(queue)?;
        }
        let context = &self.context;
        Ok(Writing {
            table,
            context,
            queue,
        })
    }

    /// The same, to write a table here and launch the kernel that reads it.
    pub(super) fn to_write_table(&self, queue: Queue) -> Result<Writing<'_>, CudaError> {
        let mut writing = self.leave(queue)?;
        if !writing.table.is_one && writing.table.is_written {
            // What was to be written here before must not come between. Once a memory.
            let bound = self.context.bind()?;
            self.context.finish_own(&bound);
            for used in &self.kept().used {
                used.synchronize()?;
            }
        }
        writing.table.is_one = true;
        Ok(writing)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// That `bytes` from `at` on lie inside.
    pub(super) fn check(&self, at: usize, bytes: usize) -> Result<(), CudaError> {
        let len = self.len;
        if at.checked_add(bytes).is_none_or(|end| end > len) {
            return Err(CudaError::OutOfRange { at, bytes, len });
        }
        Ok(())
    }
}

impl Context {
    /// Memory on this card.
    ///
    /// # Errors
    ///
    /// [`CudaError::OutOfMemory`], with what is free.
    ///
    /// # Cost
    ///
    /// Some hundred microseconds; without a pool (see `pool.rs`) more where other work is under way.
    pub fn memory(self: &Arc<Context>, len: usize) -> Result<Memory, CudaError> {
        let bound = self.bind()?;
        let mut address = 0;
        // The driver has no memory of no bytes, and kernels read the last bytes by the word.
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
                card: self.card().name.clone(),
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

    /// Pins a slab, so that the card reads and writes it by itself and at the full rate of the
    /// bus. It stays pinned, for every card, until its memory is freed, also while it is cut into
    /// rows. A slab below 2 MiB moves to pages of its own for that, with what is in it.
    ///
    /// Memory that the host reads and writes as fast as ever: not write-combined. On Linux a child of a
    /// fork finds zeros there, which leaves the pages to this process alone.
    ///
    /// # Errors
    ///
    /// What the driver says: it may have no more that it can pin. Copies from the slab then work
    /// as before, at a fraction of the rate, and their caller waits for them.
    ///
    /// # Cost
    ///
    /// Touches every page: about a second for 4 GiB. Once a slab.
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
                "memory cannot be pinned on this system, which maps no pages".to_owned(),
            ));
        };
        // A fork would share the pages with a child; the next write here would then go to a copy of
        // the page, and the card would go on reading the original.
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
        // Waits for a copy to here, if one is under way.
        drop(kept.table);
        drop(kept.staging);
        let table = std::mem::take(&mut *self.table());
        if self.held.is_none()
            && let Some(pool) = &self.context.pool
        {
            // The kernel that reads a table here is on one of our streams, or is followed by `last`.
            let mut used = kept.used;
            used.extend(table.last);
            // A device that failed gives nothing back, and in a forked child the address is another's.
            let _ = self.context.free_later(pool, self.address, &used);
            return;
        }
        for used in kept.used {
            // An error is that of a command that ran, which others are told.
            let _ = used.synchronize();
        }
        drop(table);
        let Ok(bound) = self.context.bind() else {
            // In a forked child the address is somebody else's.
            std::mem::forget(self.held.take());
            return;
        };
        if self.held.is_some() {
            return;
        }
        // What other libraries still have to do with it on their streams is not known here. The
        // driver waits for all work of the card before it frees, but does not promise so.
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

/// Host memory that is registered with the driver. The memory holds this and drops it before it
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
