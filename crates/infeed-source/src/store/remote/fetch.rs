//! Reads one range of one object, with retries until it is complete or a retry is pointless.
//!
//! This module classifies failures once: a *passing* failure is retried after a pause that doubles,
//! a *final* one is not. After a broken connection, the bytes received are kept and only the rest
//! is requested, as long as the object's version is the same. After any other failure the range is
//! requested again from its start.

use std::io;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use object_store::path::Path as Key;
use object_store::{GetOptions, GetRange, ObjectMeta};
use tokio::time::{Instant, timeout};

use super::bucket::Bucket;
use super::counts::{BYTES, HEDGES, HEDGES_WON, RETRIES, count_request};
use super::hub::HubProblem;
use super::url::Service;
use crate::store::RangeRequest;
use crate::store::buffers::{BufferPool, FillingBuffer};
use infeed_core::error::with_causes;
use infeed_core::random::mix;

/// Maximum pause before a retry.
const LONGEST_PAUSE: Duration = Duration::from_secs(8);

/// Whole files that a server may send for range requests before the read gives up: a proxy does so
/// occasionally, a server without ranges always.
const WHOLE_FILES: u32 = 3;

/// Maximum number of causes that an error lists, the last ones.
const LISTED: usize = 3;

/// Maximum number of characters of a server's message that an error repeats.
const WORDS: usize = 300;

/// Reason why a request returned no bytes.
#[derive(Debug)]
pub(super) enum RequestFailure {
    /// A temporary failure.
    Passing(String),
    /// The service accepts no request before this time.
    Limited(Instant, String),
    /// The server answered a request for a range with the whole file.
    WholeFile,
    /// A permanent failure.
    Final(io::Error),
}

impl RequestFailure {
    /// Whether another request may succeed.
    fn may_pass(&self) -> bool {
        !matches!(self, RequestFailure::Final(_))
    }
}

impl From<HubProblem> for RequestFailure {
    fn from(problem: HubProblem) -> RequestFailure {
        match problem {
            HubProblem::Passing(text) => RequestFailure::Passing(text),
            HubProblem::Limited(until, text) => RequestFailure::Limited(until, text),
            HubProblem::WholeFile => RequestFailure::WholeFile,
            HubProblem::Final(kind, text) => RequestFailure::Final(io::Error::new(kind, text)),
        }
    }
}

/// Version of an object's content: a hash of its tag or, without one, of its modification time.
/// None if the server reports neither.
pub(super) fn version(meta: &ObjectMeta) -> Option<u64> {
    let hash = |text: &str, kind: u64| text.bytes().fold(mix(kind), |h, b| mix(h ^ u64::from(b)));
    match &meta.e_tag {
        Some(tag) => Some(hash(bare(tag), 1)),
        None => match meta.last_modified.timestamp() {
            // The client returns 0 if the header is missing.
            0 => None,
            time => Some(hash(&time.to_string(), 2)),
        },
    }
}

/// Reason why an answer with a version other than the listed one is rejected.
fn other_version(meta: &ObjectMeta) -> &'static str {
    match meta.e_tag {
        Some(_) => {
            "it was changed since it was listed; open the dataset again, and do not change it \
             during a run"
        }
        None => {
            "its version cannot be verified: the answer has no ETag, and its modification time \
             differs from the listing; let servers and proxies pass ETag on, or open the dataset \
             again if it was changed"
        }
    }
}

/// A tag without the weak mark and quotes, which only some answers have.
pub(super) fn bare(tag: &str) -> &str {
    tag.strip_prefix("W/").unwrap_or(tag).trim_matches('"')
}

