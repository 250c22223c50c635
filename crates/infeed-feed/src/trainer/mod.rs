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
mod trainer_shared;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::hosts::Feeders;
use crate::wire::hello::{Hello, Policy};
use crate::wire::rows::RowsLayout;
use crate::{contents, facts};
use busy::Busy;
use host::{ConnectOutcome, DEPTH};
use infeed::loader::OnError;
use infeed::loader::remote::{
    RemoteBatches, RemoteRows, RemoteWorkerStats, RemoteWorkers, RunDescription,
};
use infeed_core::error::Error;
use trainer_shared::{FeederTerms, Host, TrainerShared};

/// Longest wait for feeders when a loader opens.
const OPENING: Duration = Duration::from_secs(5);

/// Connected feeders. Dropping it closes the connections and joins their threads.
#[derive(Debug)]
struct ConnectedFeeders {
    shared: Arc<TrainerShared>,
    threads: Vec<JoinHandle<()>>,
    process: u32,
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
        let hashes = contents::hash_records(&*run.source);
        let hello = Hello {
            facts: facts::facts(run, &hashes)?,
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
    fn start(self, batches: RemoteBatches) -> Result<ConnectedFeeders, Error> {
        let host = |number| Host {
            number,
            ..Host::default()
        };
        let shared = Arc::new(TrainerShared {
            batches,
            hosts: (0..self.feeders.hosts.count()).map(host).collect(),
            terms: self,
            receiving: Busy::default(),
            closed: AtomicBool::new(false),
        });
        let mut connected = ConnectedFeeders {
            shared: Arc::clone(&shared),
            threads: Vec::new(),
            process: std::process::id(),
        };
        let (sender, receiver) = mpsc::channel();
        for number in 0..shared.hosts.len() {
            let (shared, sender) = (Arc::clone(&shared), sender.clone());
            let thread = std::thread::Builder::new()
                .name(format!("infeed-recv-{number}"))
                .spawn(move || host::run(&shared, number, &sender))
                .map_err(|source| Error::Thread {
                    source: Arc::new(source),
                })?;
            connected.threads.push(thread);
        }
        drop(sender);
        let until = Instant::now() + OPENING;
        for _ in 0..shared.hosts.len() {
            match receiver.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok((number, ConnectOutcome::Refused(refusal))) => {
                    let host = shared.hosts[number].name();
                    let problem = format!("{host} does not feed this run: {refusal}");
                    return Err(Error::config("feeders", problem));
                }
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
        }
        shared.share_out();
        Ok(connected)
    }
}

impl RemoteWorkers for ConnectedFeeders {
    fn stats(&self) -> Vec<RemoteWorkerStats> {
        let hosts = &self.shared.terms.feeders.hosts;
        let each = self.shared.hosts.iter();
        each.map(|host| host.stats(&hosts.address(host.number)))
            .collect()
    }

    fn receiving(&self) -> Duration {
        self.shared.receiving.total()
    }
}

impl Drop for ConnectedFeeders {
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
