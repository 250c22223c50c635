//! The ring itself: batches in, slots taken, copies and kernels enqueued, the end.
//!
//! What is enqueued here is argued for in the README of `device`, under "Events".

use std::fmt;
use std::sync::Arc as StdArc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use infeed_raw::kernel::{Bilinear, Table};

use crate::batch::{Array, Batch};
use crate::device::{Device, DeviceError, HostSource};
use crate::error::Error;

use super::batch::Sent;
use super::decoding::{Decoders, Doubts, Sums};
use super::gaps::{Asked, Gap, GapTotals};
use super::route::{self, Beside, Route};
use super::shared::{Flight, Held, Lost, Shared, Slot, SlotColumn};
use super::slots::{Slots, Taken};
use super::sync::{self, Arc, Mutex};
use super::times::{Marks, SentTimes};

/// Slots where nobody says how many: one with the consumer, one ready, one being filled.
pub const SLOTS: usize = 3;

/// Batches after which a run has the memory that it needs, so that every allocation is logged.
const SETTLED: u64 = 50;

/// Stands for all forms in place of the number of one.
const ALL: usize = usize::MAX;

/// Sizes of a ring.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Rows of a full batch. A larger one makes its slot grow.
    pub rows: usize,
    /// Slots there are if the consumer keeps no batches: one that it has, the others ahead of it.
    pub slots: usize,
    /// How long a consumer that holds all slots is waited for, before one more is made. Only the
    /// first is: who kept them all once keeps them.
    pub patience: Duration,
    /// How long [`Ring::close`] waits for what consumers have enqueued.
    pub closing: Duration,
}

impl Settings {
    /// Batches of `rows` rows, [`SLOTS`] slots, a timeout of 50 ms, and 5 s for closing.
    pub fn new(rows: usize) -> Settings {
        Settings {
            rows,
            slots: SLOTS,
            patience: Duration::from_millis(50),
            closing: Duration::from_secs(5),
        }
    }
}

/// What a ring has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingStats {
    /// Batches sent.
    pub batches: u64,
    /// Copies from the host to the device.
    pub transfers: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// JPEGs that the device decodes.
    pub jpegs: u64,
    /// Slots there are.
    pub slots: usize,
    /// Those that hold a batch ahead of the consumer.
    pub ahead: usize,
    /// Those at rest.
    pub free: usize,
    /// How often one was made because the consumer kept all others.
    pub overflow: u64,
    /// How long the device waited for batches that were asked for.
    pub gaps: GapTotals,
    /// How long batches that nobody asked for in a stream were waited for by whoever had them: on the
    /// device's clock from the first stream that took one over, on the host's where that waited first.
    pub late: GapTotals,
    /// How long copies and kernels took.
    pub times: SentTimes,
}

impl RingStats {
    /// Of all rings of one loader together: its batches, the sums of what crosses, and the longest waits
    /// and times, since a step is as late as the last of them. None of none.
    pub fn together(each: &[RingStats]) -> Option<RingStats> {
        let (first, others) = each.split_first()?;
        let mut all = *first;
        for other in others {
            all.transfers += other.transfers;
            all.bytes += other.bytes;
            all.jpegs += other.jpegs;
            all.slots += other.slots;
            all.overflow += other.overflow;
            all.gaps = longer(all.gaps, other.gaps);
            all.late = longer(all.late, other.late);
            all.times = all.times.beside(&other.times);
        }
        Some(all)
    }
}

fn longer(one: GapTotals, other: GapTotals) -> GapTotals {
    match one.waited < other.waited {
        true => other,
        false => one,
    }
}

/// Slots on one device, and the two streams that fill them. Dropping it closes it.
///
/// Any thread may call any method. Batches are sent in the order of the calls of
/// [`send`](Ring::send).
pub struct Ring<D: Device> {
    pub(super) shared: Arc<Shared<D>>,
    /// The columns and what becomes of them, for each form that batches may have.
    forms: Vec<Vec<Route>>,
    pub(super) settings: Settings,
    pub(super) copies: D::Queue,
    /// None if no column needs a kernel.
    pub(super) kernels: Option<D::Queue>,
    /// Of images that a device resizes.
    weights: Mutex<Bilinear>,
    /// None if no column has files.
    decoders: Option<Mutex<Decoders<D>>>,
    /// Number of the form that slots have memory for, and no more than that; [`ALL`] if none is.
    kept: AtomicUsize,
    /// Held while a batch is enqueued, so that streams get batches in one order.
    pub(super) sending: Mutex<()>,
    /// Batches that were sent, and what crossed for them: together, so that whoever divides one by the
    /// other in the middle of a run sees whole batches.
    counted: Mutex<(u64, Sums)>,
    /// A wait that is left out on purpose, to see that the simulated device notices.
    #[cfg(test)]
    pub(super) without: std::sync::atomic::AtomicU8,
}

