//! A local server with the part of the Hugging Face Hub's interface that reads datasets.
//!
//! It has two addresses. The Hub itself answers revisions, lists in pages, and requests for files:
//! small files through a redirect to another path, large ones through a signed link to the second
//! address, which has the bytes. Links expire, requests can be limited, and a dataset can be private
//! or restricted.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use infeed_core::random::mix;
use serde_json::json;

use crate::server::percent_decode;

/// Files of at least this length are large: the Hub keeps them on another host.
const LARGE: usize = 1000;

/// Maximum length of a request's head.
const MAX_HEAD: u64 = 64 << 10;

/// Who may read a dataset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HubAccess {
    /// Every request.
    #[default]
    Public,
    /// Requests with the token. Others do not learn that the dataset exists.
    Private,
    /// Its files: no request, since the terms are not accepted.
    Gated,
}

/// How the Hub announces its limit of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HubLimit {
    /// Status 429 with `Retry-After`, in seconds.
    RetryAfter(u64),
    /// Status 429 with `RateLimit` alone, in seconds.
    RateLimit(u64),
    /// The answer, with `RateLimit` and no request left for this number of seconds.
    LastRequest(u64),
}

/// A request that the Hub or the host of large files received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubRequest {
    /// Whether it went to the host of large files.
    pub is_elsewhere: bool,
    /// `GET` or `HEAD`.
    pub method: String,
    /// Path and query, decoded.
    pub path: String,
    /// Value of `Authorization`.
    pub token: Option<String>,
}

#[derive(Debug, Default)]
struct HubDataset {
    access: HubAccess,
    revisions: BTreeMap<String, String>,
    /// Files by commit and path.
    commits: BTreeMap<String, BTreeMap<String, Bytes>>,
}

#[derive(Debug, Default)]
struct HubState {
    datasets: BTreeMap<String, HubDataset>,
    token: String,
    page: usize,
    /// Signature of valid links; increased when all expire.
    signature: u64,
    limits: Vec<(HubLimit, u32)>,
    /// Address of the Hub that has the files, for a mirror.
    mirrored: Option<String>,
    log: Vec<HubRequest>,
}

#[derive(Debug)]
struct HubShared {
    state: Mutex<HubState>,
    closing: AtomicBool,
    /// Address of the host of large files.
    elsewhere: SocketAddr,
}

impl HubShared {
    fn lock(&self) -> MutexGuard<'_, HubState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running Hub. Dropping it ends its threads.
#[derive(Debug)]
pub struct HubServer {
    shared: Arc<HubShared>,
    address: SocketAddr,
    threads: Vec<JoinHandle<()>>,
}

impl HubServer {
    /// Starts a Hub without datasets on two free local ports.
    ///
    /// # Errors
    ///
    /// Returns the error of the operating system.
    pub fn start() -> io::Result<HubServer> {
        let hub = TcpListener::bind("127.0.0.1:0")?;
        let files = TcpListener::bind("127.0.0.1:0")?;
        let address = hub.local_addr()?;
        let shared = Arc::new(HubShared {
            state: Mutex::new(HubState {
                token: "hf_test".to_owned(),
                page: 1000,
                ..HubState::default()
            }),
            closing: AtomicBool::new(false),
            elsewhere: files.local_addr()?,
        });
        let threads = [(hub, false), (files, true)].map(|(listener, is_elsewhere)| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || accept(&listener, &shared, is_elsewhere))
        });
        Ok(HubServer {
            shared,
            address,
            threads: threads.into(),
        })
    }

    /// Returns `http://127.0.0.1:…`, without a trailing slash.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Token of the account that may read private datasets.
    pub fn token(&self) -> String {
        self.shared.lock().token.clone()
    }

    /// Creates a commit with these files only, and lets a revision name it. Returns the commit.
    pub fn publish(&self, dataset: &str, revision: &str, files: &[(&str, Vec<u8>)]) -> String {
        let mut state = self.shared.lock();
        let dataset = state.datasets.entry(dataset.to_owned()).or_default();
        let number = dataset.commits.len() as u64;
        let commit = format!("{:016x}{:016x}{:08x}", mix(number), mix(number ^ 7), number);
        let files = files
            .iter()
            .map(|(path, bytes)| ((*path).to_owned(), Bytes::from(bytes.clone())));
        dataset.commits.insert(commit.clone(), files.collect());
        dataset
            .revisions
            .insert(revision.to_owned(), commit.clone());
        commit
    }

    /// Sets who may read a dataset.
    pub fn set_access(&self, dataset: &str, access: HubAccess) {
        let mut state = self.shared.lock();
        state.datasets.entry(dataset.to_owned()).or_default().access = access;
    }

    /// Sets the number of entries per page of a list.
    pub fn set_page(&self, entries: usize) {
        self.shared.lock().page = entries;
    }

    /// Limits the next `times` requests to the Hub.
    pub fn limit(&self, limit: HubLimit, times: u32) {
        self.shared.lock().limits.push((limit, times));
    }

    /// Makes this a mirror: it redirects requests for files to another Hub.
    pub fn mirror(&self, of: &HubServer) {
        self.shared.lock().mirrored = Some(of.url());
    }

    /// Invalidates all links to large files.
    pub fn expire_links(&self) {
        self.shared.lock().signature += 1;
    }

    /// Returns the requests received so far, in order, and clears the log.
    pub fn take_log(&self) -> Vec<HubRequest> {
        std::mem::take(&mut self.shared.lock().log)
    }
}

