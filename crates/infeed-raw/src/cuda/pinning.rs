//! Pins host memory, and unpins it before it is freed.

use std::ffi::{c_uint, c_void};
use std::sync::Arc;

use super::context::Context;
use super::error::CudaError;
use super::pinned_memory::PinnedPages;
use crate::host::{HostBytes, MemoryGuard};
use crate::slab::Slab;

/// `CU_MEMHOSTREGISTER_PORTABLE`: pinned for every GPU of the process.
const PORTABLE: c_uint = 1;

impl Context {
    /// Pins a slab, so that the GPU reads and writes it directly and at the full rate of the bus.
    /// The slab stays pinned for every GPU until its memory is freed, also while it is cut into
    /// rows. Its contents may move: out of pages that it shares with other data, or to memory that
    /// is already pinned.
    ///
    /// The host reads and writes the memory at full speed: it is not write-combined. On Linux, a
    /// forked child reads zeros from it, so the pages belong to this process alone.
    ///
    /// # Errors
    ///
    /// The driver's error: it may be unable to pin more. Copies from the slab still work, at a
    /// fraction of the rate, and block their caller.
    ///
    /// # Cost
    ///
    /// Touches every page: about a second for 4 GiB, once for each slab. A copy of the contents if
    /// a closed loader left pinned memory of this size.
    pub fn pin(self: &Arc<Context>, slab: &mut Slab) -> Result<(), CudaError> {
        let bytes = slab.memory_mut();
        if bytes.is_held() || bytes.is_empty() {
            return Ok(());
        }
        // In a forked child, this returns the error before a lock is taken.
        let _bound = self.bind()?;
        if let Some(PinnedPages { mut memory, len }) = self.pinned.take(bytes.len()) {
            memory.set_len(bytes.len());
            memory.copy_from_slice(bytes);
            memory.hold(self.guard(len));
            *bytes = memory;
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
        // A fork would share the pages copy-on-write: the next write in this process would go to a
        // new page while the GPU keeps reading the old one.
        bytes.withhold(true);
        let start = start.as_ptr().cast::<c_void>();
        // SAFETY: whole pages that belong to this slab alone, valid until it frees them. The guard
        // attached below unregisters them before that.
        let code = unsafe { (self.driver.host_register)(start, len, PORTABLE) };
        if let Err(error) = self.driver.check("cuMemHostRegister", code) {
            bytes.withhold(false);
            return Err(error);
        }
        self.pinned.add(len);
        bytes.hold(self.guard(len));
        Ok(())
    }

    fn guard(self: &Arc<Context>, len: usize) -> Box<PinnedGuard> {
        let context = Arc::clone(self);
        Box::new(PinnedGuard { context, len })
    }
}

/// Attached to pinned memory in use.
struct PinnedGuard {
    context: Arc<Context>,
    /// Pinned bytes, as in [`PinnedPages`].
    len: usize,
}

impl MemoryGuard for PinnedGuard {
    fn release(self: Box<Self>, memory: HostBytes) {
        let PinnedGuard { context, len } = *self;
        let Ok(_bound) = context.bind() else {
            // In a forked child, the memory is only unmapped.
            return;
        };
        for PinnedPages { memory, .. } in context.pinned.give(PinnedPages { memory, len }) {
            let start = memory.start().as_ptr().cast::<c_void>();
            // SAFETY: registered in `pin` from its first byte on, unregistered once, and its pages
            // are still mapped. No copy is in flight: each holds a share of the memory that it
            // reads.
            unsafe { (context.driver.host_unregister)(start) };
        }
    }
}
