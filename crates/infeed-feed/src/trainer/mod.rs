//! Batches from other machines: a trainer requests them from its feeders by name, ahead of the
//! step.
//!
//! The trainer's threads and its feeders share the loader's in-flight batches ([`RemoteBatches`]).
//! Each takes the next batch that no other one has. So load decides which machine makes a batch,
//! but not the order or the bits. Each feeder has two threads here: one sends requests, and one
//! reads answers into the slabs. The crate's README describes states and failures.

mod busy;
mod host;
mod receive;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::hosts::{FeederAddress, Feeders, Hosts, Local};
use crate::wire::hello::{Hello, Policy, Refusal};
use crate::wire::rows::RowsLayout;
use crate::{contents, facts};
use busy::Busy;
use infeed::loader::OnError;
use infeed::loader::remote::{
    RemoteBatches, RemoteRows, RemoteWorkerStats, RemoteWorkers, RunDescription,
};
use infeed_core::error::Error;

/// Open requests per feeder: one that it makes, one in transfer, one waiting.
const DEPTH: usize = 3;

/// Longest wait for feeders when a loader opens.
const OPENING: Duration = Duration::from_secs(5);

/// Handshake and row layout for the feeders, fixed when the loader opens.
#[derive(Debug)]
struct FeederTerms {
    feeders: Feeders,
    hello: Hello,
    layout: RowsLayout,
}

/// Connected feeders. Dropping it closes the connections and joins their threads.
#[derive(Debug)]
struct Fed {
    shared: Arc<FedShared>,
    threads: Vec<JoinHandle<()>>,
    process: u32,
}

/// State shared by the threads of all feeders.
#[derive(Debug)]
struct FedShared {
    batches: RemoteBatches,
    call: FeederTerms,
    hosts: Vec<Host>,
    /// Time during which any feeder sends bytes.
    receiving: Busy,
    closed: AtomicBool,
}

/// One feeder.
#[derive(Debug, Default)]
struct Host {
    number: usize,
    /// Current address.
    at: Mutex<Arc<FeederAddress>>,
    /// Whether the feeder is connected and not late.
    able: AtomicBool,
    batches: AtomicU64,
    bytes: AtomicU64,
    wait_ns: AtomicU64,
    receiving_ns: AtomicU64,
    cpu_ns: AtomicU64,
    redone: AtomicU64,
    declined: AtomicU64,
    corrupt: AtomicU64,
    lost: AtomicU64,
    refused: AtomicU64,
    problem: Mutex<Option<String>>,
}

/// Result of the first attempt to reach a feeder.
enum First {
    Connected,
    Refused(Refusal),
    Unreachable,
}

impl RemoteRows for Feeders {
    fn workers(&self) -> usize {
        self.hosts.count()
    }

    fn in_flight_batches(&self) -> usize {
        self.hosts.count() * DEPTH
    }

    fn start(
        &self,
        run: &RunDescription,
        batches: RemoteBatches,
    ) -> Result<Box<dyn RemoteWorkers>, Error> {
        Ok(Box::new(FeederTerms::new(self, run)?.start(batches)?))
    }
}

impl FeederTerms {
    fn new(feeders: &Feeders, run: &RunDescription) -> Result<FeederTerms, Error> {
        if feeders.hosts.count() == 0 {
            let problem = "no feeder address; give at least one \"host:port\"";
            return Err(Error::config("feeders", problem));
        }
        let layout = RowsLayout::of(run, run.rules.digested);
        let looks = contents::look(&*run.source);
        let hello = Hello {
            facts: facts::facts(run, &looks)?,
            rank: run.rank,
            world_size: run.world_size,
            for_device: run.for_device,
            policy: match run.rules.on_error {
                OnError::Stop => Policy::Stop,
                OnError::Substitute => Policy::Substitute,
                OnError::Skip => Policy::Skip,
            },
            pixels: layout.pixels,
            limits: run.rules.limits,
        };
        if run.source.groups().is_some_and(|groups| groups.whole) {
            tracing::warn!(
                target: "infeed::feeders",
                "records are in groups that can only be read whole, so a feeder reads a whole \
                 window of groups for each batch; feeders help only if reading is cheap"
            );
        }
        Ok(FeederTerms {
            feeders: feeders.clone(),
            layout,
            hello,
        })
    }