impl Drop for HubServer {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::Relaxed);
        for address in [self.address, self.shared.elsewhere] {
            // Wakes up the accepting thread.
            drop(TcpStream::connect(address));
        }
        for thread in self.threads.drain(..) {
            // A panic of the thread has already failed its test.
            let _ = thread.join();
        }
    }
}

/// A response.
#[derive(Debug)]
struct HubAnswer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Bytes,
}

impl HubAnswer {
    fn new(status: u16) -> HubAnswer {
        HubAnswer {
            status,
            headers: Vec::new(),
            body: Bytes::new(),
        }
    }

    fn with(mut self, name: &'static str, value: impl Into<String>) -> HubAnswer {
        self.headers.push((name, value.into()));
        self
    }

    fn error(status: u16, code: &str) -> HubAnswer {
        HubAnswer::new(status).with("x-error-code", code)
    }

    fn json(value: &serde_json::Value) -> HubAnswer {
        HubAnswer {
            body: value.to_string().into(),
            ..HubAnswer::new(200).with("content-type", "application/json")
        }
    }
}

/// Parts of a request's head.
#[derive(Debug, Default)]
struct HubHead {
    method: String,
    /// Undecoded.
    target: String,
    range: Option<(usize, usize)>,
    token: Option<String>,
}

fn accept(listener: &TcpListener, shared: &Arc<HubShared>, is_elsewhere: bool) {
    for stream in listener.incoming() {
        if shared.closing.load(Ordering::Relaxed) {
            break;
        }
        let Ok(stream) = stream else { continue };
        let shared = Arc::clone(shared);
        // The client notices a broken connection.
        thread::spawn(move || drop(serve(&stream, &shared, is_elsewhere)));
    }
}

/// Answers the one request of a connection.
fn serve(mut stream: &TcpStream, shared: &HubShared, is_elsewhere: bool) -> io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let Some(head) = head(stream)? else {
        return Ok(());
    };
    let answer = {
        let mut state = shared.lock();
        let request = HubRequest {
            is_elsewhere,
            method: head.method.clone(),
            path: percent_decode(&head.target),
            token: head.token.clone(),
        };
        state.log.push(request);
        match is_elsewhere {
            true => large_file(&state, &head),
            false => apply_limit(&mut state, |state| answer(state, &head, shared.elsewhere)),
        }
    };
    let mut text = format!("HTTP/1.1 {} Status\r\nconnection: close\r\n", answer.status);
    for (name, value) in &answer.headers {
        text += &format!("{name}: {value}\r\n");
    }
    text += &format!("content-length: {}\r\n\r\n", answer.body.len());
    stream.write_all(text.as_bytes())?;
    match head.method.as_str() {
        "HEAD" => Ok(()),
        _ => stream.write_all(&answer.body),
    }
}