/// Why a slot could not be had.
#[derive(Debug, thiserror::Error)]
#[error(
    "a batch takes {slot_bytes} bytes there, beside {slots} others that are there already; all \
     {limit} slots take {all_bytes}. Use a smaller batch or fewer slots, give the model less room, or let \
     go of batches that are kept"
)]
struct NoSlot {
    slot_bytes: u64,
    slots: usize,
    limit: usize,
    all_bytes: u64,
    source: DeviceError,
}

/// What is sent of a column.
struct Load<'a> {
    route: &'a Route,
    array: &'a Array,
    beside: Beside,
}

/// Marks behind a batch's copies, and behind all of it.
struct Enqueued<D: Device> {
    copied: Arc<D::Event>,
    ready: Arc<D::Event>,
    doubts: Doubts,
}

impl<D: Device> Ring<D> {
    /// A ring for batches of these columns, in field order. Memory is allocated as slots are needed.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if sizes do not fit; [`Error::Device`] if the device makes no stream.
    pub fn new(device: D, routes: Vec<Route>, settings: Settings) -> Result<Ring<D>, Error> {
        Ring::of_forms(device, vec![routes], settings)
    }

    /// As [`new`](Ring::new), for batches that have one of several forms each, and are the same on the
    /// device: the columns that a kernel makes there in one form may come as they are in another. A
    /// slot takes a batch of any.
    ///
    /// # Errors
    ///
    /// As [`new`](Ring::new).
    pub fn of_forms(
        device: D,
        forms: Vec<Vec<Route>>,
        settings: Settings,
    ) -> Result<Ring<D>, Error> {
        if settings.slots == 0 {
            return Err(Error::config("device", "a ring has at least one slot"));
        }
        if settings.rows == 0 {
            return Err(Error::config("device", "a batch has at least one row"));
        }
        for route in forms.iter().flatten() {
            route.check(settings.rows)?;
        }
        route::check_alike(&forms)?;
        let slots = Slots::new(settings.slots, settings.patience);
        let shared = Shared::new(device, slots, settings.closing);
        let device = &shared.device;
        let copies = shared.told(device.stream())?;
        let kernels = match forms.iter().flatten().any(Route::has_kernel) {
            true => Some(shared.told(device.stream())?),
            false => None,
        };
        Ok(Ring {
            shared: Arc::new(shared),
            forms,
            settings,
            copies,
            kernels,
            weights: Mutex::new(Bilinear::new()),
            decoders: None,
            kept: AtomicUsize::new(ALL),
            sending: Mutex::new(()),
            counted: Mutex::new((0, Sums::default())),
            #[cfg(test)]
            without: std::sync::atomic::AtomicU8::new(0),
        })
    }

    /// The same with a decoder of its device, which columns with files need
    /// ([`Upload::Decode`](super::Upload::Decode)).
    #[must_use]
    pub fn decoding_by(mut self, decoder: D::Decoder) -> Ring<D> {
        self.decoders = Some(Mutex::new(Decoders::new(decoder)));
        self
    }

    /// The device.
    pub fn device(&self) -> &D {
        &self.shared.device
    }

    /// The columns and what becomes of them, in field order, in the first form.
    pub fn routes(&self) -> &[Route] {
        &self.forms[0]
    }

    /// As [`routes`](Ring::routes), in each form that batches may have.
    pub fn forms(&self) -> &[Vec<Route>] {
        &self.forms
    }

    /// Lets slots have memory for batches of this form, by its number, and for no more than that; or, as at
    /// first, for whatever form a batch of theirs had. What is too much goes as they are used again.
    pub fn keep(&self, form: Option<usize>) {
        // Relaxed: a sender that learns of it later frees later.
        self.kept.store(form.unwrap_or(ALL), Ordering::Relaxed);
    }

    /// Whether [`send`](Ring::send) would not wait without limit, now or within `patience`: for who
    /// sends alone and must be able to do something else meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`]; [`Error::Device`] if the device failed.
    pub fn has_room(&self, patience: Duration) -> Result<bool, Error> {
        self.shared.check()?;
        self.shared.settle(None);
        Ok(self.shared.slots.has_room(patience))
    }

