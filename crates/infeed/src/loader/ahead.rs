//! A running plan whose batches lie on a device: a thread takes them from the conveyor and sends them
//! on while the consumer is busy with the one before.
//!
//! What a consumer was given is counted when it is given, so a state knows nothing of what is on its
//! way; after a seek that is dropped and made again.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::made::Told;
use super::placing::{Crossed, Delivery, Placing};
use super::prepare::Aim;
use super::records::Records;
use super::{Loader, Options, State, decoders, several};
use crate::batch::Ready;
use crate::device::ring::{Asked, DeviceBatch, Ring, Route, Sent, Settings};
use crate::device::{Device, DeviceError};
use crate::error::Error;
use crate::exec::{Conveyor, Next, told_by};
use crate::pipeline::{Handle, Pipeline};
use crate::source::Source;

pub use super::placing::{Placed, Tried};
pub use crate::plan::device::Placement;

/// How long the sender waits for a batch or a slot between two looks at whether it should pause.
const SLICE: Duration = Duration::from_millis(20);

/// Least slots: one with the consumer, one on its way.
pub const LEAST_SLOTS: usize = 2;

/// What a call got from a loader on a device.
#[derive(Debug)]
pub enum DeviceStep<D: Device> {
    /// The next batch.
    Batch(DeviceBatch<D>),
    /// The epoch is over; the next call begins the next one.
    End,
    /// Nothing yet.
    Timeout,
}

/// What a call got from a loader on several devices.
#[derive(Debug)]
pub enum PartsStep<D: Device> {
    /// The next batch, of which each device has as many rows, in the order of the devices.
    Parts(Vec<DeviceBatch<D>>),
    /// The epoch is over; the next call begins the next one.
    End,
    /// Nothing yet.
    Timeout,
}

/// A running pipeline that delivers on a device, or on several. Dropping it ends and joins its threads.
#[derive(Debug)]
pub struct DeviceLoader<D: Device> {
    shared: Arc<Shared<D>>,
    sender: Mutex<Option<JoinHandle<()>>>,
    /// The process that has the sender.
    process: u32,
    /// Where the consumer's streams ended when it first asked for the batch that it does not have yet.
    marks: Mutex<Vec<Option<Asked<D>>>>,
}

#[derive(Debug)]
struct Shared<D: Device> {
    loader: Loader,
    /// One a device.
    rings: Vec<Ring<D>>,
    placing: Placing,
    /// How long the end waits for consumers.
    closing: Duration,
    /// Batches sent ahead of the consumer at most.
    depth: usize,
    ahead: Mutex<Ahead<D>>,
    changed: Condvar,
}

/// A batch that is on its way, one part a device, and what the consumer is told with it.
type OnTheWay<D> = (Vec<Sent<D>>, Told);

#[derive(Debug)]
struct Ahead<D: Device> {
    /// A batch's parts, one a device.
    sent: VecDeque<OnTheWay<D>>,
    /// What comes behind those, for good until a seek.
    failed: Option<Failed>,
    /// True while somebody moves the loader to another place.
    paused: bool,
    /// Whether the sender has a batch in its hands.
    sending: bool,
    closed: bool,
    /// Whether the sender has ended.
    ended: bool,
}

#[derive(Clone, Debug)]
enum Failed {
    Fault(Error),
    Broken(String),
    Forked,
}

impl Pipeline {
    /// As [`Pipeline::open_with`], with batches delivered on `device`; at most `slots` of them are
    /// there at once, the consumer's own included, as long as that holds no more.
    ///
    /// # Errors
    ///
    /// As [`Pipeline::open`], and [`Error::Device`].
    pub fn open_on<D: Device>(
        &self,
        device: D,
        placement: Placement,
        slots: usize,
        handles: &[Handle],
        options: &Options,
    ) -> Result<DeviceLoader<D>, Error> {
        self.open_on_all(vec![device], placement, slots, handles, options)
    }

