//! Host bytes that a copy reads.

use std::mem::ManuallyDrop;

use super::error::CudaError;
use super::event::Event;
use crate::host::HostSource;

/// Keeps bytes until a copy has read them: dropping it waits for the copy.
pub(super) struct PendingRead {
    done: Event,
    /// Taken out only after the GPU has read it.
    source: ManuallyDrop<HostSource>,
}

impl PendingRead {
    /// Keeps `source` until `done`, which the caller records after the copy and before this is
    /// dropped.
    pub(super) fn new(done: Event, source: HostSource) -> PendingRead {
        let source = ManuallyDrop::new(source);
        PendingRead { done, source }
    }

    /// The event after the copy.
    pub(super) fn done_event(&self) -> &Event {
        &self.done
    }

    /// Whether the bytes have been read. Does not block.
    pub(super) fn is_done(&self) -> Result<bool, CudaError> {
        self.done.is_done()
    }
}

impl Drop for PendingRead {
    fn drop(&mut self) {
        if self.done.synchronize().is_ok() {
            // SAFETY: dropped only here, and `self` is not used after.
            unsafe { ManuallyDrop::drop(&mut self.source) };
        }
        // If the wait fails, the GPU may still read the bytes, so they are leaked. They are also
        // leaked in a forked child, which has a copy of the bytes that the parent's GPU reads.
    }
}
