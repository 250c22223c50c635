//! Datasets of the Hugging Face Hub, read at one commit.
//!
//! The Hub answers a request for a large file with a link to another host. The link is signed and
//! expires. [`HubStore`] keeps the links, so that a read is one request that the Hub does not count,
//! and requests a new link when one has expired. Its token goes to the Hub alone. While the Hub
//! limits requests, none is made (`rate.rs`): a read fails with the time at which `fetch.rs` makes
//! it again.

mod answer;
mod rate;
mod settings;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt, TryStreamExt};
use object_store::list::{PaginatedListOptions, PaginatedListResult, PaginatedListStore};
use object_store::path::Path as Key;
use object_store::{
    CopyOptions, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult,
};
use reqwest::header::{ACCEPT_ENCODING, AUTHORIZATION, HeaderValue, RANGE};
use reqwest::{Client, Method, Response, StatusCode, Url as Link};

use super::client_options::{CONNECT, user_agent};
use super::counts::count_request;
use super::settings::RemoteSettings;
use super::url::{Url, percent_encode};
pub(super) use answer::HubProblem;
use answer::{Commit, TreeEntry, content_range, header, json, redirect, size, tag};
use rate::RateLimit;
use settings::HubSettings;

/// Maximum number of redirects between addresses of the Hub.
const HOPS: usize = 5;

/// Maximum number of links that are kept, of about a kilobyte each.
const LINKS: usize = 16 << 10;

/// Link of a file, unknown at first. The lock admits one request for it at a time.
type FileLink = Arc<tokio::sync::Mutex<Option<Link>>>;

/// Client of one dataset.
pub(super) struct HubStore {
    client: Client,
    /// Address of the Hub, without a trailing slash.
    endpoint: Link,
    token: Option<HeaderValue>,
    /// `OWNER/NAME`.
    dataset: String,
    revision: String,
    /// Commit of the revision, known once the dataset is open.
    commit: OnceLock<String>,
    limit: Arc<RateLimit>,
    links: Mutex<HashMap<String, FileLink>>,
}

impl fmt::Debug for HubStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the token and the links, which are secret.
        f.debug_struct("HubStore")
            .field("dataset", &self.dataset)
            .field("revision", &self.revision)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for HubStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hf://datasets/{}", self.dataset)
    }
}

/// Answer of the Hub to a request for a file.
enum ResolvedFile {
    /// The file is on another host.
    Elsewhere(Link),
    /// The Hub itself answered, at this address.
    Here(Response, Link),
}

impl HubStore {
    /// Creates the client of a dataset. Makes no request.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] for an invalid address, token or option.
    pub(super) fn new(url: &Url, settings: &RemoteSettings) -> io::Result<HubStore> {
        let HubSettings { endpoint, token } = HubSettings::of(settings)?;
        let (dataset, revision) = url.dataset();
        let build = |builder: reqwest::ClientBuilder| {
            builder
                .user_agent(user_agent())
                .connect_timeout(CONNECT)
                // Redirects to other hosts must not carry the token.
                .redirect(reqwest::redirect::Policy::none())
                .build()
        };
        let client = match build(Client::builder()) {
            // Plain HTTP works without the certificates of the system.
            Err(_) if endpoint.scheme() == "http" => build(Client::builder().tls_certs_only([])),
            built => built,
        };
        let commit = OnceLock::new();
        if is_commit(&revision) {
            let _ = commit.set(revision.clone());
        }
        Ok(HubStore {
            client: client.map_err(io::Error::other)?,
            limit: RateLimit::of(endpoint.as_str()),
            endpoint,
            token,
            dataset,
            revision,
            commit,
            links: Mutex::default(),
        })
    }

    /// Text that names the dataset and differs for each Hub. It has no commit: the versions of
    /// objects follow from their contents, so commits share what they have in common.
    pub(super) fn realm(&self) -> String {
        format!("hub {} {}", self.endpoint, self.dataset)
    }

