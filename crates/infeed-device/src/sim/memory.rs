//! Objects of a simulated device: memory, streams, events, copies and reads in flight.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use infeed_raw::host::HostBytes;

use crate::HostSource;
use infeed_core::random;

use super::races::{Access, AccessHistory, VectorClock, ViolationKind};
use super::state::Faults;
use super::stream_thread::{StreamMark, lock};

/// Clock that times the enqueueing of commands.
pub(super) enum Clock {
    Wall(Instant),
    Own(AtomicU64),
}

impl Clock {
    pub(super) fn now_ns(&self) -> u64 {
        match self {
            Clock::Wall(start) => start.elapsed().as_nanos() as u64,
            // Relaxed: one thread sets it, in the order of the simulation.
            Clock::Own(now) => now.load(Ordering::Relaxed),
        }
    }
}

/// State that a device shares with its memory.
pub(super) struct DeviceStore {
    pub(super) clock: Clock,
    /// Bytes allocated.
    pub(super) used: AtomicU64,
    found: Arc<Faults>,
}

impl DeviceStore {
    pub(super) fn new(clock: Clock, found: Arc<Faults>) -> DeviceStore {
        DeviceStore {
            clock,
            used: AtomicU64::new(0),
            found,
        }
    }
}

/// Bytes on a simulated device.
pub struct SimMemory {
    pub(super) number: u64,
    pub(super) len: usize,
    pub(super) bytes: Mutex<HostBytes>,
    history: Mutex<AccessHistory>,
    /// Stream and end time of the last consumer's command that uses the memory.
    busy: Mutex<(usize, u64)>,
    store: Arc<DeviceStore>,
}

impl SimMemory {
    /// Creates memory. The caller has already added its length to the store's total; dropping the
    /// memory subtracts it.
    pub(super) fn new(number: u64, bytes: HostBytes, store: Arc<DeviceStore>) -> SimMemory {
        SimMemory {
            number,
            len: bytes.len(),
            bytes: Mutex::new(bytes),
            history: Mutex::new(AccessHistory::default()),
            busy: Mutex::default(),
            store,
        }
    }

    /// Returns the number of the memory, in the order of allocation.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Records a read. Returns the violations it causes.
    pub(super) fn read(
        &self,
        access: Access,
        clock: &VectorClock,
    ) -> Vec<(ViolationKind, Option<usize>)> {
        lock(&self.history).read(access, clock)
    }

    /// Records a write. Returns the violations it causes.
    pub(super) fn write(
        &self,
        access: Access,
        clock: &VectorClock,
    ) -> Vec<(ViolationKind, Option<usize>)> {
        lock(&self.history).write(access, clock)
    }

    /// Records the end of a consumer's command that uses the memory. No device defers a free for
    /// commands of consumers.
    pub(super) fn lasts(&self, stream: usize, end_ns: u64) {
        let mut busy = lock(&self.busy);
        if busy.1 < end_ns {
            *busy = (stream, end_ns);
        }
    }

    /// Calls `f` with the bytes of two different memories. Locks them in the order of their
    /// numbers, so that two threads cannot deadlock.
    pub(super) fn both<R>(
        from: &SimMemory,
        to: &SimMemory,
        f: impl FnOnce(&[u8], &mut [u8]) -> R,
    ) -> R {
        if from.number < to.number {
            let from = lock(&from.bytes);
            let mut to = lock(&to.bytes);
            f(&from, &mut to)
        } else {
            let mut to = lock(&to.bytes);
            let from = lock(&from.bytes);
            f(&from, &mut to)
        }
    }
}

impl Drop for SimMemory {
    fn drop(&mut self) {
        let (stream, end_ns) = *lock(&self.busy);
        // On a real device, the memory might hold other data while that command runs.
        if self.store.clock.now_ns() < end_ns {
            let wrong = vec![(ViolationKind::FreedInUse, None)];
            self.store.found.add(stream, self.number, wrong);
        }
        // Relaxed: a counter that orders nothing.
        self.store
            .used
            .fetch_sub(self.len as u64, Ordering::Relaxed);
    }
}

impl SimMemory {
    /// Copies the first bytes. The host must have waited for the commands that write them.
    pub(crate) fn first(&self, bytes: usize) -> Vec<u8> {
        let memory = lock(&self.bytes);
        memory[..bytes.min(memory.len())].to_vec()
    }
}

impl fmt::Debug for SimMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimMemory({}, {} bytes)", self.number, self.len)
    }
}

/// A stream of a simulated device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SimQueue {
    /// Number of the device, so that other devices reject this stream.
    pub(super) device: u64,
    pub(super) stream: usize,
}

impl SimQueue {
    /// Returns the number of the stream, in the order of creation.
    pub fn number(&self) -> usize {
        self.stream
    }
}

/// An event of a simulated device.
#[derive(Debug)]
pub struct SimEvent {
    pub(super) timed: bool,
    pub(super) mark: Mutex<Option<Arc<StreamMark>>>,
}

/// A copy to a simulated device.
pub struct SimTransfer {
    pub(super) _from: Vec<HostSource>,
    pub(super) landed: Arc<StreamMark>,
    pub(super) process: u32,
}

impl Drop for SimTransfer {
    fn drop(&mut self) {
        // In a fork, no thread reaches the mark, and no thread reads the bytes.
        if std::process::id() == self.process {
            self.landed.wait();
        }
    }
}

impl fmt::Debug for SimTransfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimTransfer").finish_non_exhaustive()
    }
}

/// A consumer's read in flight.
#[derive(Debug)]
pub struct SimRead {
    pub(super) seen: Arc<Mutex<Vec<u8>>>,
    pub(super) done: Arc<StreamMark>,
}

impl SimRead {
    /// Returns the bytes that the command read. Blocks until the command is done; with an own
    /// clock, it is done at once.
    pub fn bytes(self) -> Vec<u8> {
        self.done.wait();
        std::mem::take(&mut *lock(&self.seen))
    }
}

/// Most bytes of the host that are hashed to detect changes. A longer memory is sampled.
const MAX_HASHED: usize = 4096;

/// Hashes the sampled bytes of the memory.
pub(super) fn sample_hash(bytes: &[u8]) -> u64 {
    if bytes.len() <= MAX_HASHED {
        return random::hash_bytes(bytes);
    }
    let step = bytes.len().div_ceil(MAX_HASHED);
    let some: Vec<u8> = bytes.iter().step_by(step).copied().collect();
    random::hash_bytes(&some)
}
