//! A feeder: makes batches of a pipeline for trainers on other machines, whichever they ask for.
//!
//! It keeps nothing of a run. A batch is a function of its name (epoch, step, rank, world size), the
//! description and the data, so any feeder gives the same bits in any order, and a trainer that was
//! started again finds it as it was. States, who asks whom and what happens when something fails:
//! this folder's README.

mod line;
mod session;

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::error::Error;
use crate::loader::{OnError, Options, contents};
use crate::pipeline::{Handle, Pipeline};
use crate::source::Source;
use crate::wire::looks::Look;
use crate::wire::token::Token;
use line::Line;

/// Connections at once; more are turned away.
const SESSIONS: usize = 256;

/// Rest where the operating system has no connection to give.
const REST: Duration = Duration::from_millis(200);

/// How a feeder is run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FeedOptions {
    /// Where it listens, as `127.0.0.1:7077`; port 0 takes a free one. Another address than this
    /// machine's own needs a token.
    pub listen: String,
    /// What its trainers know.
    pub token: Token,
    /// Worker threads. None: the cores that this process may use.
    pub workers: Option<usize>,
    /// I/O threads. None: as many as suit where the bytes lie.
    pub readers: Option<usize>,
    /// Bytes for batches and their making, for trainers of each number of ranks. None: as a loader's.
    pub memory: Option<u64>,
}

impl Default for FeedOptions {
    /// On a free port that only this machine reaches.
    fn default() -> FeedOptions {
        FeedOptions {
            listen: "127.0.0.1:0".to_owned(),
            token: Token::default(),
            workers: None,
            readers: None,
            memory: None,
        }
    }
}

/// What a feeder did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FeedStats {
    /// Trainers' ranks connected now.
    pub sessions: usize,
    /// Batches sent.
    pub batches: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Processor time for sending them.
    pub cpu: Duration,
    /// Batches left to the trainer.
    pub declined: u64,
    /// Trainers that were refused.
    pub refused: u64,
    /// Why a connection ended last, where it was not the trainer's wish.
    pub problem: Option<String>,
}

/// Kitchens by world size and whether a device makes rows larger.
type Lines = Vec<((u64, bool), Weak<Line>)>;

/// A feeder at work. Dropping it ends all connections and joins their threads.
#[derive(Debug)]
pub struct Feeder {
    shared: Arc<Shared>,
    address: SocketAddr,
    notices: Vec<String>,
    listening: Option<JoinHandle<()>>,
}

struct Shared {
    pipeline: Pipeline,
    source: Arc<dyn Source>,
    /// What some of its records hold.
    looks: Vec<Look>,
    handles: Vec<Handle>,
    options: FeedOptions,
    /// Kitchens by world size and form of rows, for as long as a session uses them.
    lines: Mutex<Lines>,
    closing: AtomicBool,
    sessions: AtomicUsize,
    /// Number of the next session.
    next: AtomicU64,
    batches: AtomicU64,
    bytes: AtomicU64,
    cpu_ns: AtomicU64,
    declined: AtomicU64,
    refused: AtomicU64,
    problem: Mutex<Option<String>>,
}

/// Opens a pipeline over this machine's view of the data and answers those who ask for its batches.
///
/// # Errors
///
/// As [`Pipeline::open`]; [`Error::Config`] if a function on samples is not found here by its name, if
/// the address cannot be had, or if others than this machine reach it without a token.
pub fn serve(
    pipeline: &Pipeline,
    handles: &[Handle],
    options: &FeedOptions,
) -> Result<Feeder, Error> {
    start(pipeline, pipeline.open_source(handles)?, handles, options)
}

