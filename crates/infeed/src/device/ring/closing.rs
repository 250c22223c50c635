//! The end of a ring: it waits for what is under way, but not for ever.

use std::time::Instant;

use crate::device::Device;
use crate::error::Error;

use super::sending::Ring;
use super::shared::Slot;
use super::sync::{self, Arc};

impl<D: Device> Ring<D> {
    /// Ends sending, for callers that wait too, and waits for what is under way: copies, kernels, and
    /// what consumers had enqueued on slots they gave back, for at most
    /// [`Settings::closing`](super::Settings::closing). Then leaks the memory that consumers still
    /// use, with a line in the log. Batches that consumers hold stay as they are. Returns whether
    /// nothing was leaked.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`]; [`Error::Device`] if the device failed.
    pub fn close(&self) -> Result<bool, Error> {
        self.close_by(Instant::now() + self.settings.closing)
    }

    /// As [`close`](Ring::close), waiting until a moment.
    ///
    /// # Errors
    ///
    /// As [`close`](Ring::close).
    pub fn close_by(&self, deadline: Instant) -> Result<bool, Error> {
        let shared = &self.shared;
        if shared.is_forked() {
            return Err(Error::Forked);
        }
        shared.device.with_current(|| {
            shared.settle(Some(deadline.saturating_duration_since(Instant::now())));
            let free = shared.slots.close();
            let _turn = sync::lock(&self.sending);
            let finished = self.finish(&free, deadline);
            if matches!(finished, Ok(false)) {
                shared.leak(free);
                return Ok(false);
            }
            let landed = shared.land();
            drop(free);
            shared.bury();
            if finished.is_ok() {
                let left = deadline.saturating_duration_since(Instant::now());
                shared.device.trim(left);
            }
            landed.and(finished)
        })
    }

    /// Waits for the ring's streams, and for what consumers do with these slots. Returns whether all is
    /// done.
    fn finish(&self, free: &[Slot<D>], deadline: Instant) -> Result<bool, Error> {
        let shared = &self.shared;
        shared.check()?;
        if shared.has_leaked() {
            return Ok(false);
        }
        let end = shared.told(shared.plain.take(&shared.device))?;
        for queue in [Some(self.copies), self.kernels].into_iter().flatten() {
            shared.told(shared.device.record(&end, queue))?;
            if !shared.is_past_by(&end, deadline)? {
                return Ok(false);
            }
        }
        for released in free.iter().flat_map(|slot| &slot.released) {
            if !shared.is_past_by(released, deadline)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl<D: Device> Drop for Ring<D> {
    fn drop(&mut self) {
        if self.shared.is_forked() {
            // Nothing of the parent's may be touched here, not even to free it.
            std::mem::forget(Arc::clone(&self.shared));
            return;
        }
        match self.close() {
            Ok(true) => {
                for queue in [Some(self.copies), self.kernels].into_iter().flatten() {
                    self.shared.device.give_back(queue);
                }
            }
            // The streams still have something to do, perhaps for ever.
            Ok(false) => {}
            Err(error) => {
                tracing::debug!(target: "infeed::device", "at the end: {}", error.chain());
            }
        }
    }
}
