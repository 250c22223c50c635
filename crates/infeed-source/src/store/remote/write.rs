//! Writes objects: complete, under their final name, and over other bytes only on request.
//!
//! A small object is one conditional request ("if there is none"), where the service supports it. A
//! large one is uploaded in parts, which are invisible until they are joined; the module checks for
//! an existing object before and after the upload. If an object exists already, its bytes are
//! compared: a request whose answer was lost, and another writer of the same bytes, are not
//! failures.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::multipart::PartId;
use object_store::path::Path as Key;
use object_store::{Error as StoreError, GetOptions, ObjectMeta, PutMode, PutOptions};

use super::bucket::Bucket;
use super::fetch::{is_unknown, version};
use super::list::{at_once, level, query_object, text};
use super::url::{Service, Url};
use crate::store::buffers::{BufferPool, read_at};
use crate::store::{CreateOutcome, ObjectBody, RangeRequest};
use infeed_core::error::Error;

/// Maximum length of an object that is written in one request.
const WHOLE_BYTES: u64 = 16 << 20;

/// Length of a part; larger if there would be more than [`MAX_PARTS`]. The minimum of S3 is 5 MiB.
const PART_BYTES: u64 = 8 << 20;
const MAX_PARTS: u64 = 10_000;

/// Parts of one object in flight.
const PARTS_AT_ONCE: usize = 4;

/// Bytes that are compared at a time.
const COMPARED: u64 = 8 << 20;

/// Number of checks for an object that the service reports as existing and then as missing: another
/// writer has begun an upload, and may have given up.
const ATTEMPTS: u32 = 5;
const ATTEMPT_PAUSE: Duration = Duration::from_millis(200);

impl ObjectBody<'_> {
    /// Number of bytes.
    fn len(&self) -> u64 {
        match self {
            ObjectBody::Bytes(bytes) => bytes.len() as u64,
            ObjectBody::File(_, length) => *length,
        }
    }

    fn read(&self, range: Range<u64>) -> io::Result<Bytes> {
        match self {
            ObjectBody::Bytes(bytes) => Ok(bytes.slice(range.start as usize..range.end as usize)),
            ObjectBody::File(file, _) => {
                let length = range.end - range.start;
                let bytes = read_at(file, range.start, length, &Arc::new(BufferPool::default()))?;
                if bytes.len() as u64 == length {
                    return Ok(bytes);
                }
                let problem = "a temporary file was truncated during its upload";
                Err(io::Error::new(io::ErrorKind::UnexpectedEof, problem))
            }
        }
    }
}

/// Result of a conditional put ("if there is none").
enum PutOutcome {
    Done,
    IsThere,
    /// The service has no conditional puts.
    Unknown,
}

/// A folder of a bucket for writing.
#[derive(Clone, Debug)]
pub struct BucketFolder {
    bucket: Arc<Bucket>,
    /// Empty, or with a slash at its end.
    prefix: String,
    url: PathBuf,
}

impl BucketFolder {
    /// Returns the folder of a URL. Makes no request: a bucket has no empty folders.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for an invalid URL of a bucket, [`Error::Open`] for invalid settings.
    pub fn of(folder: &Path) -> Result<BucketFolder, Error> {
        let url = Url::parse(&text(folder)?)?;
        if url.service == Service::Http {
            let problem = format!(
                "{}: cannot write to a web server; name a folder, or a bucket (s3://, gs://, az://, \
                 abfss://)",
                folder.display()
            );
            return Err(Error::config("out", problem));
        }
        if url.service == Service::Hub {
            let problem = format!(
                "{}: hf:// is read-only; name a folder, or a bucket (s3://, gs://, az://, abfss://), \
                 and upload it with `hf upload`",
                folder.display()
            );
            return Err(Error::config("out", problem));
        }
        let bucket = Bucket::of(&url)?;
        let prefix = url.prefix();
        let name = bucket.url(prefix.trim_end_matches('/'));
        Ok(BucketFolder {
            bucket,
            url: PathBuf::from(name.trim_end_matches('/')),
            prefix,
        })
    }

    /// URL without a trailing slash.
    pub fn url(&self) -> &Path {
        &self.url
    }

    /// Lists the direct objects by name with their lengths, and reports whether there are folders.
    ///
    /// # Errors
    ///
    /// The service's error.
    pub fn entries(&self) -> io::Result<(Vec<(String, u64)>, bool)> {
        let process = self.bucket.process()?;
        let (metas, folders) = process.wait(level(&self.bucket, self.prefix.clone()))?;
        let entry = |meta: ObjectMeta| {
            let key = self.bucket.url_key(&meta);
            // Some tools create an empty object with the name of the folder.
            let name = key.strip_prefix(&self.prefix).filter(|n| !n.is_empty())?;
            Some((name.to_owned(), meta.size))
        };
        Ok((
            metas.into_iter().filter_map(entry).collect(),
            !folders.is_empty(),
        ))
    }

