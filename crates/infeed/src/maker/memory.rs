//! Limits of the working memory of a thread.

use crate::fields::failure::SampleError;
use infeed_core::error::MemoryPurpose;
use infeed_core::exec::budget::{BytePool, Permit};

/// Working memory that a thread may use, and the memory that its sample has reserved.
#[derive(Debug)]
pub(crate) struct SampleMemory<'a> {
    /// Bytes that the thread may always use.
    kept_bytes: u64,
    /// Memory for larger samples, which all threads share.
    large: &'a BytePool,
    /// Most bytes of a sample.
    limit_bytes: u64,
    /// Permit of a larger sample.
    granted: Option<Permit>,
}

impl<'a> SampleMemory<'a> {
    /// Creates the limits of a thread. Samples have no limit yet.
    pub(crate) fn new(kept_bytes: u64, large: &'a BytePool) -> SampleMemory<'a> {
        SampleMemory {
            kept_bytes,
            large,
            limit_bytes: u64::MAX,
            granted: None,
        }
    }

    /// Limits the bytes of each sample from now on.
    pub(super) fn limit(&mut self, bytes: u64) {
        self.limit_bytes = bytes;
    }

    /// Waits until a sample may use `needed_bytes`. Releases what it reserved before.
    ///
    /// # Errors
    ///
    /// [`SampleError::TooLarge`] if they exceed a limit.
    pub(super) fn reserve(&mut self, needed_bytes: u64) -> Result<(), SampleError> {
        self.granted = None;
        if needed_bytes <= self.kept_bytes.min(self.limit_bytes) {
            return Ok(());
        }
        let refused = |limit_bytes| SampleError::TooLarge {
            purpose: MemoryPurpose::Decoding,
            needed_bytes,
            limit_bytes,
        };
        if needed_bytes > self.limit_bytes {
            return Err(refused(self.limit_bytes));
        }
        let granted = self.large.take(needed_bytes);
        self.granted = Some(granted.map_err(|_| refused(self.large.limit_bytes()))?);
        Ok(())
    }

    /// Takes the permit of a larger sample, if there is one.
    pub(super) fn take(&mut self) -> Option<Permit> {
        self.granted.take()
    }
}
