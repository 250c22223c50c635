//! A device that is simulated: its memory is the host's, its streams are threads.
//!
//! It keeps to the same rules of streams and events as a real one. Copies and kernels really happen,
//! on its own threads, at the rates of a [`SimConfig`] and with delays drawn from its seed. What it
//! has beyond a real device: it says which commands were not ordered as they must be
//! ([`Sim::violations`]), whatever their timing was, and its times are exact.
//!
//! **Times.** A command begins when its stream is done with the one before, when what it waits for is
//! done, when it is enqueued, and, for a copy from the host, when the bus is free; the latest of
//! these. It ends a rate's time later. Both are known when it is enqueued, so that
//! [`elapsed`](Device::elapsed) does not depend on how late a thread wakes up. The threads take at
//! least that long.
//!
//! A device [`with_own_clock`](Sim::with_own_clock) has no threads: the caller says what time it is,
//! a command is done as it is enqueued, and everything is repeated exactly.

mod config;
mod jpeg;
mod line;
mod memory;
mod races;
mod state;
mod table;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use infeed_raw::host::HostBytes;
use infeed_raw::kernel::{Kernel, Table};
use infeed_raw::slab::Slab;

use crate::error::{Cause, Error};

use super::jpeg::{DecoderSettings, Decoding, Later, Place, ScannedJpeg, span};
use super::{Device, DeviceError, HostSource};

pub use config::SimConfig;
pub use jpeg::SimDecoder;
pub use memory::{SimEvent, SimMemory, SimQueue, SimRead, SimTransfer};
pub use races::{Violation, ViolationKind};

use jpeg::Files;
use line::{Mark, Task, lock};
use memory::{Clock, Store};
use state::{Begun, Found, State, Usage};
use table::OwnTable;

/// A simulated device. Clones are handles of one; the last that is dropped lets its threads hurry
/// through what is enqueued, and joins them.
#[derive(Clone)]
pub struct Sim {
    inner: Arc<Inner>,
}

struct Inner {
    number: u64,
    config: SimConfig,
    process: u32,
    state: Mutex<State>,
    /// Shared with its memory, which may outlive it.
    store: Arc<Store>,
    /// Shared with commands under way.
    found: Arc<Found>,
}

/// Numbers of devices, for telling their streams apart.
static DEVICES: AtomicU64 = AtomicU64::new(0);

impl Sim {
    /// A device whose time is the host's.
    pub fn new(config: SimConfig) -> Sim {
        Sim::with_clock(config, Clock::Wall(Instant::now()))
    }

    /// A device from its text; see [`SimConfig`].
    ///
    /// # Errors
    ///
    /// [`Error::Config`], naming the key.
    pub fn parse(text: &str) -> Result<Sim, Error> {
        Ok(Sim::new(text.parse()?))
    }

    /// A device whose time is what [`set_now`](Sim::set_now) says, from 0. It has no threads; a
    /// command is done as it is enqueued, an event when its time has come.
    pub fn with_own_clock(config: SimConfig) -> Sim {
        Sim::with_clock(config, Clock::Own(AtomicU64::new(0)))
    }

    fn with_clock(config: SimConfig, clock: Clock) -> Sim {
        let found = Arc::new(Found::default());
        Sim {
            inner: Arc::new(Inner {
                // Relaxed: the numbers need only differ.
                number: DEVICES.fetch_add(1, Ordering::Relaxed),
                config,
                process: std::process::id(),
                state: Mutex::new(State::default()),
                store: Arc::new(Store::new(clock, Arc::clone(&found))),
                found,
            }),
        }
    }

    /// Its rates.
    pub fn config(&self) -> &SimConfig {
        &self.inner.config
    }

    fn now_ns(&self) -> u64 {
        self.inner.store.clock.now_ns()
    }

