//! A local web server that holds objects in memory and can be configured to fail.
//!
//! It answers GET and HEAD with ranges and tags, and lists buckets like S3 (`ListObjectsV2`, path
//! style). One server therefore serves as web server and as bucket. It also accepts writes of a
//! bucket: whole objects (with `If-None-Match: *`), multipart uploads, and removals. It does not
//! check signatures.

mod answer;
mod bucket;
mod head;
mod http;
mod request;
mod write;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;

use bucket::{BucketState, FaultRule, ServerShared, StoredObject};
pub(crate) use head::percent_decode;
pub use request::{ReceivedRequest, RequestFault, RequestKind};

/// A running server. Dropping it ends its threads.
#[derive(Debug)]
pub struct Server {
    shared: Arc<ServerShared>,
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
        let shared = Arc::new(ServerShared {
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
        self.shared.lock().put(key, bytes.into());
    }

    /// Replaces an object after its next read, before any other request.
    pub fn put_after_read(&self, key: &str, bytes: impl Into<Bytes>) {
        self.shared.lock().replacement = Some((key.to_owned(), bytes.into()));
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
