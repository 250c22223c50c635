//! One range of one object: asked for until it is there whole, or there is no point in asking.
//!
//! What can go wrong on the way is told apart once, here: a *passing* failure is asked again,
//! after a pause that doubles; a *final* one is not. What a broken connection brought is kept and
//! the rest asked for, as long as the object says that it is still the same; anything odder than
//! a broken connection begins anew.

use std::io;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use object_store::path::Path as Key;
use object_store::{GetOptions, GetRange, ObjectMeta};
use tokio::time::{Instant, timeout};

use super::bucket::Bucket;
use super::url::Service;
use crate::random::mix;
use crate::store::buffers::{Buffers, Filling};

/// Longest pause before asking again.
const LONGEST_PAUSE: Duration = Duration::from_secs(8);

/// Requests for a range that a server may answer with the whole file before a read gives up: a proxy
/// does so once in a while, a server without ranges always.
const WHOLE_FILES: u32 = 3;

/// Causes that an error lists, the last ones.
const LISTED: usize = 3;

/// Characters of a server's own words that an error repeats.
const WORDS: usize = 300;

/// What the reads and looks of this process took so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Requests {
    /// Requests made, repetitions among them.
    pub requests: u64,
    /// Those that were made because one before failed.
    pub retries: u64,
    /// Those that were made because one before took long.
    pub hedges: u64,
    /// Of them, those that answered first.
    pub hedges_won: u64,
    /// Bytes that came.
    pub bytes: u64,
}

static REQUESTS: AtomicU64 = AtomicU64::new(0);
static RETRIES: AtomicU64 = AtomicU64::new(0);
static HEDGES: AtomicU64 = AtomicU64::new(0);
static HEDGES_WON: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

/// What the reads and looks of this process, from all buckets, took so far.
pub fn requests() -> Requests {
    Requests {
        requests: REQUESTS.load(Ordering::Relaxed),
        retries: RETRIES.load(Ordering::Relaxed),
        hedges: HEDGES.load(Ordering::Relaxed),
        hedges_won: HEDGES_WON.load(Ordering::Relaxed),
        bytes: BYTES.load(Ordering::Relaxed),
    }
}

/// Why a request brought nothing.
#[derive(Debug)]
pub(super) enum Failure {
    /// It may pass.
    Passing(String),
    /// The server answered a request for a range with the whole file.
    WholeFile,
    /// It will be the same again.
    Final(io::Error),
}

/// Which content an object has: a number that differs if its tag does, or where it has none, its
/// time. None where a server tells neither.
pub(crate) fn version(meta: &ObjectMeta) -> Option<u64> {
    let hash = |text: &str, kind: u64| text.bytes().fold(mix(kind), |h, b| mix(h ^ u64::from(b)));
    match &meta.e_tag {
        Some(tag) => Some(hash(bare(tag), 1)),
        None => match meta.last_modified.timestamp() {
            // What the client makes of no answer.
            0 => None,
            time => Some(hash(&time.to_string(), 2)),
        },
    }
}

/// Why an answer of another version than the listing's is rejected.
fn other_version(meta: &ObjectMeta) -> &'static str {
    match meta.e_tag {
        Some(_) => {
            "it was changed since it was listed; open the dataset again, and leave it alone \
             meanwhile"
        }
        None => {
            "it cannot be verified to be what was listed: the answer has no ETag, and its \
             modification time is not the listing's version; let servers and proxies pass ETag \
             on, or open the dataset again if it was changed"
        }
    }
}

/// A tag without the marks that some answers have and others have not.
pub(crate) fn bare(tag: &str) -> &str {
    tag.strip_prefix("W/").unwrap_or(tag).trim_matches('"')
}

/// What is read: a range of a version of an object.
#[derive(Clone, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) key: &'a str,
    pub(crate) range: Range<u64>,
    /// Length of the whole object.
    pub(crate) length: u64,
    pub(crate) version: Option<u64>,
}

