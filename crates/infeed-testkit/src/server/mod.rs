//! A local web server that holds objects in memory and can be configured to fail.
//!
//! It answers GET and HEAD with ranges and tags, and lists buckets like S3 (`ListObjectsV2`, path
//! style). One server therefore serves as web server and as bucket. It also accepts writes of a
//! bucket: whole objects (with `If-None-Match: *`), multipart uploads, and removals. It does not
//! check signatures.

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

use infeed_core::random::mix;

pub(crate) use head::decoded;

/// A fault of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum RequestFault {
    /// A status instead of a response, such as 503.
    Status(u16),
    /// The connection ends after this number of body bytes: of the response, or of a writing
    /// request, which then has no effect.
    Cut(u64),
    /// The request takes effect, and the connection ends without a response.
    Lost,
    /// This number of bytes less than requested, with a matching length.
    Short(u64),
    /// This number of bytes more than requested, with a matching length.
    Long(u64),
    /// This number of extra bytes after the requested ones, chunked, so that no length reveals
    /// them.
    Trailing(u64),
    /// All bytes, chunked. The connection then ends without the end of the body.
    Endless,
    /// Another range than requested, with the matching header.
    OtherRange,
    /// The whole object with status 200, whatever range was requested.
    WholeFile,
    /// The body in pieces of this number of bytes, with this pause between them.
    Drip(usize, Duration),
    /// No response until the server closes.
    Stall,
    /// The response comes after this time.
    Delay(Duration),
}

/// Purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestKind {
    /// Reads bytes of an object.
    Read,
    /// Reads length and tag of an object.
    Look,
    /// Reads a page of a list.
    List,
    /// Writes a whole object.
    Write,
    /// Begins a multipart upload.
    Begin,
    /// Uploads a part.
    Part,
    /// Completes a multipart upload. The object exists from then on.
    Complete,
    /// Removes objects, or the parts of an incomplete upload.
    Remove,
}

impl RequestKind {
    /// Returns whether the request changes stored objects.
    fn changes(self) -> bool {
        !matches!(
            self,
            RequestKind::Read | RequestKind::Look | RequestKind::List
        )
    }
}

/// A received request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedRequest {
    /// Purpose of the request.
    pub kind: RequestKind,
    /// Path without the leading slash, decoded.
    pub key: String,
    /// First byte and one past the last of the requested range.
    pub range: Option<(u64, u64)>,
}

#[derive(Clone, Debug)]
struct StoredObject {
    bytes: Bytes,
    tag: String,
}

/// A multipart upload.
#[derive(Debug, Default)]
struct MultipartUpload {
    key: String,
    /// Parts by number, with their tags.
    parts: BTreeMap<u32, StoredObject>,
}

#[derive(Debug)]
struct FaultRule {
    kind: RequestKind,
    fault: RequestFault,
    left: u32,
}

#[derive(Debug, Default)]
struct BucketState {
    objects: BTreeMap<String, StoredObject>,
    uploads: BTreeMap<String, MultipartUpload>,
    rules: Vec<FaultRule>,
    /// Seed, and percentage of reads that fail at random.
    chaos: Option<(u64, u64)>,
    /// The same for requests that change objects.
    chaos_of_writes: Option<(u64, u64)>,
    /// Number of changing requests so far, and the maximum.
    writes: u64,
    most_writes: Option<u64>,
    /// Rejects conditional puts as unsupported.
    unconditional: bool,
    latency: Duration,
    log: Vec<ReceivedRequest>,
    revisions: u64,
    page: usize,
    ranges: bool,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<BucketState>,
    closing: AtomicBool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, BucketState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// Sleeps in slices, so that the server can close. Returns false if it closes.
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
    /// Starts a server without objects on a free local port.
    ///
    /// # Errors
    ///
    /// Returns the error of the operating system.
    pub fn start() -> io::Result<Server> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            state: Mutex::new(BucketState {
                page: 1000,
                ranges: true,
                ..BucketState::default()
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

    /// Returns `http://127.0.0.1:…`, without a trailing slash.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Stores an object with a new tag.
    pub fn put(&self, key: &str, bytes: impl Into<Bytes>) {
        let mut state = self.shared.lock();
        let object = state.object(bytes.into());
        state.objects.insert(key.to_owned(), object);
    }

    /// Returns the objects whose keys begin with `prefix` and a slash, by the rest of the key.
    pub fn objects(&self, prefix: &str) -> BTreeMap<String, Bytes> {
        let state = self.shared.lock();
        let below = |(key, object): (&String, &StoredObject)| {
            let name = key.strip_prefix(prefix)?.strip_prefix('/')?;
            Some((name.to_owned(), object.bytes.clone()))
        };
        state.objects.iter().filter_map(below).collect()
    }

    /// Returns the number of multipart uploads that are neither complete nor aborted.
    pub fn uploads(&self) -> usize {
        self.shared.lock().uploads.len()
    }

    /// Stores all files below a folder under keys that begin with `prefix` and a slash. Follows
    /// links.
    ///
    /// # Errors
    ///
    /// If a folder or file cannot be read.
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

    /// Removes an object.
    pub fn remove(&self, key: &str) {
        self.shared.lock().objects.remove(key);
    }

    /// Makes the next `times` requests of a kind fail. Rules of one kind are used in turn.
    pub fn fault(&self, kind: RequestKind, fault: RequestFault, times: u32) {
        let rule = FaultRule {
            kind,
            fault,
            left: times,
        };
        self.shared.lock().rules.push(rule);
    }

    /// Removes all faults that have not happened yet.
    pub fn take_faults(&self) {
        self.shared.lock().rules.clear();
    }

    /// Makes a percentage of reads fail at random.
    pub fn chaos(&self, seed: u64, of_100: u64) {
        self.shared.lock().chaos = Some((seed, of_100));
    }

    /// Makes a percentage of the changing requests fail at random.
    pub fn chaos_of_writes(&self, seed: u64, of_100: u64) {
        self.shared.lock().chaos_of_writes = Some((seed, of_100));
    }

    /// Rejects all changing requests after `writes` more, as if the client had died then. None: no
    /// limit.
    pub fn refuse_writes_after(&self, writes: Option<u64>) {
        let mut state = self.shared.lock();
        state.most_writes = writes.map(|more| state.writes + more);
    }

    /// Makes the server reject conditional puts.
    pub fn without_conditions(&self) {
        self.shared.lock().unconditional = true;
    }

    /// Delays the start of every response.
    pub fn set_latency(&self, latency: Duration) {
        self.shared.lock().latency = latency;
    }

    /// Sets the number of keys per page of a list.
    pub fn set_page(&self, keys: usize) {
        self.shared.lock().page = keys;
    }

    /// Makes the server ignore ranges and always send whole objects.
    pub fn without_ranges(&self) {
        self.shared.lock().ranges = false;
    }

    /// Returns the requests received so far, in order, and clears the log.
    pub fn take_log(&self) -> Vec<ReceivedRequest> {
        std::mem::take(&mut self.shared.lock().log)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::Relaxed);
        // Wakes up the accepting thread.
        drop(std::net::TcpStream::connect(self.address));
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has already failed its test.
            let _ = thread.join();
        }
    }
}

impl BucketState {
    /// Returns an object with a new tag.
    fn object(&mut self, bytes: Bytes) -> StoredObject {
        self.revisions += 1;
        let tag = format!("{:016x}", mix(self.revisions));
        StoredObject { bytes, tag }
    }

    /// Returns the fault of a request, if any.
    fn next_fault(&mut self, kind: RequestKind) -> Option<RequestFault> {
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