    /// As [`Pipeline::open_on`], with each batch cut into parts of as many rows, one a device, in order:
    /// the same rows as of one device, read and prepared by one loader. There are `slots` on each.
    ///
    /// # Errors
    ///
    /// As [`Pipeline::open_on`], and [`Error::Config`] if a batch is not divided by the devices.
    pub fn open_on_all<D: Device>(
        &self,
        devices: Vec<D>,
        placement: Placement,
        slots: usize,
        handles: &[Handle],
        options: &Options,
    ) -> Result<DeviceLoader<D>, Error> {
        if slots < LEAST_SLOTS {
            let problem = format!(
                "{slots} slots cannot hold a batch for the consumer and one on its way; use at \
                 least {LEAST_SLOTS}"
            );
            return Err(Error::config("slots", problem));
        }
        let source = self.open_source(handles)?;
        self.sent_over(devices, placement, slots, source, handles, options)
    }

    /// As [`Pipeline::open_on`], over a source of one's own, of which records are selected as the
    /// description says.
    pub(crate) fn open_on_over<D: Device>(
        &self,
        device: D,
        placement: Placement,
        slots: usize,
        source: Arc<dyn Source>,
        options: &Options,
    ) -> Result<DeviceLoader<D>, Error> {
        let source = self.select(source)?;
        self.sent_over(vec![device], placement, slots, source, &[], options)
    }

    fn sent_over<D: Device>(
        &self,
        devices: Vec<D>,
        placement: Placement,
        slots: usize,
        source: Arc<dyn Source>,
        handles: &[Handle],
        options: &Options,
    ) -> Result<DeviceLoader<D>, Error> {
        decoders::check(options, Some(placement))?;
        let with = decoders::of(&devices, options)?;
        let decoder = decoders::named(&devices, &with);
        let node = several::node(&devices);
        let near = node.clone();
        let (pinning, told) = (devices.clone(), AtomicBool::new(false));
        let aim = Aim {
            placement,
            ready: Ready(Arc::new(move |slab| {
                // Its pages are touched by the pinning, and so come to lie there.
                let _near = several::stay(near.as_ref());
                for device in &pinning {
                    if let Err(error) = device.pin(slab)
                        && !told.swap(true, Ordering::Relaxed)
                    {
                        let name = device.name();
                        tracing::warn!(target: "infeed::device", "copies to {name} will be slower: {error}");
                    }
                }
            })),
            slots,
            decoder,
        };
        let (loader, forms) = Loader::open_for(self, source, handles, options, Some(aim))?;
        let rows = several::share(&loader, devices.len())?;
        let settings = Settings {
            slots,
            ..Settings::new(rows)
        };
        let placing = Placing::new(&forms, &loader);
        let routes: Vec<_> = forms.each.into_iter().map(|(_, routes)| routes).collect();
        let ring = |(device, decoder): (D, Option<D::Decoder>)| {
            let ring = Ring::of_forms(device, routes.clone(), settings)?;
            Ok(match decoder {
                Some(decoder) => ring.decoding_by(decoder),
                None => ring,
            })
        };
        let rings = devices.into_iter().zip(with).map(ring);
        let rings = rings.collect::<Result<_, Error>>()?;
        let shared = Arc::new(Shared {
            loader,
            rings,
            placing,
            closing: settings.closing,
            depth: slots - 1,
            ahead: Mutex::new(Ahead {
                sent: VecDeque::new(),
                failed: None,
                paused: false,
                sending: false,
                closed: false,
                ended: false,
            }),
            changed: Condvar::new(),
        });
        let thread = Arc::clone(&shared);
        let sender = std::thread::Builder::new()
            .name("infeed-device".to_owned())
            .spawn(move || {
                let _near = several::stay(node.as_ref());
                thread.send();
                thread.lock().ended = true;
                thread.changed.notify_all();
            })
            .map_err(|source| Error::Thread {
                source: Arc::new(source),
            })?;
        Ok(DeviceLoader {
            shared,
            sender: Mutex::new(Some(sender)),
            process: std::process::id(),
            marks: Mutex::new(Vec::new()),
        })
    }
}

impl<D: Device> DeviceLoader<D> {
    /// The loader behind it, for all that is not about batches. Its own batches, and its place, are
    /// for this one alone to take and to move.
    pub fn loader(&self) -> &Loader {
        &self.shared.loader
    }

    /// The ring that carries batches over; of several devices, that of the first.
    pub fn ring(&self) -> &Ring<D> {
        &self.shared.rings[0]
    }

    /// One ring a device, in their order.
    pub fn rings(&self) -> &[Ring<D>] {
        &self.shared.rings
    }