impl Bucket {
    /// Reads a range; waits on this thread.
    ///
    /// # Errors
    ///
    /// What is in the way, naming the object, the range, the attempts and what was wrong with
    /// the last of them.
    pub(crate) fn read(&self, wanted: &Wanted<'_>, buffers: &Arc<Buffers>) -> io::Result<Bytes> {
        let bytes = wanted.range.end.saturating_sub(wanted.range.start);
        if bytes == 0 {
            return Ok(Bytes::new());
        }
        let process = self.process()?;
        let key = self.key(wanted.key)?;
        let name = || {
            let Range { start, end } = wanted.range;
            format!("bytes {start}..{end} of {}", self.url(wanted.key))
        };
        process.wait(async {
            let mut filling = Filling::new(bytes, buffers)?;
            let deadline = Instant::now() + self.patience.deadline_of(bytes);
            let mut tries = Tries::new(self, deadline);
            loop {
                let attempt = self.attempt(&key, wanted, &mut filling, buffers);
                match tries.limit(attempt).await {
                    Ok(()) => return Ok(filling.finish()),
                    Err(failure) => tries.failed(failure, name).await?,
                }
            }
        })
    }

    /// Asks until there is an answer, for what is no range of an object.
    pub(super) async fn ask<T, F>(
        &self,
        name: impl Fn() -> String,
        request: impl FnMut() -> F,
    ) -> io::Result<T>
    where
        F: Future<Output = object_store::Result<T>>,
    {
        self.ask_with(0, name, request).await
    }

    /// The same of a request that goes or comes with so many bytes, for which it has more time.
    pub(super) async fn ask_with<T, F>(
        &self,
        bytes: u64,
        name: impl Fn() -> String,
        mut request: impl FnMut() -> F,
    ) -> io::Result<T>
    where
        F: Future<Output = object_store::Result<T>>,
    {
        // Nothing tells how much of a body has gone.
        let once = self.patience.idle + (self.patience.deadline_of(bytes) - self.patience.deadline);
        let deadline = Instant::now() + self.patience.deadline_of(bytes);
        let mut tries = Tries::new(self, deadline);
        loop {
            REQUESTS.fetch_add(1, Ordering::Relaxed);
            let answer = timeout(once, request());
            let answer = tries.limit(async {
                match answer.await {
                    Ok(answer) => answer.map_err(|error| self.failure(error)),
                    Err(_) => Err(self.silent()),
                }
            });
            match answer.await {
                Ok(answer) => return Ok(answer),
                Err(failure) => tries.failed(failure, &name).await?,
            }
        }
    }

    /// One request, or two if the first takes long.
    async fn attempt(
        &self,
        key: &Key,
        wanted: &Wanted<'_>,
        filling: &mut Filling,
        buffers: &Arc<Buffers>,
    ) -> Result<(), Failure> {
        let missing = wanted.range.end - wanted.range.start - filling.len() as u64;
        let begun = Instant::now();
        self.pace.asked();
        let (won, other) = {
            let mut first = pin!(self.fetch(key, wanted, filling));
            let early = timeout(self.pace.patience(missing), first.as_mut()).await;
            if let Ok(done) = early {
                if done.is_ok() {
                    self.pace.took(missing, begun.elapsed());
                }
                return done;
            }
            if !self.patience.hedge || !self.pace.may_hedge() {
                let done = first.await;
                self.pace.took(missing, begun.elapsed());
                return done;
            }
            HEDGES.fetch_add(1, Ordering::Relaxed);
            let again = Instant::now();
            // All of the range: the first may yet throw away what it had.
            let all = wanted.range.end - wanted.range.start;
            let mut other = Filling::new(all, buffers).map_err(Failure::Final)?;
            let won = {
                let mut second = pin!(self.fetch(key, wanted, &mut other));
                // The first that succeeds; after a failure of one, what becomes of the other.
                tokio::select! {
                    done = first.as_mut() => match done {
                        Err(Failure::Passing(_) | Failure::WholeFile) => second.await.map(|()| true),
                        done => done.map(|()| false),
                    },
                    done = second.as_mut() => match done {
                        Err(Failure::Passing(_) | Failure::WholeFile) => first.await.map(|()| false),
                        done => done.map(|()| true),
                    },
                }
            };
            // Of the slower one it is known that it took at least so long.
            self.pace.took(missing, begun.elapsed());
            let won = won?;
            if won {
                self.pace.took(missing, again.elapsed());
            }
            (won, other)
        };
        if won {
            HEDGES_WON.fetch_add(1, Ordering::Relaxed);
            *filling = other;
        }
        Ok(())
    }

