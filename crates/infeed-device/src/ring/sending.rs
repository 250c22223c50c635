//! Sends batches: takes a slot, waits on the host where commands must not, and enqueues.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::{Device, DeviceError};
use infeed_core::batch::Batch;
use infeed_core::error::Error;

use super::batch::SentBatch;
use super::commands::{ColumnUpload, EnqueuedBatch};
use super::device_ring::{ALL, Ring};
use super::gaps::TimedRequest;
use super::ring_state::{BatchCopies, LostSlot, Slot, SlotHandle};
use super::route::{self, ImageTable, Route};
use super::slots::roomy;
use super::sync::{self, Arc};

/// Longest wait on the host for the consumers of a slot. In a longer step, a waiting kernel slows
/// down few of the step's kernels.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(1);

/// Time after which that wait checks whether the ring is being closed.
const CLOSED_CHECK: Duration = Duration::from_millis(20);

impl<D: Device> Ring<D> {
    /// Enqueues a batch and returns without waiting for its commands. Waits for a slot: without
    /// limit while batches are ahead of the consumer, otherwise for the timeout of the settings,
    /// after which the ring makes another slot. A later call releases the batch's host arrays once
    /// they are copied. If as many batches are being copied as there are slots, this call first
    /// waits for the oldest copy, because a consumer can run far ahead of the device. On a device
    /// that is slowed down by waiting kernels ([`Device::is_slowed_by_waits`]), it also waits up to
    /// a second for the consumers' commands on the slot, if there are several slots.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`], [`Error::Forked`]; [`Error::Config`] if the batch does not have the
    /// ring's columns; [`Error::Device`] if the device has no memory left (nothing is sent, and the
    /// caller can try again) or failed (every later call returns the same error).
    ///
    /// # Cost
    ///
    /// One copy per column, one kernel per column that needs one, and a few events.
    pub fn send(&self, batch: Batch) -> Result<SentBatch<D>, Error> {
        self.send_as(0, batch)
    }

    /// Like [`send`](Ring::send), for a batch of the layout with this index.
    ///
    /// # Errors
    ///
    /// As [`send`](Ring::send).
    pub fn send_as(&self, layout: usize, batch: Batch) -> Result<SentBatch<D>, Error> {
        self.shared.check()?;
        let Some(routes) = self.layouts.get(layout) else {
            let problem = format!(
                "there are {} batch layouts, and no layout {layout}",
                self.layouts.len()
            );
            return Err(Error::config("device", problem));
        };
        let rows = batch.rows();
        let sorted = route::sort_columns(routes, batch)?;
        let uploads = self.uploads(routes, &sorted.arrays, rows)?;
        let _turn = sync::lock(&self.sending);
        let (held, enqueued) = self.shared.device.with_current(|| {
            self.shared.poll()?;
            self.shared.limit_copies(self.settings.slots)?;
            let needed = self.needed_bytes(routes, &uploads, rows)?;
            // Every step is timed while the loader compares layouts.
            let kept = self.kept.load(Ordering::Relaxed);
            let is_trial = kept == ALL && self.layouts.len() > 1;
            let ahead = self.shared.slots.counts().ahead;
            let is_timed = sync::lock(&self.shared.sampling).send(ahead) || is_trial;
            let slot = self.slot(&needed, kept == layout)?;
            self.fill(&uploads, slot, rows, is_timed)
        })?;
        Ok(SentBatch {
            held,
            content: sorted.content,
            undecoded_rows: enqueued.undecoded_rows,
            copied: enqueued.copied,
        })
    }

    /// Waits on the host until consumers are done with a slot, if kernels will write it and if
    /// waiting kernels would slow down the consumers' own kernels. With several slots, the
    /// consumers have other batches in the meantime. If the wait times out, the kernels wait on the
    /// device.
    fn wait_for_consumers(
        &self,
        uploads: &[ColumnUpload<'_>],
        slot: &Slot<D>,
    ) -> Result<(), Error> {
        let shared = &self.shared;
        let has_kernels = uploads.iter().any(|upload| upload.route.has_kernel());
        if !has_kernels || self.settings.slots < 2 || !shared.device.is_slowed_by_waits() {
            return Ok(());
        }
        let begun = Instant::now();
        for released in &slot.released {
            while begun.elapsed() < RELEASE_TIMEOUT && !shared.slots.is_closed() {
                match shared.device.synchronize_within(released, CLOSED_CHECK) {
                    Ok(true) => break,
                    Ok(false) => {}
                    // The host cannot wait while a stream is captured.
                    Err(DeviceError::Rejected { .. }) => return Ok(()),
                    Err(error) => return Err(shared.fail(error)),
                }
            }
        }
        Ok(())
    }

    /// Enqueues a batch into a slot.
    fn fill(
        &self,
        uploads: &[ColumnUpload<'_>],
        mut slot: Slot<D>,
        rows: usize,
        is_timed: bool,
    ) -> Result<(SlotHandle<D>, EnqueuedBatch<D>), Error> {
        let shared = &self.shared;
        let mut transfers = Vec::new();
        if let Err(error) = self.wait_for_consumers(uploads, &slot) {
            shared.set_aside(LostSlot { slot, transfers }, true);
            return Err(error);
        }
        match self.enqueue(uploads, &mut slot, rows, is_timed, &mut transfers) {
            Ok(enqueued) => {
                let copied = Arc::clone(&enqueued.copied);
                shared.track_copies(BatchCopies { copied, transfers });
                let ready = Arc::clone(&enqueued.ready);
                let held = SlotHandle::new(Arc::clone(shared), slot, ready, is_timed);
                Ok((held, enqueued))
            }
            Err(error) => {
                let error = shared.fail(error);
                shared.set_aside(LostSlot { slot, transfers }, true);
                Err(error)
            }
        }
    }

    /// Records an event at the end of a consumer's stream. The consumer passes the result when it
    /// takes its next batch.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`]; [`Error::Device`] if the device failed, or if the stream does not exist.
    pub fn ask(&self, queue: D::Queue) -> Result<TimedRequest<D>, Error> {
        let shared = &self.shared;
        shared.check()?;
        shared.device.with_current(|| {
            shared.poll()?;
            let is_trial = self.layouts.len() > 1 && self.kept.load(Ordering::Relaxed) == ALL;
            let ahead = shared.slots.counts().ahead;
            if !is_trial && !sync::lock(&shared.sampling).asks(ahead) {
                return Ok(TimedRequest { event: None });
            }
            let event = shared.or_fail(shared.timed.take(&shared.device))?;
            shared.or_fail(shared.device.record(&event, queue))?;
            Ok(TimedRequest { event: Some(event) })
        })
    }

    /// Returns the bytes that a batch needs in a slot, for each column that goes to the device.
    fn needed_bytes(
        &self,
        routes: &[Route],
        uploads: &[ColumnUpload<'_>],
        rows: usize,
    ) -> Result<Vec<route::ColumnBytes>, Error> {
        let mut needed = Vec::with_capacity(uploads.len());
        for route in routes {
            let mut bytes = route.bytes(rows.max(self.settings.rows))?;
            if bytes.output == 0 {
                continue;
            }
            if let Some(ImageTable::Staged(staged)) =
                uploads.get(needed.len()).map(|upload| &upload.image_table)
            {
                bytes.staging = roomy(staged.bytes);
            }
            needed.push(bytes);
        }
        Ok(needed)
    }
}
