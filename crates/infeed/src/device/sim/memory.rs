//! What a simulated device gives out: memory, streams, events, copies and reads under way.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use infeed_raw::host::HostBytes;

use crate::device::HostSource;
use crate::random;

use super::line::{Mark, lock};
use super::races::{Access, Clocks, History, ViolationKind};
use super::state::Found;

/// The host's clock, from which commands get the time of their enqueueing.
pub(super) enum Clock {
    Wall(Instant),
    Own(AtomicU64),
}

impl Clock {
    pub(super) fn now_ns(&self) -> u64 {
        match self {
            Clock::Wall(start) => start.elapsed().as_nanos() as u64,
            // Relaxed: one thread sets it, in the order of what it simulates.
            Clock::Own(now) => now.load(Ordering::Relaxed),
        }
    }
}

/// What a device and its memory share.
pub(super) struct Store {
    pub(super) clock: Clock,
    /// Bytes that are allocated.
    pub(super) used: AtomicU64,
    found: Arc<Found>,
}

impl Store {
    pub(super) fn new(clock: Clock, found: Arc<Found>) -> Store {
        Store {
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
    history: Mutex<History>,
    /// Where the last command of a consumer that uses it is, and when that ends.
    busy: Mutex<(usize, u64)>,
    store: Arc<Store>,
}

impl SimMemory {
    /// Memory whose length was added to the store's, from which it is taken when it is dropped.
    pub(super) fn new(number: u64, bytes: HostBytes, store: Arc<Store>) -> SimMemory {
        SimMemory {
            number,
            len: bytes.len(),
            bytes: Mutex::new(bytes),
            history: Mutex::new(History::default()),
            busy: Mutex::default(),
            store,
        }
    }

    /// Number of the memory, counted in the order of allocation.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Number of its bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Notes a read; with what is wrong about it.
    pub(super) fn read(
        &self,
        access: Access,
        clock: &Clocks,
    ) -> Vec<(ViolationKind, Option<usize>)> {
        lock(&self.history).read(access, clock)
    }

    /// Notes a write; with what is wrong about it.
    pub(super) fn write(
        &self,
        access: Access,
        clock: &Clocks,
    ) -> Vec<(ViolationKind, Option<usize>)> {
        lock(&self.history).write(access, clock)
    }

    /// Notes until when a consumer uses it, for whom no implementation of a device keeps memory.
    pub(super) fn lasts(&self, stream: usize, end_ns: u64) {
        let mut busy = lock(&self.busy);
        if busy.1 < end_ns {
            *busy = (stream, end_ns);
        }
    }

    /// Calls `f` with the bytes of one and of another, neither of which is the other. Whoever locks
    /// two takes them in the order of their numbers.
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
        // On a real device somebody else's bytes may be there while that command runs.
        if self.store.clock.now_ns() < end_ns {
            let wrong = vec![(ViolationKind::FreedInUse, None)];
            self.store.found.add(stream, self.number, wrong);
        }
        // Relaxed: a count that orders nothing.
        self.store
            .used
            .fetch_sub(self.len as u64, Ordering::Relaxed);
    }
}

impl SimMemory {
    /// Its first bytes as they are now, for a host that has waited for what writes them.
    pub(in crate::device) fn first(&self, bytes: usize) -> Vec<u8> {
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
    /// Which device, so that a stream of another is noticed.
    pub(super) device: u64,
    pub(super) stream: usize,
}

impl SimQueue {
    /// Number of the stream, counted in the order of making.
    pub fn number(&self) -> usize {
        self.stream
    }
}

/// An event of a simulated device.
#[derive(Debug)]
pub struct SimEvent {
    pub(super) timed: bool,
    pub(super) mark: Mutex<Option<Arc<Mark>>>,
}

/// A copy to a simulated device.
pub struct SimTransfer {
    pub(super) _from: Vec<HostSource>,
    pub(super) landed: Arc<Mark>,
    pub(super) process: u32,
}

impl Drop for SimTransfer {
    fn drop(&mut self) {
        // In a fork there is no thread that would come to it, and none that reads the bytes.
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

/// A read by a consumer under way.
#[derive(Debug)]
pub struct SimRead {
    pub(super) seen: Arc<Mutex<Vec<u8>>>,
    pub(super) done: Arc<Mark>,
}

impl SimRead {
    /// The bytes that it saw. Blocks until it has; on a device with a clock of its own it has at once.
    pub fn bytes(self) -> Vec<u8> {
        self.done.wait();
        std::mem::take(&mut *lock(&self.seen))
    }
}

/// Bytes of a host's memory that are looked at to see whether it changed. All of a memory that is
/// not longer than this; else as many, spread over it.
const LOOKED_AT: usize = 4096;

/// A number that is another one, as good as surely, if the bytes looked at are others.
pub(super) fn look(bytes: &[u8]) -> u64 {
    if bytes.len() <= LOOKED_AT {
        return random::hash_bytes(bytes);
    }
    let step = bytes.len().div_ceil(LOOKED_AT);
    let some: Vec<u8> = bytes.iter().step_by(step).copied().collect();
    random::hash_bytes(&some)
}
