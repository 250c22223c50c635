//! The ring: takes slots, and enqueues copies and kernels.
//!
//! The README of this crate gives the reasons for the order of commands, under "Enqueued commands"
//! and "Why no event is missing".

use std::fmt;
use std::sync::Arc as StdArc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use infeed_raw::kernel::{Bilinear, Table};

use crate::{Device, DeviceError, HostSource};
use infeed_core::batch::{Array, Batch};
use infeed_core::error::Error;

use super::batch::SentBatch;
use super::decoding::{RingDecoders, TransferTotals, UndecodedRows};
use super::gaps::{Gap, TimedRequest};
use super::route::{self, ImageTable, Route};
use super::shared::{BatchCopies, LostSlot, RingState, Slot, SlotColumn, SlotHandle};
use super::slots::{Slots, TakenSlot, roomy};
use super::stats::RingStats;
use super::sync::{self, Arc, Mutex};
use super::times::TimingMarks;

/// Default number of slots: one held by the consumer, one ready, one being filled.
pub const SLOTS: usize = 3;

/// Number of batches after which a run should have all its memory. Every later allocation is
/// logged.
const SETTLED: u64 = 50;

/// Longest wait on the host for the consumers of a slot. In a longer step, a waiting kernel slows
/// down few of the step's kernels.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(1);

/// Time after which that wait checks whether the ring is being closed.
const CLOSED_CHECK: Duration = Duration::from_millis(20);

/// Value of `kept` that means all layouts.
const ALL: usize = usize::MAX;

/// Sizes and limits of a ring.
#[derive(Clone, Copy, Debug)]
pub struct RingSettings {
    /// Rows of a full batch. A larger batch makes its slot grow.
    pub rows: usize,
    /// Number of slots for a consumer that keeps at most one batch.
    pub slots: usize,
    /// Time to wait for a consumer that holds all slots before the ring makes another. Applies only
    /// the first time: such a consumer will probably keep all slots again.
    pub timeout: Duration,
    /// Time that [`Ring::close`] waits for commands that consumers enqueued.
    pub closing: Duration,
}

impl RingSettings {
    /// Creates settings for batches of `rows` rows: [`SLOTS`] slots, a timeout of 50 ms, and 5 s
    /// for closing.
    pub fn new(rows: usize) -> RingSettings {
        RingSettings {
            rows,
            slots: SLOTS,
            timeout: Duration::from_millis(50),
            closing: Duration::from_secs(5),
        }
    }
}

/// Slots on one device, and the two streams that fill them. Dropping the ring closes it.
///
/// Any thread may call any method. Batches are sent in the order of the calls of
/// [`send`](Ring::send).
pub struct Ring<D: Device> {
    pub(super) shared: Arc<RingState<D>>,
    /// Routes of the columns, by layout.
    layouts: Vec<Vec<Route>>,
    pub(super) settings: RingSettings,
    pub(super) copies: D::Queue,
    /// None if no column needs a kernel.
    pub(super) kernels: Option<D::Queue>,
    /// Filter weights for resizing images on the device.
    weights: Mutex<Bilinear>,
    /// None if no column has files.
    decoders: Option<Mutex<RingDecoders<D>>>,
    /// See [`RingStats::unpinned`].
    unpinned: StdArc<AtomicU64>,
    /// Index of the layout that slots keep memory for. [`ALL`] for every layout.
    kept: AtomicUsize,
    /// Held while a batch is enqueued, so that streams get batches in one order.
    pub(super) sending: Mutex<()>,
    /// Number of sent batches and their transfers. One lock guards both, so that their ratio is
    /// always right.
    counted: Mutex<(u64, TransferTotals)>,
    /// A wait that a test omits, to check that the simulated device finds the race.
    #[cfg(test)]
    pub(super) without: std::sync::atomic::AtomicU8,
}

/// The device has no memory for a slot.
#[derive(Debug, thiserror::Error)]
#[error(
    "a batch needs {slot_bytes} bytes on the device, in addition to {slots} other batches; {limit} \
     slots need {all_bytes} bytes. Use a smaller batch, fewer slots or a smaller model, or drop \
     batches that are held"
)]
struct NoSlot {
    slot_bytes: u64,
    slots: usize,
    limit: usize,
    all_bytes: u64,
    source: DeviceError,
}