    /// Starts the feeders' threads. A feeder that cannot be reached may come later; a feeder that
    /// refuses the run is an error.
    fn start(self, batches: RemoteBatches) -> Result<Fed, Error> {
        let host = |number| Host {
            number,
            ..Host::default()
        };
        let shared = Arc::new(FedShared {
            batches,
            hosts: (0..self.feeders.hosts.count()).map(host).collect(),
            call: self,
            receiving: Busy::default(),
            closed: AtomicBool::new(false),
        });
        let mut fed = Fed {
            shared: Arc::clone(&shared),
            threads: Vec::new(),
            process: std::process::id(),
        };
        let (sender, receiver) = mpsc::channel();
        for number in 0..shared.hosts.len() {
            let (shared, sender) = (Arc::clone(&shared), sender.clone());
            let thread = std::thread::Builder::new()
                .name(format!("infeed-fed-{number}"))
                .spawn(move || host::run(&shared, number, &sender))
                .map_err(|source| Error::Thread {
                    source: Arc::new(source),
                })?;
            fed.threads.push(thread);
        }
        drop(sender);
        let until = Instant::now() + OPENING;
        for _ in 0..shared.hosts.len() {
            match receiver.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok((number, First::Refused(refusal))) => {
                    let host = shared.hosts[number].name();
                    let problem = format!("{host} does not feed this run: {refusal}");
                    return Err(Error::config("feeders", problem));
                }
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
        }
        shared.share_out();
        Ok(fed)
    }
}

impl RemoteWorkers for Fed {
    fn stats(&self) -> Vec<RemoteWorkerStats> {
        let hosts = &self.shared.call.feeders.hosts;
        let each = self.shared.hosts.iter();
        each.map(|host| host.stats(&hosts.address(host.number)))
            .collect()
    }

    fn receiving(&self) -> Duration {
        self.shared.receiving.total()
    }
}

impl Drop for Fed {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // After a fork, the threads belong to the parent.
            self.threads.drain(..).for_each(std::mem::forget);
            return;
        }
        self.shared.closed.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            // The panic hook has reported a panic, and the in-flight batches were returned.
            let _ = thread.join();
        }
    }
}

impl FedShared {
    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Whether the connection at the feeder's current address must end.
    fn is_over(&self, host: &Host) -> bool {
        self.is_closed() || host.has_moved(&self.call.feeders.hosts)
    }

    /// Sets whether local threads may take batches, given the connected feeders.
    fn share_out(&self) {
        let able = |host: &Host| host.able.load(Ordering::Acquire);
        let is_allowed = match self.call.feeders.local {
            Local::Help => true,
            Local::Fallback => !self.hosts.iter().any(able),
        };
        self.batches.let_local_threads_make(is_allowed);
    }
}

impl Host {
    /// Reads and stores the feeder's current address.
    fn look(&self, hosts: &Hosts) -> Arc<FeederAddress> {
        let address = hosts.address(self.number);
        *lock(&self.at) = Arc::clone(&address);
        address
    }

    fn has_moved(&self, hosts: &Hosts) -> bool {
        !Arc::ptr_eq(&lock(&self.at), &hosts.address(self.number))
    }

    /// Name of the feeder in messages.
    fn name(&self) -> String {
        lock(&self.at).to_string()
    }

    fn stats(&self, address: &FeederAddress) -> RemoteWorkerStats {
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

fn add(counter: &AtomicU64, number: u64) {
    counter.fetch_add(number, Ordering::Relaxed);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code panics while it holds the lock.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