fn head(stream: &TcpStream) -> io::Result<Option<HubHead>> {
    let mut lines = BufReader::new(stream.take(MAX_HEAD)).lines();
    let Some(first) = lines.next().transpose()? else {
        return Ok(None);
    };
    let mut words = first.split(' ').map(str::to_owned);
    let mut head = HubHead {
        method: words.next().unwrap_or_default(),
        target: words.next().unwrap_or_default(),
        ..HubHead::default()
    };
    for line in lines {
        let line = line?;
        if line.is_empty() {
            return Ok(Some(head));
        }
        let (name, value) = line.split_once(':').unwrap_or_default();
        match name.to_ascii_lowercase().as_str() {
            "authorization" => head.token = Some(value.trim().to_owned()),
            "range" => {
                let bounds = value.trim().strip_prefix("bytes=");
                let bounds = bounds.and_then(|bounds| bounds.split_once('-'));
                head.range = bounds.and_then(|(first, last)| {
                    Some((first.parse().ok()?, last.parse::<usize>().ok()? + 1))
                });
            }
            _ => {}
        }
    }
    Ok(None)
}

/// Applies the next limit of requests, if any.
fn apply_limit(state: &mut HubState, make: impl Fn(&HubState) -> HubAnswer) -> HubAnswer {
    let Some((limit, left)) = state.limits.iter_mut().find(|(_, left)| *left > 0) else {
        return make(state);
    };
    *left -= 1;
    let none_left = |seconds| format!("\"resolvers\";r=0;t={seconds}");
    match *limit {
        HubLimit::RetryAfter(seconds) => {
            HubAnswer::new(429).with("retry-after", seconds.to_string())
        }
        HubLimit::RateLimit(seconds) => HubAnswer::new(429).with("ratelimit", none_left(seconds)),
        HubLimit::LastRequest(seconds) => make(state).with("ratelimit", none_left(seconds)),
    }
}

/// The Hub's answer.
fn answer(state: &HubState, head: &HubHead, elsewhere: SocketAddr) -> HubAnswer {
    let (path, query) = head.target.split_once('?').unwrap_or((&head.target, ""));
    let parts: Vec<String> = path
        .trim_start_matches('/')
        .split('/')
        .map(percent_decode)
        .collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let (is_list, dataset, kind, revision, rest) = match parts.as_slice() {
        [
            "api",
            "datasets",
            owner,
            name,
            kind @ ("revision" | "tree"),
            revision,
            rest @ ..,
        ] => (true, format!("{owner}/{name}"), *kind, *revision, rest),
        ["datasets", owner, name, "resolve", revision, rest @ ..] => {
            (false, format!("{owner}/{name}"), "resolve", *revision, rest)
        }
        [
            "api",
            "resolve-cache",
            "datasets",
            owner,
            name,
            revision,
            rest @ ..,
        ] => (false, format!("{owner}/{name}"), "cached", *revision, rest),
        _ => return HubAnswer::new(404),
    };
    let has_token = head.token.as_deref() == Some(&format!("Bearer {}", state.token));
    let Some(found) = state.datasets.get(&dataset) else {
        return match head.token {
            Some(_) => HubAnswer::error(404, "RepoNotFound"),
            None => HubAnswer::error(401, "RepoNotFound"),
        };
    };
    match found.access {
        HubAccess::Private if !has_token => return HubAnswer::error(401, "RepoNotFound"),
        HubAccess::Gated if !is_list => {
            return HubAnswer::error(if has_token { 403 } else { 401 }, "GatedRepo");
        }
        _ => {}
    }
    let named = found
        .revisions
        .get(revision)
        .map_or(revision, String::as_str);
    let Some(files) = found.commits.get(named) else {
        return HubAnswer::error(404, "RevisionNotFound");
    };
    let path = rest.join("/");
    match kind {
        "revision" => HubAnswer::json(&json!({"id": dataset, "sha": named, "private": false})),
        "tree" => tree(state, files, &path, &head.target, query),
        _ => {
            let Some(bytes) = files.get(&path) else {
                return HubAnswer::error(404, "EntryNotFound");
            };
            let tag = format!("\"{}\"", oid(bytes));
            if let Some(other) = &state.mirrored {
                return HubAnswer::new(302).with("location", format!("{other}{}", head.target));
            }
            let of_file = HubAnswer::new(302).with("x-repo-commit", named);
            if kind == "cached" {
                return part_of(bytes, head).with("etag", tag);
            }
            if bytes.len() < LARGE {
                let target = format!(
                    "/api/resolve-cache/datasets/{dataset}/{named}/{}",
                    rest.join("/")
                );
                return HubAnswer {
                    status: 307,
                    ..of_file
                }
                .with("location", target);
            }
            let target = format!(
                "http://{elsewhere}/{dataset}/{named}/{path}?Signature={}",
                state.signature
            );
            of_file
                .with("x-linked-etag", tag)
                .with("x-linked-size", bytes.len().to_string())
                .with("etag", "\"of-the-pointer\"")
                .with("location", target)
        }
    }
}

