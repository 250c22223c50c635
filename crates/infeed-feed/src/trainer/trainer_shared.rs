//! State that the threads of all feeders share, and the counters of each feeder.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use infeed::loader::remote::{RemoteBatches, RemoteWorkerStats};

use super::busy::Busy;
use crate::hosts::{FeederAddress, Feeders, Hosts, Local};
use crate::wire::hello::Hello;
use crate::wire::rows::RowsLayout;

/// Handshake and row layout for the feeders, fixed when the loader opens.
#[derive(Debug)]
pub(super) struct FeederTerms {
    pub(super) feeders: Feeders,
    pub(super) hello: Hello,
    pub(super) layout: RowsLayout,
}

/// State shared by the threads of all feeders.
#[derive(Debug)]
pub(super) struct TrainerShared {
    pub(super) batches: RemoteBatches,
    pub(super) terms: FeederTerms,
    pub(super) hosts: Vec<Host>,
    /// Time during which any feeder sends bytes.
    pub(super) receiving: Busy,
    pub(super) closed: AtomicBool,
}

/// One feeder.
#[derive(Debug, Default)]
pub(super) struct Host {
    pub(super) number: usize,
    /// Current address.
    pub(super) at: Mutex<Arc<FeederAddress>>,
    /// Whether the feeder is connected and not late.
    pub(super) able: AtomicBool,
    pub(super) batches: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) wait_ns: AtomicU64,
    pub(super) receiving_ns: AtomicU64,
    pub(super) cpu_ns: AtomicU64,
    pub(super) redone: AtomicU64,
    pub(super) declined: AtomicU64,
    pub(super) corrupt: AtomicU64,
    pub(super) lost: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) problem: Mutex<Option<String>>,
}

impl TrainerShared {
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Whether the connection at the feeder's current address must end.
    pub(super) fn is_over(&self, host: &Host) -> bool {
        self.is_closed() || host.has_moved(&self.terms.feeders.hosts)
    }

    /// Sets whether local threads may take batches, given the connected feeders.
    pub(super) fn share_out(&self) {
        let able = |host: &Host| host.able.load(Ordering::Acquire);
        let is_allowed = match self.terms.feeders.local {
            Local::Help => true,
            Local::Fallback => !self.hosts.iter().any(able),
        };
        self.batches.let_local_threads_make(is_allowed);
    }
}

impl Host {
    /// Reads and stores the feeder's current address.
    pub(super) fn update_address(&self, hosts: &Hosts) -> Arc<FeederAddress> {
        let address = hosts.address(self.number);
        *lock(&self.at) = Arc::clone(&address);
        address
    }

    pub(super) fn has_moved(&self, hosts: &Hosts) -> bool {
        !Arc::ptr_eq(&lock(&self.at), &hosts.address(self.number))
    }

    /// Name of the feeder in messages.
    pub(super) fn name(&self) -> String {
        lock(&self.at).to_string()
    }

    pub(super) fn stats(&self, address: &FeederAddress) -> RemoteWorkerStats {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RemoteWorkerStats {
            host: address.host.clone(),
            node: address.node.clone(),
            connected: self.able.load(Ordering::Relaxed),
            batches: count(&self.batches),
            bytes: count(&self.bytes),
            wait: Duration::from_nanos(count(&self.wait_ns)),
            receiving: Duration::from_nanos(count(&self.receiving_ns)),
            cpu: Duration::from_nanos(count(&self.cpu_ns)),
            redone: count(&self.redone),
            declined: count(&self.declined),
            corrupt: count(&self.corrupt),
            lost: count(&self.lost),
            refused: count(&self.refused),
            problem: lock(&self.problem).clone(),
        }
    }
}

pub(super) fn add(counter: &AtomicU64, number: u64) {
    counter.fetch_add(number, Ordering::Relaxed);
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code panics while it holds the lock.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
