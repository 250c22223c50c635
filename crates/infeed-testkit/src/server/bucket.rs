//! Objects, uploads and configured faults, which the server's connections share.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use bytes::Bytes;

use infeed_core::random::mix;

use super::request::{ReceivedRequest, RequestFault, RequestKind};

#[derive(Clone, Debug)]
pub(super) struct StoredObject {
    pub(super) bytes: Bytes,
    pub(super) tag: String,
}

/// A multipart upload.
#[derive(Debug, Default)]
pub(super) struct MultipartUpload {
    pub(super) key: String,
    /// Parts by number, with their tags.
    pub(super) parts: BTreeMap<u32, StoredObject>,
}

#[derive(Debug)]
pub(super) struct FaultRule {
    pub(super) kind: RequestKind,
    pub(super) fault: RequestFault,
    pub(super) left: u32,
}

#[derive(Debug, Default)]
pub(super) struct BucketState {
    pub(super) objects: BTreeMap<String, StoredObject>,
    pub(super) uploads: BTreeMap<String, MultipartUpload>,
    pub(super) rules: Vec<FaultRule>,
    /// Object that replaces another one after its next read.
    pub(super) replacement: Option<(String, Bytes)>,
    /// Seed, and percentage of reads that fail at random.
    pub(super) chaos: Option<(u64, u64)>,
    /// The same for requests that change objects.
    pub(super) chaos_of_writes: Option<(u64, u64)>,
    /// Number of changing requests so far, and the maximum.
    pub(super) writes: u64,
    pub(super) most_writes: Option<u64>,
    /// Rejects conditional puts as unsupported.
    pub(super) unconditional: bool,
    pub(super) latency: Duration,
    pub(super) log: Vec<ReceivedRequest>,
    pub(super) revisions: u64,
    pub(super) page: usize,
    pub(super) ranges: bool,
}

#[derive(Debug)]
pub(super) struct ServerShared {
    pub(super) state: Mutex<BucketState>,
    pub(super) closing: AtomicBool,
}

impl ServerShared {
    pub(super) fn lock(&self) -> MutexGuard<'_, BucketState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// Sleeps in slices, so that the server can close. Returns false if it closes.
    pub(super) fn sleep(&self, mut time: Duration) -> bool {
        while !time.is_zero() && !self.closing() {
            let slice = time.min(Duration::from_millis(20));
            thread::sleep(slice);
            time -= slice;
        }
        !self.closing()
    }
}

impl BucketState {
    /// Returns an object with a new tag.
    pub(super) fn object(&mut self, bytes: Bytes) -> StoredObject {
        self.revisions += 1;
        let tag = format!("{:016x}", mix(self.revisions));
        StoredObject { bytes, tag }
    }

    /// Stores an object under its key, with a new tag.
    pub(super) fn put(&mut self, key: &str, bytes: Bytes) {
        let object = self.object(bytes);
        self.objects.insert(key.to_owned(), object);
    }

    /// Returns the fault of a request, if any.
    pub(super) fn next_fault(&mut self, kind: RequestKind) -> Option<RequestFault> {
        if kind.changes() {
            self.writes += 1;
            if self.most_writes.is_some_and(|most| self.writes > most) {
                return Some(RequestFault::Status(403));
            }
        }
        if let Some(rule) = self
            .rules
            .iter_mut()
            .find(|rule| rule.kind == kind && rule.left > 0)
        {
            rule.left -= 1;
            return Some(rule.fault);
        }
        if let Some((seed, share)) = self.chaos_of_writes.filter(|_| kind.changes()) {
            let dice = mix(seed ^ mix(self.writes));
            return (dice % 100 < share).then(|| match (dice >> 8) % 5 {
                0 => RequestFault::Status(503),
                1 => RequestFault::Status(500),
                2 => RequestFault::Cut(mix(dice) % 70_000),
                3 => RequestFault::Lost,
                _ => RequestFault::Delay(Duration::from_millis(mix(dice) % 20)),
            });
        }
        let (seed, share) = self.chaos.filter(|_| kind == RequestKind::Read)?;
        let dice = mix(seed ^ self.log.len() as u64);
        let size = mix(dice) % 70_000;
        (dice % 100 < share).then(|| match (dice >> 8) % 10 {
            0 => RequestFault::Status(503),
            1 => RequestFault::Status(500),
            2 => RequestFault::Cut(size),
            3 => RequestFault::Short(1 + size % 100),
            4 => RequestFault::Long(1 + size % 100),
            5 => RequestFault::OtherRange,
            6 => RequestFault::Trailing(1 + size % 100),
            7 => RequestFault::Endless,
            8 => RequestFault::WholeFile,
            _ => RequestFault::Delay(Duration::from_millis(size % 30)),
        })
    }
}