    /// Whether an object exists.
    ///
    /// # Errors
    ///
    /// The service's error.
    pub fn has(&self, name: &str) -> io::Result<bool> {
        let key = self.key(name);
        let process = self.bucket.process()?;
        Ok(process.wait(find_object(&self.bucket, &key))?.is_some())
    }

    /// Reads the bytes of objects, in order; None for an object that is missing or longer than
    /// `most`.
    ///
    /// # Errors
    ///
    /// The service's error.
    pub fn read(&self, names: &[String], most: u64) -> io::Result<Vec<Option<Bytes>>> {
        let reads = names.iter().map(|name| {
            let (bucket, key) = (Arc::clone(&self.bucket), self.key(name));
            async move { whole(&bucket, &key, most).await }
        });
        self.bucket.process()?.wait(at_once(reads))
    }

    /// Writes an object, unless one exists.
    ///
    /// # Errors
    ///
    /// The error of the service or of the file.
    pub fn create(&self, name: &str, body: ObjectBody<'_>) -> io::Result<CreateOutcome> {
        let process = self.bucket.process()?;
        for _ in 0..ATTEMPTS {
            if process.wait(self.put_new(name, body))? {
                return Ok(CreateOutcome::New);
            }
            match self.is_same(name, body)? {
                Some(true) => return Ok(CreateOutcome::Same),
                Some(false) => return Ok(CreateOutcome::Other),
                None => process.wait(async {
                    tokio::time::sleep(ATTEMPT_PAUSE).await;
                    Ok(())
                })?,
            }
        }
        let problem = "the service reports it as existing and as missing; try again";
        Err(io::Error::other(problem))
    }

    /// Writes an object, and replaces an existing one.
    ///
    /// # Errors
    ///
    /// The error of the service or of the file.
    pub fn replace(&self, name: &str, body: ObjectBody<'_>) -> io::Result<()> {
        let process = self.bucket.process()?;
        if process.wait(self.put(name, body, false))? || self.is_same(name, body)? == Some(true) {
            return Ok(());
        }
        let problem =
            "it was written, but now has other bytes; another program may write to this folder";
        Err(io::Error::other(problem))
    }

