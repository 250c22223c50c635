//! A loader that delivers on devices: a thread takes batches from the executor and sends them ahead
//! while the consumer uses the previous one.
//!
//! A batch is counted when the consumer receives it, so a state does not include batches that were
//! only sent. A seek drops those batches, and they are made again.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::assemble::BatchFacts;
use super::placement::{DeliveredBatch, DeviceTotals, PlacementControl};
use super::records::RecordJob;
use super::start::TargetDevice;
use super::{Loader, LoaderState, Options, decoders, several};
use crate::plan::device::BatchLayouts;
use infeed_core::batch::PrepareSlab;
use infeed_core::error::Error;
use infeed_core::exec::{Executor, NextBatch, panic_text};
use infeed_device::ring::{DeviceBatch, Ring, RingSettings, Route, SentBatch, TimedRequest};
use infeed_device::{Device, DeviceError};
use infeed_raw::near::Node;

pub use super::placement::{PlacementState, TriedPlacement};
pub use crate::plan::device::Placement;

/// Longest wait of the sender for a batch or slot before it checks for a pause.
const SLICE: Duration = Duration::from_millis(20);

/// Minimum number of slots: one for the consumer, one in transfer.
pub const MIN_SLOTS: usize = 2;

/// Result of a call with a timeout, on one device.
#[derive(Debug)]
pub enum DeviceStep<D: Device> {
    /// The next batch.
    Batch(DeviceBatch<D>),
    /// The epoch is over; the next call begins the next one.
    End,
    /// No batch was ready in time.
    Timeout,
}

/// Result of a call with a timeout, on several devices.
#[derive(Debug)]
pub enum PartsStep<D: Device> {
    /// The next batch: one part per device with equally many rows, in device order.
    Parts(Vec<DeviceBatch<D>>),
    /// The epoch is over; the next call begins the next one.
    End,
    /// No batch was ready in time.
    Timeout,
}

/// A running pipeline that delivers to one or more devices. Dropping it ends and joins its threads.
#[derive(Debug)]
pub struct DeviceLoader<D: Device> {
    shared: Arc<DeviceShared<D>>,
    sender: Mutex<Option<JoinHandle<()>>>,
    /// Process that owns the sender thread.
    process: u32,
    /// Events in the consumer's streams at its first request for the batch that is not delivered
    /// yet.
    marks: Mutex<Vec<Option<TimedRequest<D>>>>,
}

#[derive(Debug)]
struct DeviceShared<D: Device> {
    loader: Loader,
    /// One ring per device.
    rings: Vec<Ring<D>>,
    placement: PlacementControl,
    /// How long `close` waits for consumers.
    closing: Duration,
    /// Maximum number of batches sent ahead of the consumer.
    depth: usize,
    ahead: Mutex<SendQueue<D>>,
    changed: Condvar,
}

/// A batch that was sent, one part per device, and its facts for counting.
type SentParts<D> = (Vec<SentBatch<D>>, BatchFacts);

#[derive(Debug)]
struct SendQueue<D: Device> {
    /// Sent batches, one part per device.
    sent: VecDeque<SentParts<D>>,
    /// Failure after the sent batches; stays until a seek.
    failed: Option<SendFailure>,
    /// True while another thread seeks.
    paused: bool,
    /// Whether the sender is working on a batch.
    sending: bool,
    closed: bool,
    /// Whether the sender thread has ended.
    ended: bool,
}

#[derive(Clone, Debug)]
enum SendFailure {
    Fault(Error),
    Broken(String),
    Forked,
}

/// Checks the number of slots of a device.
///
/// # Errors
///
/// [`Error::Config`] if there are fewer than [`MIN_SLOTS`].
pub(crate) fn check_slots(slots: usize) -> Result<(), Error> {
    if slots >= MIN_SLOTS {
        return Ok(());
    }
    let problem = format!(
        "{slots} slots cannot hold a batch for the consumer and one in transfer; use at least \
         {MIN_SLOTS}"
    );
    Err(Error::config("slots", problem))
}