    /// One request: fills what is missing, or says what is wrong with the answer.
    async fn fetch(
        &self,
        key: &Key,
        wanted: &Wanted<'_>,
        filling: &mut Filling,
    ) -> Result<(), Failure> {
        let range = wanted.range.start + filling.len() as u64..wanted.range.end;
        let bytes = range.end - range.start;
        // A server that knows no ranges may still give the whole.
        let whole = self.service == Service::Http && bytes == wanted.length;
        let options = GetOptions {
            range: (!whole).then_some(GetRange::Bounded(range.clone())),
            ..GetOptions::default()
        };
        REQUESTS.fetch_add(1, Ordering::Relaxed);
        let idle = self.patience.idle;
        let answer = timeout(idle, self.store.get_opts(key, options)).await;
        let answer = match answer {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => match self.failure(error) {
                // The next attempt begins at the start, which may be a request for the whole file.
                Failure::WholeFile => {
                    filling.clear();
                    return Err(Failure::WholeFile);
                }
                failure => return Err(failure),
            },
            Err(_) => return Err(self.silent()),
        };
        if wanted.version.is_some() && version(&answer.meta) != wanted.version {
            let problem = other_version(&answer.meta);
            return Err(Failure::Final(io::Error::other(problem)));
        }
        if answer.range != range || answer.meta.size != wanted.length {
            return Err(Failure::Passing(format!(
                "it answered with bytes {}..{} of {}, not of {}",
                answer.range.start, answer.range.end, answer.meta.size, wanted.length
            )));
        }
        let mut body = answer.into_stream();
        let mut came = 0_u64;
        let broke = loop {
            match timeout(idle, body.next()).await {
                Ok(Some(Ok(piece))) => {
                    BYTES.fetch_add(piece.len() as u64, Ordering::Relaxed);
                    came += piece.len() as u64;
                    if !filling.push(&piece) {
                        filling.clear();
                        let problem = format!("more than the {bytes} bytes asked for came");
                        return Err(Failure::Passing(problem));
                    }
                }
                Ok(Some(Err(error))) => break self.failure(error),
                Ok(None) if filling.is_full() => return Ok(()),
                Ok(None) => {
                    filling.clear();
                    let problem = format!("only {came} of the {bytes} bytes asked for came");
                    return Err(Failure::Passing(problem));
                }
                Err(_) => break self.silent(),
            }
        };
        if wanted.version.is_none() || filling.is_full() {
            // Nothing would tell that the rest is of the same content; or there is no rest to
            // ask for, of an answer that never came to its end.
            filling.clear();
        }
        Err(match broke {
            Failure::Passing(cause) => {
                Failure::Passing(format!("after {came} of {bytes} bytes, {cause}"))
            }
            failure => failure,
        })
    }

    fn silent(&self) -> Failure {
        Failure::Passing(format!(
            "nothing came for {} s",
            self.patience.idle.as_secs_f32()
        ))
    }

    /// Tells passing failures from final ones.
    fn failure(&self, error: object_store::Error) -> Failure {
        use object_store::Error as Told;
        let told = causes(&error).find_map(|cause| Answer::of(&cause.to_string()));
        // A query may hold a secret, so it goes before anything is cut.
        let text = || cut(self.without_query(chain(&error)));
        let kind = match &error {
            Told::NotFound { .. } => io::ErrorKind::NotFound,
            Told::PermissionDenied { .. } | Told::Unauthenticated { .. } => {
                io::ErrorKind::PermissionDenied
            }
            Told::InvalidPath { .. } | Told::UnknownConfigurationKey { .. } => {
                io::ErrorKind::InvalidInput
            }
            _ if told == Some(Answer::Rangeless) => {
                return Failure::WholeFile;
            }
            Told::NotSupported { .. } | Told::NotImplemented { .. } => io::ErrorKind::Unsupported,
            _ => match told {
                Some(Answer::Status(408 | 429)) => return Failure::Passing(text()),
                Some(Answer::Status(416)) => {
                    let problem = "it is shorter than it was when it was listed";
                    return Failure::Final(io::Error::other(problem));
                }
                // What a server does not know it will not know at the next attempt.
                Some(Answer::Status(501)) => io::ErrorKind::Unsupported,
                Some(Answer::Status(300..=499) | Answer::Redirect) => io::ErrorKind::Other,
                _ => return Failure::Passing(text()),
            },
        };
        let hint = self
            .hint
            .filter(|_| kind == io::ErrorKind::PermissionDenied);
        let text = match hint {
            Some(hint) => format!("{}; {hint}", text()),
            None => text(),
        };
        Failure::Final(io::Error::new(kind, text))
    }
}

/// Whether an error says that the service does not know what it was asked for.
pub(super) fn is_unknown(error: &object_store::Error) -> bool {
    use object_store::Error as Told;
    let told = causes(error).find_map(|cause| Answer::of(&cause.to_string()));
    matches!(
        error,
        Told::NotImplemented { .. } | Told::NotSupported { .. }
    ) || told == Some(Answer::Status(501))
}

