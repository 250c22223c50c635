//! A web server on this machine that holds objects in memory and misbehaves as it is told.
//!
//! It answers GET and HEAD with ranges and tags, and lists buckets as S3 does
//! (`ListObjectsV2`, by path), so that one server stands in for a web server and for a bucket. What a
//! bucket takes it takes too: objects whole (`If-None-Match: *` among them) and in parts, and removals.
//! Signatures are not looked at.

mod answer;
mod head;
mod http;
mod write;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;

use crate::random::mix;

/// How a request goes wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Fault {
    /// A status instead of an answer, such as 503.
    Status(u16),
    /// The connection ends after so many bytes of the body: that of the answer, or of a request that
    /// would change something and does not then.
    Cut(u64),
    /// What was asked is done, and the connection ends without an answer.
    Lost,
    /// So many bytes less than asked for, under a length that agrees with them.
    Short(u64),
    /// So many bytes more than asked for, under a length that agrees with them.
    Long(u64),
    /// So many other bytes behind the ones asked for, chunked, so that no length tells.
    Trailing(u64),
    /// All bytes, chunked, and then the end of the connection instead of that of the body.
    Endless,
    /// A range that was not asked for, and says so.
    OtherRange,
    /// The whole object under status 200, whatever range was asked for.
    WholeFile,
    /// The body in pieces of so many bytes, one each of these times.
    Drip(usize, Duration),
    /// No answer until the server goes.
    Stall,
    /// An answer after this time.
    Delay(Duration),
}

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// Bytes of an object.
    Read,
    /// Length and tag of an object.
    Look,
    /// A page of a list.
    List,
    /// An object that comes whole.
    Write,
    /// The beginning of an object in parts.
    Begin,
    /// A part of an object.
    Part,
    /// The end of an object in parts: it is there then.
    Complete,
    /// The removal of objects, or of the parts of one that was not ended.
    Remove,
}

impl Kind {
    /// Whether it changes what there is.
    fn changes(self) -> bool {
        !matches!(self, Kind::Read | Kind::Look | Kind::List)
    }
}

/// A request that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// What for.
    pub kind: Kind,
    /// Path without the first slash, decoded.
    pub key: String,
    /// First byte and one past the last, where a range was asked for.
    pub range: Option<(u64, u64)>,
}

#[derive(Clone, Debug)]
struct Object {
    bytes: Bytes,
    tag: String,
}

/// An object that comes in parts.
#[derive(Debug, Default)]
struct Upload {
    key: String,
    /// By number, with their tags.
    parts: BTreeMap<u32, Object>,
}

#[derive(Debug)]
struct Rule {
    kind: Kind,
    fault: Fault,
    left: u32,
}

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<String, Object>,
    uploads: BTreeMap<String, Upload>,
    rules: Vec<Rule>,
    /// Seed and share of 100 of reads that go wrong at random.
    chaos: Option<(u64, u64)>,
    /// The same of requests that change something.
    chaos_of_writes: Option<(u64, u64)>,
    /// Requests that change something, so far, and how many may.
    writes: u64,
    most_writes: Option<u64>,
    /// Answers that it knows no puts that depend on what is there.
    unconditional: bool,
    latency: Duration,
    log: Vec<Request>,
    revisions: u64,
    page: usize,
    ranges: bool,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    closing: AtomicBool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// Sleeps in slices, so that the server can go; false if it does.
    fn sleep(&self, mut time: Duration) -> bool {
        while !time.is_zero() && !self.closing() {
            let slice = time.min(Duration::from_millis(20));
            thread::sleep(slice);
            time -= slice;
        }
        !self.closing()
    }
}