/// Devices with their decoders, before a run is planned for them.
pub(crate) struct DevicesWithDecoders<D: Device> {
    devices: Vec<D>,
    /// Bytes of host memory that could not be pinned, for each device.
    unpinned: Vec<Arc<AtomicU64>>,
    decoders: Vec<Option<D::Decoder>>,
    node: Option<Node>,
    slots: usize,
}

impl<D: Device> DevicesWithDecoders<D> {
    /// Creates the decoders, if devices decode.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] or [`Error::Device`] if the devices cannot decode with these options.
    pub(crate) fn new(
        devices: Vec<D>,
        placement: Placement,
        slots: usize,
        options: &Options,
    ) -> Result<DevicesWithDecoders<D>, Error> {
        decoders::check(options, Some(placement))?;
        let decoders = decoders::of(&devices, options)?;
        let node = several::node(&devices);
        Ok(DevicesWithDecoders {
            unpinned: devices.iter().map(|_| Arc::default()).collect(),
            devices,
            decoders,
            node,
            slots,
        })
    }

    /// Describes the devices to the planner.
    pub(crate) fn target(&self, placement: Placement) -> TargetDevice {
        let near = self.node.clone();
        let devices = self.devices.iter().cloned();
        let pinning: Vec<_> = devices.zip(self.unpinned.iter().cloned()).collect();
        TargetDevice {
            placement,
            ready: PrepareSlab(Arc::new(move |slab| {
                // Pinning touches the pages first, so the kernel allocates them on this NUMA node.
                let _near = several::stay(near.as_ref());
                for (device, unpinned) in &pinning {
                    let bytes = slab.as_ref().len() as u64;
                    if let Err(error) = device.pin(slab)
                        && unpinned.fetch_add(bytes, Ordering::Relaxed) == 0
                    {
                        let name = device.name();
                        tracing::warn!(target: "infeed::device", "copies to {name} will be slower: {error}");
                    }
                }
            })),
            slots: self.slots,
            decoder: decoders::decoder_names(&self.devices, &self.decoders),
        }
    }
}