impl Bucket {
    /// Reads a range; blocks this thread.
    ///
    /// # Errors
    ///
    /// The object, the range, the number of attempts and the causes of the last failures.
    pub fn read(&self, wanted: &RangeRequest<'_>, buffers: &Arc<BufferPool>) -> io::Result<Bytes> {
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
            let mut filling = FillingBuffer::new(bytes, buffers)?;
            let deadline = Instant::now() + self.retry.deadline_of(bytes);
            let mut tries = Attempts::new(self, deadline);
            loop {
                let attempt = self.attempt(&key, wanted, &mut filling, buffers);
                match tries.limit(attempt).await {
                    Ok(()) => return Ok(filling.finish()),
                    Err(failure) => tries.wait_to_retry(failure, name).await?,
                }
            }
        })
    }

    /// Repeats a request that is not for a range until it succeeds or fails for good.
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

    /// Like `ask`, with more time for a request or answer of `bytes` bytes.
    pub(super) async fn ask_with<T, F>(
        &self,
        bytes: u64,
        name: impl Fn() -> String,
        mut request: impl FnMut() -> F,
    ) -> io::Result<T>
    where
        F: Future<Output = object_store::Result<T>>,
    {
        // The progress of an upload is not visible.
        let once = self.retry.idle + (self.retry.deadline_of(bytes) - self.retry.deadline);
        let deadline = Instant::now() + self.retry.deadline_of(bytes);
        let mut tries = Attempts::new(self, deadline);
        loop {
            count_request();
            let answer = timeout(once, request());
            let answer = tries.limit(async {
                match answer.await {
                    Ok(answer) => answer.map_err(|error| self.failure(error)),
                    Err(_) => Err(self.silent()),
                }
            });
            match answer.await {
                Ok(answer) => return Ok(answer),
                Err(failure) => tries.wait_to_retry(failure, &name).await?,
            }
        }
    }

    /// Makes one request, and a second one if the first is slow.
    async fn attempt(
        &self,
        key: &Key,
        wanted: &RangeRequest<'_>,
        filling: &mut FillingBuffer,
        buffers: &Arc<BufferPool>,
    ) -> Result<(), RequestFailure> {
        let missing = wanted.range.end - wanted.range.start - filling.len() as u64;
        let begun = Instant::now();
        self.pace.count_request();
        let (won, other) = {
            let mut first = pin!(self.fetch(key, wanted, filling));
            let early = timeout(self.pace.hedge_delay(missing), first.as_mut()).await;
            if let Ok(done) = early {
                if done.is_ok() {
                    self.pace.took(missing, begun.elapsed());
                }
                return done;
            }
            if !self.retry.hedge || !self.pace.may_hedge() {
                let done = first.await;
                self.pace.took(missing, begun.elapsed());
                return done;
            }
            HEDGES.fetch_add(1, Ordering::Relaxed);
            let again = Instant::now();
            // The second one requests the whole range: the first may still discard its bytes.
            let all = wanted.range.end - wanted.range.start;
            let mut other = FillingBuffer::new(all, buffers).map_err(RequestFailure::Final)?;
            let won = {
                let mut second = pin!(self.fetch(key, wanted, &mut other));
                // The first success counts; if one fails, the other decides.
                tokio::select! {
                    done = first.as_mut() => match done {
                        Err(failure) if failure.may_pass() => second.await.map(|()| true),
                        done => done.map(|()| false),
                    },
                    done = second.as_mut() => match done {
                        Err(failure) if failure.may_pass() => first.await.map(|()| false),
                        done => done.map(|()| true),
                    },
                }
            };
            // The time of the slower one is only known as a lower bound.
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

    /// Makes one request: fills the missing bytes, or returns the problem with the answer.
    async fn fetch(
        &self,
        key: &Key,
        wanted: &RangeRequest<'_>,
        filling: &mut FillingBuffer,
    ) -> Result<(), RequestFailure> {
        let range = wanted.range.start + filling.len() as u64..wanted.range.end;
        let bytes = range.end - range.start;
        // A server without ranges may still send the whole file.
        let whole = self.service == Service::Http && bytes == wanted.length;
        let options = GetOptions {
            range: (!whole).then_some(GetRange::Bounded(range.clone())),
            ..GetOptions::default()
        };
        count_request();
        let idle = self.retry.idle;
        let answer = timeout(idle, self.store.get_opts(key, options)).await;
        let answer = match answer {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => match self.failure(error) {
                // The next attempt begins at the start, and may request the whole file.
                RequestFailure::WholeFile => {
                    filling.clear();
                    return Err(RequestFailure::WholeFile);
                }
                failure => return Err(failure),
            },
            Err(_) => return Err(self.silent()),
        };
        // The Hub's requests name a commit, which never changes.
        let is_pinned = self.service == Service::Hub;
        if !is_pinned && wanted.version.is_some() && version(&answer.meta) != wanted.version {
            let problem = other_version(&answer.meta);
            return Err(RequestFailure::Final(io::Error::other(problem)));
        }
        if answer.range != range || answer.meta.size != wanted.length {
            return Err(RequestFailure::Passing(format!(
                "it answered with bytes {}..{} of {}, not of {}",
                answer.range.start, answer.range.end, answer.meta.size, wanted.length
            )));
        }
        let mut body = answer.into_stream();
        let mut received = 0_u64;
        let broke = loop {
            match timeout(idle, body.next()).await {
                Ok(Some(Ok(piece))) => {
                    BYTES.fetch_add(piece.len() as u64, Ordering::Relaxed);
                    received += piece.len() as u64;
                    if !filling.push(&piece) {
                        filling.clear();
                        let problem = format!("received more than the {bytes} bytes requested");
                        return Err(RequestFailure::Passing(problem));
                    }
                }
                Ok(Some(Err(error))) => break self.failure(error),
                Ok(None) if filling.is_full() => return Ok(()),
                Ok(None) => {
                    filling.clear();
                    let problem =
                        format!("received only {received} of the {bytes} bytes requested");
                    return Err(RequestFailure::Passing(problem));
                }
                Err(_) => break self.silent(),
            }
        };
        if wanted.version.is_none() || filling.is_full() {
            // Without a version, the rest may belong to other content; and an answer that ended
            // without an end mark has no rest.
            filling.clear();
        }
        Err(match broke {
            RequestFailure::Passing(cause) => {
                RequestFailure::Passing(format!("after {received} of {bytes} bytes, {cause}"))
            }
            failure => failure,
        })
    }

    fn silent(&self) -> RequestFailure {
        RequestFailure::Passing(format!(
            "received nothing for {} s",
            self.retry.idle.as_secs_f32()
        ))
    }

    /// Classifies an error of the client as passing or final.
    fn failure(&self, error: object_store::Error) -> RequestFailure {
        use object_store::Error as StoreError;
        let of_hub = causes(&error).find_map(|cause| cause.downcast_ref::<HubProblem>());
        if let Some(problem) = of_hub {
            return problem.clone().into();
        }
        let known = causes(&error).find_map(|cause| AnswerProblem::of(&cause.to_string()));
        // A query may hold a secret, so it is removed before the text is cut.
        let text = || cut(self.without_query(one_line(&error)));
        let kind = match &error {
            StoreError::NotFound { .. } => io::ErrorKind::NotFound,
            StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. } => {
                io::ErrorKind::PermissionDenied
            }
            StoreError::InvalidPath { .. } | StoreError::UnknownConfigurationKey { .. } => {
                io::ErrorKind::InvalidInput
            }
            _ if known == Some(AnswerProblem::Rangeless) => {
                return RequestFailure::WholeFile;
            }
            StoreError::NotSupported { .. } | StoreError::NotImplemented { .. } => {
                io::ErrorKind::Unsupported
            }
            _ => match known {
                Some(AnswerProblem::Status(408 | 429)) => return RequestFailure::Passing(text()),
                Some(AnswerProblem::Status(416)) => {
                    let problem = "it is shorter than it was when it was listed";
                    return RequestFailure::Final(io::Error::other(problem));
                }
                // A server does not learn an unknown request by the next attempt.
                Some(AnswerProblem::Status(501)) => io::ErrorKind::Unsupported,
                Some(AnswerProblem::Status(300..=499) | AnswerProblem::Redirect) => {
                    io::ErrorKind::Other
                }
                _ => return RequestFailure::Passing(text()),
            },
        };
        let hint = self
            .hint
            .filter(|_| kind == io::ErrorKind::PermissionDenied);
        let text = match hint {
            Some(hint) => format!("{}; {hint}", text()),
            None => text(),
        };
        RequestFailure::Final(io::Error::new(kind, text))
    }
}

