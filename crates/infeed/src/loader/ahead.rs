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
use super::open::Aim;
use super::placing::{Delivery, Placing};
use super::{Loader, Options, State};
use crate::batch::Ready;
use crate::device::Device;
use crate::device::ring::{Asked, DeviceBatch, Ring, Sent, Settings};
use crate::error::Error;
use crate::exec::{Next, told_by};
use crate::pipeline::{Handle, Pipeline};
use crate::source::Source;

pub use super::placing::Placed;
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

/// A running pipeline that delivers on a device. Dropping it ends and joins its threads.
#[derive(Debug)]
pub struct DeviceLoader<D: Device> {
    shared: Arc<Shared<D>>,
    sender: Mutex<Option<JoinHandle<()>>>,
    /// The process that has the sender.
    process: u32,
    /// Where the consumer's stream ended when it first asked for the batch that it does not have yet.
    mark: Mutex<Option<Asked<D>>>,
}

#[derive(Debug)]
struct Shared<D: Device> {
    loader: Loader,
    ring: Ring<D>,
    placing: Placing,
    /// Batches sent ahead of the consumer at most.
    depth: usize,
    ahead: Mutex<Ahead<D>>,
    changed: Condvar,
}

#[derive(Debug)]
struct Ahead<D: Device> {
    sent: VecDeque<(Sent<D>, Told)>,
    /// What comes behind those, for good until a seek.
    failed: Option<Failed>,
    /// True while somebody moves the loader to another place.
    paused: bool,
    /// Whether the sender has a batch in its hands.
    sending: bool,
    closed: bool,
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
        if slots < LEAST_SLOTS {
            let problem = format!(
                "{slots} slots cannot hold a batch for the consumer and one on its way; use at \
                 least {LEAST_SLOTS}"
            );
            return Err(Error::config("slots", problem));
        }
        let source = self.open_source(handles)?;
        self.sent_over(device, placement, slots, source, handles, options)
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
        self.sent_over(device, placement, slots, source, &[], options)
    }

    fn sent_over<D: Device>(
        &self,
        device: D,
        placement: Placement,
        slots: usize,
        source: Arc<dyn Source>,
        handles: &[Handle],
        options: &Options,
    ) -> Result<DeviceLoader<D>, Error> {
        let (pinning, told) = (device.clone(), AtomicBool::new(false));
        let aim = Aim {
            placement,
            ready: Ready(Arc::new(move |slab| {
                if let Err(error) = pinning.pin(slab)
                    && !told.swap(true, Ordering::Relaxed)
                {
                    let name = pinning.name();
                    tracing::warn!(target: "infeed::device", "copies to {name} will be slower: {error}");
                }
            })),
            slots,
        };
        let (loader, forms) = Loader::open_for(self, source, handles, options, Some(aim))?;
        let rows = loader.most_rows()?;
        let settings = Settings {
            slots,
            ..Settings::new(rows)
        };
        let placing = Placing::new(&forms, &loader);
        let routes = forms.each.into_iter().map(|(_, routes)| routes);
        let ring = Ring::of_forms(device, routes.collect(), settings)?;
        let shared = Arc::new(Shared {
            loader,
            ring,
            placing,
            depth: slots - 1,
            ahead: Mutex::new(Ahead {
                sent: VecDeque::new(),
                failed: None,
                paused: false,
                sending: false,
                closed: false,
            }),
            changed: Condvar::new(),
        });
        let thread = Arc::clone(&shared);
        let sender = std::thread::Builder::new()
            .name("infeed-device".to_owned())
            .spawn(move || thread.send())
            .map_err(|source| Error::Thread {
                source: Arc::new(source),
            })?;
        Ok(DeviceLoader {
            shared,
            sender: Mutex::new(Some(sender)),
            process: std::process::id(),
            mark: Mutex::new(None),
        })
    }
}

impl<D: Device> DeviceLoader<D> {
    /// The loader behind it, for all that is not about batches. Its own batches, and its place, are
    /// for this one alone to take and to move.
    pub fn loader(&self) -> &Loader {
        &self.shared.loader
    }

    /// The ring that carries batches over.
    pub fn ring(&self) -> &Ring<D> {
        &self.shared.ring
    }

    /// Who makes rows larger, the host or the device, and why.
    pub fn placed(&self) -> Placed {
        self.shared.placing.placed()
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
    /// As [`DeviceLoader::next_batch`].
    pub fn next_within(
        &self,
        patience: Duration,
        stream: Option<D::Queue>,
    ) -> Result<DeviceStep<D>, Error> {
        let loader = &self.shared.loader;
        let conveyor = loader.conveyor()?;
        if conveyor.is_forked() {
            return Err(Error::Forked);
        }
        if loader.ends_epoch(&conveyor)? {
            return Ok(DeviceStep::End);
        }
        let asked = loader.asked();
        // The first mark of a wait counts: the stream has had nothing to do since.
        let mark = match self.mark().take() {
            // It is for the statistics: a stream that cannot be asked, as one that is captured, costs
            // those and nothing else.
            None => stream.and_then(|stream| self.shared.ring.ask(stream).ok()),
            mark => mark,
        };
        let next = |patience| self.shared.next(patience);
        let next = loader.next_told(&conveyor, asked, patience, next);
        let Some((batch, told)) = loader.arrived(next)? else {
            *self.mark() = mark;
            return Ok(DeviceStep::Timeout);
        };
        // What cannot be given is not counted.
        let batch = batch.hand_over(mark)?;
        let delivery = Delivery {
            form: told.form,
            asked,
            rows: told.rows as u64,
        };
        loader.deliver(&conveyor, asked, told)?;
        let ring = &self.shared.ring;
        // They are for a choice that changes no bit: those of a device that failed are not missed.
        let gaps = || {
            ring.stats()
                .map_or(Duration::ZERO, |stats| stats.gaps.waited)
        };
        let placing = &self.shared.placing;
        if let Some(text) = placing.delivered(loader, &conveyor, &delivery, gaps) {
            tracing::info!(target: "infeed::loader", "{text}");
        }
        Ok(DeviceStep::Batch(batch))
    }

    fn mark(&self) -> MutexGuard<'_, Option<Asked<D>>> {
        // Nothing panics while it is held.
        self.mark.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Ends all threads and waits for them, and for copies under way. Batches that are held stay
    /// valid.
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
        if let Some(sender) = sender {
            // It does not panic, but catches that.
            let _ = sender.join();
        }
        let sent = std::mem::take(&mut self.shared.lock().sent);
        drop(sent);
        if let Err(error) = self.shared.ring.close() {
            tracing::debug!(target: "infeed::device", "{}", error.chain());
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
            let sent = catch_unwind(AssertUnwindSafe(|| match self.ring.has_room(SLICE) {
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

    fn send_one(&self) -> Result<Option<(Sent<D>, Told)>, Failed> {
        let conveyor = self.loader.conveyor().map_err(Failed::Fault)?;
        let made = match conveyor.next(SLICE) {
            Next::Batch(made) => made,
            Next::Timeout => return Ok(None),
            Next::Fault(error) => return Err(Failed::Fault(error)),
            Next::Broken(text) => return Err(Failed::Broken(text)),
            Next::Forked => return Err(Failed::Forked),
        };
        let (batch, told) = made.split();
        let sent = self.ring.send_as(told.form, batch).map_err(Failed::Fault)?;
        Ok(Some((sent, told)))
    }

    /// The consumer's next batch.
    fn next(&self, patience: Duration) -> Next<(Sent<D>, Told), Error> {
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