    /// Who makes rows larger, the host or the device, and why.
    pub fn placed(&self) -> Placed {
        self.shared.placing.placed()
    }

    /// How the columns of batches that are begun now get to the device.
    pub fn routes(&self) -> &[Route] {
        let ring = self.ring();
        let now = ring.forms().get(self.shared.placing.now());
        now.map_or(ring.routes(), Vec::as_slice)
    }

    /// The next batch of the epoch, or None once at its end; the call after that begins the next
    /// epoch. Blocks until the batch is made and sent, not until it has arrived: whoever reads it
    /// waits for that on the device.
    ///
    /// # Errors
    ///
    /// As [`Loader::next_batch`]; or [`Error::Device`].
    pub fn next_batch(&self) -> Result<Option<DeviceBatch<D>>, Error> {
        match self.next_within(super::FOREVER, None)? {
            DeviceStep::Batch(batch) => Ok(Some(batch)),
            DeviceStep::End | DeviceStep::Timeout => Ok(None),
        }
    }

    /// As [`DeviceLoader::next_batch`], waiting at most `patience`. Where the stream that the consumer
    /// works in is known, what the device waits for batches is measured there; see [`Ring::stats`].
    ///
    /// # Errors
    ///
    /// As [`DeviceLoader::next_batch`]; [`Error::Config`] if there are several devices.
    pub fn next_within(
        &self,
        patience: Duration,
        stream: Option<D::Queue>,
    ) -> Result<DeviceStep<D>, Error> {
        several::only_one(&self.shared.rings)?;
        Ok(match self.next_parts(patience, &[stream])? {
            PartsStep::Parts(parts) => match parts.into_iter().next() {
                Some(batch) => DeviceStep::Batch(batch),
                None => DeviceStep::Timeout,
            },
            PartsStep::End => DeviceStep::End,
            PartsStep::Timeout => DeviceStep::Timeout,
        })
    }

    /// As [`DeviceLoader::next_within`], from each device its part; where the streams are known in which
    /// the consumer works, they are given in the order of the devices.
    ///
    /// # Errors
    ///
    /// As [`DeviceLoader::next_batch`].
    pub fn next_parts(
        &self,
        patience: Duration,
        streams: &[Option<D::Queue>],
    ) -> Result<PartsStep<D>, Error> {
        let loader = &self.shared.loader;
        let conveyor = loader.conveyor()?;
        if conveyor.is_forked() {
            return Err(Error::Forked);
        }
        while !loader.ends_epoch(&conveyor)? {
            let asked = loader.asked();
            // The first marks of a wait count: the streams have had nothing to do since.
            let mut marks = std::mem::take(&mut *self.marks());
            if marks.iter().all(Option::is_none) {
                // They are for the statistics: a stream that cannot be asked, as one that is captured, costs
                // those and nothing else.
                let ask = |(ring, stream): (&Ring<D>, &Option<_>)| ring.ask((*stream)?).ok();
                marks = self.shared.rings.iter().zip(streams).map(ask).collect();
            }
            let next = |patience| self.shared.next(patience);
            let next = loader.next_told(&conveyor, asked, patience, next);
            let Some((batch, told)) = loader.arrived(next)? else {
                *self.marks() = marks;
                return Ok(PartsStep::Timeout);
            };
            // What cannot be given is not counted.
            let mut marks = marks.into_iter();
            let mut parts = Vec::with_capacity(batch.len());
            for sent in batch {
                parts.push(sent.hand_over(marks.next().flatten())?);
            }
            let delivery = Delivery {
                form: told.form,
                asked,
                rows: told.rows as u64,
            };
            loader.deliver(&conveyor, asked, told)?;
            // Figures for a choice that changes no bit: those of a device that failed are not missed.
            let stats = || self.shared.rings.iter().flat_map(Ring::stats);
            let crossed = || Crossed::of(stats());
            let placing = &self.shared.placing;
            if placing.delivered(loader, &conveyor, &delivery, crossed) {
                self.shared.placed_anew();
            }
            // A batch without rows is not returned; see `Loader::next_batch`.
            if delivery.rows > 0 {
                return Ok(PartsStep::Parts(parts));
            }
        }
        Ok(PartsStep::End)
    }

