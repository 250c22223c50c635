//! State that the ring shares with its batches: slots, events, copies in flight, and the error that
//! ended the ring.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc as StdArc;
use std::time::{Duration, Instant};

use crate::{Device, DeviceError};
use infeed_core::error::Error;

use super::events::EventPool;
use super::gaps::{Gaps, TimedRequest};
use super::sampling::Sampling;
use super::slots::Slots;
use super::sync::{self, Arc, Mutex};
use super::times::CopyTimes;

/// Device memory for one batch, and the events after which it may be written.
#[derive(Debug)]
pub(super) struct Slot<D: Device> {
    /// One for each column that goes to the device.
    pub(super) columns: Vec<SlotColumn<D>>,
    /// Recorded after the ring's last command that used the slot.
    pub(super) ready: Option<Arc<D::Event>>,
    /// Recorded after the consumers' commands when they returned the slot, one per stream.
    pub(super) released: Vec<Arc<D::Event>>,
}

/// Memory of a column.
#[derive(Debug)]
pub(super) struct SlotColumn<D: Device> {
    /// Memory for the host's bytes, if a kernel computes the output from them.
    pub(super) staging: Option<StdArc<D::Memory>>,
    /// Memory for the table of images, if their sizes differ.
    pub(super) table: Option<StdArc<D::Memory>>,
    pub(super) output: StdArc<D::Memory>,
}

/// The copies of one batch. They keep its host arrays alive.
#[derive(Debug)]
pub(super) struct BatchCopies<D: Device> {
    /// Recorded after the last copy.
    pub(super) copied: Arc<D::Event>,
    pub(super) transfers: Vec<D::Transfer>,
}

/// The slot and transfers of a batch that failed while it was enqueued. The device may still use
/// them, so they are kept until the ring is dropped.
#[derive(Debug)]
pub(super) struct LostSlot<D: Device> {
    pub(super) slot: Slot<D>,
    pub(super) transfers: Vec<D::Transfer>,
}

/// A slot that was returned while a stream of its consumer could not record an event. The end of
/// its use is unknown.
struct UnmarkedSlot<D: Device> {
    slot: Slot<D>,
    /// Streams without a recorded event.
    users: Vec<SlotUser<D>>,
    ahead: bool,
}

pub(super) struct RingState<D: Device> {
    pub(super) device: D,
    pub(super) name: String,
    process: u32,
    /// Makes calls behave as in a forked process.
    #[cfg(test)]
    pub(super) in_fork: std::sync::atomic::AtomicBool,
    pub(super) slots: Slots<Slot<D>>,
    pub(super) plain: EventPool<D>,
    pub(super) timed: EventPool<D>,
    pub(super) gaps: Mutex<Gaps<D>>,
    pub(super) times: Mutex<CopyTimes<D>>,
    pub(super) sampling: Mutex<Sampling>,
    /// Time that closing waits for consumers.
    closing: Duration,
    /// Whether closing timed out and leaked memory.
    leaked: Mutex<bool>,
    /// In the order of their stream, so the first entry is done first.
    copies: Mutex<VecDeque<BatchCopies<D>>>,
    unchanged: Mutex<Vec<UnmarkedSlot<D>>>,
    lost: Mutex<Vec<LostSlot<D>>>,
    fault: Mutex<Option<Error>>,
}

impl<D: Device> RingState<D> {
    pub(super) fn new(device: D, slots: Slots<Slot<D>>, closing: Duration) -> RingState<D> {
        RingState {
            name: device.name(),
            device,
            process: std::process::id(),
            #[cfg(test)]
            in_fork: std::sync::atomic::AtomicBool::new(false),
            slots,
            plain: EventPool::new(false),
            timed: EventPool::new(true),
            gaps: Mutex::new(Gaps::new()),
            times: Mutex::new(CopyTimes::new()),
            sampling: Mutex::new(Sampling::new()),
            closing,
            leaked: Mutex::new(false),
            copies: Mutex::new(VecDeque::new()),
            unchanged: Mutex::new(Vec::new()),
            lost: Mutex::new(Vec::new()),
            fault: Mutex::new(None),
        }
    }

