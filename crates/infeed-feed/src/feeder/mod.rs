//! A feeder makes batches of a pipeline for trainers on other machines, on request.
//!
//! It keeps no state of a run. A batch is a function of its name (epoch, step, rank, world size),
//! the description and the data. So any feeder gives the same bits in any order, and a restarted
//! trainer needs no recovery. States, responsibilities and failures: this crate's README.

mod batches;
mod feeder_shared;
mod options;
mod queue;
mod session;

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::contents;
use crate::wire::channel::{Encryption, FeederKey};
use infeed::pipeline::{Handle, Pipeline};
use infeed_core::connections::Connections;
use infeed_core::error::Error;
use infeed_source::Source;

use feeder_shared::FeederShared;
pub use options::FeedOptions;

/// Maximum number of connections without a proved token, in total and per address.
const HANDSHAKES: usize = 256;
const HANDSHAKES_PER_ADDRESS: usize = 64;

/// Pause after the operating system fails to accept a connection.
const REST: Duration = Duration::from_millis(200);

/// Statistics of a feeder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FeedStats {
    /// Connected trainers' ranks.
    pub sessions: usize,
    /// Sent batches.
    pub batches: u64,
    /// Bytes of those batches.
    pub bytes: u64,
    /// CPU time for sending them.
    pub cpu: Duration,
    /// Declined batches, which the trainer makes.
    pub declined: u64,
    /// Rejected trainers.
    pub refused: u64,
    /// Reason of the last unexpected end of a connection.
    pub problem: Option<String>,
}

/// A running feeder. Dropping it closes all connections and joins their threads.
#[derive(Debug)]
pub struct Feeder {
    shared: Arc<FeederShared>,
    address: SocketAddr,
    notices: Vec<String>,
    listening: Option<JoinHandle<()>>,
}

/// Opens a pipeline over this machine's copy of the data and serves its batches to trainers.
///
/// # Errors
///
/// As [`Pipeline::open`]. [`Error::Config`] if a function on samples cannot be found by its name,
/// if the address is not available, or if other machines reach it without a token.
pub fn serve(
    pipeline: &Pipeline,
    handles: &[Handle],
    options: &FeedOptions,
) -> Result<Feeder, Error> {
    start(pipeline, pipeline.open_source(handles)?, handles, options)
}

/// As [`serve`], over the caller's source instead of the description's. The description's selection
/// applies to it.
///
/// # Errors
///
/// As [`serve`].
pub fn serve_over(
    pipeline: &Pipeline,
    source: Arc<dyn Source>,
    options: &FeedOptions,
) -> Result<Feeder, Error> {
    start(pipeline, pipeline.select(source)?, &[], options)
}