/// Whether an error says that the service does not support the request.
pub(super) fn is_unknown(error: &object_store::Error) -> bool {
    use object_store::Error as StoreError;
    let known = causes(error).find_map(|cause| AnswerProblem::of(&cause.to_string()));
    matches!(
        error,
        StoreError::NotImplemented { .. } | StoreError::NotSupported { .. }
    ) || known == Some(AnswerProblem::Status(501))
}

/// Attempts at one request.
struct Attempts<'a> {
    bucket: &'a Bucket,
    begun: Instant,
    deadline: Instant,
    made: u32,
    /// Attempts that the service's limit of requests ended.
    limited: u32,
    whole_files: u32,
    causes: Vec<String>,
}

impl<'a> Attempts<'a> {
    fn new(bucket: &'a Bucket, deadline: Instant) -> Attempts<'a> {
        Attempts {
            bucket,
            begun: Instant::now(),
            deadline,
            made: 0,
            limited: 0,
            whole_files: 0,
            causes: Vec::new(),
        }
    }

    /// Runs an attempt, up to the deadline.
    async fn limit<T>(
        &mut self,
        attempt: impl Future<Output = Result<T, RequestFailure>>,
    ) -> Result<T, RequestFailure> {
        self.made += 1;
        match tokio::time::timeout_at(self.deadline, attempt).await {
            Ok(done) => done,
            Err(_) => Err(RequestFailure::Passing(
                "it exceeded the deadline".to_owned(),
            )),
        }
    }

    /// Waits before the next attempt, or gives up.
    async fn wait_to_retry(
        &mut self,
        failure: RequestFailure,
        name: impl Fn() -> String,
    ) -> io::Result<()> {
        let mut least = Duration::ZERO;
        let cause = match failure {
            RequestFailure::Limited(until, cause) => {
                self.limited += 1;
                least = until.saturating_duration_since(Instant::now());
                cause
            }
            RequestFailure::Final(error) => {
                return Err(io::Error::new(error.kind(), format!("{}: {error}", name())));
            }
            RequestFailure::WholeFile => {
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
            RequestFailure::Passing(cause) => cause,
        };
        tracing::debug!("{}: attempt {} failed: {cause}", name(), self.made);
        self.causes.push(cause);
        let retry = &self.bucket.retry;
        let doubled = 1_u32.checked_shl(self.made - 1).unwrap_or(u32::MAX);
        let longest = retry.pause.saturating_mul(doubled).min(LONGEST_PAUSE);
        // Between half of the pause and all of it, so that requests that failed together are not
        // repeated together.
        let dice = mix(u64::from(self.made) ^ self.begun.elapsed().as_nanos() as u64);
        let pause = least + longest.mul_f64(0.5 + (dice % 512) as f64 / 1024.0);
        let counted = self.made - self.limited;
        if counted >= retry.attempts || Instant::now() + pause >= self.deadline {
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
            "{name} could not be read in {} attempts over {:.1} s: {}",
            self.made,
            self.begun.elapsed().as_secs_f64(),
            causes[from..].join("; then ")
        );
        io::Error::new(io::ErrorKind::TimedOut, problem)
    }
}

/// An error and its sources.
fn causes<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |error| error.source())
}

