//! What the ring and every batch of it share: slots, events, copies under way, and the fault that
//! ended it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc as StdArc;
use std::time::{Duration, Instant};

use crate::device::{Device, DeviceError};
use crate::error::Error;

use super::events::Events;
use super::gaps::{Asked, Gaps};
use super::sampling::Sampling;
use super::slots::Slots;
use super::sync::{self, Arc, Mutex};
use super::times::Times;

/// Memory for one batch on the device, with the events that say when it may be written.
#[derive(Debug)]
pub(super) struct Slot<D: Device> {
    /// One for each column that goes to the device.
    pub(super) columns: Vec<SlotColumn<D>>,
    /// Behind the last command of the ring that used the slot.
    pub(super) ready: Option<Arc<D::Event>>,
    /// Behind what consumers had enqueued when they gave it back; one for each of their streams.
    pub(super) released: Vec<Arc<D::Event>>,
}

/// Memory of a column.
#[derive(Debug)]
pub(super) struct SlotColumn<D: Device> {
    /// Where the host's bytes come to lie, if a kernel makes the output of them.
    pub(super) staging: Option<StdArc<D::Memory>>,
    /// Where a kernel finds how large each row's image is, if they differ.
    pub(super) table: Option<StdArc<D::Memory>>,
    pub(super) output: StdArc<D::Memory>,
}

/// The copies of one batch, which hold its arrays on the host.
#[derive(Debug)]
pub(super) struct Flight<D: Device> {
    /// Behind the last of them.
    pub(super) copied: Arc<D::Event>,
    pub(super) transfers: Vec<D::Transfer>,
}

/// What a device failed at half way: it may still be in use, so it is kept until the end.
#[derive(Debug)]
pub(super) struct Lost<D: Device> {
    pub(super) slot: Slot<D>,
    pub(super) transfers: Vec<D::Transfer>,
}

/// A slot that came back while a stream of its consumer's took no mark: until that is done with it
/// is not known.
struct Limbo<D: Device> {
    slot: Slot<D>,
    /// Streams without a mark yet.
    users: Vec<User<D>>,
    /// Whether a stream that used it is no more, so that only the whole device can be waited for.
    is_orphan: bool,
    ahead: bool,
}

pub(super) struct Shared<D: Device> {
    pub(super) device: D,
    pub(super) name: String,
    process: u32,
    /// Behaves as in a fork.
    #[cfg(test)]
    pub(super) in_fork: std::sync::atomic::AtomicBool,
    pub(super) slots: Slots<Slot<D>>,
    pub(super) plain: Events<D>,
    pub(super) timed: Events<D>,
    pub(super) gaps: Mutex<Gaps<D>>,
    pub(super) times: Mutex<Times<D>>,
    pub(super) sampling: Mutex<Sampling>,
    /// How long the end waits for consumers.
    closing: Duration,
    /// Whether that was not long enough.
    leaked: Mutex<bool>,
    /// In the order of their stream, so the first is done first.
    flights: Mutex<VecDeque<Flight<D>>>,
    limbo: Mutex<Vec<Limbo<D>>>,
    lost: Mutex<Vec<Lost<D>>>,
    fault: Mutex<Option<Error>>,
}

impl<D: Device> Shared<D> {
    pub(super) fn new(device: D, slots: Slots<Slot<D>>, closing: Duration) -> Shared<D> {
        Shared {
            name: device.name(),
            device,
            process: std::process::id(),
            #[cfg(test)]
            in_fork: std::sync::atomic::AtomicBool::new(false),
            slots,
            plain: Events::new(false),
            timed: Events::new(true),
            gaps: Mutex::new(Gaps::new()),
            times: Mutex::new(Times::new()),
            sampling: Mutex::new(Sampling::new()),
            closing,
            leaked: Mutex::new(false),
            flights: Mutex::new(VecDeque::new()),
            limbo: Mutex::new(Vec::new()),
            lost: Mutex::new(Vec::new()),
            fault: Mutex::new(None),
        }
    }