/// The array of a column, and its table of images.
struct ColumnUpload<'a> {
    route: &'a Route,
    array: &'a Array,
    image_table: ImageTable,
}

/// Events recorded after a batch's copies, and after all its commands.
struct EnqueuedBatch<D: Device> {
    copied: Arc<D::Event>,
    ready: Arc<D::Event>,
    undecoded_rows: UndecodedRows,
}

impl<D: Device> Ring<D> {
    /// Creates a ring for batches with these columns, in field order. The ring allocates memory
    /// when it needs another slot.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if sizes do not match; [`Error::Device`] if the device cannot create a
    /// stream.
    pub fn new(device: D, routes: Vec<Route>, settings: RingSettings) -> Result<Ring<D>, Error> {
        Ring::with_layouts(device, vec![routes], settings)
    }

    /// Like [`new`](Ring::new), for batches of several layouts. On the device, the columns of all
    /// layouts must be the same: a kernel can compute a column in one layout that arrives computed
    /// in another. Every slot can hold a batch of any layout.
    ///
    /// # Errors
    ///
    /// As [`new`](Ring::new).
    pub fn with_layouts(
        device: D,
        layouts: Vec<Vec<Route>>,
        settings: RingSettings,
    ) -> Result<Ring<D>, Error> {
        if settings.slots == 0 {
            return Err(Error::config("device", "a ring has at least one slot"));
        }
        if settings.rows == 0 {
            return Err(Error::config("device", "a batch has at least one row"));
        }
        for route in layouts.iter().flatten() {
            route.check(settings.rows)?;
        }
        route::check_alike(&layouts)?;
        let slots = Slots::new(settings.slots, settings.timeout);
        let shared = RingState::new(device, slots, settings.closing);
        let device = &shared.device;
        let copies = shared.or_fail(device.stream())?;
        let kernels = match layouts.iter().flatten().any(Route::has_kernel) {
            true => Some(shared.or_fail(device.stream())?),
            false => None,
        };
        Ok(Ring {
            shared: Arc::new(shared),
            layouts,
            settings,
            copies,
            kernels,
            weights: Mutex::new(Bilinear::new()),
            decoders: None,
            unpinned: StdArc::default(),
            kept: AtomicUsize::new(ALL),
            sending: Mutex::new(()),
            counted: Mutex::new((0, TransferTotals::default())),
            #[cfg(test)]
            without: std::sync::atomic::AtomicU8::new(0),
        })
    }

    /// Sets the counter of the host memory that its owner could not pin for this device:
    /// [`RingStats::unpinned`].
    #[must_use]
    pub fn with_unpinned(mut self, bytes: StdArc<AtomicU64>) -> Ring<D> {
        self.unpinned = bytes;
        self
    }

    /// Sets the decoder. Columns with files need it ([`Upload::Decode`](super::Upload::Decode)).
    #[must_use]
    pub fn with_decoder(mut self, decoder: D::Decoder) -> Ring<D> {
        self.decoders = Some(Mutex::new(RingDecoders::new(decoder)));
        self
    }

    /// Returns the device.
    pub fn device(&self) -> &D {
        &self.shared.device
    }

    /// Returns the routes of the first layout, in field order.
    pub fn routes(&self) -> &[Route] {
        &self.layouts[0]
    }

    /// Returns the routes of each layout.
    pub fn layouts(&self) -> &[Vec<Route>] {
        &self.layouts
    }

    /// Makes slots keep memory for this layout only. With None (the default), they keep memory for
    /// every layout that a batch in them had. Memory that is too large is freed when its slot is
    /// reused.
    pub fn keep(&self, layout: Option<usize>) {
        // Relaxed: a sender that sees the new value late only frees the memory later.
        self.kept.store(layout.unwrap_or(ALL), Ordering::Relaxed);
    }