    /// Whether this process is a fork of the one that created the ring. A fork lacks the device's
    /// threads and the driver's state, and locks may be held by threads that do not exist in it.
    pub(super) fn is_forked(&self) -> bool {
        #[cfg(test)]
        if self.in_fork.load(std::sync::atomic::Ordering::Relaxed) {
            return true;
        }
        std::process::id() != self.process
    }

    /// Returns the error that prevents further calls: a fork, or the fault that ended the ring.
    pub(super) fn check(&self) -> Result<(), Error> {
        if self.is_forked() {
            return Err(Error::Forked);
        }
        match &*sync::lock(&self.fault) {
            Some(fault) => Err(fault.clone()),
            None => Ok(()),
        }
    }

    /// Ends the ring. Every later call returns the first fault.
    pub(super) fn fail(&self, error: DeviceError) -> Error {
        let error = error.on(&self.name);
        sync::lock(&self.fault).get_or_insert(error).clone()
    }

    /// Converts the device's result. An error ends the ring, unless the command was rejected
    /// without effect.
    pub(super) fn or_fail<T>(&self, answer: Result<T, DeviceError>) -> Result<T, Error> {
        answer.map_err(|error| match error {
            DeviceError::Rejected { .. } | DeviceError::NoStream { .. } => error.on(&self.name),
            error => self.fail(error),
        })
    }

    /// Records an event in each of the consumer's streams after the commands that use a slot, and
    /// returns the slot. If a stream cannot record an event now, [`settle`](RingState::settle)
    /// tries again later. If a stream was destroyed, the end of its commands is unknown: the slot
    /// is leaked and the ring ends.
    fn release(&self, mut of: UnmarkedSlot<D>) {
        let mut unchanged = Vec::new();
        for user in of.users {
            match self.device.record(&user.released, user.queue) {
                Ok(()) => of.slot.released.push(user.released),
                Err(DeviceError::Rejected { .. }) => unchanged.push(user),
                Err(error @ DeviceError::NoStream { .. }) => {
                    let _ = self.fail(error);
                    std::mem::forget(of.slot);
                    return self.slots.remove_slot(of.ahead);
                }
                Err(error) => return self.withhold(of.slot, of.ahead, error),
            }
        }
        of.users = unchanged;
        if of.users.is_empty() {
            self.give_back(of.slot, of.ahead);
        } else {
            sync::lock(&self.unchanged).push(of);
        }
    }

    /// Returns a slot to the free ones, or frees it if the ring is closed.
    pub(super) fn give_back(&self, slot: Slot<D>, ahead: bool) {
        if let Some(unwanted) = self.slots.give(slot, ahead) {
            self.free(unwanted);
        }
    }

    /// Prevents reuse of a slot whose release failed, because the end of its use is unknown.
    fn withhold(&self, slot: Slot<D>, ahead: bool, error: DeviceError) {
        let _ = self.or_fail::<()>(Err(error));
        let transfers = Vec::new();
        self.set_aside(LostSlot { slot, transfers }, ahead);
    }

    /// Returns slots whose consumers' streams can record events by now.
    pub(super) fn settle(&self) {
        let waiting = std::mem::take(&mut *sync::lock(&self.unchanged));
        for of in waiting {
            self.release(of);
        }
    }

    /// Waits on the host until an event is done or a deadline passes. Returns whether the event is
    /// done.
    ///
    /// # Errors
    ///
    /// The error of the device.
    pub(super) fn is_past_by(&self, event: &D::Event, deadline: Instant) -> Result<bool, Error> {
        let left = deadline.saturating_duration_since(Instant::now());
        self.or_fail(self.device.synchronize_within(event, left))
    }