/// Attempts at one thing.
struct Tries<'a> {
    bucket: &'a Bucket,
    begun: Instant,
    deadline: Instant,
    made: u32,
    whole_files: u32,
    causes: Vec<String>,
}

impl<'a> Tries<'a> {
    fn new(bucket: &'a Bucket, deadline: Instant) -> Tries<'a> {
        Tries {
            bucket,
            begun: Instant::now(),
            deadline,
            made: 0,
            whole_files: 0,
            causes: Vec::new(),
        }
    }

    /// Makes an attempt, up to the deadline.
    async fn limit<T>(
        &mut self,
        attempt: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        self.made += 1;
        match tokio::time::timeout_at(self.deadline, attempt).await {
            Ok(done) => done,
            Err(_) => Err(Failure::Passing("it was not done in time".to_owned())),
        }
    }

    /// Waits before the next attempt; or gives up.
    async fn failed(&mut self, failure: Failure, name: impl Fn() -> String) -> io::Result<()> {
        let cause = match failure {
            Failure::Final(error) => {
                return Err(io::Error::new(error.kind(), format!("{}: {error}", name())));
            }
            Failure::WholeFile => {
                self.whole_files += 1;
                if self.whole_files >= WHOLE_FILES {
                    let problem = format!(
                        "{}: the server answered {} requests for a range with the whole file; use a \
                         server that supports range requests, or copy the data to a disk",
                        name(),
                        self.whole_files
                    );
                    return Err(io::Error::new(io::ErrorKind::Unsupported, problem));
                }
                "the server answered a request for a range with the whole file".to_owned()
            }
            Failure::Passing(cause) => cause,
        };
        tracing::debug!("{}: attempt {} failed: {cause}", name(), self.made);
        self.causes.push(cause);
        let patience = &self.bucket.patience;
        let doubled = 1_u32.checked_shl(self.made - 1).unwrap_or(u32::MAX);
        let longest = patience.pause.saturating_mul(doubled).min(LONGEST_PAUSE);
        // Between half and all of it, so that those that failed together do not ask together.
        let dice = mix(u64::from(self.made) ^ self.begun.elapsed().as_nanos() as u64);
        let pause = longest.mul_f64(0.5 + (dice % 512) as f64 / 1024.0);
        if self.made >= patience.attempts || Instant::now() + pause >= self.deadline {
            return Err(self.gave_up(&name()));
        }
        RETRIES.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(pause).await;
        Ok(())
    }

    fn gave_up(&self, name: &str) -> io::Error {
        let mut causes: Vec<&str> = self.causes.iter().map(String::as_str).collect();
        causes.dedup();
        let from = causes.len().saturating_sub(LISTED);
        let problem = format!(
            "{name} did not come in {} attempts over {:.1} s: {}",
            self.made,
            self.begun.elapsed().as_secs_f64(),
            causes[from..].join("; then ")
        );
        io::Error::new(io::ErrorKind::TimedOut, problem)
    }
}

/// An error and what it comes from.
fn causes<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |error| error.source())
}

/// What a server's answer was, where it was none that can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Status(u16),
    /// A redirect to nowhere, as buckets of another region give.
    Redirect,
    /// All of an object where a range was asked for.
    Rangeless,
}

impl Answer {
    /// What one of the client's causes tells, by how it begins: the client has no public names for
    /// them. Before these words is nothing of an object's name or a server's own words; tests
    /// with every status that matters notice if they change.
    fn of(cause: &str) -> Option<Answer> {
        let begins = |words: &str| cause.starts_with(words);
        if let Some(rest) = cause.strip_prefix("Server returned non-2xx status code: ") {
            let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
            return digits.parse().ok().map(Answer::Status);
        }
        if begins("Received redirect without LOCATION") {
            return Some(Answer::Redirect);
        }
        let rangeless =
            begins("Received non-partial response") || begins("Range request not supported");
        rangeless.then_some(Answer::Rangeless)
    }
}

/// An error with its causes, each said once.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = String::new();
    for cause in causes(error) {
        let more = cause.to_string();
        if text.is_empty() {
            text = more;
        } else if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The first words of a text.
fn cut(mut text: String) -> String {
    if let Some((at, _)) = text.char_indices().nth(WORDS) {
        text.truncate(at);
        text.push('…');
    }
    text
}