fn start(
    pipeline: &Pipeline,
    source: Arc<dyn Source>,
    handles: &[Handle],
    options: &FeedOptions,
) -> Result<Feeder, Error> {
    let wrong = |problem: String| Error::config("listen", problem);
    let mut found = options.listen.to_socket_addrs().map_err(|error| {
        let address = &options.listen;
        wrong(format!(
            "invalid address {address:?}: {error}; write host:port, such as 127.0.0.1:7077"
        ))
    })?;
    let address = found
        .next()
        .ok_or_else(|| wrong(format!("{:?} has no address", options.listen)))?;
    let mut notices = Vec::new();
    if !address.ip().is_loopback() {
        if options.token.is_none() {
            let problem = format!(
                "every machine that reaches {address} could request batches; set a token, or \
                 listen at 127.0.0.1"
            );
            return Err(wrong(problem));
        }
        if options.encryption == Encryption::Never {
            let text = format!(
                "other machines reach {} and encryption is off: batches can be read and changed in \
                 transit; use a private network",
                address.ip()
            );
            tracing::warn!(target: "infeed::feed", "{text}");
            notices.push(text);
        }
    }
    let shared = Arc::new(FeederShared {
        pipeline: pipeline.without_batch_functions(),
        hashes: contents::hash_records(&*source),
        source,
        handles: handles.to_vec(),
        options: options.clone(),
        key: FeederKey::new().map_err(|error| wrong(error.to_string()))?,
        handshakes: Connections::new(HANDSHAKES, HANDSHAKES_PER_ADDRESS),
        queues: Mutex::default(),
        closing: AtomicBool::new(false),
        sessions: AtomicUsize::new(0),
        next: AtomicU64::new(0),
        batches: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
        cpu_ns: AtomicU64::new(0),
        declined: AtomicU64::new(0),
        refused: AtomicU64::new(0),
        problem: Mutex::default(),
    });
    // Report errors of the description now, not to the first trainer.
    drop(shared.queue(1, false)?);
    let cannot = |error: std::io::Error| wrong(format!("cannot listen at {address}: {error}"));
    let listener = TcpListener::bind(address).map_err(cannot)?;
    let address = listener.local_addr().map_err(cannot)?;
    let listening = std::thread::Builder::new()
        .name("infeed-listen".to_owned())
        .spawn({
            let shared = Arc::clone(&shared);
            move || listen(&listener, &shared)
        })
        .map_err(|source| Error::Thread {
            source: Arc::new(source),
        })?;
    tracing::info!(
        target: "infeed::feed",
        "feeds {} records at {address}", shared.source.len()
    );
    Ok(Feeder {
        shared,
        address,
        notices,
        listening: Some(listening),
    })
}

impl Feeder {
    /// Returns the address with the actual port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the notices for the user.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// Returns the statistics so far.
    pub fn stats(&self) -> FeedStats {
        let shared = &self.shared;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        FeedStats {
            sessions: shared.sessions.load(Ordering::Relaxed),
            batches: count(&shared.batches),
            bytes: count(&shared.bytes),
            cpu: Duration::from_nanos(count(&shared.cpu_ns)),
            declined: count(&shared.declined),
            refused: count(&shared.refused),
            problem: shared.problem().clone(),
        }
    }
}

impl Drop for Feeder {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::Release);
        // `accept` cannot be interrupted, but a connection ends it.
        let mut address = self.address;
        if address.ip().is_unspecified() {
            address.set_ip(match address.ip() {
                IpAddr::V4(_) => IpAddr::from([127, 0, 0, 1]),
                IpAddr::V6(_) => IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]),
            });
        }
        let _ = TcpStream::connect_timeout(&address, Duration::from_secs(1));
        if let Some(thread) = self.listening.take() {
            // The panic hook has reported a panic.
            let _ = thread.join();
        }
    }
}

/// Accepts trainers until the feeder closes, then waits for their sessions.
fn listen(listener: &TcpListener, shared: &FeederShared) {
    std::thread::scope(|scope| {
        loop {
            let accepted = listener.accept();
            if shared.is_closing() {
                return;
            }
            let entered = accepted.and_then(|(stream, trainer)| {
                let entry = shared.handshakes.enter(&stream, trainer)?;
                Ok((stream, trainer, entry))
            });
            let (stream, trainer, entry) = match entered {
                Ok(entered) => entered,
                Err(error) => {
                    tracing::warn!(target: "infeed::feed", "cannot accept a trainer: {error}");
                    std::thread::sleep(REST);
                    continue;
                }
            };
            if let Some(report) = &entry.report {
                tracing::warn!(target: "infeed::feed", "connections without a token: {report}");
            }
            let run = move || {
                if let Err(error) = session::run(shared, stream, trainer, entry) {
                    let text = format!("{trainer}: {error}");
                    tracing::warn!(target: "infeed::feed", "{text}");
                    *shared.problem() = Some(text);
                }
            };
            let thread = std::thread::Builder::new().name("infeed-session".to_owned());
            if let Err(error) = thread.spawn_scoped(scope, run) {
                tracing::warn!(target: "infeed::feed", "{trainer}: cannot start a thread: {error}");
            }
        }
    });
}
