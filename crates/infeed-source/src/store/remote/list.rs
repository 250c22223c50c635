//! Lists buckets page by page and queries the metadata of objects, many at once.

use std::io;
use std::path::Path;
use std::sync::Arc;

use futures_util::StreamExt;
use object_store::list::{PaginatedListOptions, PaginatedListResult};
use object_store::{GetOptions, ListResult, ObjectMeta};
use tokio::task::JoinSet;

use super::Object;
use super::bucket::Bucket;
use super::fetch::{bare, version};
use super::list_limits::{ListLimits, SeenPages};
use super::url::{Service, Url};
use crate::store::buffers::BufferPool;
use crate::store::cache::Cache;
use crate::store::{Blob, FolderEntry, ListedObject, is_url};
use infeed_core::error::Error;

/// Maximum number of list and metadata requests in flight.
const AT_ONCE: usize = 64;

/// Number of folders by which a list is divided into parallel lists, and the depth to which folders
/// are searched for them.
const FOLDERS: usize = 32;
const DEPTH: usize = 3;

/// Wildcard characters.
const WILD: [char; 3] = ['*', '?', '['];

/// Lists all objects below a folder, unsorted. Returns the bucket and the key of the folder too.
///
/// # Errors
///
/// [`Error::Config`] for an invalid URL, [`Error::Open`] for a folder that cannot be listed.
pub fn below(folder: &Path) -> Result<(Arc<Bucket>, String, Vec<ListedObject>), Error> {
    let url = Url::parse(&text(folder)?)?;
    let bucket = Bucket::of(&url)?;
    let prefix = url.prefix();
    let listed = bucket
        .process()
        .and_then(|process| process.wait(async { all(&bucket, prefix.clone()).await }));
    let metas = listed.map_err(|error| Error::open(folder, error))?;
    let found = metas.into_iter().filter_map(|meta| {
        let key = bucket.url_key(&meta);
        // Some tools create an empty object with the name of the folder.
        let key = key.strip_prefix(&prefix).filter(|key| !key.is_empty())?;
        Some(ListedObject {
            key: key.to_owned(),
            length: meta.size,
            version: version(&meta),
        })
    });
    Ok((Arc::clone(&bucket), prefix.clone(), found.collect()))
}

/// Queries objects of a folder by their keys, in order. Returns the bucket and the key of the
/// folder too.
///
/// # Errors
///
/// Like [`below`]; [`Error::Open`] names the first object that does not exist.
pub fn query_objects(
    folder: &Path,
    keys: &[String],
) -> Result<(Arc<Bucket>, String, Vec<ListedObject>), Error> {
    let url = Url::parse(&text(folder)?)?;
    let bucket = Bucket::of(&url)?;
    let prefix = url.prefix();
    let queries = keys.iter().map(|key| {
        let (bucket, key) = (Arc::clone(&bucket), format!("{prefix}{key}"));
        async move { query_object(&bucket, &key).await }
    });
    let metas = bucket
        .process()
        .and_then(|process| process.wait(at_once(queries)))
        .map_err(|error| Error::open(folder, error))?;
    let found = metas.iter().zip(keys).map(|(meta, key)| ListedObject {
        key: key.clone(),
        length: meta.size,
        version: version(meta),
    });
    let found = found.collect();
    Ok((bucket, prefix, found))
}

