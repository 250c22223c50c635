//! A simulated device: its memory is the host's, its streams are threads.
//!
//! It follows the same rules of streams and events as a GPU. Copies and kernels run on its threads,
//! at the rates of a [`SimConfig`] and with delays drawn from its seed. In addition, its times are
//! exact, and it reports commands that were not ordered as required ([`Sim::violations`]), whatever
//! their timing was.
//!
//! **Times.** A command begins at the latest of these times: its stream finishes the previous
//! command, the events it waits for are done, it is enqueued, and, for a copy from the host, the
//! bus is free. It ends after its duration at the configured rate. Both times are known when the
//! command is enqueued, so [`elapsed`](Device::elapsed) does not depend on how late a thread wakes
//! up. A thread never finishes a command before its end time.
//!
//! A device [`with_own_clock`](Sim::with_own_clock) has no threads: the caller sets the time, a
//! command takes effect when it is enqueued, and runs are exactly reproducible.

mod config;
mod jpeg;
mod memory;
mod named_sim;
mod races;
mod state;
mod stream_thread;
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

use infeed_core::error::{Cause, Error};

use super::jpeg::{DecoderSettings, Decoding, ImagePosition, LateRejections, ScannedJpeg, span};
use super::{Device, DeviceError, HostSource};

pub use config::SimConfig;
pub use jpeg::SimDecoder;
pub use memory::{SimEvent, SimMemory, SimQueue, SimRead, SimTransfer};
pub use races::{Violation, ViolationKind};

use jpeg::JpegBatch;
use memory::{Clock, DeviceStore};
use state::{Faults, SimState, StartedCommand, StreamUsage};
use stream_thread::{StreamMark, StreamTask, lock};
use table::DeviceTable;

/// A simulated device. Clones share it. Dropping the last clone makes its threads run the remaining
/// commands immediately, and joins them.
#[derive(Clone)]
pub struct Sim {
    inner: Arc<SimInner>,
}

struct SimInner {
    number: u64,
    config: SimConfig,
    process: u32,
    state: Mutex<SimState>,
    /// Shared with the device's memory, which may outlive it.
    store: Arc<DeviceStore>,
    /// Shared with commands in flight.
    found: Arc<Faults>,
}

/// Number of the next device, so that streams of different devices differ.
static DEVICES: AtomicU64 = AtomicU64::new(0);

impl Sim {
    /// Creates a device that uses the host's clock.
    pub fn new(config: SimConfig) -> Sim {
        Sim::with_clock(config, Clock::Wall(Instant::now()))
    }

    /// Creates a device from its text form; see [`SimConfig`].
    ///
    /// # Errors
    ///
    /// [`Error::Config`], which names the wrong key.
    pub fn parse(text: &str) -> Result<Sim, Error> {
        Ok(Sim::new(text.parse()?))
    }

    /// Creates a device whose time is set by [`set_now`](Sim::set_now), from 0. It has no threads:
    /// a command takes effect when it is enqueued, and an event is done when its time is reached.
    pub fn with_own_clock(config: SimConfig) -> Sim {
        Sim::with_clock(config, Clock::Own(AtomicU64::new(0)))
    }

    fn with_clock(config: SimConfig, clock: Clock) -> Sim {
        let found = Arc::new(Faults::default());
        Sim {
            inner: Arc::new(SimInner {
                // Relaxed: the numbers only need to differ.
                number: DEVICES.fetch_add(1, Ordering::Relaxed),
                config,
                process: std::process::id(),
                state: Mutex::new(SimState::default()),
                store: Arc::new(DeviceStore::new(clock, Arc::clone(&found))),
                found,
            }),
        }
    }

    /// Returns the device's rates.
    pub fn config(&self) -> &SimConfig {
        &self.inner.config
    }

    fn now_ns(&self) -> u64 {
        self.inner.store.clock.now_ns()
    }