    /// Time since it was made.
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.now_ns())
    }

    /// Says what time it is, on a device with a clock of its own; never earlier than before.
    pub fn set_now(&self, now: Duration) {
        if let Clock::Own(clock) = &self.inner.store.clock {
            clock.fetch_max(now.as_nanos() as u64, Ordering::Relaxed);
        }
    }

    /// When a stream will be done with what it has now.
    ///
    /// # Errors
    ///
    /// If it is no stream of this device.
    pub fn end_of(&self, queue: SimQueue) -> Result<Duration, DeviceError> {
        let stream = self.number_of(queue)?;
        let end_ns = lock(&self.inner.state).streams[stream].end_ns;
        Ok(Duration::from_nanos(end_ns))
    }

    /// Uses of memory that were not ordered as they must be: the first thousand of them.
    pub fn violations(&self) -> Vec<Violation> {
        lock(&self.inner.found.violations).clone()
    }

    /// Bytes of memory that are allocated.
    pub fn used_bytes(&self) -> u64 {
        // Relaxed: a count that orders nothing.
        self.inner.store.used.load(Ordering::Relaxed)
    }

    /// A consumer's step that uses the beginning of a memory as long as it lasts, and tells in the
    /// end which bytes it saw.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Bounds`]; if it is no stream of this device.
    pub fn read(
        &self,
        queue: SimQueue,
        memory: &Arc<SimMemory>,
        bytes: usize,
        lasting: Duration,
    ) -> Result<SimRead, DeviceError> {
        let stream = self.number_of(queue)?;
        bounds("a read", "the memory", bytes, memory.len)?;
        let mut state = lock(&self.inner.state);
        let begun = state.begin(&self.inner.config, stream, self.now_ns(), lasting);
        self.reads(&state, &begun, memory, 0..bytes);
        memory.lasts(stream, begun.end_ns);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (memory, into) = (Arc::clone(memory), Arc::clone(&seen));
        let work = move || *lock(&into) = lock(&memory.bytes)[..bytes].to_vec();
        let work = Box::new(work);
        let end_ns = begun.end_ns;
        state.push(stream, Task::Read { work, end_ns });
        let done = state.mark(stream, end_ns);
        Ok(SimRead { seen, done })
    }

    /// A consumer's step that uses no memory of the device.
    ///
    /// # Errors
    ///
    /// If it is no stream of this device.
    pub fn work(&self, queue: SimQueue, lasting: Duration) -> Result<(), DeviceError> {
        let stream = self.number_of(queue)?;
        let mut state = lock(&self.inner.state);
        let begun = state.begin(&self.inner.config, stream, self.now_ns(), lasting);
        let (work, end_ns) = (Box::new(|| ()), begun.end_ns);
        state.push(stream, Task::Read { work, end_ns });
        Ok(())
    }

    /// Lets a call fail: the one after so many others of its name.
    #[cfg(test)]
    pub(crate) fn fail(&self, call: &'static str, after: u64) {
        lock(&self.inner.state).failures.insert(call, after);
    }

    /// What every command took: stream, start and end in nanoseconds, in the order of enqueueing.
    #[cfg(test)]
    pub(crate) fn spans(&self) -> Vec<(usize, u64, u64)> {
        lock(&self.inner.state).spans.clone()
    }

    /// Whether a call is to fail.
    fn call(&self, call: &'static str) -> Result<(), DeviceError> {
        #[cfg(test)]
        {
            let mut state = lock(&self.inner.state);
            match state.failures.get_mut(call) {
                Some(0) => {
                    let told = std::io::Error::other("it was made to");
                    return Err(failed(call, Arc::new(told)));
                }
                Some(left) => *left -= 1,
                None => {}
            }
        }
        let _ = call;
        match &*lock(&self.inner.found.fault) {
            Some(fault) => Err(fault.clone()),
            None => Ok(()),
        }
    }

    fn number_of(&self, queue: SimQueue) -> Result<usize, DeviceError> {
        match queue.device == self.inner.number {
            true => Ok(queue.stream),
            false => {
                let what = "stream";
                Err(failed("stream", Arc::new(OtherDevice { what })))
            }
        }
    }

    /// The stream of a command that is to be enqueued.
    fn stream_for(&self, call: &'static str, queue: SimQueue) -> Result<usize, DeviceError> {
        let stream = self.number_of(queue)?;
        match lock(&self.inner.state).streams[stream].usage {
            Usage::Open => Ok(stream),
            Usage::Captured => Err(DeviceError::Refused {
                call,
                source: Arc::new(Captured),
            }),
            Usage::Destroyed => Err(DeviceError::NoStream {
                call,
                source: Arc::new(Destroyed),
            }),
        }
    }

    /// Says that a consumer records what it puts into a stream into a graph, or that it is done with
    /// that: meanwhile no command of others can be put there.
    ///
    /// # Errors
    ///
    /// If it is no stream of this device.
    pub fn capture(&self, queue: SimQueue, is_captured: bool) -> Result<(), DeviceError> {
        let stream = self.number_of(queue)?;
        lock(&self.inner.state).streams[stream].usage = match is_captured {
            true => Usage::Captured,
            false => Usage::Open,
        };
        Ok(())
    }

    /// Destroys a consumer's stream: what is in it goes on, and it takes no command any more.
    ///
    /// # Errors
    ///
    /// If it is no stream of this device.
    pub fn destroy(&self, queue: SimQueue) -> Result<(), DeviceError> {
        let stream = self.number_of(queue)?;
        lock(&self.inner.state).streams[stream].usage = Usage::Destroyed;
        Ok(())
    }

    fn reads(&self, state: &State, begun: &Begun, memory: &SimMemory, bytes: Range<usize>) {
        let wrong = memory.read(begun.access(bytes), state.clock(begun));
        self.inner.found.add(begun.stream, memory.number, wrong);
    }

    fn writes(&self, state: &State, begun: &Begun, memory: &SimMemory, bytes: Range<usize>) {
        let wrong = memory.write(begun.access(bytes), state.clock(begun));
        self.inner.found.add(begun.stream, memory.number, wrong);
    }

    /// Lets the host wait for what is before a mark.
    fn await_mark(&self, mark: &Mark) {
        match &self.inner.store.clock {
            Clock::Wall(_) => mark.wait(),
            Clock::Own(now) => {
                now.fetch_max(mark.time_ns, Ordering::Relaxed);
            }
        }
        // What the host enqueues from now on comes after.
        lock(&self.inner.state).host.join(&mark.clock);
    }

    /// Whether what is before a mark is done.
    fn has_come(&self, mark: &Mark) -> bool {
        match &self.inner.store.clock {
            Clock::Wall(_) => mark.is_reached(),
            Clock::Own(_) => self.now_ns() >= mark.time_ns,
        }
    }
}