/// A page of the list of a folder.
fn tree(
    state: &HubState,
    files: &BTreeMap<String, Bytes>,
    folder: &str,
    target: &str,
    query: &str,
) -> HubAnswer {
    let is_deep = query.contains("recursive=true");
    let prefix = match folder {
        "" => String::new(),
        folder => format!("{folder}/"),
    };
    let mut entries = BTreeMap::new();
    for (path, bytes) in files {
        let Some(rest) = path.strip_prefix(&prefix) else {
            continue;
        };
        for (at, _) in rest.match_indices('/') {
            let folder = &path[..prefix.len() + at];
            let entry = json!({"type": "directory", "oid": "d", "size": 0, "path": folder});
            if is_deep || !rest[..at].contains('/') {
                entries.insert(folder.to_owned(), entry);
            }
        }
        if is_deep || !rest.contains('/') {
            let mut entry = json!({
                "type": "file", "oid": oid(bytes), "size": bytes.len(), "path": path,
            });
            if bytes.len() >= LARGE {
                entry["oid"] = json!("of-the-pointer");
                entry["lfs"] = json!({"oid": oid(bytes), "size": bytes.len(), "pointerSize": 134});
            }
            entries.insert(path.clone(), entry);
        }
    }
    if entries.is_empty() {
        return HubAnswer::error(404, "EntryNotFound");
    }
    let after = query
        .split('&')
        .find_map(|pair| pair.strip_prefix("cursor="));
    let after = after.map_or(0, |text| text.parse().unwrap_or(0));
    let page: Vec<_> = entries.values().skip(after).take(state.page).collect();
    let answer = HubAnswer::json(&json!(page));
    if after + page.len() >= entries.len() {
        return answer;
    }
    let path = target.split('?').next().unwrap_or_default();
    let next = format!("{path}?recursive={is_deep}&cursor={}", after + page.len());
    answer.with(
        "link",
        format!("<https://huggingface.co{next}>; rel=\"next\""),
    )
}

/// Answer of the host of large files.
fn large_file(state: &HubState, head: &HubHead) -> HubAnswer {
    let (path, query) = head.target.split_once('?').unwrap_or((&head.target, ""));
    if query != format!("Signature={}", state.signature) || head.token.is_some() {
        return HubAnswer::new(403);
    }
    let path = percent_decode(path.trim_start_matches('/'));
    let mut parts = path.splitn(4, '/');
    let mut next = || parts.next().unwrap_or_default();
    let dataset = format!("{}/{}", next(), next());
    let (commit, path) = (next(), next());
    let files = state
        .datasets
        .get(&dataset)
        .and_then(|found| found.commits.get(commit));
    match files.and_then(|files| files.get(path)) {
        Some(bytes) => part_of(bytes, head).with("etag", "\"of-the-other-host\""),
        None => HubAnswer::new(404),
    }
}

/// Bytes of a file, in the requested range.
fn part_of(bytes: &Bytes, head: &HubHead) -> HubAnswer {
    let Some((first, end)) = head.range else {
        return HubAnswer {
            body: bytes.clone(),
            ..HubAnswer::new(200)
        };
    };
    if first >= bytes.len() {
        return HubAnswer::new(416);
    }
    let end = end.min(bytes.len());
    let range = format!("bytes {first}-{}/{}", end - 1, bytes.len());
    HubAnswer {
        body: bytes.slice(first..end),
        ..HubAnswer::new(206).with("content-range", range)
    }
}

/// Name of a content.
fn oid(bytes: &[u8]) -> String {
    let hash = bytes.iter().fold(
        bytes.len() as u64,
        |hash, byte| mix(hash ^ u64::from(*byte)),
    );
    format!("{hash:016x}")
}