    /// Returns the time since the device was created.
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.now_ns())
    }

    /// Sets the time of a device with its own clock. The time never goes back.
    pub fn set_now(&self, now: Duration) {
        if let Clock::Own(clock) = &self.inner.store.clock {
            clock.fetch_max(now.as_nanos() as u64, Ordering::Relaxed);
        }
    }

    /// Returns the time at which a stream finishes its current commands.
    ///
    /// # Errors
    ///
    /// If it is not a stream of this device.
    pub fn end_of(&self, queue: SimQueue) -> Result<Duration, DeviceError> {
        let stream = self.number_of(queue)?;
        let end_ns = lock(&self.inner.state).streams[stream].end_ns;
        Ok(Duration::from_nanos(end_ns))
    }

    /// Returns the memory accesses that were not ordered as required, at most the first thousand.
    pub fn violations(&self) -> Vec<Violation> {
        lock(&self.inner.found.violations).clone()
    }

    /// Returns the bytes of allocated memory.
    pub fn used_bytes(&self) -> u64 {
        // Relaxed: a counter that orders nothing.
        self.inner.store.used.load(Ordering::Relaxed)
    }

    /// Runs a consumer's command that reads the beginning of a memory for the duration `lasting`.
    /// Returns a handle for the bytes that it read.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Bounds`]; an error if it is not a stream of this device.
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
        state.push(stream, StreamTask::Read { work, end_ns });
        let done = state.mark(stream, end_ns);
        Ok(SimRead { seen, done })
    }

    /// Runs a consumer's command that uses no memory of the device.
    ///
    /// # Errors
    ///
    /// If it is not a stream of this device.
    pub fn work(&self, queue: SimQueue, lasting: Duration) -> Result<(), DeviceError> {
        let stream = self.number_of(queue)?;
        let mut state = lock(&self.inner.state);
        let begun = state.begin(&self.inner.config, stream, self.now_ns(), lasting);
        let (work, end_ns) = (Box::new(|| ()), begun.end_ns);
        state.push(stream, StreamTask::Read { work, end_ns });
        Ok(())
    }

    /// Makes a call fail: the one after `after` other calls of this name.
    #[cfg(test)]
    pub(crate) fn fail(&self, call: &'static str, after: u64) {
        lock(&self.inner.state).failures.insert(call, after);
    }

    /// Returns the start and end of every command in nanoseconds, with its stream, in the order of
    /// enqueueing.
    #[cfg(test)]
    pub(crate) fn spans(&self) -> Vec<(usize, u64, u64)> {
        lock(&self.inner.state).spans.clone()
    }

    /// Returns an error if this call is set to fail.
    fn call(&self, call: &'static str) -> Result<(), DeviceError> {
        #[cfg(test)]
        {
            let mut state = lock(&self.inner.state);
            match state.failures.get_mut(call) {
                Some(0) => {
                    let reported = std::io::Error::other("it was made to");
                    return Err(failure(call, Arc::new(reported)));
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
                Err(failure("stream", Arc::new(WrongDevice { what })))
            }
        }
    }

    /// Returns the number of the stream that a command is enqueued in.
    fn stream_for(&self, call: &'static str, queue: SimQueue) -> Result<usize, DeviceError> {
        let stream = self.number_of(queue)?;
        match lock(&self.inner.state).streams[stream].usage {
            StreamUsage::Open => Ok(stream),
            StreamUsage::Captured => Err(DeviceError::Rejected {
                call,
                source: Arc::new(StreamCaptured),
            }),
            StreamUsage::Destroyed => Err(DeviceError::NoStream {
                call,
                source: Arc::new(StreamDestroyed),
            }),
        }
    }

    /// Sets whether a consumer captures its stream into a graph. While captured, the stream rejects
    /// commands of others.
    ///
    /// # Errors
    ///
    /// If it is not a stream of this device.
    pub fn capture(&self, queue: SimQueue, is_captured: bool) -> Result<(), DeviceError> {
        let stream = self.number_of(queue)?;
        lock(&self.inner.state).streams[stream].usage = match is_captured {
            true => StreamUsage::Captured,
            false => StreamUsage::Open,
        };
        Ok(())
    }

    /// Destroys a consumer's stream. Its commands run to their end; it accepts no others.
    ///
    /// # Errors
    ///
    /// If it is not a stream of this device.
    pub fn destroy(&self, queue: SimQueue) -> Result<(), DeviceError> {
        let stream = self.number_of(queue)?;
        lock(&self.inner.state).streams[stream].usage = StreamUsage::Destroyed;
        Ok(())
    }

    fn reads(
        &self,
        state: &SimState,
        begun: &StartedCommand,
        memory: &SimMemory,
        bytes: Range<usize>,
    ) {
        let wrong = memory.read(begun.access(bytes), state.clock(begun));
        self.inner.found.add(begun.stream, memory.number, wrong);
    }

    fn writes(
        &self,
        state: &SimState,
        begun: &StartedCommand,
        memory: &SimMemory,
        bytes: Range<usize>,
    ) {
        let wrong = memory.write(begun.access(bytes), state.clock(begun));
        self.inner.found.add(begun.stream, memory.number, wrong);
    }

    /// Makes the host wait for a mark.
    fn await_mark(&self, mark: &StreamMark) {
        match &self.inner.store.clock {
            Clock::Wall(_) => mark.wait(),
            Clock::Own(now) => {
                now.fetch_max(mark.time_ns, Ordering::Relaxed);
            }
        }
        // Commands that the host enqueues from now on come after the mark.
        lock(&self.inner.state).host.join(&mark.clock);
    }

    /// Whether a mark is reached.
    fn has_passed(&self, mark: &StreamMark) -> bool {
        match &self.inner.store.clock {
            Clock::Wall(_) => mark.is_reached(),
            Clock::Own(_) => self.now_ns() >= mark.time_ns,
        }
    }
}