/// Known problems of a server's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AnswerProblem {
    Status(u16),
    /// A redirect without a target, as from buckets of another region.
    Redirect,
    /// The whole object instead of the requested range.
    Rangeless,
}

impl AnswerProblem {
    /// Recognizes one of the client's causes by the beginning of its text: the client has no public
    /// types for them. These words come before any name of an object or text of a server. Tests
    /// with every relevant status fail if they change.
    fn of(cause: &str) -> Option<AnswerProblem> {
        let begins = |words: &str| cause.starts_with(words);
        if let Some(rest) = cause.strip_prefix("Server returned non-2xx status code: ") {
            let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
            return digits.parse().ok().map(AnswerProblem::Status);
        }
        if begins("Received redirect without LOCATION") {
            return Some(AnswerProblem::Redirect);
        }
        let rangeless =
            begins("Received non-partial response") || begins("Range request not supported");
        rangeless.then_some(AnswerProblem::Rangeless)
    }
}

/// Joins the texts of an error and its causes in one line.
fn one_line(error: &dyn std::error::Error) -> String {
    let text = with_causes(error);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Shortens a text to its first words.
fn cut(mut text: String) -> String {
    if let Some((at, _)) = text.char_indices().nth(WORDS) {
        text.truncate(at);
        text.push('…');
    }
    text
}
