//! Batches from other machines: a trainer requests them from its feeders by name, ahead of the
//! step.
//!
//! The trainer's threads and its feeders share the executor's in-flight batches (`exec/lend.rs`).
//! Each takes the next batch that no other one has. So load decides which machine makes a batch,
//! but not the order or the bits. Each feeder has two threads here: one sends requests, and one
//! reads answers into the slabs. `feed/README.md` describes states and failures.

mod busy;
mod host;
mod receive;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::digest::DigestScope;
use super::options::{OnError, Options};
use super::prepare::PreparedRun;
use super::records::RecordJob;
use super::{contents, facts};
use crate::wire::hello::{Hello, Policy, Refusal};
use crate::wire::rows::RowsLayout;
use busy::Busy;
use infeed_core::error::Error;
use infeed_core::exec::lease::BatchLeases;

pub use super::hosts::{Feeders, Hosts, Local, Place};

/// Open requests per feeder: one that it makes, one in transfer, one waiting.
pub(super) const DEPTH: usize = 3;

/// Longest wait for feeders when a loader opens.
const OPENING: Duration = Duration::from_secs(5);

/// Statistics of one feeder for this loader.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeederStats {
    /// `host:port` as given; empty while the address is unknown.
    pub host: String,
    /// Name of its machine, if known; else empty.
    pub node: String,
    /// Whether the feeder is connected and answers in time.
    pub connected: bool,
    /// Batches that it made.
    pub batches: u64,
    /// Bytes of those batches.
    pub bytes: u64,
    /// Time from request to complete batch, summed over batches.
    pub wait: Duration,
    /// Time during which bytes of its batches arrived.
    pub receiving: Duration,
    /// CPU time of this machine for receiving its batches.
    pub cpu: Duration,
    /// Batches that were requested from it but made elsewhere, because it was lost or late.
    pub redone: u64,
    /// Batches that it declined, for example because a bad record stops the run.
    pub declined: u64,
    /// Batches with corrupt bytes.
    pub corrupt: u64,
    /// Number of lost connections.
    pub lost: u64,
    /// Number of times that it refused this run.
    pub refused: u64,
    /// The last problem.
    pub problem: Option<String>,
}

/// Handshake and row layout for the feeders, fixed before the executor runs.
#[derive(Debug)]
pub(super) struct Call {
    feeders: Feeders,
    hello: Hello,
    layout: RowsLayout,
}

/// Connected feeders. Dropping it closes the connections and joins their threads.
#[derive(Debug)]
pub(super) struct Fed {
    shared: Arc<FedShared>,
    threads: Vec<JoinHandle<()>>,
    process: u32,
}

/// State shared by the threads of all feeders.
#[derive(Debug)]
struct FedShared {
    leases: BatchLeases<RecordJob>,
    call: Call,
    /// Number of in-flight batches that local threads may take.
    own: usize,
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
    at: Mutex<Arc<Place>>,
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

impl Call {
    /// Creates the call for the feeders in `options`; `None` without feeders.
    pub(super) fn new(options: &Options, prepared: &PreparedRun) -> Result<Option<Call>, Error> {
        let Some(feeders) = &options.feeders else {
            return Ok(None);
        };
        if feeders.count() == 0 {
            let problem = "no feeder address; give at least one \"host:port\"";
            return Err(Error::config("feeders", problem));
        }
        let job = &prepared.job;
        let looks = contents::look(&**job.source());
        let hello = Hello {
            facts: facts::facts(prepared, &looks)?,
            rank: options.rank,
            world_size: options.world_size,
            for_device: prepared.for_device,
            policy: match options.on_error {
                OnError::Stop => Policy::Stop,
                OnError::Substitute => Policy::Substitute,
                OnError::Skip => Policy::Skip,
            },
            pixels: options.digest == DigestScope::Pixels,
            limits: job.limits(prepared.shares.spare_bytes),
        };
        if job.source().groups().is_some_and(|groups| groups.whole) {
            tracing::warn!(
                target: "infeed::feeders",
                "records are in groups that can only be read whole, so a feeder reads a whole \
                 window of groups for each batch; feeders help only if reading is cheap"
            );
        }
        Ok(Some(Call {
            feeders: feeders.clone(),
            layout: job.layout(options.digest),
            hello,
        }))
    }

    /// Starts the feeders' threads. A feeder that cannot be reached may come later; a feeder that
    /// refuses the run is an error.
    pub(super) fn start(self, leases: BatchLeases<RecordJob>, own: usize) -> Result<Fed, Error> {
        let host = |number| Host {
            number,
            ..Host::default()
        };
        let shared = Arc::new(FedShared {
            leases,
            hosts: (0..self.feeders.count()).map(host).collect(),
            call: self,
            own,
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

impl Fed {
    /// Returns the statistics of each feeder.
    pub(super) fn stats(&self) -> Vec<FeederStats> {
        let hosts = &self.shared.call.feeders.hosts;
        let each = self.shared.hosts.iter();
        each.map(|host| host.stats(&hosts.place(host.number)))
            .collect()
    }

    /// Returns the time during which any feeder sent bytes; overlaps count once.
    pub(super) fn receiving(&self) -> Duration {
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

    /// Sets how many batches local threads may take, given the connected feeders.
    fn share_out(&self) {
        let able = |host: &Host| host.able.load(Ordering::Acquire);
        let own = match self.call.feeders.local {
            Local::Help => self.own,
            Local::Fallback if !self.hosts.iter().any(able) => self.own,
            Local::Fallback => 0,
        };
        self.leases.set_own(own);
    }
}

impl Host {
    /// Reads and stores the feeder's current address.
    fn look(&self, hosts: &Hosts) -> Arc<Place> {
        let place = hosts.place(self.number);
        *lock(&self.at) = Arc::clone(&place);
        place
    }

    fn has_moved(&self, hosts: &Hosts) -> bool {
        !Arc::ptr_eq(&lock(&self.at), &hosts.place(self.number))
    }

    /// Name of the feeder in messages.
    fn name(&self) -> String {
        lock(&self.at).to_string()
    }

    fn stats(&self, place: &Place) -> FeederStats {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        FeederStats {
            host: place.host.clone(),
            node: place.node.clone(),
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