    /// Whether this process is a fork of the one that made the ring: the device's threads and the
    /// driver's state are not here, and locks may be held by threads that do not exist.
    pub(super) fn is_forked(&self) -> bool {
        #[cfg(test)]
        if self.in_fork.load(std::sync::atomic::Ordering::Relaxed) {
            return true;
        }
        std::process::id() != self.process
    }

    /// What stands against going on: a fork, or the fault that ended the ring.
    pub(super) fn check(&self) -> Result<(), Error> {
        if self.is_forked() {
            return Err(Error::Forked);
        }
        match &*sync::lock(&self.fault) {
            Some(fault) => Err(fault.clone()),
            None => Ok(()),
        }
    }

    /// Ends the ring; the first fault is the one that is told, from now on by every call.
    pub(super) fn fail(&self, error: DeviceError) -> Error {
        let error = error.on(&self.name);
        sync::lock(&self.fault).get_or_insert(error).clone()
    }

    /// The device's answer; or the end of the ring, unless nothing came of the command.
    pub(super) fn told<T>(&self, answer: Result<T, DeviceError>) -> Result<T, Error> {
        answer.map_err(|error| match error {
            DeviceError::Refused { .. } | DeviceError::NoStream { .. } => error.on(&self.name),
            error => self.fail(error),
        })
    }

    /// Marks, in each of the consumer's streams, the end of what uses a slot, and gives it back. A
    /// stream that takes no mark now is asked again by [`settle`](Shared::settle). With a limit this may wait
    /// for so long, where a stream that used the slot is no more.
    fn release(&self, mut of: Limbo<D>, limit: Option<Duration>) {
        let mut unmarked = Vec::new();
        for User { queue, released } in of.users {
            match self.device.record(&released, queue) {
                Ok(()) => of.slot.released.push(released),
                Err(DeviceError::Refused { .. }) => unmarked.push(User { queue, released }),
                Err(DeviceError::NoStream { .. }) => of.is_orphan = true,
                Err(error) => return self.doubt(of.slot, of.ahead, error),
            }
        }
        of.users = unmarked;
        if of.is_orphan
            && let Some(limit) = limit
        {
            let drained = match limit {
                Duration::MAX => self.device.drain().map(|()| true),
                limit => self.device.drain_within(limit),
            };
            match drained {
                Ok(drained) => of.is_orphan = !drained,
                Err(DeviceError::Refused { .. }) => {}
                Err(error) => return self.doubt(of.slot, of.ahead, error),
            }
        }
        if of.users.is_empty() && !of.is_orphan {
            self.give_back(of.slot, of.ahead);
        } else {
            sync::lock(&self.limbo).push(of);
        }
    }

    /// Puts a slot among the free ones. A closed ring wants it no more.
    pub(super) fn give_back(&self, slot: Slot<D>, ahead: bool) {
        if let Some(unwanted) = self.slots.give(slot, ahead) {
            self.free(unwanted);
        }
    }

    /// A release failed: until when those streams use the slot is not known, so nobody may write to
    /// it.
    fn doubt(&self, slot: Slot<D>, ahead: bool, error: DeviceError) {
        let _ = self.told::<()>(Err(error));
        let transfers = Vec::new();
        self.lose(Lost { slot, transfers }, ahead);
    }

    /// Gives back slots whose consumers' streams take marks by now. With a limit this waits for the whole
    /// device, at most for so long, where a stream that used one is no more.
    pub(super) fn settle(&self, limit: Option<Duration>) {
        let waiting = std::mem::take(&mut *sync::lock(&self.limbo));
        for of in waiting {
            self.release(of, limit);
        }
    }

    /// Waits on the host until an event is past, at most until a moment. Returns whether it is.
    ///
    /// # Errors
    ///
    /// What the device failed with.
    pub(super) fn is_past_by(&self, event: &D::Event, deadline: Instant) -> Result<bool, Error> {
        let left = deadline.saturating_duration_since(Instant::now());
        self.told(self.device.synchronize_within(event, left))
    }