/// What a call of the simulation can fail with.
#[derive(Debug, thiserror::Error)]
#[error("the {what} is another device's; give one of this device")]
struct OtherDevice {
    what: &'static str,
}

/// Its consumer records a graph.
#[derive(Debug, thiserror::Error)]
#[error("the stream is being captured into a graph; take batches before the capture")]
struct Captured;

/// It was a stream once.
#[derive(Debug, thiserror::Error)]
#[error(
    "it was destroyed; keep streams until the batches that were taken over in them are dropped"
)]
struct Destroyed;

fn failed(call: &'static str, source: Cause) -> DeviceError {
    DeviceError::Failed { call, source }
}

fn bounds(
    command: &'static str,
    of: &'static str,
    needed: usize,
    found: usize,
) -> Result<(), DeviceError> {
    if needed <= found {
        return Ok(());
    }
    Err(DeviceError::Bounds {
        command,
        of,
        needed_bytes: needed as u64,
        found_bytes: found as u64,
    })
}

impl Device for Sim {
    type Memory = SimMemory;
    type Queue = SimQueue;
    type Event = SimEvent;
    type Transfer = SimTransfer;
    type Decoder = SimDecoder;

    fn name(&self) -> String {
        self.inner.config.to_string()
    }

    fn pin(&self, _slab: &mut Slab) -> Result<(), DeviceError> {
        self.call("pin")
    }

    fn memory(&self, bytes: usize) -> Result<Arc<SimMemory>, DeviceError> {
        self.call("memory")?;
        let limit = self.inner.config.memory_bytes;
        let more = |used: u64| used.checked_add(bytes as u64).filter(|&n| n <= limit);
        // Relaxed: a count that orders nothing.
        let taken = self
            .inner
            .store
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        let none = |used: u64| DeviceError::OutOfMemory {
            asked_bytes: bytes as u64,
            free_bytes: limit.saturating_sub(used),
        };
        let used = taken.map_err(none)?;
        match HostBytes::zeroed(bytes) {
            Ok(bytes) => {
                let number = lock(&self.inner.state).next_memory();
                let store = Arc::clone(&self.inner.store);
                Ok(Arc::new(SimMemory::new(number, bytes, store)))
            }
            Err(_) => {
                self.inner
                    .store
                    .used
                    .fetch_sub(bytes as u64, Ordering::Relaxed);
                Err(none(used))
            }
        }
    }

