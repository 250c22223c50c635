//! Objects that are written: whole, under their final name, and never over other bytes unless that
//! is asked for.
//!
//! A small object is one request that says "if there is none" where the service knows such. A large
//! one goes in parts, which nobody sees before they are put together; whether there is one is looked
//! at before and after the parts have gone. Where an object is there already its bytes are compared:
//! a request whose answer was lost, and another writer of the same, are no failures.

use std::fs::File;
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
use object_store::{Error as Told, GetOptions, ObjectMeta, PutMode, PutOptions};

use super::bucket::Bucket;
use super::fetch::{Wanted, is_unknown, version};
use super::list::{at_once, level, look_once, text};
use super::url::{Service, Url};
use crate::error::Error;
use crate::store::buffers::{Buffers, read_at};

/// Longest object that goes as one request.
const WHOLE_BYTES: u64 = 16 << 20;

/// Length of a part; larger ones where there would be more than [`MOST_PARTS`]. S3 takes none below
/// 5 MiB.
const PART_BYTES: u64 = 8 << 20;
const MOST_PARTS: u64 = 10_000;

/// Parts of one object that are under way at once.
const PARTS_AT_ONCE: usize = 4;

/// Bytes that are compared at a time.
const COMPARED: u64 = 8 << 20;

/// How often it is looked again where an object is said to be there and is not: another writer has
/// begun to put it, and may have given up.
const LOOKS: u32 = 5;
const BETWEEN_LOOKS: Duration = Duration::from_millis(200);

/// What becomes an object.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Body<'a> {
    /// Bytes in memory.
    Bytes(&'a Bytes),
    /// A file of this machine, of this length.
    File(&'a File, u64),
}

impl Body<'_> {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Body::Bytes(bytes) => bytes.len() as u64,
            Body::File(_, length) => *length,
        }
    }

    fn read(&self, range: Range<u64>) -> io::Result<Bytes> {
        match self {
            Body::Bytes(bytes) => Ok(bytes.slice(range.start as usize..range.end as usize)),
            Body::File(file, _) => {
                let length = range.end - range.start;
                let bytes = read_at(file, range.start, length, &Arc::new(Buffers::default()))?;
                if bytes.len() as u64 == length {
                    return Ok(bytes);
                }
                let problem = "a temporary file became shorter";
                Err(io::Error::new(io::ErrorKind::UnexpectedEof, problem))
            }
        }
    }
}

/// What became of an object that should not replace another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Created {
    /// It was put.
    New,
    /// One with the same bytes is there.
    Same,
    /// One with other bytes is there.
    Other,
}

/// What became of a request that puts "if there is none".
enum Put {
    Done,
    IsThere,
    /// The service knows no such requests.
    Unknown,
}

/// A folder of a bucket that is written to.
#[derive(Clone, Debug)]
pub(crate) struct BucketFolder {
    bucket: Arc<Bucket>,
    /// Empty, or with a slash at its end.
    prefix: String,
    url: PathBuf,
}