    /// Enqueues a batch and returns without waiting for it. Waits for a slot: without limit while batches
    /// are ahead of the consumer, else as long as the settings say, and then makes one more. Its arrays
    /// on the host are let go by a later call, once they are copied; a consumer may run ahead of the
    /// device, so this waits for the oldest copy where as many batches are being copied as there are slots.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`], [`Error::Forked`]; [`Error::Config`] if it does not have the ring's columns;
    /// [`Error::Device`] if the device has no memory left (nothing was sent, and it may be tried
    /// again), or failed (every later call says the same).
    ///
    /// # Cost
    ///
    /// One copy a column, one kernel where one is needed, and a few events: none of them waits for the
    /// device.
    pub fn send(&self, batch: Batch) -> Result<Sent<D>, Error> {
        self.send_as(0, batch)
    }

    /// As [`send`](Ring::send), for a batch of another form, by its number.
    ///
    /// # Errors
    ///
    /// As [`send`](Ring::send).
    pub fn send_as(&self, form: usize, batch: Batch) -> Result<Sent<D>, Error> {
        self.shared.check()?;
        let Some(routes) = self.forms.get(form) else {
            let problem = format!("batches have {} forms, and none {form}", self.forms.len());
            return Err(Error::config("device", problem));
        };
        let rows = batch.rows();
        let parcels = route::parcels(routes, batch)?;
        let loads = self.loads(routes, &parcels.arrays, rows)?;
        let _turn = sync::lock(&self.sending);
        let (held, enqueued) = self.shared.device.with_current(|| {
            self.shared.poll()?;
            self.shared.thin(self.settings.slots)?;
            self.shared.settle(Some(Duration::MAX));
            let needed = self.needed(routes, &loads, rows)?;
            // While forms are tried, every step is timed.
            let kept = self.kept.load(Ordering::Relaxed);
            let is_trial = kept == ALL && self.forms.len() > 1;
            let ahead = self.shared.slots.counts().ahead;
            let is_timed = sync::lock(&self.shared.sampling).send(ahead) || is_trial;
            let slot = self.slot(&needed, kept == form)?;
            self.fill(&loads, slot, rows, is_timed)
        })?;
        Ok(Sent {
            held,
            content: parcels.content,
            doubts: enqueued.doubts,
            copied: enqueued.copied,
        })
    }