/// As [`serve`], over a source of one's own, of which records are selected as the description says; its
/// own source is not opened.
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
            "{address:?} is no address: {error}; write host:port, such as 127.0.0.1:7077"
        ))
    })?;
    let address = found
        .next()
        .ok_or_else(|| wrong(format!("{:?} has no address", options.listen)))?;
    let mut notices = Vec::new();
    if !address.ip().is_loopback() {
        if options.token.is_none() {
            let problem = format!(
                "whoever reaches {address} could ask for batches; give a token, or listen at \
                 127.0.0.1"
            );
            return Err(wrong(problem));
        }
        let text = format!(
            "{} is reached from outside this machine and nothing is encrypted: batches can be read and \
             changed on the way; use a private network",
            address.ip()
        );
        tracing::warn!(target: "infeed::feed", "{text}");
        notices.push(text);
    }
    let shared = Arc::new(Shared {
        pipeline: pipeline.without_batch_functions(),
        looks: contents::look(&*source),
        source,
        handles: handles.to_vec(),
        options: options.clone(),
        lines: Mutex::default(),
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
    // What is wrong with the description is told now, not to the first trainer.
    drop(shared.line(1, false)?);
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
    /// Where it listens, with the port that was taken.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What the user should be told.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// What it did so far.
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
        // Accepting cannot be interrupted, but a connection ends it.
        let mut address = self.address;
        if address.ip().is_unspecified() {
            address.set_ip(match address.ip() {
                IpAddr::V4(_) => IpAddr::from([127, 0, 0, 1]),
                IpAddr::V6(_) => IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]),
            });
        }
        let _ = TcpStream::connect_timeout(&address, Duration::from_secs(1));
        if let Some(thread) = self.listening.take() {
            // A panic was told by the panic hook.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    fn problem(&self) -> MutexGuard<'_, Option<String>> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        // What it guards is whole after every statement.
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What makes batches for ranks of a run of this size; opened with its first session.
    fn line(&self, world_size: u64, for_device: bool) -> Result<Arc<Line>, Error> {
        let key = (world_size, for_device);
        let mut lines = self.lines();
        lines.retain(|(_, line)| line.strong_count() > 0);
        let known = lines.iter().find(|(known, _)| *known == key);
        if let Some(line) = known.and_then(|(_, line)| line.upgrade()) {
            return Ok(line);
        }
        let mut options = Options::default();
        options.workers = Some(match self.options.workers {
            Some(workers) => workers,
            None => infeed_raw::machine::usable_cores(),
        });
        options.readers = self.options.readers;
        options.memory = self.options.memory;
        options.world_size = world_size;
        // Room for substitutes; what becomes of a bad record is the trainer's to say.
        options.on_error = OnError::Substitute;
        let line = Arc::new(Line::open(
            &self.pipeline,
            Arc::clone(&self.source),
            &self.handles,
            &self.looks,
            &options,
            for_device,
        )?);
        lines.push((key, Arc::downgrade(&line)));
        Ok(line)
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// Body of the thread that waits for trainers; ends with all of theirs.
fn listen(listener: &TcpListener, shared: &Shared) {
    std::thread::scope(|scope| {
        loop {
            let accepted = listener.accept();
            if shared.is_closing() {
                return;
            }
            let (stream, trainer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(target: "infeed::feed", "cannot accept a trainer: {error}");
                    std::thread::sleep(REST);
                    continue;
                }
            };
            if shared.sessions.load(Ordering::Relaxed) >= SESSIONS {
                tracing::warn!(target: "infeed::feed", "{trainer}: turned away, {SESSIONS} are fed");
                continue;
            }
            shared.sessions.fetch_add(1, Ordering::Relaxed);
            let run = move || {
                if let Err(error) = session::run(shared, &stream) {
                    let text = format!("{trainer}: {error}");
                    tracing::warn!(target: "infeed::feed", "{text}");
                    *shared.problem() = Some(text);
                }
                shared.sessions.fetch_sub(1, Ordering::Relaxed);
            };
            let thread = std::thread::Builder::new().name("infeed-session".to_owned());
            if let Err(error) = thread.spawn_scoped(scope, run) {
                shared.sessions.fetch_sub(1, Ordering::Relaxed);
                tracing::warn!(target: "infeed::feed", "{trainer}: no thread for it: {error}");
            }
        }
    });
}