    /// Leaves memory to consumers that are not done with it, with all that may still use it. The device
    /// stays open, since closing it would wait for them too.
    pub(super) fn leak(&self, slots: Vec<Slot<D>>) {
        std::mem::forget(slots);
        std::mem::forget(std::mem::take(&mut *sync::lock(&self.flights)));
        std::mem::forget(std::mem::take(&mut *sync::lock(&self.limbo)));
        std::mem::forget(std::mem::take(&mut *sync::lock(&self.lost)));
        std::mem::forget(self.device.clone());
        if !std::mem::replace(&mut *sync::lock(&self.leaked), true) {
            tracing::warn!(
                target: "infeed::device",
                "closing {}: consumers did not finish with its batches within {:?}; their memory \
                 stays allocated until the process ends",
                self.name,
                self.closing
            );
        }
    }

    pub(super) fn has_leaked(&self) -> bool {
        *sync::lock(&self.leaked)
    }

    /// Measures how long a consumer waited for a batch since a mark in its stream. Without a mark, or of a
    /// batch that is not timed, it is only known whether it waited at all.
    ///
    /// # Errors
    ///
    /// What the device failed with.
    pub(super) fn measure(
        &self,
        from: Option<Arc<D::Event>>,
        held: &Held<D>,
        step: Option<(u64, u64)>,
    ) -> Result<(), Error> {
        let is_ready = self.told(self.device.is_done(&held.ready))?;
        if !is_ready {
            sync::lock(&self.sampling).late();
        }
        let mut gaps = sync::lock(&self.gaps);
        match from.filter(|_| held.is_timed) {
            Some(from) => gaps.timed(from, Arc::clone(&held.ready), step),
            None if is_ready => gaps.none(step),
            None => {}
        }
        Ok(())
    }

    /// Measures the gap of a step for which the consumer had asked.
    ///
    /// # Errors
    ///
    /// What the device failed with.
    pub(super) fn given(
        &self,
        asked: Asked<D>,
        held: &Held<D>,
        step: (u64, u64),
    ) -> Result<(), Error> {
        self.measure(asked.event, held, Some(step))
    }

    /// Has memory that is dropped from now on freed behind all that uses a slot.
    ///
    /// # Errors
    ///
    /// What the device failed with.
    pub(super) fn free_behind(&self, slot: &Slot<D>) -> Result<(), Error> {
        let mut events = slot.ready.iter().chain(&slot.released);
        events.try_for_each(|event| self.told(self.device.free_behind(event)))
    }

    /// Frees a slot's memory once nothing uses it. What a device frees by itself it waits for, but no
    /// driver promises that of streams that others made.
    pub(super) fn free(&self, slot: Slot<D>) {
        let deadline = Instant::now() + self.closing;
        let mut events = slot.ready.iter().chain(&slot.released);
        // A device that failed runs nothing any more.
        if events.any(|event| matches!(self.is_past_by(event, deadline), Ok(false))) {
            self.leak(vec![slot]);
        }
    }

    /// Puts aside what a failure left in doubt.
    pub(super) fn lose(&self, lost: Lost<D>, ahead: bool) {
        sync::lock(&self.lost).push(lost);
        self.slots.gone(ahead);
    }

    /// Copies that were enqueued.
    pub(super) fn fly(&self, flight: Flight<D>) {
        sync::lock(&self.flights).push_back(flight);
    }

    /// Lets go of the host's arrays that have been copied, works out gaps and times that are known, and
    /// gives back slots whose marks can be made by now.
    ///
    /// # Errors
    ///
    /// What the device failed with meanwhile.
    pub(super) fn poll(&self) -> Result<(), Error> {
        self.settle(None);
        loop {
            let mut flights = sync::lock(&self.flights);
            let Some(first) = flights.front() else { break };
            if !self.told(self.device.is_done(&first.copied))? {
                break;
            }
            let landed = flights.pop_front().map(|flight| flight.transfers);
            // Arrays go back to their pools without the lock.
            drop(flights);
            drop(landed);
        }
        let resolved = sync::lock(&self.gaps).resolve(&self.device);
        self.told(resolved)?;
        let resolved = sync::lock(&self.times).resolve(&self.device);
        self.told(resolved)
    }