    /// Whether [`send`](Ring::send) would return without waiting for the consumer, now or within
    /// `timeout`. The answer is reliable only if the caller is the only sender.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`]; [`Error::Device`] if the device failed.
    pub fn has_room(&self, timeout: Duration) -> Result<bool, Error> {
        self.shared.check()?;
        self.shared.settle();
        Ok(self.shared.slots.has_room(timeout))
    }

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
        let loads = self.loads(routes, &sorted.arrays, rows)?;
        let _turn = sync::lock(&self.sending);
        let (held, enqueued) = self.shared.device.with_current(|| {
            self.shared.poll()?;
            self.shared.limit_copies(self.settings.slots)?;
            let needed = self.needed(routes, &loads, rows)?;
            // Every step is timed while the loader compares layouts.
            let kept = self.kept.load(Ordering::Relaxed);
            let is_trial = kept == ALL && self.layouts.len() > 1;
            let ahead = self.shared.slots.counts().ahead;
            let is_timed = sync::lock(&self.shared.sampling).send(ahead) || is_trial;
            let slot = self.slot(&needed, kept == layout)?;
            self.fill(&loads, slot, rows, is_timed)
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
    fn wait_for_consumers(&self, loads: &[ColumnUpload<'_>], slot: &Slot<D>) -> Result<(), Error> {
        let shared = &self.shared;
        let has_kernels = loads.iter().any(|load| load.route.has_kernel());
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
        loads: &[ColumnUpload<'_>],
        mut slot: Slot<D>,
        rows: usize,
        is_timed: bool,
    ) -> Result<(SlotHandle<D>, EnqueuedBatch<D>), Error> {
        let shared = &self.shared;
        let mut transfers = Vec::new();
        if let Err(error) = self.wait_for_consumers(loads, &slot) {
            shared.set_aside(LostSlot { slot, transfers }, true);
            return Err(error);
        }
        match self.enqueue(loads, &mut slot, rows, is_timed, &mut transfers) {
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

    /// Returns the counters, with all gaps known so far.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`]; [`Error::Device`] if the device failed.
    pub fn stats(&self) -> Result<RingStats, Error> {
        self.shared.check()?;
        self.shared.poll()?;
        let counts = self.shared.slots.counts();
        let known = sync::lock(&self.shared.gaps);
        let (gaps, late) = (known.totals(), known.late());
        drop(known);
        let (batches, sums) = *sync::lock(&self.counted);
        Ok(RingStats {
            batches,
            transfers: sums.transfers,
            bytes: sums.bytes,
            jpegs: sums.files,
            slots: counts.made,
            ahead: counts.ahead,
            free: counts.free,
            overflow: counts.overflow,
            unpinned: self.unpinned.load(Ordering::Relaxed),
            gaps,
            late,
            times: sync::lock(&self.shared.times).totals(),
        })
    }

    /// Takes the gaps that became known since the last call, in the order of steps. At most the
    /// latest 4096.
    pub fn take_gaps(&self) -> Vec<Gap> {
        if self.shared.is_forked() {
            return Vec::new();
        }
        sync::lock(&self.shared.gaps).take()
    }

    /// Returns the bytes that a batch needs in a slot, for each column that goes to the device.
    fn needed(
        &self,
        routes: &[Route],
        loads: &[ColumnUpload<'_>],
        rows: usize,
    ) -> Result<Vec<route::ColumnBytes>, Error> {
        let mut needed = Vec::with_capacity(loads.len());
        for route in routes {
            let mut bytes = route.bytes(rows.max(self.settings.rows))?;
            if bytes.output == 0 {
                continue;
            }
            if let Some(ImageTable::Staged(staged)) =
                loads.get(needed.len()).map(|load| &load.image_table)
            {
                bytes.staging = roomy(staged.bytes);
            }
            needed.push(bytes);
        }
        Ok(needed)
    }

    /// Takes a slot with this much memory. With `trims`, frees memory that is larger.
    fn slot(&self, needed: &[route::ColumnBytes], trims: bool) -> Result<Slot<D>, Error> {
        let shared = &self.shared;
        let mut slot = match shared.slots.take() {
            TakenSlot::Closed => return Err(Error::Closed),
            TakenSlot::Free(slot, surplus) => {
                if let Some(surplus) = surplus
                    && let Err(error) = self.give_up(surplus)
                {
                    shared.free(slot);
                    shared.slots.gone(true);
                    return Err(error);
                }
                slot
            }
            TakenSlot::Make(overflow) => {
                if overflow && shared.slots.counts().overflow == 1 {
                    tracing::warn!(
                        target: "infeed::device",
                        "the consumer holds all {} batches of {}; the loader allocates memory for \
                         more. Drop batches after their step, or copy the data to keep",
                        self.settings.slots,
                        shared.name
                    );
                }
                Slot {
                    columns: Vec::new(),
                    ready: None,
                    released: Vec::new(),
                }
            }
        };
        if let Err(fault) = shared.check() {
            // The slot was returned while this call waited, but the ring has failed since.
            shared.free(slot);
            shared.slots.gone(true);
            return Err(fault);
        }
        if trims {
            self.trim(&mut slot, needed);
        }
        self.grown(slot, needed)
    }

    /// Frees memory that a slot has for batches of another layout, unless a kernel may still read
    /// it.
    fn trim(&self, slot: &mut Slot<D>, needed: &[route::ColumnBytes]) {
        let device = &self.shared.device;
        let Some(Ok(true)) = slot.ready.as_ref().map(|ready| device.is_done(ready)) else {
            return;
        };
        for (column, needed) in slot.columns.iter_mut().zip(needed) {
            // `grow` allocates the memory that is needed.
            column
                .staging
                .take_if(|staging| device.len(staging) > needed.staging);
            column
                .table
                .take_if(|table| device.len(table) > needed.table);
        }
    }

    /// Frees a surplus slot, or returns it if a consumer's stream may still read it.
    fn give_up(&self, slot: Slot<D>) -> Result<(), Error> {
        let shared = &self.shared;
        for event in slot.ready.iter().chain(&slot.released) {
            let is_done = shared.or_fail(shared.device.is_done(event));
            if !matches!(is_done, Ok(true)) {
                shared.give_back(slot, false);
                return is_done.map(|_| ());
            }
        }
        drop(slot);
        shared.slots.gone(false);
        Ok(())
    }

    /// Grows the memory of the slot to at least this size in every column.
    fn grown(&self, mut slot: Slot<D>, needed: &[route::ColumnBytes]) -> Result<Slot<D>, Error> {
        // Memory that is too small is freed, which may have to wait. That is acceptable, because a
        // batch larger than the settings is rare.
        let len = |memory: &StdArc<D::Memory>| self.shared.device.len(memory);
        let mut columns = slot.columns.iter().zip(needed);
        let outgrown = columns.any(|(column, needed)| {
            let (mut staging, mut table) = (column.staging.iter(), column.table.iter());
            len(&column.output) < needed.output
                || staging.any(|s| len(s) < needed.staging)
                || table.any(|t| len(t) < needed.table)
        });
        if outgrown && let Err(error) = self.shared.free_behind(&slot) {
            match self.shared.check() {
                // The host cannot wait while a stream is captured, so the slot stays unchanged.
                Ok(()) => self.shared.give_back(slot, true),
                Err(_) => {
                    drop(slot);
                    self.shared.slots.gone(true);
                }
            }
            return Err(error);
        }
        let made = self.grow(&mut slot, needed);
        let Err(source) = made else { return Ok(slot) };
        // The next batch could not use a half-grown slot. No command uses its new memory yet.
        self.shared.free(slot);
        self.shared.slots.gone(true);
        let bytes = needed
            .iter()
            .map(|n| (n.staging + n.table + n.output) as u64);
        let slot_bytes: u64 = bytes.sum();
        let limit = self.settings.slots;
        let error = NoSlot {
            slot_bytes,
            limit,
            all_bytes: slot_bytes.saturating_mul(limit as u64),
            slots: self.shared.slots.counts().made,
            source,
        };
        Err(Error::Device {
            device: self.shared.name.clone(),
            source: std::sync::Arc::new(error),
        })
    }

    fn memory(&self, bytes: usize) -> Result<StdArc<D::Memory>, DeviceError> {
        let memory = self.shared.device.memory(bytes)?;
        let (sent, _) = *sync::lock(&self.counted);
        if sent >= SETTLED {
            tracing::debug!(
                target: "infeed::device",
                "allocated {bytes} bytes on {} at batch {sent}",
                self.shared.name
            );
        }
        Ok(memory)
    }

    fn grow(&self, slot: &mut Slot<D>, needed: &[route::ColumnBytes]) -> Result<(), DeviceError> {
        let device = &self.shared.device;
        for (at, bytes) in needed.iter().enumerate() {
            let existing = slot.columns.get(at);
            let staged = |staging: &StdArc<D::Memory>| device.len(staging) >= bytes.staging;
            // Keep memory that a batch of another layout needed.
            let staging = match existing.and_then(|column| column.staging.as_ref()) {
                Some(staging) if staged(staging) => Some(StdArc::clone(staging)),
                _ if bytes.staging == 0 => None,
                _ => Some(self.memory(bytes.staging)?),
            };
            let output = match existing.map(|column| &column.output) {
                Some(output) if device.len(output) >= bytes.output => StdArc::clone(output),
                _ => self.memory(bytes.output)?,
            };
            let fits = |table: &StdArc<D::Memory>| device.len(table) >= bytes.table;
            let table = match existing.and_then(|column| column.table.as_ref()) {
                Some(table) if fits(table) => Some(StdArc::clone(table)),
                _ if bytes.table == 0 => None,
                _ => Some(self.memory(bytes.table)?),
            };
            let column = SlotColumn {
                staging,
                table,
                output,
            };
            match slot.columns.get_mut(at) {
                Some(small) => *small = column,
                None => slot.columns.push(column),
            }
        }
        Ok(())
    }

    /// Pairs each array with its route and its table of images.
    fn loads<'a>(
        &self,
        routes: &'a [Route],
        arrays: &'a [(usize, Array)],
        rows: usize,
    ) -> Result<Vec<ColumnUpload<'a>>, Error> {
        let mut weights = sync::lock(&self.weights);
        let load = |(route, array): &'a (usize, Array)| {
            let route = &routes[*route];
            let image_table = route.image_table(array, rows, &mut weights)?;
            if matches!(image_table, ImageTable::Staged(_)) && self.decoders.is_none() {
                let problem = "it has files, but the ring has no decoder";
                return Err(Error::config("device", problem));
            }
            Ok(ColumnUpload {
                route,
                array,
                image_table,
            })
        };
        arrays.iter().map(load).collect()
    }

    /// Enqueues the copies and kernels of a batch, ordered after all earlier uses of the slot.
    fn enqueue(
        &self,
        loads: &[ColumnUpload<'_>],
        slot: &mut Slot<D>,
        rows: usize,
        is_timed: bool,
        transfers: &mut Vec<D::Transfer>,
    ) -> Result<EnqueuedBatch<D>, DeviceError> {
        let shared = &self.shared;
        let device = &shared.device;
        let events = if is_timed {
            &shared.timed
        } else {
            &shared.plain
        };
        let begin = |queue| -> Result<Option<Arc<D::Event>>, DeviceError> {
            if !is_timed {
                return Ok(None);
            }
            let begun = events.take(device)?;
            device.record(&begun, queue)?;
            Ok(Some(begun))
        };
        let copied = events.take(device)?;
        // A kernel may still read or write the memory that the copies write. The output of a kernel
        // in one batch can be the target of a copy in the next.
        if let (Some(before), Some(_)) = (&slot.ready, self.kernels)
            && !self.is_omitted(OmittedWait::Kernel)
        {
            device.wait(self.copies, before)?;
        }
        let releases = |queue: D::Queue| -> Result<(), DeviceError> {
            if self.is_omitted(OmittedWait::Release) {
                return Ok(());
            }
            let mut released = slot.released.iter();
            released.try_for_each(|event| device.wait(queue, event))
        };
        // Consumers may still read the outputs that copies write. Kernels wait for consumers in
        // their own stream, so copies do not wait for a long step on their behalf.
        if loads.iter().any(|load| load.route.is_copied()) {
            releases(self.copies)?;
        }
        let has_files = |load: &ColumnUpload<'_>| matches!(&load.image_table, ImageTable::Staged(s) if !s.files.is_empty());
        if let Some(before) = &slot.ready
            && loads.iter().any(has_files)
            && !self.is_omitted(OmittedWait::Staging)
        {
            // Decoders write as soon as they are called, so only a wait on the host helps.
            device.synchronize(before)?;
        }
        let begun = begin(self.copies)?;
        let (mut sums, mut undecoded_rows) = (TransferTotals::default(), UndecodedRows::default());
        for (load, column) in loads.iter().zip(&slot.columns) {
            if let (ImageTable::Staged(staged), Some(decoders), Some(to)) =
                (&load.image_table, &self.decoders, &column.staging)
            {
                let (on, from) = ((device, self.copies), (load.array, staged));
                let mut decoders = sync::lock(decoders);
                sums.add(decoders.send(on, from, to, &mut undecoded_rows, transfers)?);
                continue;
            }
            let bytes = load.array.bytes().len();
            let to = match &column.staging {
                Some(staging) if load.route.has_kernel() => staging,
                _ => &column.output,
            };
            let from: HostSource = std::sync::Arc::new(load.array.clone());
            if bytes > 0 {
                transfers.push(device.copy(self.copies, from, bytes, to, 0)?);
                sums.add(TransferTotals::one(bytes));
            }
        }
        // The timed range ends here. Tables are sent with the kernels.
        let copied_bytes = sums.bytes;
        device.record(&copied, self.copies)?;
        let kernels = self
            .kernels
            .filter(|_| loads.iter().any(|load| load.route.has_kernel()));
        let (ready, expanding) = match kernels {
            // The event after the copies is also the batch's `ready` event.
            None => (Arc::clone(&copied), None),
            Some(kernels) => {
                let ready = events.take(device)?;
                if !self.is_omitted(OmittedWait::Copied) {
                    device.wait(kernels, &copied)?;
                }
                releases(kernels)?;
                let begun = begin(kernels)?;
                for (load, column) in loads.iter().zip(&slot.columns) {
                    let (Some(kernel), Some(staging), true) =
                        (load.route.kernel(), &column.staging, rows > 0)
                    else {
                        continue;
                    };
                    let table = load
                        .image_table
                        .table()
                        .map(Table::from)
                        .zip(column.table.as_ref());
                    device.launch(kernels, kernel, rows, staging, table, &column.output)?;
                    if let Some((table, _)) = table {
                        sums.add(TransferTotals::one(table.bytes().len()));
                    }
                }
                device.record(&ready, kernels)?;
                (Arc::clone(&ready), begun.map(|begun| (begun, ready)))
            }
        };
        if let Some(begun) = begun {
            sync::lock(&shared.times).sent(TimingMarks {
                copies: (begun, Arc::clone(&copied)),
                kernels: expanding,
                bytes: copied_bytes,
            });
        }
        let mut counted = sync::lock(&self.counted);
        counted.0 += 1;
        counted.1.add(sums);
        drop(counted);
        slot.released.clear();
        slot.ready = Some(Arc::clone(&ready));
        Ok(EnqueuedBatch {
            copied,
            ready,
            undecoded_rows,
        })
    }

    #[cfg(test)]
    fn is_omitted(&self, what: OmittedWait) -> bool {
        self.without.load(Ordering::Relaxed) == what as u8
    }

    #[cfg(not(test))]
    fn is_omitted(&self, _what: OmittedWait) -> bool {
        false
    }
}

/// Waits that tests omit, to check that the simulated device finds the race.
#[derive(Clone, Copy)]
pub(super) enum OmittedWait {
    /// The wait of a slot's writer for the release by the consumers.
    Release = 1,
    /// The wait of copies for the kernel that last read the staging memory.
    Kernel = 2,
    /// The wait of a kernel for its copies.
    Copied = 3,
    /// The wait of the host, before files are decoded, for the kernel that last read the staging
    /// memory.
    Staging = 4,
}

impl<D: Device> fmt::Debug for Ring<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("device", &self.shared.name)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
