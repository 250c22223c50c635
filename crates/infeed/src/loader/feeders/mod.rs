//! Batches from other machines: a trainer asks its feeders for them by name, ahead of the step.
//!
//! The conveyor's trays are shared: its own threads and the feeders each take the next one that nobody
//! has (`exec/lend.rs`), so who makes a batch follows from who is free, and neither order nor bits do.
//! Each feeder has two threads here, one that asks and one that reads what comes into the slabs.
//! What happens when: `feed/README.md`.

mod busy;
mod host;
mod receive;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::digest::Digested;
use super::options::{OnError, Options};
use super::prepare::Prepared;
use super::records::Records;
use super::{contents, facts};
use crate::error::Error;
use crate::exec::lend::Lender;
use crate::wire::hello::{Hello, Policy, Refusal};
use crate::wire::rows::Layout;
use busy::Busy;

pub use super::hosts::{Feeders, Hosts, Local, Place};

/// Batches that one feeder is asked for at once: one that it makes, one on the way, one asked for.
pub(super) const DEPTH: usize = 3;

/// How long opening waits for feeders to answer.
const OPENING: Duration = Duration::from_secs(5);

/// What a feeder did for this loader.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FeederStats {
    /// `host:port`, as it was given; empty while nobody knows it.
    pub host: String,
    /// Its machine, where it was named; else empty.
    pub node: String,
    /// Whether it is connected and answers in time.
    pub connected: bool,
    /// Batches that it made.
    pub batches: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// From asking to having them, summed over batches.
    pub wait: Duration,
    /// Time during which bytes of a batch came from it.
    pub receiving: Duration,
    /// Processor time of this machine for what came from it.
    pub cpu: Duration,
    /// Batches that were asked of it and had to be made elsewhere: it was lost or late.
    pub redone: u64,
    /// Batches that it could not make, such as for a bad record that stops the run.
    pub declined: u64,
    /// Batches whose bytes were changed on the way.
    pub corrupt: u64,
    /// How often the connection was lost.
    pub lost: u64,
    /// How often it refused this run.
    pub refused: u64,
    /// What went wrong last.
    pub problem: Option<String>,
}

/// What feeders are told, known before the conveyor runs.
#[derive(Debug)]
pub(super) struct Call {
    feeders: Feeders,
    hello: Hello,
    layout: Layout,
}

/// Feeders at work. Dropping it ends the connections and joins their threads.
#[derive(Debug)]
pub(super) struct Fed {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    process: u32,
}

/// What the threads of all feeders share.
#[derive(Debug)]
struct Shared {
    lender: Lender<Records>,
    call: Call,
    /// Trays that own threads may have.
    own: usize,
    hosts: Vec<Host>,
    /// While bytes come from any of them.
    receiving: Busy,
    closed: AtomicBool,
}

/// One feeder.
#[derive(Debug, Default)]
struct Host {
    number: usize,
    /// Where it is called.
    at: Mutex<Arc<Place>>,
    /// Connected, and not late.
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

/// What came of the first try to reach a feeder.
enum First {
    Connected,
    Refused(Refusal),
    Unreachable,
}

impl Call {
    /// What to tell the feeders of options; None where there are none.
    pub(super) fn new(options: &Options, prepared: &Prepared) -> Result<Option<Call>, Error> {
        let Some(feeders) = &options.feeders else {
            return Ok(None);
        };
        if feeders.count() == 0 {
            let problem = "there is no host; give \"host:port\" of at least one";
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
            pixels: options.digest == Digested::Pixels,
            limits: job.limits(prepared.shares.spare_bytes),
        };
        if job.source().groups().is_some_and(|groups| groups.whole) {
            tracing::warn!(
                target: "infeed::feeders",
                "the records lie in groups that can only be read whole: whoever makes a batch reads \
                 the groups of its whole window for it; feeders pay where reading is cheap"
            );
        }
        Ok(Some(Call {
            feeders: feeders.clone(),
            layout: job.layout(options.digest),
            hello,
        }))
    }

    /// Begins to ask. A feeder that cannot be reached may come later; one that refuses is an error.
    pub(super) fn start(self, lender: Lender<Records>, own: usize) -> Result<Fed, Error> {
        let host = |number| Host {
            number,
            ..Host::default()
        };
        let shared = Arc::new(Shared {
            lender,
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
        let (tell, told) = mpsc::channel();
        for number in 0..shared.hosts.len() {
            let (shared, tell) = (Arc::clone(&shared), tell.clone());
            let thread = std::thread::Builder::new()
                .name(format!("infeed-fed-{number}"))
                .spawn(move || host::run(&shared, number, &tell))
                .map_err(|source| Error::Thread {
                    source: Arc::new(source),
                })?;
            fed.threads.push(thread);
        }
        drop(tell);
        let until = Instant::now() + OPENING;
        for _ in 0..shared.hosts.len() {
            match told.recv_timeout(until.saturating_duration_since(Instant::now())) {
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
    /// What each of them did.
    pub(super) fn stats(&self) -> Vec<FeederStats> {
        let hosts = &self.shared.call.feeders.hosts;
        let each = self.shared.hosts.iter();
        each.map(|host| host.stats(&hosts.place(host.number)))
            .collect()
    }

    /// Time during which bytes came from any of them, counted once where several sent.
    pub(super) fn receiving(&self) -> Duration {
        self.shared.receiving.total()
    }
}

impl Drop for Fed {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // The threads are the parent's.
            self.threads.drain(..).for_each(std::mem::forget);
            return;
        }
        self.shared.closed.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            // A panic was told by the panic hook, and its trays were given back.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Whether nobody is to talk to a feeder where it was called.
    fn is_over(&self, host: &Host) -> bool {
        self.is_closed() || host.has_moved(&self.call.feeders.hosts)
    }

    /// Lets own threads work as is to be done beside the feeders that there are now.
    fn share_out(&self) {
        let able = |host: &Host| host.able.load(Ordering::Acquire);
        let own = match self.call.feeders.local {
            Local::Help => self.own,
            Local::Fallback if !self.hosts.iter().any(able) => self.own,
            Local::Fallback => 0,
        };
        self.lender.set_own(own);
    }
}

impl Host {
    /// Where it is from now on called.
    fn look(&self, hosts: &Hosts) -> Arc<Place> {
        let place = hosts.place(self.number);
        *lock(&self.at) = Arc::clone(&place);
        place
    }

    fn has_moved(&self, hosts: &Hosts) -> bool {
        !Arc::ptr_eq(&lock(&self.at), &hosts.place(self.number))
    }

    /// What messages call it.
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
    // Nothing panics while it is held.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