    fn marks(&self) -> MutexGuard<'_, Vec<Option<Asked<D>>>> {
        // Nothing panics while it is held.
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Loader::end_epoch`].
    ///
    /// # Errors
    ///
    /// As [`Loader::end_epoch`].
    pub fn end_epoch(&self) -> Result<(), Error> {
        self.moved(Loader::end_epoch)
    }

    /// As [`Loader::seek`].
    ///
    /// # Errors
    ///
    /// As [`Loader::seek`].
    pub fn seek(&self, epoch: u64, step: u64) -> Result<(), Error> {
        self.moved(|loader| loader.seek(epoch, step))
    }

    /// As [`Loader::restore`].
    ///
    /// # Errors
    ///
    /// As [`Loader::restore`].
    pub fn restore(&self, state: &State) -> Result<(), Error> {
        self.moved(|loader| loader.restore(state))
    }

    /// As [`Loader::restore_anyway`].
    ///
    /// # Errors
    ///
    /// As [`Loader::restore_anyway`].
    pub fn restore_anyway(&self, state: &State) -> Result<Vec<String>, Error> {
        self.moved(|loader| loader.restore_anyway(state))
    }

    /// Moves the loader while nothing is taken from it, and drops what was sent ahead if it went
    /// elsewhere.
    fn moved<T>(&self, to: impl FnOnce(&Loader) -> Result<T, Error>) -> Result<T, Error> {
        let shared = &self.shared;
        if shared.loader.conveyor()?.is_forked() {
            return Err(Error::Forked);
        }
        let mut ahead = shared.lock();
        ahead.paused = true;
        while ahead.sending {
            ahead = shared.wait(ahead);
        }
        let before = shared.loader.seeks();
        let done = to(&shared.loader);
        let dropped = if shared.loader.seeks() == before {
            VecDeque::new()
        } else {
            ahead.failed = None;
            shared.placing.disturbed(&shared.loader);
            std::mem::take(&mut ahead.sent)
        };
        ahead.paused = false;
        drop(ahead);
        shared.changed.notify_all();
        drop(dropped);
        done
    }

    /// Ends all threads and waits for them, for copies under way, and for what consumers have enqueued: for
    /// that at most as long as [`Settings::closing`] says. Batches that are held stay valid.
    pub fn close(&self) {
        if self.process != std::process::id() {
            // A fork has no sender to wait for, and the locks may be held by one that is not there.
            return;
        }
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
        self.shared.loader.close();
        let sender = self
            .sender
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let deadline = Instant::now() + self.shared.closing;
        if let Some(sender) = sender {
            if !self.shared.has_ended_by(deadline) {
                // It waits for the device, which waits for a consumer.
                tracing::warn!(
                    target: "infeed::device",
                    "closing the loader: consumers did not finish with its batches within {:?}; their \
                     memory stays allocated until the process ends",
                    self.shared.closing
                );
                return;
            }
            // It does not panic, but catches that.
            let _ = sender.join();
        }
        let is_ended = self.shared.lock().ended;
        if !is_ended {
            return;
        }
        let sent = std::mem::take(&mut self.shared.lock().sent);
        drop(sent);
        for ring in &self.shared.rings {
            match ring.close_by(deadline) {
                Ok(true) => {}
                // Its decoder may be in use too.
                Ok(false) => std::mem::forget(Arc::clone(&self.shared)),
                Err(error) => {
                    tracing::debug!(target: "infeed::device", "{}", error.chain());
                }
            }
        }
    }
}

impl<D: Device> Drop for DeviceLoader<D> {
    fn drop(&mut self) {
        self.close();
    }
}

impl<D: Device> Shared<D> {
    /// The sender's thread.
    fn send(&self) {
        loop {
            let mut ahead = self.lock();
            while !ahead.closed
                && (ahead.paused || ahead.failed.is_some() || ahead.sent.len() >= self.depth)
            {
                ahead = self.wait(ahead);
            }
            if ahead.closed {
                return;
            }
            ahead.sending = true;
            drop(ahead);
            // A consumer that keeps batches and moves the loader must not be waited for.
            let sent = catch_unwind(AssertUnwindSafe(|| match self.has_room() {
                Ok(true) => self.send_one(),
                Ok(false) => Ok(None),
                Err(error) => Err(Failed::Fault(error)),
            }));
            let sent = sent.unwrap_or_else(|panic| Err(Failed::Broken(told_by(&*panic))));
            let mut ahead = self.lock();
            ahead.sending = false;
            match sent {
                Ok(Some(sent)) => ahead.sent.push_back(sent),
                Ok(None) => {}
                Err(failed) => ahead.failed = Some(failed),
            }
            drop(ahead);
            self.changed.notify_all();
        }
    }

    /// Whether no ring would wait for the consumer: what one found stays true, since this alone sends.
    fn has_room(&self) -> Result<bool, Error> {
        for ring in &self.rings {
            if !ring.has_room(SLICE)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn send_one(&self) -> Result<Option<OnTheWay<D>>, Failed> {
        let conveyor = self.loader.conveyor().map_err(Failed::Fault)?;
        let made = match conveyor.next(SLICE) {
            Next::Batch(made) => made,
            Next::Timeout => return Ok(None),
            Next::Fault(error) => return Err(Failed::Fault(error)),
            Next::Broken(text) => return Err(Failed::Broken(text)),
            Next::Forked => return Err(Failed::Forked),
        };
        let (batch, told) = made.split();
        let parts = several::cut(batch, self.rings.len()).map_err(Failed::Fault)?;
        let mut sent = Vec::with_capacity(parts.len());
        for (ring, part) in self.rings.iter().zip(parts) {
            match ring.send_as(told.form, part) {
                Ok(part) => sent.push(part),
                Err(error) if self.goes_without(&error, &conveyor, told.form) => {
                    drop(sent);
                    self.loader.make_again(&conveyor, &told, &[]);
                    return Ok(None);
                }
                Err(error) => return Err(Failed::Fault(error)),
            }
        }
        let mut undecoded = Vec::new();
        for part in &sent {
            undecoded.extend(part.undecoded().map_err(Failed::Fault)?);
        }
        if !undecoded.is_empty() {
            drop(sent);
            self.loader.make_again(&conveyor, &told, &undecoded);
            return Ok(None);
        }
        Ok(Some((sent, told)))
    }

    /// Whether a batch that could not be sent may have another form, which then those have that are begun
    /// from now on: the device has no memory for what is merely tried.
    fn goes_without(&self, error: &Error, conveyor: &Conveyor<Records>, form: usize) -> bool {
        let is_denied = DeviceError::denies_memory(error);
        if !is_denied || !self.placing.refuse(&self.loader, conveyor, form) {
            return false;
        }
        tracing::debug!(target: "infeed::device", "{}", error.chain());
        self.placed_anew();
        true
    }

    /// Tells what was found, and lets slots have memory for what is kept alone, or again for all.
    fn placed_anew(&self) {
        let placed = self.placing.placed();
        if placed.settled {
            tracing::info!(target: "infeed::loader", "{}", placed.why);
        }
        let kept = self.placing.kept();
        for ring in &self.rings {
            ring.keep(kept);
        }
    }

    /// The consumer's next batch.
    fn next(&self, patience: Duration) -> Next<OnTheWay<D>, Error> {
        let begun = Instant::now();
        let mut ahead = self.lock();
        let next = loop {
            if let Some(next) = ahead.sent.pop_front() {
                break Next::Batch(next);
            }
            match &ahead.failed {
                Some(Failed::Fault(error)) => break Next::Fault(error.clone()),
                Some(Failed::Broken(text)) => break Next::Broken(text.clone()),
                Some(Failed::Forked) => break Next::Forked,
                None if ahead.closed => break Next::Fault(Error::Closed),
                None => {}
            }
            let Some(left) = patience.checked_sub(begun.elapsed()) else {
                break Next::Timeout;
            };
            ahead = self
                .changed
                .wait_timeout(ahead, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        };
        drop(ahead);
        self.changed.notify_all();
        next
    }

    /// Waits for the sender to end, at most until a moment. Returns whether it has.
    fn has_ended_by(&self, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        let ended = self
            .changed
            .wait_timeout_while(self.lock(), left, |ahead| !ahead.ended);
        ended.unwrap_or_else(PoisonError::into_inner).0.ended
    }

    fn lock(&self) -> MutexGuard<'_, Ahead<D>> {
        // Nothing panics while it is held.
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, ahead: MutexGuard<'a, Ahead<D>>) -> MutexGuard<'a, Ahead<D>> {
        self.changed
            .wait(ahead)
            .unwrap_or_else(PoisonError::into_inner)
    }
}