    fn len(&self, memory: &SimMemory) -> usize {
        memory.len
    }

    fn stream(&self) -> Result<SimQueue, DeviceError> {
        self.call("stream")?;
        let mut state = lock(&self.inner.state);
        let start = match self.inner.store.clock {
            Clock::Wall(start) => Some(start),
            Clock::Own(_) => None,
        };
        let stream = state.add_stream(start);
        let stream = stream.map_err(|error| failed("stream", Arc::new(error)))?;
        let device = self.inner.number;
        Ok(SimQueue { device, stream })
    }

    fn event(&self, timed: bool) -> Result<SimEvent, DeviceError> {
        self.call("event")?;
        let mark = Mutex::new(None);
        Ok(SimEvent { timed, mark })
    }

    fn copy(
        &self,
        queue: SimQueue,
        from: HostSource,
        bytes: usize,
        to: &Arc<SimMemory>,
        at: usize,
    ) -> Result<SimTransfer, DeviceError> {
        self.call("copy")?;
        let stream = self.stream_for("a copy", queue)?;
        bounds("a copy", "the host's memory", bytes, (*from).as_ref().len())?;
        bounds("a copy", "the memory", at.saturating_add(bytes), to.len)?;
        let looked = memory::look(&(*from).as_ref()[..bytes]);
        let mut state = lock(&self.inner.state);
        let begun = state.begin_copy(&self.inner.config, stream, self.now_ns(), bytes as u64);
        self.writes(&state, &begun, to, at..at + bytes);
        let (source, to) = (Arc::clone(&from), Arc::clone(to));
        let (found, stream, end_ns) = (Arc::clone(&self.inner.found), begun.stream, begun.end_ns);
        let work = move || {
            let bytes = (*source).as_ref().get(..bytes).unwrap_or(&[]);
            if memory::look(bytes) != looked {
                let wrong = vec![(ViolationKind::HostChanged, None)];
                found.add(stream, to.number, wrong);
            }
            lock(&to.bytes)[at..at + bytes.len()].copy_from_slice(bytes);
        };
        let work = Box::new(work);
        state.push(stream, Task::Write { work, end_ns });
        Ok(SimTransfer {
            _from: vec![from],
            landed: state.mark(stream, end_ns),
            process: self.inner.process,
        })
    }

    fn copy_within(
        &self,
        queue: SimQueue,
        from: &Arc<SimMemory>,
        to: &Arc<SimMemory>,
        bytes: usize,
    ) -> Result<(), DeviceError> {
        const COMMAND: &str = "a copy on the device";
        self.call("copy_within")?;
        let stream = self.stream_for("a copy on the device", queue)?;
        bounds(COMMAND, "its source", bytes, from.len)?;
        bounds(COMMAND, "its target", bytes, to.len)?;
        if from.number == to.number {
            bounds(COMMAND, "another memory", bytes.max(1), 0)?;
        }
        let mut state = lock(&self.inner.state);
        let moved = 2 * bytes as u64;
        let begun = state.begin_kernel(&self.inner.config, stream, self.now_ns(), moved);
        self.reads(&state, &begun, from, 0..bytes);
        self.writes(&state, &begun, to, 0..bytes);
        let (from, to) = (Arc::clone(from), Arc::clone(to));
        let copy = move |from: &[u8], to: &mut [u8]| to[..bytes].copy_from_slice(&from[..bytes]);
        let work = Box::new(move || SimMemory::both(&from, &to, copy));
        let end_ns = begun.end_ns;
        state.push(stream, Task::Write { work, end_ns });
        Ok(())
    }