    /// Waits on the host until fewer than `limit` batches are being copied, so that what their arrays take
    /// on the host is bounded. Who sends alone finds it so until it sends.
    ///
    /// # Errors
    ///
    /// What the device failed with.
    pub(super) fn thin(&self, limit: usize) -> Result<(), Error> {
        loop {
            let oldest = match &*sync::lock(&self.flights) {
                flights if flights.len() < limit => return Ok(()),
                flights => flights.front().map(|flight| Arc::clone(&flight.copied)),
            };
            match oldest.map(|copied| self.device.synchronize(&copied)) {
                // Nothing is waited for while a stream is being captured; one more is no harm.
                Some(Err(DeviceError::Refused { .. })) => return Ok(()),
                Some(waited) => self.told(waited)?,
                None => return Ok(()),
            }
            self.poll()?;
        }
    }

    /// Waits for all copies, so that the host's arrays are nobody's.
    pub(super) fn land(&self) -> Result<(), Error> {
        let flights = std::mem::take(&mut *sync::lock(&self.flights));
        let last = flights.back().map(|flight| Arc::clone(&flight.copied));
        let waited = match last {
            Some(copied) => self.told(self.device.synchronize(&copied)),
            None => Ok(()),
        };
        drop(flights);
        waited
    }

    /// Gives up what failures left, once all is done that could be waited for.
    pub(super) fn bury(&self) {
        let lost = std::mem::take(&mut *sync::lock(&self.lost));
        for Lost { slot, transfers } in lost {
            // First the copies: each waits until it is done, then the memory they write to goes.
            drop(transfers);
            drop(slot);
        }
    }
}

impl<D: Device> Drop for Shared<D> {
    fn drop(&mut self) {
        // Never in a fork, where a share is kept for good.
        let limbo = std::mem::take(&mut *sync::lock(&self.limbo));
        if !limbo.is_empty() && !matches!(self.device.drain_within(self.closing), Ok(true)) {
            // Their memory stays: something may use it for ever.
            std::mem::forget(limbo);
        }
    }
}

impl<D: Device> fmt::Debug for Shared<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("device", &self.name)
            .finish_non_exhaustive()
    }
}

/// A slot with a batch in it. Dropping it gives the slot back: on any thread, without a panic, whatever
/// the device says, and without waiting unless the ring is closed and the slot to be freed.
pub(super) struct Held<D: Device> {
    shared: Arc<Shared<D>>,
    /// None once it was given back.
    slot: Option<Slot<D>>,
    /// Streams of the consumer that use it.
    users: Mutex<Vec<User<D>>>,
    ready: Arc<D::Event>,
    /// Whether that has a time.
    is_timed: bool,
    /// Whether it was never handed over.
    ahead: bool,
    /// Whether its first use is still to be timed: nobody asked for it in a stream.
    untimed: Mutex<bool>,
}

/// A stream that uses a batch.
struct User<D: Device> {
    queue: D::Queue,
    /// To be recorded there at the end.
    released: Arc<D::Event>,
}

impl<D: Device> Held<D> {
    pub(super) fn new(
        shared: Arc<Shared<D>>,
        slot: Slot<D>,
        ready: Arc<D::Event>,
        is_timed: bool,
    ) -> Held<D> {
        Held {
            is_timed,
            shared,
            slot: Some(slot),
            users: Mutex::new(Vec::new()),
            ready,
            ahead: true,
            untimed: Mutex::new(false),
        }
    }

    pub(super) fn shared(&self) -> &Shared<D> {
        &self.shared
    }

