//! URLs in a build without the cargo feature `remote`: opening one is an error that names it.
//!
//! The functions are those of `remote`. No bucket exists here, so the methods are never called.

use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::Blob;
use super::buffers::BufferPool;
use super::cache::Cache;
use super::object::{
    CreateOutcome, FolderEntry, ListedObject, ObjectBody, RangeRequest, RequestCounts,
};
use infeed_core::error::Error;

pub use AbsentBucket as Bucket;
pub use AbsentFolder as BucketFolder;

/// A bucket or server. None exists: the cargo feature `remote` is off.
#[derive(Debug)]
pub struct AbsentBucket(Infallible);

impl AbsentBucket {
    /// URL of an object.
    pub fn url(&self, _key: &str) -> String {
        match self.0 {}
    }
}

/// A folder of a bucket for writing. None exists: the cargo feature `remote` is off.
#[derive(Clone, Debug)]
pub struct AbsentFolder(Infallible);

#[allow(missing_docs, clippy::missing_errors_doc)]
impl AbsentFolder {
    pub fn of(folder: &Path) -> Result<AbsentFolder, Error> {
        Err(missing("out", &folder.display().to_string()))
    }

    pub fn url(&self) -> &Path {
        match self.0 {}
    }

    pub fn entries(&self) -> io::Result<(Vec<(String, u64)>, bool)> {
        match self.0 {}
    }

    pub fn has(&self, _name: &str) -> io::Result<bool> {
        match self.0 {}
    }

    pub fn read(&self, _names: &[String], _most: u64) -> io::Result<Vec<Option<Bytes>>> {
        match self.0 {}
    }

    pub fn create(&self, _name: &str, _body: ObjectBody<'_>) -> io::Result<CreateOutcome> {
        match self.0 {}
    }

    pub fn replace(&self, _name: &str, _body: ObjectBody<'_>) -> io::Result<()> {
        match self.0 {}
    }

    pub fn remove(&self, _names: &[String]) -> io::Result<()> {
        match self.0 {}
    }
}

fn missing(part: &str, url: &str) -> Error {
    Error::missing_feature(part, url, "remote")
}

/// Never called.
///
/// # Errors
///
/// None.
pub fn read(
    bucket: &AbsentBucket,
    _wanted: &RangeRequest<'_>,
    _cache: Option<&Cache>,
    _buffers: &Arc<BufferPool>,
) -> io::Result<Bytes> {
    match bucket.0 {}
}

/// Returns the error that names the feature.
///
/// # Errors
///
/// Always [`Error::Config`].
pub fn below(folder: &Path) -> Result<(Arc<AbsentBucket>, String, Vec<ListedObject>), Error> {
    Err(missing("source", &folder.display().to_string()))
}

/// Returns the error that names the feature.
///
/// # Errors
///
/// Always [`Error::Config`].
pub fn query_objects(
    folder: &Path,
    _keys: &[String],
) -> Result<(Arc<AbsentBucket>, String, Vec<ListedObject>), Error> {
    below(folder)
}

/// Returns the error that names the feature.
///
/// # Errors
///
/// Always [`Error::Config`].
pub fn entries(folder: &str) -> Result<Vec<FolderEntry>, Error> {
    Err(missing("source", folder))
}

/// Returns the error that names the feature.
///
/// # Errors
///
/// Always [`Error::Config`].
pub fn objects(folder: &str) -> Result<Vec<String>, Error> {
    Err(missing("source", folder))
}

/// Returns the error that names the feature.
///
/// # Errors
///
/// Always [`Error::Config`].
pub fn configure(base: &str, _options: &[(&str, &str)]) -> Result<(), Error> {
    Err(missing(base, base))
}

/// Returns zeros: there are no requests.
pub fn requests() -> RequestCounts {
    RequestCounts::default()
}

pub(super) fn open(url: &str) -> Result<Arc<dyn Blob>, Error> {
    Err(missing("source", url))
}

pub(super) fn open_urls(urls: &[String]) -> Result<Vec<Arc<dyn Blob>>, Error> {
    matches(urls)
}

pub(super) fn matches(urls: &[String]) -> Result<Vec<Arc<dyn Blob>>, Error> {
    urls.iter().map(|url| open(url)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_the_feature_remote() {
        const URL: &str = "s3://bucket/photos";
        let folder = Path::new(URL);
        let errors = [
            ("source", below(folder).map(drop)),
            ("source", query_objects(folder, &[]).map(drop)),
            ("source", entries(URL).map(drop)),
            ("source", objects(URL).map(drop)),
            ("out", AbsentFolder::of(folder).map(drop)),
            (URL, configure(URL, &[])),
        ];
        for (part, outcome) in errors {
            assert_eq!(
                outcome.expect_err("a URL").to_string(),
                format!(
                    "{part}: {URL} needs the cargo feature `remote` of the crate `infeed`, which \
                     this build lacks; enable it"
                )
            );
        }
    }
}