/// A running server. Dropping it ends its threads.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts a server without objects on a free port of this machine.
    ///
    /// # Errors
    ///
    /// What the operating system said.
    pub fn start() -> io::Result<Server> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                page: 1000,
                ranges: true,
                ..State::default()
            }),
            closing: AtomicBool::new(false),
        });
        let own = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("test-server".to_owned())
            .spawn(move || http::accept(&listener, &own))?;
        Ok(Server {
            shared,
            address,
            thread: Some(thread),
        })
    }

    /// `http://127.0.0.1:…`, without a slash at its end.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Puts an object, under another tag than any before.
    pub fn put(&self, key: &str, bytes: impl Into<Bytes>) {
        let mut state = self.shared.lock();
        let object = state.object(bytes.into());
        state.objects.insert(key.to_owned(), object);
    }

    /// The objects whose keys begin with `prefix` and a slash, by what follows.
    pub fn objects(&self, prefix: &str) -> BTreeMap<String, Bytes> {
        let state = self.shared.lock();
        let below = |(key, object): (&String, &Object)| {
            let name = key.strip_prefix(prefix)?.strip_prefix('/')?;
            Some((name.to_owned(), object.bytes.clone()))
        };
        state.objects.iter().filter_map(below).collect()
    }

    /// Objects in parts that were begun and neither ended nor given up.
    pub fn uploads(&self) -> usize {
        self.shared.lock().uploads.len()
    }

    /// Puts all files below a folder, links followed, under keys that begin with `prefix` and a slash.
    ///
    /// # Errors
    ///
    /// A folder or file that cannot be read.
    pub fn put_folder(&self, prefix: &str, folder: &Path) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let key = format!("{prefix}/{}", entry.file_name().to_string_lossy());
            match entry.path().is_dir() {
                true => self.put_folder(&key, &entry.path())?,
                false => self.put(&key, fs::read(entry.path())?),
            }
        }
        Ok(())
    }

    /// Takes an object away.
    pub fn remove(&self, key: &str) {
        self.shared.lock().objects.remove(key);
    }

    /// Makes the next requests of a kind go wrong. Rules of one kind are used up in turn.
    pub fn fault(&self, kind: Kind, fault: Fault, times: u32) {
        let rule = Rule {
            kind,
            fault,
            left: times,
        };
        self.shared.lock().rules.push(rule);
    }

    /// Forgets the faults that did not happen yet.
    pub fn take_faults(&self) {
        self.shared.lock().rules.clear();
    }

    /// Makes reads go wrong at random, so many of 100.
    pub fn chaos(&self, seed: u64, of_100: u64) {
        self.shared.lock().chaos = Some((seed, of_100));
    }

    /// Makes requests that change something go wrong at random, so many of 100.
    pub fn chaos_of_writes(&self, seed: u64, of_100: u64) {
        self.shared.lock().chaos_of_writes = Some((seed, of_100));
    }

    /// Refuses all requests that change something after so many more, as if whoever makes them were
    /// dead by then. None: no more.
    pub fn refuse_writes_after(&self, writes: Option<u64>) {
        let mut state = self.shared.lock();
        state.most_writes = writes.map(|more| state.writes + more);
    }

    /// Makes it a service that knows no puts that depend on what is there.
    pub fn without_conditions(&self) {
        self.shared.lock().unconditional = true;
    }

    /// Makes every answer begin so much later.
    pub fn set_latency(&self, latency: Duration) {
        self.shared.lock().latency = latency;
    }

    /// Sets how many keys a page of a list holds.
    pub fn set_page(&self, keys: usize) {
        self.shared.lock().page = keys;
    }

    /// Makes it a server that knows no ranges and always gives the whole.
    pub fn without_ranges(&self) {
        self.shared.lock().ranges = false;
    }

    /// The requests that came, in the order of their coming; forgets them.
    pub fn take_log(&self) -> Vec<Request> {
        std::mem::take(&mut self.shared.lock().log)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::Relaxed);
        // Lets the accepting thread look.
        drop(std::net::TcpStream::connect(self.address));
        if let Some(thread) = self.thread.take() {
            // Its panic is a failed test's already.
            let _ = thread.join();
        }
    }
}

impl State {
    /// An object under another tag than any before.
    fn object(&mut self, bytes: Bytes) -> Object {
        self.revisions += 1;
        let tag = format!("{:016x}", mix(self.revisions));
        Object { bytes, tag }
    }

    /// What becomes of a request.
    fn next_fault(&mut self, kind: Kind) -> Option<Fault> {
        if kind.changes() {
            self.writes += 1;
            if self.most_writes.is_some_and(|most| self.writes > most) {
                return Some(Fault::Status(403));
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
                0 => Fault::Status(503),
                1 => Fault::Status(500),
                2 => Fault::Cut(mix(dice) % 70_000),
                3 => Fault::Lost,
                _ => Fault::Delay(Duration::from_millis(mix(dice) % 20)),
            });
        }
        let (seed, share) = self.chaos.filter(|_| kind == Kind::Read)?;
        let dice = mix(seed ^ self.log.len() as u64);
        let size = mix(dice) % 70_000;
        (dice % 100 < share).then(|| match (dice >> 8) % 10 {
            0 => Fault::Status(503),
            1 => Fault::Status(500),
            2 => Fault::Cut(size),
            3 => Fault::Short(1 + size % 100),
            4 => Fault::Long(1 + size % 100),
            5 => Fault::OtherRange,
            6 => Fault::Trailing(1 + size % 100),
            7 => Fault::Endless,
            8 => Fault::WholeFile,
            _ => Fault::Delay(Duration::from_millis(size % 30)),
        })
    }
}
