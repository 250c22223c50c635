//! A GPU: its memory, its streams, and the error that ended its use.

use std::collections::HashMap;
use std::ffi::c_uint;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::Duration;

use super::code;
use super::lock;
use super::memory::ReservedMemory;
use super::stream::{Capture, Stream, StreamTail};
use crate::ptx::AddressFault;

/// A GPU of the driver.
pub(crate) struct FakeGpu {
    pub(crate) ordinal: usize,
    pub(crate) memory: ReservedMemory,
    /// Number of retains of its primary context that are not released.
    retained: AtomicUsize,
    /// Code that every call returns after a command failed, with the reason; None before.
    lost: Mutex<Option<(c_uint, String)>>,
    /// Streams that wait for each other: the legacy stream, those of threads, and blocking streams.
    ordered: Mutex<OrderedFrees>,
    /// Commands of destroyed streams, which run to their end.
    destroyed: Mutex<Vec<StreamTail>>,
    delay: Duration,
}

#[derive(Default)]
struct OrderedFrees {
    legacy: Option<Arc<Stream>>,
    threads: HashMap<ThreadId, Arc<Stream>>,
    others: Vec<Arc<Stream>>,
}

impl FakeGpu {
    /// # Errors
    ///
    /// If the system has no addresses left.
    pub(crate) fn new(ordinal: usize, bytes: usize, delay: Duration) -> Result<FakeGpu, String> {
        Ok(FakeGpu {
            ordinal,
            memory: ReservedMemory::new(bytes)?,
            retained: AtomicUsize::new(0),
            lost: Mutex::default(),
            ordered: Mutex::default(),
            destroyed: Mutex::default(),
            delay,
        })
    }

    /// Handle of its primary context.
    pub(crate) fn context(&self) -> usize {
        0xc0_de00 + 0x10 * self.ordinal
    }

    pub(crate) fn retain(&self) {
        self.retained.fetch_add(1, Ordering::SeqCst);
    }

    /// Releases the context once. Returns whether it was retained.
    pub(crate) fn release(&self) -> bool {
        let less = |count: usize| count.checked_sub(1);
        let (set, get) = (Ordering::SeqCst, Ordering::SeqCst);
        self.retained.fetch_update(set, get, less).is_ok()
    }

    pub(crate) fn is_retained(&self) -> bool {
        self.retained.load(Ordering::SeqCst) > 0
    }

    /// Marks the GPU as unusable. The first reason is kept.
    pub(crate) fn lose(&self, code: c_uint, why: String) {
        lock(&self.lost).get_or_insert((code, why));
    }

    /// # Errors
    ///
    /// The code of the error that made the GPU unusable.
    pub(crate) fn works(&self) -> Result<(), c_uint> {
        match &*lock(&self.lost) {
            None => Ok(()),
            Some((code, _)) => Err(*code),
        }
    }

    /// Returns the reason why the GPU is unusable.
    pub(crate) fn lost_reason(&self) -> Option<String> {
        let lost = lock(&self.lost);
        lost.as_ref()
            .map(|(_, why)| format!("cuda:{}: {why}", self.ordinal))
    }

    /// Reads the GPU's memory for a command. None if the GPU is unusable, or becomes unusable
    /// because the address is invalid.
    pub(crate) fn read(&self, command: &str, address: u64, len: usize) -> Option<Vec<u8>> {
        self.works().ok()?;
        let mut bytes = vec![0; len];
        match self.memory.read(address, &mut bytes) {
            Ok(()) => Some(bytes),
            Err(AddressFault) => {
                let why = format!("{command} reads invalid memory, at {address:#x}");
                self.lose(code::ILLEGAL_ADDRESS, why);
                None
            }
        }
    }

    /// Writes the GPU's memory for a command.
    pub(crate) fn write(&self, command: &str, address: u64, bytes: &[u8]) {
        if self.works().is_ok() && self.memory.write(address, bytes).is_err() {
            let why = format!("{command} writes invalid memory, at {address:#x}");
            self.lose(code::ILLEGAL_ADDRESS, why);
        }
    }

    /// Makes a stream.
    pub(crate) fn stream(&self, is_blocking: bool) -> Arc<Stream> {
        let stream = Stream::start(self.ordinal, is_blocking, self.delay);
        if is_blocking {
            lock(&self.ordered).others.push(Arc::clone(&stream));
        }
        stream
    }

    /// Ends a stream after its commands.
    pub(crate) fn destroy(&self, stream: &Arc<Stream>) {
        stream.close();
        lock(&self.destroyed).push(stream.tail());
        let others = &mut lock(&self.ordered).others;
        others.retain(|other| !Arc::ptr_eq(other, stream));
    }

    /// Waits for the commands of destroyed streams.
    pub(crate) fn wait_for_destroyed_streams(&self) {
        let destroyed = std::mem::take(&mut *lock(&self.destroyed));
        destroyed.iter().for_each(StreamTail::wait);
    }

    pub(crate) fn legacy(&self) -> Arc<Stream> {
        let mut ordered = lock(&self.ordered);
        let start = || Stream::start(self.ordinal, true, self.delay);
        Arc::clone(ordered.legacy.get_or_insert_with(start))
    }

    /// Returns the default stream of the calling thread.
    pub(crate) fn per_thread(&self) -> Arc<Stream> {
        let mut ordered = lock(&self.ordered);
        let start = || Stream::start(self.ordinal, true, self.delay);
        let stream = ordered.threads.entry(thread::current().id());
        Arc::clone(stream.or_insert_with(start))
    }

    /// Puts a command on a stream. On the legacy stream it runs after the commands of all streams
    /// that wait for it; on those, after the commands of the legacy stream.
    pub(crate) fn put(&self, stream: &Arc<Stream>, command: Box<dyn FnOnce() + Send>) {
        if !stream.is_blocking {
            stream.put(command);
            return;
        }
        // Held until the command is enqueued, so that commands of two threads have one order.
        let ordered = lock(&self.ordered);
        let is_legacy = ordered
            .legacy
            .as_ref()
            .is_some_and(|l| Arc::ptr_eq(l, stream));
        let before: Vec<_> = match is_legacy {
            true => {
                let all = ordered.threads.values().chain(&ordered.others);
                all.map(Stream::tail).collect()
            }
            false => ordered.legacy.iter().map(Stream::tail).collect(),
        };
        stream.put(Box::new(move || {
            before.iter().for_each(|tail| tail.wait());
            command();
        }));
    }

    /// Returns the legacy stream and the streams that wait for it.
    pub(crate) fn ordered_streams(&self) -> Vec<Arc<Stream>> {
        let ordered = lock(&self.ordered);
        let named = ordered.legacy.iter().chain(ordered.threads.values());
        named.chain(&ordered.others).cloned().collect()
    }

    /// Whether a stream that the legacy stream would wait for is captured.
    pub(crate) fn is_captured(&self) -> bool {
        let ordered = self.ordered_streams();
        ordered
            .iter()
            .any(|stream| stream.capture() != Capture::None)
    }
}