    /// Finds the commit of the revision, once. All later requests name the commit.
    pub(super) async fn pin(&self) -> object_store::Result<()> {
        if self.commit.get().is_some() {
            return Ok(());
        }
        let path = format!(
            "api/datasets/{}/revision/{}",
            self.dataset,
            part(&self.revision)
        );
        let url = self.address(&path)?;
        let answer = self.request(Method::GET, &url, None).await?;
        let answer = self.successful(answer, "")?;
        let Commit { sha } = json(answer).await?;
        if !is_commit(&sha) {
            let problem = "the Hub's answer names no commit".to_owned();
            return Err(HubProblem::Passing(problem).into());
        }
        let commit = self.commit.get_or_init(|| sha);
        tracing::info!(
            "{self}: this process reads commit {commit} (revision `{}`); write `{self}@{commit}` to \
             read the same commit in every run",
            self.revision
        );
        Ok(())
    }

    fn commit(&self) -> object_store::Result<&str> {
        let unknown = || HubProblem::Passing("its commit is unknown".to_owned()).into();
        self.commit.get().map(String::as_str).ok_or_else(unknown)
    }

    /// Address on the Hub.
    fn address(&self, path: &str) -> object_store::Result<Link> {
        let base = self.endpoint.as_str().trim_end_matches('/');
        let invalid = |error| HubProblem::Final(io::ErrorKind::InvalidInput, format!("{error}"));
        Ok(Link::parse(&format!("{base}/{path}")).map_err(invalid)?)
    }

    /// Whether an address is on the Hub's host, which may have the token.
    fn is_here(&self, url: &Link) -> bool {
        url.origin() == self.endpoint.origin()
    }

    /// Makes one request, without following redirects.
    async fn request(
        &self,
        method: Method,
        url: &Link,
        range: Option<&Range<u64>>,
    ) -> object_store::Result<Response> {
        let is_here = self.is_here(url);
        if is_here {
            self.limit.check()?;
        }
        let mut request = self.client.request(method, url.clone());
        // Lengths and ranges are those of the bytes themselves.
        request = request.header(ACCEPT_ENCODING, "identity");
        if let Some(range) = range {
            let last = range.end.saturating_sub(1);
            request = request.header(RANGE, format!("bytes={}-{last}", range.start));
        }
        if let Some(token) = self.token.as_ref().filter(|_| is_here) {
            request = request.header(AUTHORIZATION, token.clone());
        }
        // A link holds a signature.
        let failed = |error: reqwest::Error| HubProblem::connection(&error.without_url());
        let answer = request.send().await.map_err(failed)?;
        if is_here {
            self.limit.note(&answer)?;
        }
        Ok(answer)
    }

    /// Returns an answer of success; the problem and its fix for any other.
    fn successful(&self, answer: Response, path: &str) -> object_store::Result<Response> {
        match answer.status().is_success() {
            true => Ok(answer),
            false => Err(self.refusal(&answer, path).into()),
        }
    }

    /// Returns the problem that an answer without success describes.
    fn refusal(&self, answer: &Response, path: &str) -> HubProblem {
        let status = answer.status().as_u16();
        let code = header(answer, "x-error-code").unwrap_or_default();
        let page = format!(
            "{}/datasets/{}",
            self.endpoint.as_str().trim_end_matches('/'),
            self.dataset
        );
        let denied = |text: String| HubProblem::Final(io::ErrorKind::PermissionDenied, text);
        let missing = |text: String| HubProblem::Final(io::ErrorKind::NotFound, text);
        match (status, code) {
            (401 | 403, "GatedRepo") => denied(format!(
                "its owner restricts access (status {status}); accept the terms on {page}, and set \
                 HF_TOKEN to a token of the same account"
            )),
            (404, "EntryNotFound") if path.is_empty() => {
                missing(format!("revision `{}` has no files", self.revision))
            }
            (404, "EntryNotFound") => missing(format!(
                "revision `{}` has no `{path}`; check the path on {page}",
                self.revision
            )),
            (404, "RevisionNotFound") => missing(format!(
                "it has no revision `{}`; name a branch, a tag or a commit after `@`",
                self.revision
            )),
            (401 | 403, _) if self.token.is_none() => denied(format!(
                "the Hub shows no such dataset without a token (status {status}); check the name \
                 `{}`, or set HF_TOKEN for a private dataset",
                self.dataset
            )),
            (401 | 403, _) => denied(format!(
                "the Hub does not accept the token for this dataset (status {status}); check HF_TOKEN, \
                 its permissions, and the name `{}`",
                self.dataset
            )),
            (404, "RepoNotFound") => missing(format!(
                "the Hub has no dataset `{}` that this token may read; check the name, and set HF_TOKEN \
                 for a private dataset",
                self.dataset
            )),
            (404, _) if path.is_empty() => missing(format!(
                "the Hub has no dataset `{}` with revision `{}`; check both names",
                self.dataset, self.revision
            )),
            (404, _) => missing(format!(
                "revision `{}` has no `{path}`; check the path on {page}",
                self.revision
            )),
            (416, _) => {
                let problem = "it is shorter than it was when it was listed".to_owned();
                HubProblem::Final(io::ErrorKind::Other, problem)
            }
            (408 | 429 | 500 | 502..=599, _) => {
                HubProblem::Passing(format!("the server answered with status {status}"))
            }
            _ => {
                let problem = format!("the server answered with status {status}");
                HubProblem::Final(io::ErrorKind::Other, problem)
            }
        }
    }

