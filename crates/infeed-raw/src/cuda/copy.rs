//! Copies between the host and a GPU.

use std::fmt;
use std::sync::Arc;

use super::context::Context;
use super::error::CudaError;
use super::event::Event;
use super::memory::GpuMemory;
use super::queue::Queue;
use super::reading::PendingRead;
use crate::host::HostSource;
use crate::slab::Slab;

/// A copy to the GPU that may be in flight. It holds the source bytes and the target memory until
/// the copy is done: dropping the transfer waits. Forgetting the transfer only leaks both.
#[must_use = "dropping it waits for the copy"]
pub struct Transfer {
    // Fields are dropped in order: the target memory only after the copy is done.
    reading: PendingRead,
    _to: Arc<GpuMemory>,
}

impl Transfer {
    /// Makes a transfer that holds `reading`'s bytes and `to` until the event in `reading` is done.
    pub(super) fn new(reading: PendingRead, to: Arc<GpuMemory>) -> Transfer {
        Transfer { reading, _to: to }
    }

    /// The event to record after the copy, before the transfer is dropped.
    pub(super) fn done_event(&self) -> &Event {
        self.reading.done_event()
    }

    /// Whether the host's bytes have been read. Does not block.
    ///
    /// # Errors
    ///
    /// The driver's error.
    pub fn is_done(&self) -> Result<bool, CudaError> {
        self.reading.is_done()
    }

    /// Releases the target memory. For a transfer that the target memory itself keeps.
    pub(super) fn within(self) -> PendingRead {
        self.reading
    }
}

impl fmt::Debug for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transfer").finish_non_exhaustive()
    }
}

impl Context {
    /// Copies the first `bytes` bytes of `from` to `to[at..]`, in the order of a queue.
    ///
    /// `from.as_ref()` must return the same bytes for as long as `from` lives, as buffers do.
    ///
    /// # Errors
    ///
    /// [`CudaError::OutOfRange`], [`CudaError::Foreign`], [`CudaError::Capturing`]; the driver's
    /// error.
    ///
    /// # Cost
    ///
    /// Microseconds, if `from` is pinned. Otherwise the driver first copies the bytes to its own
    /// buffer, and returns after the last part.
    pub fn copy(
        self: &Arc<Context>,
        queue: Queue,
        from: HostSource,
        bytes: usize,
        to: &Arc<GpuMemory>,
        at: usize,
    ) -> Result<Transfer, CudaError> {
        to.check(at, bytes)?;
        self.same(to)?;
        let writing = to.to_write(queue)?;
        let transfer = self.put(queue, from, bytes, to, at)?;
        writing.finish()?;
        Ok(transfer)
    }

    /// As [`copy`](Context::copy), for a caller that holds the write guard.
    pub(super) fn put(
        self: &Arc<Context>,
        queue: Queue,
        from: HostSource,
        bytes: usize,
        to: &Arc<GpuMemory>,
        at: usize,
    ) -> Result<Transfer, CudaError> {
        let source = (*from).as_ref();
        if bytes > source.len() {
            let len = source.len();
            return Err(CudaError::OutOfRange { at: 0, bytes, len });
        }
        to.check(at, bytes)?;
        self.same(to)?;
        let start = source.as_ptr().cast();
        // Created first: if this fails, no copy is in flight.
        let transfer = Transfer {
            reading: PendingRead::new(self.event(false)?, from),
            _to: Arc::clone(to),
        };
        let _bound = self.bind()?;
        let stream = self.stream_of(queue)?;
        if bytes > 0 {
            // SAFETY: the `bytes` bytes from `start` are inside of `source`, and the `bytes` bytes
            // from `at` are inside of `to`; both were checked above. Both live as long as
            // `transfer`, which releases them only when the copy is done. No code writes to
            // `source` meanwhile, since this share of it is alive. The stream is alive and belongs
            // to this context.
            let code = unsafe {
                (self.driver.copy_to_device)(to.address() + at as u64, start, bytes, stream)
            };
            self.driver.check("cuMemcpyHtoDAsync", code)?;
        }
        if let Err(error) = transfer.reading.done_event().record(queue) {
            // The event does not cover this copy, so the transfer must not query it.
            if self.finish(queue).is_err() {
                std::mem::forget(transfer);
            }
            return Err(error);
        }
        Ok(transfer)
    }

    /// Copies the first `bytes` bytes of one memory to another, in the order of a queue.
    ///
    /// Both may be dropped at once; the drop waits for the copy.
    ///
    /// # Errors
    ///
    /// As for [`copy`](Context::copy); [`CudaError::Mismatch`] if both are the same.
    pub fn copy_within(
        self: &Arc<Context>,
        queue: Queue,
        from: &Arc<GpuMemory>,
        to: &Arc<GpuMemory>,
        bytes: usize,
    ) -> Result<(), CudaError> {
        from.check(0, bytes)?;
        to.check(0, bytes)?;
        self.same(from)?;
        self.same(to)?;
        if Arc::ptr_eq(from, to) {
            let why = "source and target of a copy are the same memory; copy to another one";
            return Err(CudaError::Mismatch(why.to_owned()));
        }
        let _bound = self.bind()?;
        let stream = self.stream_of(queue)?;
        if bytes == 0 {
            return Ok(());
        }
        let writing = to.to_write(queue)?;
        // SAFETY: both ranges are inside of their memories, which belong to this context and do not
        // overlap; the stream is alive.
        let code =
            unsafe { (self.driver.copy_on_device)(to.address(), from.address(), bytes, stream) };
        self.driver.check("cuMemcpyDtoDAsync", code)?;
        writing.finish()?;
        from.used_on(queue).and(to.used_on(queue))
    }

    /// Fills a slab from the beginning of a memory, after the commands on a queue, and waits. For
    /// checks and measurements only: a loader never copies back to the host.
    ///
    /// # Errors
    ///
    /// As for [`copy`](Context::copy); [`CudaError::OutOfRange`] if the slab is longer than the
    /// memory. On an error, the slab is not returned.
    pub fn read(
        self: &Arc<Context>,
        queue: Queue,
        from: &GpuMemory,
        mut into: Slab,
    ) -> Result<Slab, CudaError> {
        let target = into.as_mut();
        let (start, bytes) = (target.as_mut_ptr().cast(), target.len());
        from.check(0, bytes)?;
        self.same(from)?;
        let _bound = self.bind()?;
        let stream = self.stream_of(queue)?;
        if bytes == 0 {
            return Ok(into);
        }
        // SAFETY: `bytes` bytes of `into`, which this function owns until they are written, and
        // `bytes` bytes of `from`, which is borrowed until then; the stream is alive.
        let code = unsafe { (self.driver.copy_to_host)(start, from.address(), bytes, stream) };
        self.driver.check("cuMemcpyDtoHAsync", code)?;
        match self.finish(queue) {
            Ok(()) => Ok(into),
            Err(error) => {
                // The GPU may still write to the slab.
                std::mem::forget(into);
                Err(error)
            }
        }
    }

    /// Checks that a memory belongs to this context.
    pub(super) fn same(&self, memory: &GpuMemory) -> Result<(), CudaError> {
        if memory.context().id != self.id {
            return Err(CudaError::Foreign { what: "memory" });
        }
        Ok(())
    }
}
