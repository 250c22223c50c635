//! Closes a ring: waits, up to a limit, for commands in flight.

use std::time::Instant;

use crate::Device;
use infeed_core::error::Error;

use super::device_ring::Ring;
use super::ring_state::Slot;
use super::sync::{self, Arc};

impl<D: Device> Ring<D> {
    /// Stops sending, also for senders that wait. Then waits for copies, kernels, and the commands
    /// that consumers enqueued on slots they returned, for at most
    /// [`RingSettings::closing`](super::RingSettings::closing). After that time, leaks the memory
    /// that consumers still use and logs a warning. Batches that consumers hold remain valid.
    /// Returns false if memory was leaked.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`]; [`Error::Device`] if the device failed.
    pub fn close(&self) -> Result<bool, Error> {
        self.close_by(Instant::now() + self.settings.closing)
    }

    /// Like [`close`](Ring::close), with a deadline.
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
            shared.settle();
            let free = shared.slots.close();
            let _turn = sync::lock(&self.sending);
            let finished = self.finish(&free, deadline);
            if matches!(finished, Ok(false)) {
                shared.leak(free);
                return Ok(false);
            }
            let landed = shared.wait_for_copies();
            drop(free);
            shared.drop_lost();
            if finished.is_ok() {
                let left = deadline.saturating_duration_since(Instant::now());
                shared.device.trim(left);
            }
            landed.and(finished)
        })
    }

    /// Waits for the ring's streams and for the consumers of these slots. Returns whether all of
    /// them are done.
    fn finish(&self, free: &[Slot<D>], deadline: Instant) -> Result<bool, Error> {
        let shared = &self.shared;
        shared.check()?;
        if shared.has_leaked() {
            return Ok(false);
        }
        let end = shared.or_fail(shared.plain.take(&shared.device))?;
        for queue in [Some(self.copies), self.kernels].into_iter().flatten() {
            shared.or_fail(shared.device.record(&end, queue))?;
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
            // A fork must not touch the parent's objects, and must not free them.
            std::mem::forget(Arc::clone(&self.shared));
            return;
        }
        match self.close() {
            Ok(true) => {
                for queue in [Some(self.copies), self.kernels].into_iter().flatten() {
                    self.shared.device.give_back(queue);
                }
            }
            // The streams still have commands, which may never finish.
            Ok(false) => {}
            Err(error) => {
                tracing::debug!(target: "infeed_device", "at the end: {}", error.chain());
            }
        }
    }
}