    fn launch(
        &self,
        queue: SimQueue,
        kernel: &Kernel,
        rows: usize,
        input: &Arc<SimMemory>,
        table: Option<(Table<'_>, &Arc<SimMemory>)>,
        output: &Arc<SimMemory>,
    ) -> Result<(), DeviceError> {
        const COMMAND: &str = "a kernel";
        self.call("launch")?;
        let stream = self.stream_for("a kernel", queue)?;
        let all = usize::MAX;
        let told = table.map(|(table, _)| table);
        let reads = kernel.reach(rows, told).unwrap_or(all);
        let writes = kernel.output_bytes(rows).unwrap_or(all);
        bounds(COMMAND, "its input", reads, input.len)?;
        bounds(COMMAND, "its output", writes, output.len)?;
        let table_bytes = told.map_or(0, |table| table.bytes().len());
        if let Some((_, memory)) = table {
            bounds(COMMAND, "its table", table_bytes, memory.len)?;
            if memory.number == input.number || memory.number == output.number {
                bounds(
                    COMMAND,
                    "another memory for its table",
                    table_bytes.max(1),
                    0,
                )?;
            }
        }
        if input.number == output.number {
            bounds(COMMAND, "another memory for its output", writes.max(1), 0)?;
        }
        kernel
            .check(rows, reads, told, writes)
            .map_err(|error| failed("launch", Arc::new(error)))?;
        let sent = match table {
            Some((table, memory)) => {
                Some(self.copy(queue, table.shared(), table_bytes, memory, 0)?)
            }
            None => None,
        };
        let mut state = lock(&self.inner.state);
        let moved = (kernel.input_bytes(rows).unwrap_or(reads) + writes) as u64;
        let begun = state.begin_kernel(&self.inner.config, stream, self.now_ns(), moved);
        self.reads(&state, &begun, input, 0..reads);
        if let Some((_, memory)) = table {
            self.reads(&state, &begun, memory, 0..table_bytes);
        }
        self.writes(&state, &begun, output, 0..writes);
        let (kernel, found) = (kernel.clone(), Arc::clone(&self.inner.found));
        let table = table.map(|(_, memory)| Arc::clone(memory));
        let (input, output) = (Arc::clone(input), Arc::clone(output));
        let work = move || {
            let read = table.map(|table| {
                let bytes = lock(&table.bytes);
                OwnTable::read(&kernel, rows, &bytes[..table_bytes])
            });
            let ran = read.transpose().and_then(|table| {
                SimMemory::both(&input, &output, |input, output| {
                    let table = table.as_ref().map(OwnTable::as_table);
                    kernel.run(rows, &input[..reads], table, &mut output[..writes])
                })
            });
            if let Err(error) = ran {
                found.fail(failed("launch", Arc::new(error)));
            }
            // It came before this in the stream, so nobody waits for it.
            drop(sent);
        };
        let work = Box::new(work);
        let end_ns = begun.end_ns;
        state.push(stream, Task::Write { work, end_ns });
        Ok(())
    }

    fn decoder(&self, _settings: &DecoderSettings) -> Result<SimDecoder, DeviceError> {
        self.call("decoder")?;
        let Some(pixels_per_s) = self.inner.config.jpeg_pixels_per_s else {
            let source = Arc::new(jpeg::MadeWithout);
            return Err(DeviceError::NoDecoder { source });
        };
        let engine = self.stream()?.stream;
        let made = SimDecoder::new(self.inner.number, engine, pixels_per_s);
        made.map_err(|error| failed("decoder", Arc::new(error)))
    }

    fn decoder_name(&self, _decoder: &SimDecoder) -> String {
        jpeg::LIBRARY.to_owned()
    }

    fn decode(
        &self,
        queue: SimQueue,
        decoder: &mut SimDecoder,
        jpegs: &[ScannedJpeg],
        to: &Arc<SimMemory>,
        places: &[Place],
    ) -> Result<Decoding<SimTransfer>, DeviceError> {
        self.call("decode")?;
        let stream = self.stream_for("decoding JPEGs", queue)?;
        if decoder.device != self.inner.number {
            let what = "decoder";
            return Err(failed("decode", Arc::new(OtherDevice { what })));
        }
        let span = span(jpegs.len(), places, to.len)?;
        let (files, refused) = Files::of(jpegs, places);
        let later = Later::default();
        let (config, now_ns) = (&self.inner.config, self.now_ns());
        let mut state = lock(&self.inner.state);
        // The engine comes after what the host has waited for, and not after the stream's commands.
        let engine = decoder.engine;
        let sent = state.begin_copy(config, engine, now_ns, files.encoded());
        let (work, end_ns) = (Box::new(|| ()), sent.end_ns);
        state.push(engine, Task::Read { work, end_ns });
        let (pixels, rate) = (files.pixels(), decoder.pixels_per_s);
        let begun = state.begin_decode(config, engine, now_ns, pixels, rate);
        // What lies between the places, too: it is not specified afterwards.
        self.writes(&state, &begun, to, span);
        let work = files.work(decoder, to, begun.stream, &self.inner.found, &later);
        let end_ns = begun.end_ns;
        state.push(engine, Task::Write { work, end_ns });
        let landed = state.mark(engine, end_ns);
        state.wait(stream, Arc::clone(&landed));
        let transfer = SimTransfer {
            _from: jpegs.iter().map(|jpeg| Arc::clone(&jpeg.source)).collect(),
            landed,
            process: self.inner.process,
        };
        Ok(Decoding::new(transfer, refused, Some(later)))
    }

    fn record(&self, event: &SimEvent, queue: SimQueue) -> Result<(), DeviceError> {
        self.call("record")?;
        let stream = self.stream_for("a record", queue)?;
        let mut state = lock(&self.inner.state);
        let time_ns = state.streams[stream].end_ns.max(self.now_ns());
        // A stream that had nothing to do comes to the event now.
        state.streams[stream].end_ns = time_ns;
        let mark = state.mark(stream, time_ns);
        *lock(&event.mark) = Some(mark);
        Ok(())
    }

    fn wait(&self, queue: SimQueue, event: &SimEvent) -> Result<(), DeviceError> {
        self.call("wait")?;
        let stream = self.stream_for("a wait", queue)?;
        let mut state = lock(&self.inner.state);
        let Some(mark) = lock(&event.mark).clone() else {
            return Ok(());
        };
        state.wait(stream, mark);
        Ok(())
    }

    fn is_done(&self, event: &SimEvent) -> Result<bool, DeviceError> {
        self.call("is_done")?;
        // That it was found done by chance orders nothing: on another day it would not have been.
        let mark = lock(&event.mark).clone();
        Ok(mark.is_none_or(|mark| self.has_come(&mark)))
    }

    fn synchronize(&self, event: &SimEvent) -> Result<(), DeviceError> {
        self.call("synchronize")?;
        let Some(mark) = lock(&event.mark).clone() else {
            return Ok(());
        };
        self.await_mark(&mark);
        self.call("synchronize")
    }

    fn synchronize_within(&self, event: &SimEvent, limit: Duration) -> Result<bool, DeviceError> {
        let mark = lock(&event.mark).clone();
        let is_wall = matches!(self.inner.store.clock, Clock::Wall(_));
        if is_wall && mark.is_some_and(|mark| !mark.wait_within(limit)) {
            return Ok(false);
        }
        self.synchronize(event).map(|()| true)
    }

    fn drain(&self) -> Result<(), DeviceError> {
        self.call("drain")?;
        let state = lock(&self.inner.state);
        if state.streams.iter().any(|s| s.usage == Usage::Captured) {
            return Err(DeviceError::Refused {
                call: "waiting for the device",
                source: Arc::new(Captured),
            });
        }
        let ends: Vec<Arc<Mark>> = (0..state.streams.len())
            .map(|stream| state.mark(stream, state.streams[stream].end_ns))
            .collect();
        drop(state);
        for end in ends {
            self.await_mark(&end);
        }
        self.call("drain")
    }

    fn elapsed(&self, from: &SimEvent, to: &SimEvent) -> Result<Duration, DeviceError> {
        self.call("elapsed")?;
        let time = |event: &SimEvent| -> Result<u64, DeviceError> {
            let mark = lock(&event.mark).clone().filter(|_| event.timed);
            let done = mark.filter(|mark| self.has_come(mark));
            Ok(done.ok_or(DeviceError::Untimed)?.time_ns)
        };
        let (from, to) = (time(from)?, time(to)?);
        Ok(Duration::from_nanos(to.saturating_sub(from)))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let state = std::mem::take(self.state.get_mut().unwrap_or_else(|poisoned| {
            // Nothing leaves it half way.
            poisoned.into_inner()
        }));
        match std::process::id() == self.process {
            true => state.end(),
            // A fork has not got the threads.
            false => std::mem::forget(state),
        }
    }
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sim({})", self.inner.config)
    }
}