    /// Address of a file on the Hub.
    fn file(&self, path: &str) -> object_store::Result<Link> {
        let commit = self.commit()?;
        let dataset = &self.dataset;
        self.address(&format!(
            "datasets/{dataset}/resolve/{commit}/{}",
            percent_encode(path)
        ))
    }

    /// Requests a file from the Hub, and follows its redirects up to another host. `seen` gets the
    /// answers.
    async fn resolve(
        &self,
        method: Method,
        path: &str,
        range: Option<&Range<u64>>,
        mut seen: impl FnMut(&Response),
    ) -> object_store::Result<ResolvedFile> {
        let mut url = self.file(path)?;
        for hop in 0..=HOPS {
            if hop > 0 {
                count_request();
            }
            let answer = self.request(method.clone(), &url, range).await?;
            seen(&answer);
            if !answer.status().is_redirection() {
                return Ok(ResolvedFile::Here(self.successful(answer, path)?, url));
            }
            let Some(target) = redirect(&answer, &url) else {
                let problem = "the Hub redirects without a valid address".to_owned();
                return Err(HubProblem::Passing(problem).into());
            };
            if !self.is_here(&target) {
                return Ok(ResolvedFile::Elsewhere(target));
            }
            url = target;
        }
        let problem = format!("the Hub redirects more than {HOPS} times");
        Err(HubProblem::Passing(problem).into())
    }

    /// Returns the link of a file, for its reader to fill in.
    fn link(&self, path: &str) -> FileLink {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        if links.len() >= LINKS && !links.contains_key(path) {
            // Their reads in progress keep theirs.
            links.clear();
        }
        Arc::clone(links.entry(path.to_owned()).or_default())
    }

    /// Requests bytes of a file: by its link, or from the Hub if the link is unknown or expired.
    async fn bytes(
        &self,
        path: &str,
        range: Option<&Range<u64>>,
    ) -> object_store::Result<Response> {
        let link = self.link(path);
        let known = link.lock().await.clone();
        if let Some(url) = &known {
            let answer = self.request(Method::GET, url, range).await?;
            if !is_expired(answer.status()) {
                return self.successful(answer, path);
            }
            count_request();
        }
        let mut target = {
            let mut target = link.lock().await;
            match &*target {
                // Another read found it in the meantime.
                Some(url) if target.as_ref() != known.as_ref() => url.clone(),
                _ => {
                    *target = None;
                    let resolved = self.resolve(Method::GET, path, range, |_| {}).await?;
                    match resolved {
                        ResolvedFile::Here(answer, url) => {
                            *target = Some(url);
                            return Ok(answer);
                        }
                        ResolvedFile::Elsewhere(url) => target.insert(url).clone(),
                    }
                }
            }
        };
        count_request();
        let mut answer = self.request(Method::GET, &target, range).await?;
        // A mirror may redirect to the Hub, which redirects again.
        for _ in 0..HOPS {
            let Some(next) = redirect(&answer, &target) else {
                break;
            };
            target = next;
            *link.lock().await = Some(target.clone());
            count_request();
            answer = self.request(Method::GET, &target, range).await?;
        }
        if is_expired(answer.status()) {
            let mut current = link.lock().await;
            if current.as_ref() == Some(&target) {
                *current = None;
            }
            // The next attempt requests another link.
            let status = answer.status().as_u16();
            let problem = format!("the host of the file rejects the Hub's link (status {status})");
            return Err(HubProblem::Passing(problem).into());
        }
        self.successful(answer, path)
    }