impl<D: Device> DeviceLoader<D> {
    /// Creates the rings of the devices, and starts the thread that sends the loader's batches.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if the devices do not divide the batch evenly, [`Error::Device`] or
    /// [`Error::Thread`].
    pub(crate) fn start(
        loader: Loader,
        layouts: BatchLayouts,
        target: DevicesWithDecoders<D>,
    ) -> Result<DeviceLoader<D>, Error> {
        let DevicesWithDecoders {
            devices,
            unpinned,
            decoders,
            node,
            slots,
        } = target;
        let rows = several::share(&loader, devices.len())?;
        let settings = RingSettings {
            slots,
            ..RingSettings::new(rows)
        };
        let placement = PlacementControl::new(&layouts, &loader);
        let routes: Vec<_> = layouts.each.into_iter().map(|(_, routes)| routes).collect();
        let ring = |((device, unpinned), decoder): ((D, _), Option<D::Decoder>)| {
            let ring = Ring::with_layouts(device, routes.clone(), settings)?;
            let ring = ring.with_unpinned(unpinned);
            Ok(match decoder {
                Some(decoder) => ring.with_decoder(decoder),
                None => ring,
            })
        };
        let rings = devices.into_iter().zip(unpinned).zip(decoders).map(ring);
        let rings = rings.collect::<Result<_, Error>>()?;
        let shared = Arc::new(DeviceShared {
            loader,
            rings,
            placement,
            closing: settings.closing,
            depth: slots - 1,
            ahead: Mutex::new(SendQueue {
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

    /// The underlying loader, for everything except batches and seeks, which must go through this
    /// type.
    pub fn loader(&self) -> &Loader {
        &self.shared.loader
    }

    /// The ring that transfers batches; with several devices, the ring of the first.
    pub fn ring(&self) -> &Ring<D> {
        &self.shared.rings[0]
    }

    /// One ring per device, in device order.
    pub fn rings(&self) -> &[Ring<D>] {
        &self.shared.rings
    }

    /// Returns whether host or device expands rows (cast, one-hot), and why.
    pub fn placement(&self) -> PlacementState {
        self.shared.placement.state()
    }

    /// How the columns of batches that begin now reach the device.
    pub fn routes(&self) -> &[Route] {
        let ring = self.ring();
        let now = ring.layouts().get(self.shared.placement.now());
        now.map_or(ring.routes(), Vec::as_slice)
    }

    /// Returns the next batch of the epoch, or `None` once at its end; the next call begins the
    /// next epoch. Blocks until the batch is sent, not until it has arrived: the consumer's stream
    /// waits for the transfer.
    ///
    /// # Errors
    ///
    /// As [`Loader::next_batch`]; or [`Error::Device`].
    pub fn next_batch(&self) -> Result<Option<DeviceBatch<D>>, Error> {
        match self.next_within(super::consume::FOREVER, None)? {
            DeviceStep::Batch(batch) => Ok(Some(batch)),
            DeviceStep::End | DeviceStep::Timeout => Ok(None),
        }
    }

    /// As [`DeviceLoader::next_batch`], but waits at most `timeout`. With the consumer's stream,
    /// the loader measures how long the device waits for batches; see [`Ring::stats`].
    ///
    /// # Errors
    ///
    /// As [`DeviceLoader::next_batch`]; [`Error::Config`] if there are several devices.
    pub fn next_within(
        &self,
        timeout: Duration,
        stream: Option<D::Queue>,
    ) -> Result<DeviceStep<D>, Error> {
        several::only_one(&self.shared.rings)?;
        Ok(match self.next_parts(timeout, &[stream])? {
            PartsStep::Parts(parts) => match parts.into_iter().next() {
                Some(batch) => DeviceStep::Batch(batch),
                None => DeviceStep::Timeout,
            },
            PartsStep::End => DeviceStep::End,
            PartsStep::Timeout => DeviceStep::Timeout,
        })
    }

    /// As [`DeviceLoader::next_within`], with one part per device. `streams` are the consumer's
    /// streams, if known, in device order.
    ///
    /// # Errors
    ///
    /// As [`DeviceLoader::next_batch`].
    pub fn next_parts(
        &self,
        timeout: Duration,
        streams: &[Option<D::Queue>],
    ) -> Result<PartsStep<D>, Error> {
        let loader = &self.shared.loader;
        let executor = loader.executor()?;
        if executor.is_forked() {
            return Err(Error::Forked);
        }
        while !loader.ends_epoch(&executor)? {
            let requested_at = loader.requested_at();
            // The first events of a wait count: the streams have had no work since.
            let mut marks = std::mem::take(&mut *self.marks());
            if marks.iter().all(Option::is_none) {
                // Events only serve statistics. A stream that cannot record one, such as a stream
                // under graph capture, loses nothing else.
                let ask = |(ring, stream): (&Ring<D>, &Option<_>)| ring.ask((*stream)?).ok();
                marks = self.shared.rings.iter().zip(streams).map(ask).collect();
            }
            let next = |timeout| self.shared.next(timeout);
            let next = loader.next_and_warn(&executor, requested_at, timeout, next);
            let Some((batch, facts)) = loader.batch_in_time(next)? else {
                *self.marks() = marks;
                return Ok(PartsStep::Timeout);
            };
            // Hand over all parts before counting: a failed hand-over is not counted.
            let mut marks = marks.into_iter();
            let mut parts = Vec::with_capacity(batch.len());
            for sent in batch {
                parts.push(sent.hand_over(marks.next().flatten())?);
            }
            let delivery = DeliveredBatch {
                layout: facts.layout,
                requested_at,
                rows: facts.rows as u64,
            };
            loader.deliver(&executor, requested_at, facts)?;
            // These figures only choose a placement, which changes no result, so a failed device's
            // figures may be missing.
            let stats = || self.shared.rings.iter().flat_map(Ring::stats);
            let crossed = || DeviceTotals::of(stats());
            let placement = &self.shared.placement;
            if placement.record_delivery(loader, &executor, &delivery, crossed) {
                self.shared.apply_placement();
            }
            // A batch without rows is not returned; see `Loader::next_batch`.
            if delivery.rows > 0 {
                return Ok(PartsStep::Parts(parts));
            }
        }
        Ok(PartsStep::End)
    }

    fn marks(&self) -> MutexGuard<'_, Vec<Option<TimedRequest<D>>>> {
        // No code panics while it holds the lock.
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Loader::end_epoch`].
    ///
    /// # Errors
    ///
    /// As [`Loader::end_epoch`].
    pub fn end_epoch(&self) -> Result<(), Error> {
        self.move_loader(Loader::end_epoch)
    }

    /// As [`Loader::seek`].
    ///
    /// # Errors
    ///
    /// As [`Loader::seek`].
    pub fn seek(&self, epoch: u64, step: u64) -> Result<(), Error> {
        self.move_loader(|loader| loader.seek(epoch, step))
    }

    /// As [`Loader::begin_epoch`].
    ///
    /// # Errors
    ///
    /// As [`Loader::begin_epoch`].
    pub fn begin_epoch(&self, epoch: u64, step: u64, records: Arc<[u64]>) -> Result<(), Error> {
        self.move_loader(|loader| loader.begin_epoch(epoch, step, records))
    }

    /// As [`Loader::restore`].
    ///
    /// # Errors
    ///
    /// As [`Loader::restore`].
    pub fn restore(&self, state: &LoaderState) -> Result<(), Error> {
        self.move_loader(|loader| loader.restore(state))
    }

    /// As [`Loader::restore_anyway`].
    ///
    /// # Errors
    ///
    /// As [`Loader::restore_anyway`].
    pub fn restore_anyway(&self, state: &LoaderState) -> Result<Vec<String>, Error> {
        self.move_loader(|loader| loader.restore_anyway(state))
    }

    /// Moves the loader while the sender is paused. Drops the batches sent ahead if the position
    /// changed.
    fn move_loader<T>(&self, to: impl FnOnce(&Loader) -> Result<T, Error>) -> Result<T, Error> {
        let shared = &self.shared;
        if shared.loader.executor()?.is_forked() {
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
            shared.placement.discard_window(&shared.loader);
            std::mem::take(&mut ahead.sent)
        };
        ahead.paused = false;
        drop(ahead);
        shared.changed.notify_all();
        drop(dropped);
        done
    }

    /// Ends all threads. Waits for them, for transfers, and, at most [`RingSettings::closing`], for
    /// work that consumers have enqueued. Batches in the consumer's hands stay valid.
    pub fn close(&self) {
        if self.process != std::process::id() {
            // A forked child has no sender thread, and a thread that it lacks may hold the locks.
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
                // The sender waits for the device, and the device waits for a consumer.
                tracing::warn!(
                    target: "infeed::device",
                    "closing the loader: consumers did not release its batches within {:?}; their \
                     memory stays allocated until the process ends",
                    self.shared.closing
                );
                return;
            }
            // The sender catches panics, so `join` cannot fail.
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
                // The device may still use the decoder too, so leak everything shared.
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

impl<D: Device> DeviceShared<D> {
    /// Body of the sender thread.
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
            // Never block in a ring: a consumer that keeps batches may be seeking.
            let sent = catch_unwind(AssertUnwindSafe(|| match self.has_room() {
                Ok(true) => self.send_one(),
                Ok(false) => Ok(None),
                Err(error) => Err(SendFailure::Fault(error)),
            }));
            let sent = sent.unwrap_or_else(|panic| Err(SendFailure::Broken(panic_text(&*panic))));
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

    /// Whether every ring has a free slot. The answer stays true, because only this thread sends.
    fn has_room(&self) -> Result<bool, Error> {
        for ring in &self.rings {
            if !ring.has_room(SLICE)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn send_one(&self) -> Result<Option<SentParts<D>>, SendFailure> {
        let executor = self.loader.executor().map_err(SendFailure::Fault)?;
        let made = match executor.next(SLICE) {
            NextBatch::Batch(made) => made,
            NextBatch::Timeout => return Ok(None),
            NextBatch::Fault(error) => return Err(SendFailure::Fault(error)),
            NextBatch::Broken(text) => return Err(SendFailure::Broken(text)),
            NextBatch::Closed => return Err(SendFailure::Fault(Error::Closed)),
            NextBatch::Forked => return Err(SendFailure::Forked),
        };
        let (batch, facts) = made.split();
        let parts = several::cut(batch, self.rings.len()).map_err(SendFailure::Fault)?;
        let mut sent = Vec::with_capacity(parts.len());
        for (ring, part) in self.rings.iter().zip(parts) {
            match ring.send_as(facts.layout, part) {
                Ok(part) => sent.push(part),
                Err(error) if self.goes_without(&error, &executor, facts.layout) => {
                    drop(sent);
                    self.loader.make_again(&executor, &facts, &[]);
                    return Ok(None);
                }
                Err(error) => return Err(SendFailure::Fault(error)),
            }
        }
        let mut undecoded = Vec::new();
        for part in &sent {
            undecoded.extend(part.undecoded_records().map_err(SendFailure::Fault)?);
        }
        if !undecoded.is_empty() {
            drop(sent);
            self.loader.make_again(&executor, &facts, &undecoded);
            return Ok(None);
        }
        Ok(Some((sent, facts)))
    }

    /// Whether a batch that could not be sent can be made again in another batch layout, because
    /// the device lacks memory for a layout on trial. Batches that begin from now on use the other
    /// layout.
    fn goes_without(&self, error: &Error, executor: &Executor<RecordJob>, layout: usize) -> bool {
        let is_denied = DeviceError::is_out_of_memory(error);
        if !is_denied || !self.placement.refuse(&self.loader, executor, layout) {
            return false;
        }
        tracing::debug!(target: "infeed::device", "{}", error.chain());
        self.apply_placement();
        true
    }

    /// Logs the chosen placement, and keeps device memory only for the remaining layouts.
    fn apply_placement(&self) {
        let placed = self.placement.state();
        if placed.settled {
            tracing::info!(target: "infeed::loader", "{}", placed.why);
        }
        let kept = self.placement.settled_layout();
        for ring in &self.rings {
            ring.keep(kept);
        }
    }

    /// Returns the consumer's next batch.
    fn next(&self, timeout: Duration) -> NextBatch<SentParts<D>, Error> {
        let begun = Instant::now();
        let mut ahead = self.lock();
        let next = loop {
            if let Some(next) = ahead.sent.pop_front() {
                break NextBatch::Batch(next);
            }
            match &ahead.failed {
                Some(SendFailure::Fault(error)) => break NextBatch::Fault(error.clone()),
                Some(SendFailure::Broken(text)) => break NextBatch::Broken(text.clone()),
                Some(SendFailure::Forked) => break NextBatch::Forked,
                None if ahead.closed => break NextBatch::Fault(Error::Closed),
                None => {}
            }
            let Some(left) = timeout.checked_sub(begun.elapsed()) else {
                break NextBatch::Timeout;
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

    /// Waits for the sender to end, at most until `deadline`. Returns whether it has ended.
    fn has_ended_by(&self, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        let ended = self
            .changed
            .wait_timeout_while(self.lock(), left, |ahead| !ahead.ended);
        ended.unwrap_or_else(PoisonError::into_inner).0.ended
    }

    fn lock(&self) -> MutexGuard<'_, SendQueue<D>> {
        // No code panics while it holds the lock.
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, ahead: MutexGuard<'a, SendQueue<D>>) -> MutexGuard<'a, SendQueue<D>> {
        self.changed
            .wait(ahead)
            .unwrap_or_else(PoisonError::into_inner)
    }
}
