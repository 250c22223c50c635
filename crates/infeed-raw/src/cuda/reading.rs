//! Bytes of the host that a copy reads.

use std::mem::ManuallyDrop;
use std::sync::Arc;

use super::error::CudaError;
use super::event::Event;

/// Host bytes that several owners share.
pub type HostSource = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// Keeps bytes until a copy has read them: dropping it waits for that.
pub(super) struct Reading {
    done: Event,
    /// Taken out only when the card has read it.
    source: ManuallyDrop<HostSource>,
}

impl Reading {
    /// Of a copy that `done` is to be recorded behind, before this is dropped.
    pub(super) fn new(done: Event, source: HostSource) -> Reading {
        let source = ManuallyDrop::new(source);
        Reading { done, source }
    }

    /// The event behind the copy.
    pub(super) fn done(&self) -> &Event {
        &self.done
    }

    /// Whether the bytes have been read. Does not block.
    pub(super) fn is_done(&self) -> Result<bool, CudaError> {
        self.done.is_done()
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        if self.done.synchronize().is_ok() {
            // SAFETY: dropped here alone, and `self` is not used after.
            unsafe { ManuallyDrop::drop(&mut self.source) };
        }
        // Else nobody can tell whether the card still reads: the bytes stay for good. In a forked
        // child too, where they are a copy of those that the parent's card reads.
    }
}