    /// Length and tag of a file.
    async fn file_meta(&self, location: &Key) -> object_store::Result<ObjectMeta> {
        let path = location.as_ref();
        let (mut length, mut e_tag) = (None, None);
        let seen = |answer: &Response| {
            length = size(answer).or(length);
            e_tag = tag(answer).or_else(|| e_tag.take());
        };
        let resolved = self.resolve(Method::HEAD, path, None, seen).await?;
        let (ResolvedFile::Here(_, mut url) | ResolvedFile::Elsewhere(mut url)) = resolved;
        // A mirror may redirect to the Hub, which knows the length.
        for _ in 0..HOPS {
            if length.is_some() {
                break;
            }
            count_request();
            let answer = self.request(Method::HEAD, &url, None).await?;
            length = size(&answer);
            e_tag = tag(&answer).or(e_tag);
            match redirect(&answer, &url) {
                Some(next) => url = next,
                None => drop(self.successful(answer, path)?),
            }
        }
        // Reads begin with the link.
        *self.link(path).lock().await = Some(url);
        let Some(size) = length else {
            let problem = "the Hub reports no length of it".to_owned();
            return Err(HubProblem::Passing(problem).into());
        };
        Ok(meta(location.clone(), size, e_tag))
    }

    async fn page(
        &self,
        prefix: &str,
        options: PaginatedListOptions,
    ) -> object_store::Result<PaginatedListResult> {
        let folder = prefix.rfind('/').map_or("", |at| &prefix[..at]);
        let is_deep = options.delimiter.is_none();
        let slash = if folder.is_empty() { "" } else { "/" };
        let mut url = self.address(&format!(
            "api/datasets/{}/tree/{}{slash}{}",
            self.dataset,
            self.commit()?,
            percent_encode(folder)
        ))?;
        match &options.page_token {
            Some(token) => url.set_query(Some(token)),
            None => url.set_query(Some(if is_deep {
                "recursive=true"
            } else {
                "recursive=false"
            })),
        }
        let answer = self.request(Method::GET, &url, None).await?;
        let answer = self.successful(answer, folder)?;
        let page_token = answer::next_page(&answer, &url);
        let entries: Vec<TreeEntry> = json(answer).await?;
        let (mut objects, mut common_prefixes) = (Vec::new(), Vec::new());
        for entry in entries {
            if !entry.path.starts_with(prefix) {
                continue;
            }
            let is_folder = entry.kind == "directory";
            if is_folder && is_deep {
                continue;
            }
            let unknown = |error| HubProblem::Final(io::ErrorKind::InvalidData, format!("{error}"));
            let location = Key::parse(&entry.path).map_err(unknown)?;
            match is_folder {
                true => common_prefixes.push(location),
                false => {
                    let (size, tag) = entry.content();
                    objects.push(meta(location, size, tag));
                }
            }
        }
        Ok(PaginatedListResult {
            result: ListResult {
                common_prefixes,
                objects,
                extensions: Default::default(),
            },
            page_token,
        })
    }