    /// Leaks memory that consumers still use, together with everything that may use it. The device
    /// stays open, because closing it would also wait for the consumers.
    pub(super) fn leak(&self, slots: Vec<Slot<D>>) {
        std::mem::forget(slots);
        std::mem::forget(std::mem::take(&mut *sync::lock(&self.copies)));
        std::mem::forget(std::mem::take(&mut *sync::lock(&self.unchanged)));
        std::mem::forget(std::mem::take(&mut *sync::lock(&self.lost)));
        std::mem::forget(self.device.clone());
        if !std::mem::replace(&mut *sync::lock(&self.leaked), true) {
            tracing::warn!(
                target: "infeed_device",
                "closing {}: consumers did not release its batches within {:?}; their memory stays \
                 allocated until the process ends",
                self.name,
                self.closing
            );
        }
    }

    pub(super) fn has_leaked(&self) -> bool {
        *sync::lock(&self.leaked)
    }

    /// Adds the gap between an event in the consumer's stream and a batch. Without an event, or for
    /// a batch that is not timed, only records whether the batch was late.
    ///
    /// # Errors
    ///
    /// The error of the device.
    pub(super) fn measure(
        &self,
        from: Option<Arc<D::Event>>,
        held: &SlotHandle<D>,
        step: Option<(u64, u64)>,
    ) -> Result<(), Error> {
        let is_ready = self.or_fail(self.device.is_done(&held.ready))?;
        if !is_ready {
            sync::lock(&self.sampling).late();
        }
        let mut gaps = sync::lock(&self.gaps);
        match from.filter(|_| held.is_timed) {
            Some(from) => gaps.add_timed(from, Arc::clone(&held.ready), step),
            None if is_ready => gaps.add_ready(step),
            None => {}
        }
        Ok(())
    }

    /// Adds the gap of a requested step.
    ///
    /// # Errors
    ///
    /// The error of the device.
    pub(super) fn measure_request(
        &self,
        request: TimedRequest<D>,
        held: &SlotHandle<D>,
        step: (u64, u64),
    ) -> Result<(), Error> {
        self.measure(request.event, held, Some(step))
    }

    /// Makes memory that is dropped from now on be freed only after all commands that use a slot.
    ///
    /// # Errors
    ///
    /// The error of the device.
    pub(super) fn free_behind(&self, slot: &Slot<D>) -> Result<(), Error> {
        let mut events = slot.ready.iter().chain(&slot.released);
        events.try_for_each(|event| self.or_fail(self.device.free_behind(event)))
    }

    /// Frees a slot's memory once nothing uses it. Drivers wait when they free, but they do not
    /// promise to wait for streams of other libraries.
    pub(super) fn free(&self, slot: Slot<D>) {
        let deadline = Instant::now() + self.closing;
        let mut events = slot.ready.iter().chain(&slot.released);
        // A failed device runs no more commands.
        if events.any(|event| matches!(self.is_past_by(event, deadline), Ok(false))) {
            self.leak(vec![slot]);
        }
    }

    /// Keeps a slot and transfers whose state is unknown after a failure.
    pub(super) fn set_aside(&self, lost: LostSlot<D>, ahead: bool) {
        sync::lock(&self.lost).push(lost);
        self.slots.remove_slot(ahead);
    }

    /// Adds enqueued copies.
    pub(super) fn track_copies(&self, batch_copies: BatchCopies<D>) {
        sync::lock(&self.copies).push_back(batch_copies);
    }

    /// Releases host arrays that have been copied, computes gaps and times that are known, and
    /// returns slots whose streams can record events by now.
    ///
    /// # Errors
    ///
    /// The error of an earlier command.
    pub(super) fn poll(&self) -> Result<(), Error> {
        self.settle();
        loop {
            let mut copies = sync::lock(&self.copies);
            let Some(first) = copies.front() else { break };
            if !self.or_fail(self.device.is_done(&first.copied))? {
                break;
            }
            let landed = copies
                .pop_front()
                .map(|batch_copies| batch_copies.transfers);
            // Drop the arrays without holding the lock: dropping returns them to their pools.
            drop(copies);
            drop(landed);
        }
        let resolved = sync::lock(&self.gaps).resolve(&self.device);
        self.or_fail(resolved)?;
        let resolved = sync::lock(&self.times).resolve(&self.device);
        self.or_fail(resolved)
    }