    /// Memory of the `at`-th column on the device.
    pub(super) fn output(&self, at: usize) -> Option<&StdArc<D::Memory>> {
        Some(&self.slot.as_ref()?.columns.get(at)?.output)
    }

    /// It is the consumer's from now on, who asked for it in a stream or did not.
    pub(super) fn hand_over(&mut self, is_asked: bool) {
        if std::mem::take(&mut self.ahead) {
            *sync::lock(&self.untimed) = !is_asked;
            sync::lock(&self.shared.sampling).hand_over();
            self.shared.slots.hand_over();
        }
    }

    /// Whether this use is the one to be timed.
    fn is_first_use(&self) -> bool {
        std::mem::take(&mut *sync::lock(&self.untimed))
    }

    /// Blocks until the batch is ready.
    pub(super) fn synchronize(&self) -> Result<(), Error> {
        let shared = &self.shared;
        shared.check()?;
        let begun = self.is_first_use().then(Instant::now);
        let waited = shared.told(shared.device.synchronize(&self.ready));
        if let (Some(begun), Ok(())) = (begun, &waited) {
            sync::lock(&shared.gaps).awaited(begun.elapsed());
        }
        waited
    }

    /// Remembers that a stream uses it, for the release.
    pub(super) fn used_on(&self, queue: D::Queue) -> Result<(), Error> {
        self.remember(queue).map(|_| ())
    }

    /// Whether the stream was not known yet.
    fn remember(&self, queue: D::Queue) -> Result<bool, Error> {
        self.shared.check()?;
        let mut users = sync::lock(&self.users);
        let is_new = !users.iter().any(|user| user.queue == queue);
        if is_new {
            let released = self.shared.plain.take(&self.shared.device);
            let released = self.shared.told(released)?;
            users.push(User { queue, released });
        }
        Ok(is_new)
    }

    /// Makes a stream wait, on the device, for the batch to be ready.
    pub(super) fn ready_on(&self, queue: D::Queue) -> Result<(), Error> {
        self.shared.device.with_current(|| self.ready_in(queue))
    }

    fn ready_in(&self, queue: D::Queue) -> Result<(), Error> {
        // Remembered first: a wait that failed has perhaps been enqueued.
        let is_new = self.remember(queue)?;
        if self.is_first_use() {
            self.mark(queue);
        }
        let answer = self.shared.device.wait(queue, &self.ready);
        let is_no_use = matches!(
            answer,
            Err(DeviceError::Refused { .. } | DeviceError::NoStream { .. })
        );
        if is_new && is_no_use {
            sync::lock(&self.users).retain(|user| user.queue != queue);
        }
        self.shared.told(answer)
    }

    /// Marks where a stream's wait for the batch begins. It is for the statistics: a stream that takes no
    /// mark costs those and nothing else; a device that fails is told of by the next call.
    fn mark(&self, queue: D::Queue) {
        let shared = &self.shared;
        let mark = || {
            let from = shared.told(shared.timed.take(&shared.device))?;
            shared.told(shared.device.record(&from, queue))?;
            Ok::<_, Error>(from)
        };
        if let Ok(from) = self.is_timed.then(mark).transpose() {
            let _ = shared.measure(from, self, None);
        }
    }
}

impl<D: Device> Drop for Held<D> {
    fn drop(&mut self) {
        let Some(slot) = self.slot.take() else {
            return;
        };
        if self.shared.is_forked() {
            // Nothing of the parent's may be touched here, not even to free it.
            std::mem::forget(slot);
            std::mem::forget(Arc::clone(&self.shared));
            return;
        }
        let users = std::mem::take(&mut *sync::lock(&self.users));
        let (is_orphan, ahead) = (false, self.ahead);
        let back = Limbo {
            slot,
            users,
            is_orphan,
            ahead,
        };
        let device = &self.shared.device;
        device.with_current(|| self.shared.release(back, None));
    }
}

impl<D: Device> fmt::Debug for Held<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").finish_non_exhaustive()
    }
}