    async fn get(&self, location: &Key, options: GetOptions) -> object_store::Result<GetResult> {
        if options.head {
            let meta = self.file_meta(location).await?;
            return Ok(result(meta.clone(), 0..meta.size, stream::empty().boxed()));
        }
        let range = match options.range {
            None => None,
            Some(object_store::GetRange::Bounded(range)) => Some(range),
            Some(_) => return Err(unsupported_error("a range without an end")),
        };
        let answer = self.bytes(location.as_ref(), range.as_ref()).await?;
        let (range, length) = match (&range, answer.status()) {
            (None, StatusCode::OK) => {
                let length = size(&answer);
                let unknown = || HubProblem::Passing("the answer has no length".to_owned());
                let length = length.ok_or_else(unknown)?;
                (0..length, length)
            }
            (Some(_), StatusCode::PARTIAL_CONTENT) => {
                let unknown = || HubProblem::Passing("the answer names no range".to_owned());
                content_range(&answer).ok_or_else(unknown)?
            }
            (Some(_), _) => return Err(HubProblem::WholeFile.into()),
            (None, status) => {
                let problem = format!("the answer has the status {}", status.as_u16());
                return Err(HubProblem::Passing(problem).into());
            }
        };
        let pieces = stream::try_unfold(answer, |mut answer| async move {
            match answer.chunk().await {
                Ok(piece) => Ok(piece.map(|piece| (piece, answer))),
                Err(error) => Err(HubProblem::connection(&error.without_url()).into()),
            }
        });
        // The commit determines the bytes. Other hosts report other tags.
        let meta = meta(location.clone(), length, None);
        Ok(result(meta, range, pieces.boxed()))
    }
}

/// Whether a link with this answer may have expired, or its file moved.
fn is_expired(status: StatusCode) -> bool {
    status.is_redirection() || matches!(status.as_u16(), 400 | 401 | 403 | 404 | 410)
}

/// Whether a revision is the full name of a commit.
fn is_commit(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Percent-encodes a text as one part of a path.
fn part(text: &str) -> String {
    percent_encode(text).replace('/', "%2F")
}

fn meta(location: Key, size: u64, e_tag: Option<String>) -> ObjectMeta {
    ObjectMeta {
        location,
        last_modified: Default::default(),
        size,
        e_tag,
        version: None,
    }
}

fn result(
    meta: ObjectMeta,
    range: Range<u64>,
    pieces: BoxStream<'static, object_store::Result<bytes::Bytes>>,
) -> GetResult {
    GetResult {
        payload: GetResultPayload::Stream(pieces),
        meta,
        range,
        attributes: Default::default(),
        extensions: Default::default(),
    }
}

fn unsupported_error(what: &str) -> object_store::Error {
    HubProblem::Final(
        io::ErrorKind::Unsupported,
        format!("{what} is not supported"),
    )
    .into()
}

fn read_only() -> object_store::Error {
    let problem = "hf:// is read-only; write to a folder or a bucket".to_owned();
    HubProblem::Final(io::ErrorKind::Unsupported, problem).into()
}

#[async_trait::async_trait]
impl PaginatedListStore for HubStore {
    async fn list_paginated(
        &self,
        prefix: Option<&str>,
        options: PaginatedListOptions,
    ) -> object_store::Result<PaginatedListResult> {
        self.page(prefix.unwrap_or_default(), options).await
    }
}

#[async_trait::async_trait]
impl ObjectStore for HubStore {
    async fn get_opts(
        &self,
        location: &Key,
        options: GetOptions,
    ) -> object_store::Result<GetResult> {
        self.get(location, options).await
    }

    fn list(&self, _: Option<&Key>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        // Lists are requested page by page.
        stream::once(async { Err(unsupported_error("a list without pages")) }).boxed()
    }

    async fn list_with_delimiter(&self, _: Option<&Key>) -> object_store::Result<ListResult> {
        Err(unsupported_error("a list in one answer"))
    }

    async fn put_opts(
        &self,
        _: &Key,
        _: PutPayload,
        _: PutOptions,
    ) -> object_store::Result<PutResult> {
        Err(read_only())
    }

    async fn put_multipart_opts(
        &self,
        _: &Key,
        _: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        Err(read_only())
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, object_store::Result<Key>>,
    ) -> BoxStream<'static, object_store::Result<Key>> {
        locations.and_then(|_| async { Err(read_only()) }).boxed()
    }

    async fn copy_opts(&self, _: &Key, _: &Key, _: CopyOptions) -> object_store::Result<()> {
        Err(read_only())
    }
}