    /// Enqueues a batch into a slot.
    fn fill(
        &self,
        loads: &[Load<'_>],
        mut slot: Slot<D>,
        rows: usize,
        is_timed: bool,
    ) -> Result<(Held<D>, Enqueued<D>), Error> {
        let shared = &self.shared;
        let mut transfers = Vec::new();
        match self.enqueue(loads, &mut slot, rows, is_timed, &mut transfers) {
            Ok(enqueued) => {
                let copied = Arc::clone(&enqueued.copied);
                shared.fly(Flight { copied, transfers });
                let ready = Arc::clone(&enqueued.ready);
                let held = Held::new(Arc::clone(shared), slot, ready, is_timed);
                Ok((held, enqueued))
            }
            Err(error) => {
                let error = shared.fail(error);
                shared.lose(Lost { slot, transfers }, true);
                Err(error)
            }
        }
    }

    /// Marks the end of what a consumer's stream has to do now, for the batch it is about to take.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`]; [`Error::Device`] if the device failed, or knows no such stream.
    pub fn ask(&self, queue: D::Queue) -> Result<Asked<D>, Error> {
        let shared = &self.shared;
        shared.check()?;
        shared.device.with_current(|| {
            shared.poll()?;
            let is_trial = self.forms.len() > 1 && self.kept.load(Ordering::Relaxed) == ALL;
            let ahead = shared.slots.counts().ahead;
            if !is_trial && !sync::lock(&shared.sampling).asks(ahead) {
                return Ok(Asked { event: None });
            }
            let event = shared.told(shared.timed.take(&shared.device))?;
            shared.told(shared.device.record(&event, queue))?;
            Ok(Asked { event: Some(event) })
        })
    }

    /// Counts so far, with the gaps that are known by now.
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
            gaps,
            late,
            times: sync::lock(&self.shared.times).totals(),
        })
    }

    /// The gaps that became known since the last call, in the order of steps; of more than 4096, the
    /// latest.
    pub fn take_gaps(&self) -> Vec<Gap> {
        if self.shared.is_forked() {
            return Vec::new();
        }
        sync::lock(&self.shared.gaps).take()
    }

    /// What a batch needs of a slot, for each column that goes to the device.
    fn needed(
        &self,
        routes: &[Route],
        loads: &[Load<'_>],
        rows: usize,
    ) -> Result<Vec<route::Bytes>, Error> {
        let mut needed = Vec::with_capacity(loads.len());
        for route in routes {
            let mut bytes = route.bytes(rows.max(self.settings.rows))?;
            if bytes.output == 0 {
                continue;
            }
            if let Some(Beside::Staged(staged)) = loads.get(needed.len()).map(|load| &load.beside) {
                bytes.staging = roomy(staged.bytes);
            }
            needed.push(bytes);
        }
        Ok(needed)
    }

    /// A slot with room for so much, and for no more if it `trims` them.
    fn slot(&self, needed: &[route::Bytes], trims: bool) -> Result<Slot<D>, Error> {
        let shared = &self.shared;
        let mut slot = match shared.slots.take() {
            Taken::Closed => return Err(Error::Closed),
            Taken::Free(slot, surplus) => {
                if let Some(surplus) = surplus
                    && let Err(error) = self.give_up(surplus)
                {
                    shared.free(slot);
                    shared.slots.gone(true);
                    return Err(error);
                }
                slot
            }
            Taken::Make(overflow) => {
                if overflow && shared.slots.counts().overflow == 1 {
                    tracing::warn!(
                        target: "infeed::device",
                        "the consumer keeps all {} batches of {}; memory for more of them is made \
                         as it goes on. Drop batches after their step, or copy what is to be kept",
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
            // It came while this waited for a slot.
            shared.free(slot);
            shared.slots.gone(true);
            return Err(fault);
        }
        if trims {
            self.trim(&mut slot, needed);
        }
        self.grown(slot, needed)
    }

    /// Frees what a slot has for batches of another form, unless a kernel may still read it: then later.
    fn trim(&self, slot: &mut Slot<D>, needed: &[route::Bytes]) {
        let device = &self.shared.device;
        let Some(Ok(true)) = slot.ready.as_ref().map(|ready| device.is_done(ready)) else {
            return;
        };
        for (column, needed) in slot.columns.iter_mut().zip(needed) {
            // What is needed of it, `grow` makes anew.
            column
                .staging
                .take_if(|staging| device.len(staging) > needed.staging);
            column
                .table
                .take_if(|table| device.len(table) > needed.table);
        }
    }

    /// Frees a slot that is not needed any more, unless a consumer's stream may still read it.
    fn give_up(&self, slot: Slot<D>) -> Result<(), Error> {
        let shared = &self.shared;
        for event in slot.ready.iter().chain(&slot.released) {
            let is_done = shared.told(shared.device.is_done(event));
            if !matches!(is_done, Ok(true)) {
                shared.give_back(slot, false);
                return is_done.map(|_| ());
            }
        }
        drop(slot);
        shared.slots.gone(false);
        Ok(())
    }

    /// The slot with so much memory in every column.
    fn grown(&self, mut slot: Slot<D>, needed: &[route::Bytes]) -> Result<Slot<D>, Error> {
        // What is outgrown is freed. A batch larger than the settings say is rare, and may wait.
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
                // Nothing is waited for while a stream is captured: the slot stays what it was.
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
        // Half a slot is of no use to the next, and nothing was enqueued on what is new in it.
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

    fn grow(&self, slot: &mut Slot<D>, needed: &[route::Bytes]) -> Result<(), DeviceError> {
        let device = &self.shared.device;
        for (at, bytes) in needed.iter().enumerate() {
            let there = slot.columns.get(at);
            let staged = |staging: &StdArc<D::Memory>| device.len(staging) >= bytes.staging;
            // What a batch of another form has put there stays.
            let staging = match there.and_then(|column| column.staging.as_ref()) {
                Some(staging) if staged(staging) => Some(StdArc::clone(staging)),
                _ if bytes.staging == 0 => None,
                _ => Some(self.memory(bytes.staging)?),
            };
            let output = match there.map(|column| &column.output) {
                Some(output) if device.len(output) >= bytes.output => StdArc::clone(output),
                _ => self.memory(bytes.output)?,
            };
            let fits = |table: &StdArc<D::Memory>| device.len(table) >= bytes.table;
            let table = match there.and_then(|column| column.table.as_ref()) {
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

    /// What is sent of each array.
    fn loads<'a>(
        &self,
        routes: &'a [Route],
        arrays: &'a [(usize, Array)],
        rows: usize,
    ) -> Result<Vec<Load<'a>>, Error> {
        let mut weights = sync::lock(&self.weights);
        let load = |(route, array): &'a (usize, Array)| {
            let route = &routes[*route];
            let beside = route.beside(array, rows, &mut weights)?;
            if matches!(beside, Beside::Staged(_)) && self.decoders.is_none() {
                let problem = "it has files, and the ring was made without a decoder";
                return Err(Error::config("device", problem));
            }
            Ok(Load {
                route,
                array,
                beside,
            })
        };
        arrays.iter().map(load).collect()
    }

    /// Enqueues copies and kernels of a batch, behind everything that used the slot before.
    fn enqueue(
        &self,
        loads: &[Load<'_>],
        slot: &mut Slot<D>,
        rows: usize,
        is_timed: bool,
        transfers: &mut Vec<D::Transfer>,
    ) -> Result<Enqueued<D>, DeviceError> {
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
        // A kernel may still read what the copies are about to write, or write it: an output that a
        // kernel made may be copied next.
        if let (Some(before), Some(_)) = (&slot.ready, self.kernels)
            && !self.is_left_out(Without::Kernel)
        {
            device.wait(self.copies, before)?;
        }
        let releases = |queue: D::Queue| -> Result<(), DeviceError> {
            if self.is_left_out(Without::Release) {
                return Ok(());
            }
            let mut released = slot.released.iter();
            released.try_for_each(|event| device.wait(queue, event))
        };
        // Outputs that copies write may still be read by consumers; those of kernels are the
        // kernels' matter, so that copies need not wait for a step that is long.
        if loads.iter().any(|load| load.route.is_copied()) {
            releases(self.copies)?;
        }
        let has_files =
            |load: &Load<'_>| matches!(&load.beside, Beside::Staged(s) if !s.files.is_empty());
        if let Some(before) = &slot.ready
            && loads.iter().any(has_files)
            && !self.is_left_out(Without::Staging)
        {
            // Decoders write as soon as they are called, so no stream can wait in place of the host.
            device.synchronize(before)?;
        }
        let begun = begin(self.copies)?;
        let (mut sums, mut doubts) = (Sums::default(), Doubts::default());
        for (load, column) in loads.iter().zip(&slot.columns) {
            if let (Beside::Staged(staged), Some(decoders), Some(to)) =
                (&load.beside, &self.decoders, &column.staging)
            {
                let (on, from) = ((device, self.copies), (load.array, staged));
                let mut decoders = sync::lock(decoders);
                sums.add(decoders.send(on, from, to, &mut doubts, transfers)?);
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
                sums.add(Sums::one(bytes));
            }
        }
        // What is timed between these marks; tables go with the kernels.
        let copied_bytes = sums.bytes;
        device.record(&copied, self.copies)?;
        let kernels = self
            .kernels
            .filter(|_| loads.iter().any(|load| load.route.has_kernel()));
        let (ready, expanding) = match kernels {
            // The mark behind the copies is that of the batch.
            None => (Arc::clone(&copied), None),
            Some(kernels) => {
                let ready = events.take(device)?;
                if !self.is_left_out(Without::Copied) {
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
                        .beside
                        .table()
                        .map(Table::from)
                        .zip(column.table.as_ref());
                    device.launch(kernels, kernel, rows, staging, table, &column.output)?;
                    if let Some((table, _)) = table {
                        sums.add(Sums::one(table.bytes().len()));
                    }
                }
                device.record(&ready, kernels)?;
                (Arc::clone(&ready), begun.map(|begun| (begun, ready)))
            }
        };
        if let Some(begun) = begun {
            sync::lock(&shared.times).sent(Marks {
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
        Ok(Enqueued {
            copied,
            ready,
            doubts,
        })
    }

    #[cfg(test)]
    fn is_left_out(&self, what: Without) -> bool {
        self.without.load(Ordering::Relaxed) == what as u8
    }

    #[cfg(not(test))]
    fn is_left_out(&self, _what: Without) -> bool {
        false
    }
}

/// Bytes to allocate where so many are needed and the next batch needs more or less: a few sizes, at
/// most a fifth more.
fn roomy(bytes: usize) -> usize {
    let step = bytes.max(1 << 12).next_power_of_two() / 8;
    bytes.max(1).checked_next_multiple_of(step).unwrap_or(bytes)
}

/// Waits that tests leave out to see that they are missed. Nothing else can.
#[derive(Clone, Copy)]
pub(super) enum Without {
    /// Of a slot's writer for the consumers' release.
    Release = 1,
    /// Of copies for the kernel that read the staging memory before.
    Kernel = 2,
    /// Of a kernel for its copies.
    Copied = 3,
    /// Of the host, before files are decoded, for the kernel that read the staging memory before.
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