impl BucketFolder {
    /// The folder of a URL. Nothing is asked or made: a bucket has no empty folders.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for what is no URL of a bucket, [`Error::Open`] for settings that are none.
    pub(crate) fn of(folder: &Path) -> Result<BucketFolder, Error> {
        let url = Url::parse(&text(folder)?)?;
        if url.service == Service::Http {
            let problem = format!(
                "{}: a web server takes no files; name a folder, or a bucket (s3://, gs://, az://, \
                 abfss://)",
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

    /// Its URL, without a slash at the end.
    pub(crate) fn url(&self) -> &Path {
        &self.url
    }

    /// What lies right in it: objects by name, with their lengths, and whether there is more below.
    ///
    /// # Errors
    ///
    /// What the service said.
    pub(crate) fn entries(&self) -> io::Result<(Vec<(String, u64)>, bool)> {
        let process = self.bucket.process()?;
        let (metas, folders) = process.wait(level(&self.bucket, self.prefix.clone()))?;
        let entry = |meta: ObjectMeta| {
            let key = self.bucket.written(&meta);
            // What some tools make in the place of a folder is named as it.
            let name = key.strip_prefix(&self.prefix).filter(|n| !n.is_empty())?;
            Some((name.to_owned(), meta.size))
        };
        Ok((
            metas.into_iter().filter_map(entry).collect(),
            !folders.is_empty(),
        ))
    }

    /// Whether there is an object of a name.
    ///
    /// # Errors
    ///
    /// What the service said.
    pub(crate) fn has(&self, name: &str) -> io::Result<bool> {
        let key = self.key(name);
        let process = self.bucket.process()?;
        Ok(process.wait(look(&self.bucket, &key))?.is_some())
    }

    /// The bytes of some objects, in their order; None for what is not there, or longer than `most`.
    ///
    /// # Errors
    ///
    /// What the service said.
    pub(crate) fn read(&self, names: &[String], most: u64) -> io::Result<Vec<Option<Bytes>>> {
        let reads = names.iter().map(|name| {
            let (bucket, key) = (Arc::clone(&self.bucket), self.key(name));
            async move { whole(&bucket, &key, most).await }
        });
        self.bucket.process()?.wait(at_once(reads))
    }

    /// Puts an object, unless there is one.
    ///
    /// # Errors
    ///
    /// What the service or the file said.
    pub(crate) fn create(&self, name: &str, body: Body<'_>) -> io::Result<Created> {
        let process = self.bucket.process()?;
        for _ in 0..LOOKS {
            if process.wait(self.put_new(name, body))? {
                return Ok(Created::New);
            }
            match self.is_same(name, body)? {
                Some(true) => return Ok(Created::Same),
                Some(false) => return Ok(Created::Other),
                None => process.wait(async {
                    tokio::time::sleep(BETWEEN_LOOKS).await;
                    Ok(())
                })?,
            }
        }
        let problem = "it is said to be there, and is not; try again";
        Err(io::Error::other(problem))
    }

    /// Puts an object, over one of this name if there is any.
    ///
    /// # Errors
    ///
    /// What the service or the file said.
    pub(crate) fn replace(&self, name: &str, body: Body<'_>) -> io::Result<()> {
        let process = self.bucket.process()?;
        if process.wait(self.put(name, body, false))? || self.is_same(name, body)? == Some(true) {
            return Ok(());
        }
        let problem = "it was put, and something else is there; does somebody else write to it?";
        Err(io::Error::other(problem))
    }

    /// Takes objects away; those that are not there are none.
    ///
    /// # Errors
    ///
    /// What the service said.
    pub(crate) fn remove(&self, names: &[String]) -> io::Result<()> {
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
                    let is_gone = matches!(done, Err(Told::NotFound { .. }));
                    std::future::ready(!is_gone)
                })
                .try_for_each(|_| std::future::ready(Ok(())))
        };
        self.bucket.process()?.wait(self.bucket.ask(name, request))
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Whether an object has these bytes; None where there is none.
    fn is_same(&self, name: &str, body: Body<'_>) -> io::Result<Option<bool>> {
        let key = self.key(name);
        let process = self.bucket.process()?;
        let Some(meta) = process.wait(look(&self.bucket, &key))? else {
            return Ok(None);
        };
        let length = body.len();
        if meta.size != length {
            return Ok(Some(false));
        }
        let buffers = Arc::default();
        for start in (0..length).step_by(COMPARED as usize) {
            let range = start..length.min(start + COMPARED);
            let wanted = Wanted {
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

    /// Puts an object unless there is one; whether it was put.
    async fn put_new(&self, name: &str, body: Body<'_>) -> io::Result<bool> {
        let key = self.key(name);
        let told = || self.bucket.url(&key);
        let is_known = !self.bucket.unconditional.load(Ordering::Relaxed);
        if body.len() <= WHOLE_BYTES && is_known {
            let path = self.bucket.key(&key)?;
            let bytes = body.read(0..body.len())?;
            let request = || async {
                let options = PutOptions::from(PutMode::Create);
                let payload = bytes.clone().into();
                match self.bucket.store.put_opts(&path, payload, options).await {
                    Ok(_) => Ok(Put::Done),
                    Err(
                        Told::AlreadyExists { .. }
                        | Told::Precondition { .. }
                        | Told::NotModified { .. },
                    ) => Ok(Put::IsThere),
                    Err(error) if is_unknown(&error) => Ok(Put::Unknown),
                    Err(error) => Err(error),
                }
            };
            match self.bucket.ask_with(body.len(), told, request).await? {
                Put::Done => return Ok(true),
                Put::IsThere => return Ok(false),
                Put::Unknown => {}
            }
            if !self.bucket.unconditional.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    "{} knows no puts that depend on what is there; it is looked before each \
                     instead, which two writers at the very same moment may both do",
                    self.bucket.base
                );
            }
        }
        if look(&self.bucket, &key).await?.is_some() {
            return Ok(false);
        }
        self.put(name, body, true).await
    }

    /// Puts an object. False where it cannot be told whether it was put, or, of a `new` one, there
    /// is another by now.
    async fn put(&self, name: &str, body: Body<'_>, new: bool) -> io::Result<bool> {
        let key = self.key(name);
        let path = self.bucket.key(&key)?;
        if body.len() > WHOLE_BYTES {
            return self.put_in_parts(&key, &path, body, new).await;
        }
        let bytes = body.read(0..body.len())?;
        let told = || self.bucket.url(&key);
        let request = || {
            let (payload, options) = (bytes.clone().into(), PutOptions::default());
            self.bucket.store.put_opts(&path, payload, options)
        };
        self.bucket.ask_with(body.len(), told, request).await?;
        Ok(true)
    }

    async fn put_in_parts(
        &self,
        key: &str,
        path: &Key,
        body: Body<'_>,
        new: bool,
    ) -> io::Result<bool> {
        let bucket = &*self.bucket;
        let unknown = || io::Error::other("it takes no objects in parts");
        let store = bucket.parts.as_ref().ok_or_else(unknown)?;
        let told = || bucket.url(key);
        let id = bucket.ask(told, || store.create_multipart(path)).await?;
        let ended = async {
            let parts = self.put_parts(key, path, &id, body).await?;
            if new && look(bucket, key).await?.is_some() {
                return Ok(None);
            }
            let complete = || store.complete_multipart(path, &id, parts.clone());
            bucket.ask(told, complete).await.map(Some)
        };
        let failed = match ended.await {
            Ok(Some(_)) => return Ok(true),
            Ok(None) => None,
            // If the answer was lost, the second request found no parts any more.
            Err(error) => (look(bucket, key).await?.is_none()).then_some(error),
        };
        // What is left of parts costs money until a rule of the bucket's takes it away.
        let gone = store.abort_multipart(path, &id);
        let _ = tokio::time::timeout(bucket.patience.idle, gone).await;
        failed.map_or(Ok(false), Err)
    }

    async fn put_parts(
        &self,
        key: &str,
        path: &Key,
        id: &String,
        body: Body<'_>,
    ) -> io::Result<Vec<PartId>> {
        let bucket = &*self.bucket;
        let unknown = || io::Error::other("it takes no objects in parts");
        let store = bucket.parts.as_ref().ok_or_else(unknown)?;
        let length = body.len();
        let size = part_bytes(length);
        let parts = (0..length.div_ceil(size)).map(|nth| async move {
            let range = nth * size..length.min((nth + 1) * size);
            let told = || format!("part {nth} of {}", bucket.url(key));
            let bytes = body.read(range)?;
            let request = || store.put_part(path, id, nth as usize, bytes.clone().into());
            bucket.ask_with(bytes.len() as u64, told, request).await
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
        .div_ceil(MOST_PARTS)
        .next_multiple_of(1 << 20)
        .max(PART_BYTES)
}

/// What is known of an object; None where there is none.
async fn look(bucket: &Bucket, key: &str) -> io::Result<Option<ObjectMeta>> {
    match look_once(bucket, key).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        looked => looked.map(Some),
    }
}

/// All bytes of an object; None where there is none, or a longer one.
async fn whole(bucket: &Bucket, key: &str, most: u64) -> io::Result<Option<Bytes>> {
    let Some(meta) = look(bucket, key).await? else {
        return Ok(None);
    };
    if meta.size > most {
        return Ok(None);
    }
    let path = bucket.key(key)?;
    let request = || async {
        let options = GetOptions {
            // Of what was looked at, whose length is known.
            if_match: meta.e_tag.clone(),
            ..GetOptions::default()
        };
        bucket.store.get_opts(&path, options).await?.bytes().await
    };
    let bytes = bucket.ask_with(meta.size, || bucket.url(key), request);
    bytes.await.map(Some)
}