    /// Waits on the host until fewer than `limit` batches are being copied. This bounds the arrays
    /// that copies hold. If there is a single sender, the bound holds until it sends.
    ///
    /// # Errors
    ///
    /// The error of the device.
    pub(super) fn limit_copies(&self, limit: usize) -> Result<(), Error> {
        loop {
            let oldest = match &*sync::lock(&self.copies) {
                copies if copies.len() < limit => return Ok(()),
                copies => copies
                    .front()
                    .map(|batch_copies| Arc::clone(&batch_copies.copied)),
            };
            match oldest.map(|copied| self.device.synchronize(&copied)) {
                // The host cannot wait while a stream is captured. One more batch is acceptable.
                Some(Err(DeviceError::Rejected { .. })) => return Ok(()),
                Some(waited) => self.or_fail(waited)?,
                None => return Ok(()),
            }
            self.poll()?;
        }
    }

    /// Waits for all copies, so that nothing holds the host's arrays.
    pub(super) fn wait_for_copies(&self) -> Result<(), Error> {
        let copies = std::mem::take(&mut *sync::lock(&self.copies));
        let last = copies
            .back()
            .map(|batch_copies| Arc::clone(&batch_copies.copied));
        let waited = match last {
            Some(copied) => self.or_fail(self.device.synchronize(&copied)),
            None => Ok(()),
        };
        drop(copies);
        waited
    }

    /// Drops the remains of failures. The caller must have waited for everything else.
    pub(super) fn drop_lost(&self) {
        let lost = std::mem::take(&mut *sync::lock(&self.lost));
        for LostSlot { slot, transfers } in lost {
            // Transfers first: dropping a transfer waits until it is done. Then nothing writes the
            // memory.
            drop(transfers);
            drop(slot);
        }
    }
}

impl<D: Device> Drop for RingState<D> {
    fn drop(&mut self) {
        // Does not run in a fork, where a clone of the `Arc` is leaked.
        self.settle();
        // Streams that are still captured: their graphs may use the memory forever.
        std::mem::forget(std::mem::take(&mut *sync::lock(&self.unchanged)));
    }
}

impl<D: Device> fmt::Debug for RingState<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingState")
            .field("device", &self.name)
            .finish_non_exhaustive()
    }
}

/// A slot that holds a batch. Dropping the handle returns the slot, from any thread. The drop does
/// not panic even if the device fails, and waits only if the ring is closed.
pub(super) struct SlotHandle<D: Device> {
    shared: Arc<RingState<D>>,
    /// None after the slot was returned.
    slot: Option<Slot<D>>,
    uses: Mutex<SlotUses<D>>,
    ready: Arc<D::Event>,
    /// Whether `ready` is a timed event.
    is_timed: bool,
    /// Whether the batch was never handed over.
    ahead: bool,
    /// Whether the first use of the batch must be timed, because the consumer did not request it in
    /// a stream.
    untimed: Mutex<bool>,
}

/// Uses of a slot by the streams of its consumer.
struct SlotUses<D: Device> {
    /// Streams that use the slot.
    users: Vec<SlotUser<D>>,
    /// Events recorded at the end of uses. Their streams may have been destroyed since.
    ended: Vec<Arc<D::Event>>,
}

/// A stream that uses a batch.
struct SlotUser<D: Device> {
    queue: D::Queue,
    /// Event to record in the stream at the end.
    released: Arc<D::Event>,
    /// Number of arrays that were taken on the stream and are not released.
    taken: usize,
    /// Whether the use ends with the batch, and not with the last of these arrays.
    until_drop: bool,
}