/// Error of a call with an object of another device.
#[derive(Debug, thiserror::Error)]
#[error("the {what} belongs to another device; use one of this device")]
struct WrongDevice {
    what: &'static str,
}

/// The consumer captures the stream into a graph.
#[derive(Debug, thiserror::Error)]
#[error("the stream is being captured into a graph; take batches before the capture")]
struct StreamCaptured;

/// The stream was destroyed.
#[derive(Debug, thiserror::Error)]
#[error("the stream was destroyed; keep a stream until all batches used in it are dropped")]
struct StreamDestroyed;

fn failure(call: &'static str, source: Cause) -> DeviceError {
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
        // Relaxed: a counter that orders nothing.
        let taken = self
            .inner
            .store
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        let none = |used: u64| DeviceError::OutOfMemory {
            requested_bytes: bytes as u64,
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
        let stream = stream.map_err(|error| failure("stream", Arc::new(error)))?;
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
        let enqueued_hash = memory::sample_hash(&(*from).as_ref()[..bytes]);
        let mut state = lock(&self.inner.state);
        let begun = state.begin_copy(&self.inner.config, stream, self.now_ns(), bytes as u64);
        self.writes(&state, &begun, to, at..at + bytes);
        let (source, to) = (Arc::clone(&from), Arc::clone(to));
        let (found, stream, end_ns) = (Arc::clone(&self.inner.found), begun.stream, begun.end_ns);
        let work = move || {
            let bytes = (*source).as_ref().get(..bytes).unwrap_or(&[]);
            if memory::sample_hash(bytes) != enqueued_hash {
                let wrong = vec![(ViolationKind::HostChanged, None)];
                found.add(stream, to.number, wrong);
            }
            lock(&to.bytes)[at..at + bytes.len()].copy_from_slice(bytes);
        };
        let work = Box::new(work);
        state.push(stream, StreamTask::Write { work, end_ns });
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
        state.push(stream, StreamTask::Write { work, end_ns });
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
        let reported = table.map(|(table, _)| table);
        let reads = kernel.reach(rows, reported).unwrap_or(all);
        let writes = kernel.output_bytes(rows).unwrap_or(all);
        bounds(COMMAND, "its input", reads, input.len)?;
        bounds(COMMAND, "its output", writes, output.len)?;
        let table_bytes = reported.map_or(0, |table| table.bytes().len());
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
            .check(rows, reads, reported, writes)
            .map_err(|error| failure("launch", Arc::new(error)))?;
        let sent = match table {
            Some((table, memory)) => {
                Some(self.copy(queue, table.to_arc(), table_bytes, memory, 0)?)
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
                DeviceTable::read(&kernel, rows, &bytes[..table_bytes])
            });
            let ran = read.transpose().and_then(|table| {
                SimMemory::both(&input, &output, |input, output| {
                    let table = table.as_ref().map(DeviceTable::as_table);
                    kernel.run(rows, &input[..reads], table, &mut output[..writes])
                })
            });
            if let Err(error) = ran {
                found.fail(failure("launch", Arc::new(error)));
            }
            // The copy precedes this command in the stream, so dropping it does not wait.
            drop(sent);
        };
        let work = Box::new(work);
        let end_ns = begun.end_ns;
        state.push(stream, StreamTask::Write { work, end_ns });
        Ok(())
    }

    fn decoder(&self, _settings: &DecoderSettings) -> Result<SimDecoder, DeviceError> {
        self.call("decoder")?;
        let Some(pixels_per_s) = self.inner.config.jpeg_pixels_per_s else {
            let source = Arc::new(jpeg::DecoderDisabled);
            return Err(DeviceError::NoDecoder { source });
        };
        let engine = self.stream()?.stream;
        let made = SimDecoder::new(self.inner.number, engine, pixels_per_s);
        made.map_err(|error| failure("decoder", Arc::new(error)))
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
        positions: &[ImagePosition],
    ) -> Result<Decoding<SimTransfer>, DeviceError> {
        self.call("decode")?;
        let stream = self.stream_for("decoding JPEGs", queue)?;
        if decoder.device != self.inner.number {
            let what = "decoder";
            return Err(failure("decode", Arc::new(WrongDevice { what })));
        }
        let span = span(jpegs.len(), positions, to.len)?;
        let (files, rejected) = JpegBatch::of(jpegs, positions);
        let later = LateRejections::default();
        let (config, now_ns) = (&self.inner.config, self.now_ns());
        let mut state = lock(&self.inner.state);
        // The engine waits only for the commands that the host has waited for, not for the stream's
        // commands.
        let engine = decoder.engine;
        let sent = state.begin_copy(config, engine, now_ns, files.encoded_bytes());
        let (work, end_ns) = (Box::new(|| ()), sent.end_ns);
        state.push(engine, StreamTask::Read { work, end_ns });
        let (pixels, rate) = (files.pixels(), decoder.pixels_per_s);
        let begun = state.begin_work(config, engine, now_ns, pixels, rate);
        // Includes the bytes between the positions, whose contents become unspecified.
        self.writes(&state, &begun, to, span);
        let work = files.work(decoder, to, begun.stream, &self.inner.found, &later);
        let end_ns = begun.end_ns;
        state.push(engine, StreamTask::Write { work, end_ns });
        let landed = state.mark(engine, end_ns);
        state.wait(stream, Arc::clone(&landed));
        let transfer = SimTransfer {
            _from: jpegs.iter().map(|jpeg| Arc::clone(&jpeg.source)).collect(),
            landed,
            process: self.inner.process,
        };
        Ok(Decoding::new(transfer, rejected, Some(later)))
    }

    fn record(&self, event: &SimEvent, queue: SimQueue) -> Result<(), DeviceError> {
        self.call("record")?;
        let stream = self.stream_for("a record", queue)?;
        let mut state = lock(&self.inner.state);
        let time_ns = state.streams[stream].end_ns.max(self.now_ns());
        // An idle stream reaches the event at once.
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
        // The event may be done by chance, which orders nothing: with another timing it would not
        // be done.
        let mark = lock(&event.mark).clone();
        Ok(mark.is_none_or(|mark| self.has_passed(&mark)))
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

    fn is_slowed_by_waits(&self) -> bool {
        self.inner.config.is_slowed_by_waits
    }

    fn elapsed(&self, from: &SimEvent, to: &SimEvent) -> Result<Duration, DeviceError> {
        self.call("elapsed")?;
        let time = |event: &SimEvent| -> Result<u64, DeviceError> {
            let mark = lock(&event.mark).clone().filter(|_| event.timed);
            let done = mark.filter(|mark| self.has_passed(mark));
            Ok(done.ok_or(DeviceError::Untimed)?.time_ns)
        };
        let (from, to) = (time(from)?, time(to)?);
        Ok(Duration::from_nanos(to.saturating_sub(from)))
    }
}

impl Drop for SimInner {
    fn drop(&mut self) {
        let state = std::mem::take(self.state.get_mut().unwrap_or_else(|poisoned| {
            // A panic leaves the state consistent.
            poisoned.into_inner()
        }));
        match std::process::id() == self.process {
            true => state.end(),
            // A fork does not have the threads.
            false => std::mem::forget(state),
        }
    }
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sim({})", self.inner.config)
    }
}