/// Lists the direct entries of a folder of a bucket, sorted by name, without hidden ones (leading
/// dot).
///
/// # Errors
///
/// Like [`below`].
pub fn entries(folder: &str) -> Result<Vec<FolderEntry>, Error> {
    let url = Url::parse(folder)?;
    let bucket = Bucket::of(&url)?;
    let prefix = url.prefix();
    let listed = bucket
        .process()
        .and_then(|process| process.wait(level(&bucket, prefix.clone())));
    let (metas, folders) = listed.map_err(|error| Error::open(folder, error))?;
    let entry = |key: &str, is_folder| {
        let name = key.strip_prefix(&prefix)?.trim_end_matches('/');
        (!name.is_empty() && !name.starts_with('.')).then(|| FolderEntry {
            name: name.to_owned(),
            is_folder,
        })
    };
    let files = metas
        .iter()
        .filter_map(|meta| entry(&bucket.url_key(meta), false));
    let mut entries: Vec<FolderEntry> = files.collect();
    entries.extend(folders.iter().filter_map(|key| entry(key, true)));
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

/// Returns the sorted URLs of all objects below a folder of a bucket, without hidden ones (leading
/// dot).
///
/// # Errors
///
/// Like [`entries`].
pub fn objects(folder: &str) -> Result<Vec<String>, Error> {
    let (bucket, prefix, found) = below(Path::new(folder))?;
    let hidden = |key: &str| key.ends_with('/') || key.split('/').any(|part| part.starts_with('.'));
    let shown = found.iter().filter(|object| !hidden(&object.key));
    let mut urls: Vec<String> = shown
        .map(|object| bucket.url(&format!("{prefix}{}", object.key)))
        .collect();
    urls.sort();
    Ok(urls)
}

/// Opens the object of a URL.
///
/// # Errors
///
/// Like [`matches`].
pub(crate) fn open(text: &str) -> Result<Arc<dyn Blob>, Error> {
    let url = Url::parse(text)?;
    let bucket = Bucket::of(&url)?;
    let answer = bucket
        .process()
        .and_then(|process| process.wait(query_object(&bucket, &url.key)));
    let meta = answer.map_err(|error| Error::open(text, error))?;
    let cache = Cache::of_process()?;
    let object = Object::new(&bucket, meta, cache.as_ref(), &Arc::default());
    Ok(Arc::new(object))
}

/// Opens the objects of URLs, in order, without wildcards.
///
/// # Errors
///
/// [`Error::Config`] for an invalid URL, [`Error::Open`] for an object that does not exist.
pub(crate) fn open_urls(urls: &[String]) -> Result<Vec<Arc<dyn Blob>>, Error> {
    let buffers = Arc::default();
    let cache = Cache::of_process()?;
    let mut blobs: Vec<Arc<dyn Blob>> = Vec::new();
    let open = |bucket: &Arc<Bucket>, meta: ObjectMeta| -> Arc<dyn Blob> {
        Arc::new(Object::new(bucket, meta, cache.as_ref(), &buffers))
    };
    let plain = urls.iter().map(|text| {
        let url = Url::parse(text)?;
        Ok((Bucket::of(&url)?, url.key))
    });
    query_and_open(plain.collect::<Result<_, Error>>()?, &open, &mut blobs)?;
    Ok(blobs)
}

/// Opens the objects of URLs, in order; the matches of a URL with `*`, `?` or `[…]` are sorted.
///
/// # Errors
///
/// [`Error::Config`] for an invalid URL or one without a match, [`Error::Open`] for an object that
/// does not exist.
pub(crate) fn matches(urls: &[String]) -> Result<Vec<Arc<dyn Blob>>, Error> {
    let buffers = Arc::default();
    let cache = Cache::of_process()?;
    let mut blobs: Vec<Arc<dyn Blob>> = Vec::new();
    let mut plain: Vec<(Arc<Bucket>, String)> = Vec::new();
    let open = |bucket: &Arc<Bucket>, meta: ObjectMeta| -> Arc<dyn Blob> {
        Arc::new(Object::new(bucket, meta, cache.as_ref(), &buffers))
    };
    for text in urls {
        let url = Url::parse(text)?;
        let bucket = Bucket::of(&url)?;
        if !url.key.contains(WILD) {
            if url.key.is_empty() || url.key.ends_with('/') {
                let problem = "it is a folder; name its shards, such as `/*.tar`";
                return Err(Error::config("source", format!("{text}: {problem}")));
            }
            plain.push((bucket, url.key));
            continue;
        }
        query_and_open(std::mem::take(&mut plain), &open, &mut blobs)?;
        let matching = matching(&bucket, &url, text)?;
        if matching.is_empty() {
            let problem = format!("{text}: no object matches");
            return Err(Error::config("source", problem));
        }
        blobs.extend(matching.into_iter().map(|meta| open(&bucket, meta)));
    }
    query_and_open(plain, &open, &mut blobs)?;
    Ok(blobs)
}

/// Returns the sorted objects of a bucket that match a pattern.
fn matching(bucket: &Arc<Bucket>, url: &Url, text: &str) -> Result<Vec<ObjectMeta>, Error> {
    let wrong = |problem: String| Error::config("source", format!("{text}: {problem}"));
    let pattern = glob::Pattern::new(&url.key).map_err(|error| wrong(error.to_string()))?;
    let options = glob::MatchOptions {
        require_literal_separator: true,
        ..glob::MatchOptions::new()
    };
    let wild = url.key.find(WILD).unwrap_or(url.key.len());
    let folder = url.key[..wild].rfind('/').map_or(0, |at| at + 1);
    let deep = url.key[wild..].contains('/');
    let listed = bucket.process().and_then(|process| {
        process.wait(async {
            if deep {
                return all(bucket, url.key[..folder].to_owned()).await;
            }
            Ok(level(bucket, url.key[..wild].to_owned()).await?.0)
        })
    });
    let mut metas = listed.map_err(|error| Error::open(text, error))?;
    // An object with exactly this name is the one that the user wants.
    if let Some(at) = metas
        .iter()
        .position(|meta| bucket.url_key(meta) == url.key)
    {
        return Ok(vec![metas.swap_remove(at)]);
    }
    metas.retain(|meta| pattern.matches_with(&bucket.url_key(meta), options));
    metas.sort_by(|a, b| a.location.cmp(&b.location));
    Ok(metas)
}

/// Queries objects, many at once, and opens them in order.
fn query_and_open(
    plain: Vec<(Arc<Bucket>, String)>,
    open: &impl Fn(&Arc<Bucket>, ObjectMeta) -> Arc<dyn Blob>,
    blobs: &mut Vec<Arc<dyn Blob>>,
) -> Result<(), Error> {
    let Some((first, _)) = plain.first() else {
        return Ok(());
    };
    let process = first
        .process()
        .map_err(|error| Error::open(&first.base, error))?;
    let queries = plain.iter().map(|(bucket, key)| {
        let (bucket, key) = (Arc::clone(bucket), key.clone());
        async move { Ok(query_object(&bucket, &key).await) }
    });
    let metas = process
        .wait(at_once(queries))
        .map_err(|error| Error::open(&first.base, error))?;
    for ((bucket, key), meta) in plain.iter().zip(metas) {
        let meta = meta.map_err(|error| Error::open(bucket.url(key), error))?;
        blobs.push(open(bucket, meta));
    }
    Ok(())
}

pub(super) async fn query_object(bucket: &Bucket, key: &str) -> io::Result<ObjectMeta> {
    let path = bucket.key(key)?;
    let name = || bucket.url(key);
    let request = || async {
        let options = GetOptions {
            head: true,
            ..GetOptions::default()
        };
        Ok(bucket.store.get_opts(&path, options).await?.meta)
    };
    bucket.ask(name, request).await
}

/// Lists all objects below a prefix. Divides it by folders, so that a long list is requested in
/// parts.
async fn all(bucket: &Arc<Bucket>, prefix: String) -> io::Result<Vec<ObjectMeta>> {
    if bucket.pages.is_none() {
        return whole(bucket, &prefix).await;
    }
    let limits = limits(bucket, &prefix);
    if bucket.service == Service::Hub {
        // The Hub limits the number of requests, and a page has a thousand files of all folders.
        return Ok(pages(bucket, prefix, None, &limits).await?.0);
    }
    let mut metas = Vec::new();
    let mut folders = vec![prefix];
    for _ in 0..DEPTH {
        if folders.len() >= FOLDERS {
            break;
        }
        let levels = folders.into_iter().map(|folder| {
            let (bucket, limits) = (Arc::clone(bucket), Arc::clone(&limits));
            async move { pages(&bucket, folder, Some("/"), &limits).await }
        });
        folders = Vec::new();
        for (here, below) in at_once(levels).await? {
            metas.extend(here);
            folders.extend(below);
        }
    }
    let lists = folders.into_iter().map(|folder| {
        let (bucket, limits) = (Arc::clone(bucket), Arc::clone(&limits));
        async move { Ok(pages(&bucket, folder, None, &limits).await?.0) }
    });
    for more in at_once(lists).await? {
        metas.extend(more);
    }
    Ok(metas)
}

/// Lists the objects whose keys begin with a prefix and hold no slash after it, and the folders
/// next to them.
pub(super) async fn level(
    bucket: &Arc<Bucket>,
    prefix: String,
) -> io::Result<(Vec<ObjectMeta>, Vec<String>)> {
    if bucket.pages.is_some() {
        let limits = limits(bucket, &prefix);
        return pages(bucket, prefix, Some("/"), &limits).await;
    }
    let folder = prefix.rfind('/').map_or("", |at| &prefix[..=at]);
    let (mut metas, mut folders) = (Vec::new(), Vec::new());
    for meta in whole(bucket, folder).await? {
        let key = bucket.url_key(&meta);
        match key.get(prefix.len()..).and_then(|rest| rest.find('/')) {
            Some(at) => folders.push(key[..=prefix.len() + at].to_owned()),
            None => metas.push(meta),
        }
    }
    folders.sort();
    folders.dedup();
    Ok((metas, folders))
}

/// Begins a list of everything with a prefix.
fn limits(bucket: &Bucket, prefix: &str) -> Arc<ListLimits> {
    Arc::new(ListLimits::new(bucket.url(prefix), &bucket.retry))
}

/// Requests all pages of a part of a list.
async fn pages(
    bucket: &Bucket,
    prefix: String,
    delimiter: Option<&'static str>,
    limits: &ListLimits,
) -> io::Result<(Vec<ObjectMeta>, Vec<String>)> {
    let unlisted = || io::Error::other("it does not support lists");
    let lister = bucket.pages.as_ref().ok_or_else(unlisted)?;
    let (mut metas, mut folders) = (Vec::new(), Vec::new());
    let (mut token, mut seen) = (None, SeenPages::default());
    loop {
        let request = || {
            let options = PaginatedListOptions {
                delimiter: delimiter.map(Into::into),
                page_token: token.clone(),
                ..PaginatedListOptions::default()
            };
            lister.list_paginated(
                Some(&prefix).filter(|p| !p.is_empty()).map(|p| p.as_str()),
                options,
            )
        };
        let page = bucket.ask(|| limits.name(), request).await?;
        limits.add(&page, &mut seen)?;
        let PaginatedListResult { result, page_token } = page;
        metas.extend(result.objects);
        folders.extend(result.common_prefixes.iter().map(|path| format!("{path}/")));
        token = page_token;
        if token.is_none() {
            return Ok((metas, folders));
        }
    }
}

/// Requests the list of a web server that has one (WebDAV).
async fn whole(bucket: &Bucket, prefix: &str) -> io::Result<Vec<ObjectMeta>> {
    let path = bucket.key(prefix)?;
    let name = || format!("the list of {}", bucket.url(prefix));
    let request = || async {
        let mut list = bucket.store.list(Some(&path));
        let mut metas = Vec::new();
        while let Some(meta) = list.next().await {
            metas.push(meta?);
        }
        Ok(metas)
    };
    let metas = bucket.ask(name, request).await.map_err(|error| {
        let problem = format!(
            "{error}; a plain web server cannot list its files: name them with braces \
             (`{{0000..0146}}`) or in a CSV"
        );
        io::Error::new(error.kind(), problem)
    })?;
    let listed = ListResult {
        objects: metas,
        common_prefixes: Vec::new(),
        extensions: Default::default(),
    };
    limits(bucket, prefix).count(&listed)?;
    Ok(listed.objects)
}

/// Runs futures concurrently, up to a limit, and returns their results in order. A future is
/// created only when it starts, however many there are.
pub(super) async fn at_once<T, F>(work: impl ExactSizeIterator<Item = F>) -> io::Result<Vec<T>>
where
    T: Send + 'static,
    F: Future<Output = io::Result<T>> + Send + 'static,
{
    let mut running = JoinSet::new();
    let mut results: Vec<Option<T>> = Vec::new();
    results.resize_with(work.len(), || None);
    let mut work = work.enumerate();
    loop {
        while running.len() < AT_ONCE
            && let Some((at, one)) = work.next()
        {
            running.spawn(async move { (at, one.await) });
        }
        let Some(done) = running.join_next().await else {
            return Ok(results.into_iter().flatten().collect());
        };
        let (at, result) = done.map_err(io::Error::other)?;
        results[at] = Some(result?);
    }
}

pub(super) fn text(folder: &Path) -> Result<String, Error> {
    debug_assert!(is_url(folder), "only URLs come here");
    let text = folder.to_str().map(str::to_owned);
    text.ok_or_else(|| Error::config("source", format!("{folder:?} is not Unicode")))
}

impl Object {
    fn new(
        bucket: &Arc<Bucket>,
        meta: ObjectMeta,
        cache: Option<&Arc<Cache>>,
        buffers: &Arc<BufferPool>,
    ) -> Object {
        let key = bucket.url_key(&meta);
        let stamp = match &meta.e_tag {
            Some(tag) => format!("{}-{}", bare(tag), meta.size),
            None => format!("{}-{}", meta.last_modified.timestamp(), meta.size),
        };
        let version = version(&meta);
        Object {
            bucket: Arc::clone(bucket),
            name: bucket.url(&key),
            key,
            length: meta.size,
            version,
            stamp,
            // An object without a version may change unnoticed.
            cache: cache.filter(|_| version.is_some()).cloned(),
            buffers: Arc::clone(buffers),
        }
    }
}