/// Extent of a stream's use of a batch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StreamUse {
    /// Until the batch is dropped.
    UntilDrop,
    /// Until an array is released.
    Taken,
}

/// Number of ended uses from which their events are checked, and dropped if they are done.
const ENDED: usize = 16;

impl<D: Device> SlotUses<D> {
    fn none() -> Mutex<SlotUses<D>> {
        Mutex::new(SlotUses {
            users: Vec::new(),
            ended: Vec::new(),
        })
    }

    /// Removes a use that had no effect.
    fn undo(&mut self, queue: D::Queue, is_new: bool, extent: StreamUse) {
        let found = self.users.iter_mut().find(|user| user.queue == queue);
        if let (Some(user), StreamUse::Taken) = (found, extent) {
            user.taken -= 1;
        }
        if is_new {
            self.users.retain(|user| user.queue != queue);
        }
    }

    /// Ends the use of a stream by an array. After the last one, records the event behind which the
    /// slot may be written, because the consumer may destroy its stream now.
    fn end(&mut self, device: &D, queue: D::Queue) -> Result<(), DeviceError> {
        let Some(at) = self.users.iter().position(|user| user.queue == queue) else {
            return Ok(());
        };
        let user = &mut self.users[at];
        user.taken = user.taken.saturating_sub(1);
        if user.taken > 0 || user.until_drop {
            return Ok(());
        }
        match device.record(&user.released, queue) {
            Ok(()) => self.ended.push(self.users.swap_remove(at).released),
            // The stream is captured into a graph, or was destroyed; the batch's release tries
            // again.
            Err(DeviceError::Rejected { .. } | DeviceError::NoStream { .. }) => {
                user.until_drop = true;
            }
            Err(error) => return Err(error),
        }
        if self.ended.len() >= ENDED {
            self.ended
                .retain(|event| !matches!(device.is_done(event), Ok(true)));
        }
        Ok(())
    }
}

impl<D: Device> SlotHandle<D> {
    pub(super) fn new(
        shared: Arc<RingState<D>>,
        slot: Slot<D>,
        ready: Arc<D::Event>,
        is_timed: bool,
    ) -> SlotHandle<D> {
        SlotHandle {
            is_timed,
            shared,
            slot: Some(slot),
            uses: SlotUses::none(),
            ready,
            ahead: true,
            untimed: Mutex::new(false),
        }
    }

    pub(super) fn ring_state(&self) -> &RingState<D> {
        &self.shared
    }

    /// Memory of the column with this index on the device.
    pub(super) fn output(&self, at: usize) -> Option<&StdArc<D::Memory>> {
        Some(&self.slot.as_ref()?.columns.get(at)?.output)
    }

    /// Hands the slot to the consumer. `is_requested` if the consumer requested it in a stream.
    pub(super) fn hand_over(&mut self, is_requested: bool) {
        if std::mem::take(&mut self.ahead) {
            *sync::lock(&self.untimed) = !is_requested;
            sync::lock(&self.shared.sampling).hand_over();
            self.shared.slots.hand_over();
        }
    }

    /// Whether this is the first use, which must be timed. False from then on.
    fn is_first_use(&self) -> bool {
        std::mem::take(&mut *sync::lock(&self.untimed))
    }

    /// Blocks until the batch is ready.
    pub(super) fn synchronize(&self) -> Result<(), Error> {
        let shared = &self.shared;
        shared.check()?;
        let begun = self.is_first_use().then(Instant::now);
        let waited = shared.or_fail(shared.device.synchronize(&self.ready));
        if let (Some(begun), Ok(())) = (begun, &waited) {
            sync::lock(&shared.gaps).add_host_wait(begun.elapsed());
        }
        waited
    }

    /// Registers a stream that uses the slot until the batch is dropped.
    pub(super) fn used_on(&self, queue: D::Queue) -> Result<(), Error> {
        self.remember(queue, StreamUse::UntilDrop).map(|_| ())
    }