    /// Removes objects; missing ones are ignored.
    ///
    /// # Errors
    ///
    /// The service's error.
    pub fn remove(&self, names: &[String]) -> io::Result<()> {
        if names.is_empty() {
            return Ok(());
        }
        let keys = names.iter().map(|name| self.bucket.key(&self.key(name)));
        let keys = keys.collect::<io::Result<Vec<Key>>>()?;
        let name = || format!("the removal of files of {}", self.url.display());
        let request = || {
            let keys = stream::iter(keys.clone()).map(Ok).boxed();
            self.bucket
                .store
                .delete_stream(keys)
                .filter(|done| {
                    let is_gone = matches!(done, Err(StoreError::NotFound { .. }));
                    std::future::ready(!is_gone)
                })
                .try_for_each(|_| std::future::ready(Ok(())))
        };
        self.bucket.process()?.wait(self.bucket.ask(name, request))
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Whether an object has these bytes; None if it does not exist.
    fn is_same(&self, name: &str, body: ObjectBody<'_>) -> io::Result<Option<bool>> {
        let key = self.key(name);
        let process = self.bucket.process()?;
        let Some(meta) = process.wait(find_object(&self.bucket, &key))? else {
            return Ok(None);
        };
        let length = body.len();
        if meta.size != length {
            return Ok(Some(false));
        }
        let buffers = Arc::default();
        for start in (0..length).step_by(COMPARED as usize) {
            let range = start..length.min(start + COMPARED);
            let wanted = RangeRequest {
                key: &key,
                range: range.clone(),
                length,
                version: version(&meta),
            };
            if self.bucket.read(&wanted, &buffers)? != body.read(range)? {
                return Ok(Some(false));
            }
        }
        Ok(Some(true))
    }

    /// Writes an object unless one exists; returns whether it was written.
    async fn put_new(&self, name: &str, body: ObjectBody<'_>) -> io::Result<bool> {
        let key = self.key(name);
        let url = || self.bucket.url(&key);
        let is_known = !self.bucket.unconditional.load(Ordering::Relaxed);
        if body.len() <= WHOLE_BYTES && is_known {
            let path = self.bucket.key(&key)?;
            let bytes = body.read(0..body.len())?;
            let request = || async {
                let options = PutOptions::from(PutMode::Create);
                let payload = bytes.clone().into();
                match self.bucket.store.put_opts(&path, payload, options).await {
                    Ok(_) => Ok(PutOutcome::Done),
                    Err(
                        StoreError::AlreadyExists { .. }
                        | StoreError::Precondition { .. }
                        | StoreError::NotModified { .. },
                    ) => Ok(PutOutcome::IsThere),
                    Err(error) if is_unknown(&error) => Ok(PutOutcome::Unknown),
                    Err(error) => Err(error),
                }
            };
            match self.bucket.ask_with(body.len(), url, request).await? {
                PutOutcome::Done => return Ok(true),
                PutOutcome::IsThere => return Ok(false),
                PutOutcome::Unknown => {}
            }
            if !self.bucket.unconditional.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    "{} has no conditional puts; infeed checks for an object before each write \
                     instead, so two writers at the same moment may both write",
                    self.bucket.base
                );
            }
        }
        if find_object(&self.bucket, &key).await?.is_some() {
            return Ok(false);
        }
        self.put(name, body, true).await
    }

    /// Writes an object. Returns false if it is unknown whether it was written or, with `new`, if
    /// another one exists by now.
    async fn put(&self, name: &str, body: ObjectBody<'_>, new: bool) -> io::Result<bool> {
        let key = self.key(name);
        let path = self.bucket.key(&key)?;
        if body.len() > WHOLE_BYTES {
            return self.put_in_parts(&key, &path, body, new).await;
        }
        let bytes = body.read(0..body.len())?;
        let url = || self.bucket.url(&key);
        let request = || {
            let (payload, options) = (bytes.clone().into(), PutOptions::default());
            self.bucket.store.put_opts(&path, payload, options)
        };
        self.bucket.ask_with(body.len(), url, request).await?;
        Ok(true)
    }

    async fn put_in_parts(
        &self,
        key: &str,
        path: &Key,
        body: ObjectBody<'_>,
        new: bool,
    ) -> io::Result<bool> {
        let bucket = &*self.bucket;
        let unknown = || io::Error::other("it does not support multipart uploads");
        let store = bucket.parts.as_ref().ok_or_else(unknown)?;
        let name = || bucket.url(key);
        let id = bucket.ask(name, || store.create_multipart(path)).await?;
        let ended = async {
            let parts = self.put_parts(key, path, &id, body).await?;
            if new && find_object(bucket, key).await?.is_some() {
                return Ok(None);
            }
            let complete = || store.complete_multipart(path, &id, parts.clone());
            bucket.ask(name, complete).await.map(Some)
        };
        let failed = match ended.await {
            Ok(Some(_)) => return Ok(true),
            Ok(None) => None,
            // If the answer was lost, the second request finds no parts.
            Err(error) => (find_object(bucket, key).await?.is_none()).then_some(error),
        };
        // Abandoned parts cost money until a rule of the bucket removes them.
        let gone = store.abort_multipart(path, &id);
        let _ = tokio::time::timeout(bucket.retry.idle, gone).await;
        failed.map_or(Ok(false), Err)
    }

    async fn put_parts(
        &self,
        key: &str,
        path: &Key,
        id: &String,
        body: ObjectBody<'_>,
    ) -> io::Result<Vec<PartId>> {
        let bucket = &*self.bucket;
        let unknown = || io::Error::other("it does not support multipart uploads");
        let store = bucket.parts.as_ref().ok_or_else(unknown)?;
        let length = body.len();
        let size = part_bytes(length);
        let parts = (0..length.div_ceil(size)).map(|nth| async move {
            let range = nth * size..length.min((nth + 1) * size);
            let name = || format!("part {nth} of {}", bucket.url(key));
            let bytes = body.read(range)?;
            let request = || store.put_part(path, id, nth as usize, bytes.clone().into());
            bucket.ask_with(bytes.len() as u64, name, request).await
        });
        stream::iter(parts)
            .buffered(PARTS_AT_ONCE)
            .try_collect()
            .await
    }
}

/// Length of the parts of an object.
fn part_bytes(length: u64) -> u64 {
    length
        .div_ceil(MAX_PARTS)
        .next_multiple_of(1 << 20)
        .max(PART_BYTES)
}

/// Queries an object; None if it does not exist.
async fn find_object(bucket: &Bucket, key: &str) -> io::Result<Option<ObjectMeta>> {
    match query_object(bucket, key).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}

/// Reads all bytes of an object; None if it is missing or longer than `most`.
async fn whole(bucket: &Bucket, key: &str, most: u64) -> io::Result<Option<Bytes>> {
    let Some(meta) = find_object(bucket, key).await? else {
        return Ok(None);
    };
    if meta.size > most {
        return Ok(None);
    }
    let path = bucket.key(key)?;
    let request = || async {
        let options = GetOptions {
            // The version whose length is known.
            if_match: meta.e_tag.clone(),
            ..GetOptions::default()
        };
        bucket.store.get_opts(&path, options).await?.bytes().await
    };
    let bytes = bucket.ask_with(meta.size, || bucket.url(key), request);
    bytes.await.map(Some)
}