    /// Registers a stream. Returns whether it is new.
    fn remember(&self, queue: D::Queue, extent: StreamUse) -> Result<bool, Error> {
        self.shared.check()?;
        let mut uses = sync::lock(&self.uses);
        let at = uses.users.iter().position(|user| user.queue == queue);
        let at = match at {
            Some(at) => at,
            None => {
                let released = self.shared.plain.take(&self.shared.device);
                uses.users.push(SlotUser {
                    queue,
                    released: self.shared.or_fail(released)?,
                    taken: 0,
                    until_drop: false,
                });
                uses.users.len() - 1
            }
        };
        let user = &mut uses.users[at];
        let is_new = user.taken == 0 && !user.until_drop;
        match extent {
            StreamUse::UntilDrop => user.until_drop = true,
            StreamUse::Taken => user.taken += 1,
        }
        Ok(is_new)
    }

    /// Makes a stream wait, on the device, for the batch to be ready.
    pub(super) fn ready_on(&self, queue: D::Queue) -> Result<(), Error> {
        let device = &self.shared.device;
        device.with_current(|| self.ready_in(queue, StreamUse::UntilDrop))
    }

    /// As [`ready_on`](SlotHandle::ready_on), for a use that [`end_use`](SlotHandle::end_use) ends.
    pub(super) fn take_on(&self, queue: D::Queue) -> Result<(), Error> {
        let device = &self.shared.device;
        device.with_current(|| self.ready_in(queue, StreamUse::Taken))
    }

    /// Ends a use that [`take_on`](SlotHandle::take_on) began. The next call reports a device that
    /// failed.
    pub(super) fn end_use(&self, queue: D::Queue) {
        if self.shared.is_forked() {
            return;
        }
        let device = &self.shared.device;
        let ended = device.with_current(|| sync::lock(&self.uses).end(device, queue));
        let _ = self.shared.or_fail(ended);
    }

    fn ready_in(&self, queue: D::Queue, extent: StreamUse) -> Result<(), Error> {
        // Register first: a wait that failed may have been enqueued.
        let is_new = self.remember(queue, extent)?;
        if self.is_first_use() {
            self.mark(queue);
        }
        let answer = self.shared.device.wait(queue, &self.ready);
        let is_rejected = matches!(
            answer,
            Err(DeviceError::Rejected { .. } | DeviceError::NoStream { .. })
        );
        if is_rejected {
            sync::lock(&self.uses).undo(queue, is_new, extent);
        }
        self.shared.or_fail(answer)
    }

    /// Records where a stream's wait for the batch begins, for the statistics. If the stream cannot
    /// record an event, only the statistics are incomplete. The next call reports a device that
    /// failed.
    fn mark(&self, queue: D::Queue) {
        let shared = &self.shared;
        let mark = || {
            let from = shared.or_fail(shared.timed.take(&shared.device))?;
            shared.or_fail(shared.device.record(&from, queue))?;
            Ok::<_, Error>(from)
        };
        if let Ok(from) = self.is_timed.then(mark).transpose() {
            let _ = shared.measure(from, self, None);
        }
    }
}

impl<D: Device> Drop for SlotHandle<D> {
    fn drop(&mut self) {
        let Some(mut slot) = self.slot.take() else {
            return;
        };
        if self.shared.is_forked() {
            // A fork must not touch the parent's objects, and must not free them.
            std::mem::forget(slot);
            std::mem::forget(Arc::clone(&self.shared));
            return;
        }
        let mut uses = sync::lock(&self.uses);
        slot.released.append(&mut uses.ended);
        let back = UnmarkedSlot {
            slot,
            users: std::mem::take(&mut uses.users),
            ahead: self.ahead,
        };
        drop(uses);
        let device = &self.shared.device;
        device.with_current(|| self.shared.release(back));
    }
}

impl<D: Device> fmt::Debug for SlotHandle<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotHandle").finish_non_exhaustive()
    }
}
