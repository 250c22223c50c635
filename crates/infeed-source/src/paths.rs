//! A million paths in flat arrays: files of a folder or objects of a bucket, found or named by a list.

use std::borrow::Cow;
use std::io;
use std::path::{Component, MAIN_SEPARATOR, Path, PathBuf};
use std::sync::Arc;

use crate::left_out::LeftOut;
use crate::open_file::OpenFile;
use crate::store::links::check_no_link;
use crate::store::{self, Bucket, BufferPool, Cache, ListedObject};
use infeed_core::error::Error;
use infeed_core::printable::printable;
use infeed_core::random::{hash, hash_bytes};

/// Paths below one root, in three flat arrays: 13 bytes per path plus the name, and 24 more in a
/// bucket.
#[derive(Debug)]
pub(super) struct Paths {
    root: PathBuf,
    /// Folders relative to the root.
    folders: Vec<PathBuf>,
    /// Folder that was begun and has no file yet.
    begun: Option<PathBuf>,
    folder: Vec<u32>,
    names: Vec<u8>,
    /// End of each name in `names`.
    ends: Vec<u64>,
    location: Location,
    /// Files below the root that are not images.
    left_out: Vec<LeftOut>,
    /// Whether a list names the files; otherwise they were found in a folder.
    is_named: bool,
    /// Whether files of a disk are read through symbolic links below the root.
    follow_links: bool,
}

/// Location of the files.
#[derive(Debug)]
enum Location {
    Local(Arc<BufferPool>),
    Remote {
        bucket: Arc<Bucket>,
        /// Key of the root, with a slash at its end unless it is empty.
        prefix: String,
        /// Length and version of each object.
        lengths: Vec<u64>,
        versions: Vec<Option<u64>>,
        cache: Option<Arc<Cache>>,
        buffers: Arc<BufferPool>,
    },
}

impl Paths {
    fn new(root: &Path, location: Location) -> Paths {
        Paths {
            root: root.to_owned(),
            folders: Vec::new(),
            begun: None,
            folder: Vec::new(),
            names: Vec::new(),
            ends: Vec::new(),
            location,
            left_out: Vec::new(),
            is_named: false,
            follow_links: true,
        }
    }

    /// Creates an empty list of files of a disk.
    pub(super) fn local(root: &Path, follow_links: bool) -> Paths {
        let paths = Paths::new(root, Location::Local(Arc::default()));
        Paths {
            follow_links,
            ..paths
        }
    }

    /// Creates an empty list of objects of a bucket. The key of the root is `prefix`.
    ///
    /// # Errors
    ///
    /// As [`Cache::of_process`].
    pub(super) fn remote(root: &Path, bucket: Arc<Bucket>, prefix: String) -> Result<Paths, Error> {
        let location = Location::Remote {
            bucket,
            prefix,
            lengths: Vec::new(),
            versions: Vec::new(),
            cache: Cache::of_process()?,
            buffers: Arc::default(),
        };
        Ok(Paths::new(root, location))
    }

    /// Builds the paths of named files below a folder or its URL. A name may lead outside the
    /// folder only if `root` is `/`. Unless `follow_links` is set, a file behind a symbolic link below
    /// the folder is a bad record.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a name that leads outside the folder, [`Error::Open`] for an object
    /// that does not exist. A missing file is a bad record when it is read.
    pub(super) fn of_names(
        root: &Path,
        names: &[String],
        follow_links: bool,
    ) -> Result<Paths, Error> {
        check_inside(root, names.iter().map(String::as_str))?;
        let (mut paths, metas) = if store::is_url(root) {
            let (bucket, prefix, found) = store::query_objects(root, names)?;
            let meta = |found: ListedObject| ObjectInfo {
                length: found.length,
                version: found.version,
            };
            let metas: Vec<ObjectInfo> = found.into_iter().map(meta).collect();
            (Paths::remote(root, bucket, prefix)?, metas)
        } else {
            (Paths::local(root, follow_links), Vec::new())
        };
        paths.is_named = true;
        paths.begin_folder(PathBuf::new());
        for (at, name) in names.iter().enumerate() {
            paths.push(name, metas.get(at).copied().unwrap_or_default());
        }
        Ok(paths)
    }

    /// Files below the root that are not images, and those that the source adds.
    pub(super) fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    pub(super) fn leave_out(&mut self, parts: LeftOut) {
        self.left_out.push(parts);
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Begins a folder; names pushed afterwards are in it. A folder without names is not stored: a
    /// disk lists folders that contain only folders, a bucket does not.
    pub(super) fn begin_folder(&mut self, folder: PathBuf) {
        self.begun = Some(folder);
    }

    /// Adds a file to the folder begun last. `object` is used only for objects of a bucket.
    pub(super) fn push(&mut self, name: &str, object: ObjectInfo) {
        self.folders.extend(self.begun.take());
        self.names.extend_from_slice(name.as_bytes());
        self.ends.push(self.names.len() as u64);
        self.folder
            .push(self.folders.len().saturating_sub(1) as u32);
        if let Location::Remote {
            lengths, versions, ..
        } = &mut self.location
        {
            lengths.push(object.length);
            versions.push(object.version);
        }
    }

    /// Path relative to the root.
    pub(super) fn relative(&self, index: usize) -> PathBuf {
        let begin = if index == 0 {
            0
        } else {
            self.ends[index - 1] as usize
        };
        let name = String::from_utf8_lossy(&self.names[begin..self.ends[index] as usize]);
        self.folders[self.folder[index] as usize].join(&*name)
    }

    /// Path relative to the root, with slashes on every platform.
    pub(super) fn name(&self, index: usize) -> String {
        let path = self.relative(index);
        let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
        parts.join("/")
    }

    /// Path, or URL in a bucket.
    pub(super) fn path(&self, index: usize) -> PathBuf {
        match &self.location {
            Location::Local(_) => self.root.join(self.relative(index)),
            Location::Remote { bucket, .. } => bucket.url(&self.key(index)).into(),
        }
    }

    /// Key of the object in the bucket.
    fn key(&self, index: usize) -> String {
        let prefix = match &self.location {
            Location::Local(_) => "",
            Location::Remote { prefix, .. } => prefix,
        };
        format!(
            "{prefix}{}",
            with_slashes(self.relative(index).to_string_lossy())
        )
    }

    /// Hash of the names and their number, without the root.
    pub(super) fn fingerprint(&self) -> u64 {
        let folders = self.folders.iter();
        let folders: Vec<u64> = folders
            .map(|folder| hash_bytes(with_slashes(folder.to_string_lossy()).as_bytes()))
            .collect();
        let below = self.folder.iter().map(|&folder| u64::from(folder));
        hash(&[
            hash(&folders),
            hash_bytes(&self.names),
            hash(&below.collect::<Vec<_>>()),
            hash(&self.ends),
        ])
    }

    /// Number of parallel reads, where a disk's number does not fit.
    pub(super) fn parallel_reads(&self) -> Option<usize> {
        match self.location {
            Location::Local(_) => None,
            Location::Remote { .. } => Some(store::PARALLEL_READS),
        }
    }

    /// Opens a file. An object needs no request: its length and version are known.
    pub(super) fn open(&self, index: usize) -> io::Result<OpenFile<'_>> {
        match &self.location {
            Location::Local(buffers) => {
                let path = self.path(index);
                if !self.follow_links {
                    check_no_link(&self.root, &path)?;
                }
                let (file, length) = store::open_file(&path)?;
                Ok(OpenFile::File {
                    path,
                    file,
                    length,
                    buffers,
                })
            }
            Location::Remote {
                bucket,
                lengths,
                versions,
                cache,
                buffers,
                ..
            } => Ok(OpenFile::Object {
                bucket,
                key: self.key(index),
                length: lengths[index],
                version: versions[index],
                cache: cache.as_deref(),
                buffers,
            }),
        }
    }

    /// Whether the error of opening or reading a file says that a list names a file which does not
    /// exist. If the root is gone too, the storage failed.
    pub(super) fn is_missing(&self, error: &io::Error) -> bool {
        use io::ErrorKind::{NotADirectory, NotFound};
        self.is_named && matches!(error.kind(), NotFound | NotADirectory) && self.root.is_dir()
    }

    /// Whether the error of opening a file says that there is something else than a regular file.
    pub(super) fn is_no_file(&self, error: &io::Error) -> bool {
        use io::ErrorKind::{InvalidInput, IsADirectory};
        matches!(self.location, Location::Local(_))
            && matches!(error.kind(), InvalidInput | IsADirectory)
    }

    pub(super) fn shrink(&mut self) {
        self.names.shrink_to_fit();
        self.ends.shrink_to_fit();
        self.folder.shrink_to_fit();
        if let Location::Remote {
            lengths, versions, ..
        } = &mut self.location
        {
            lengths.shrink_to_fit();
            versions.shrink_to_fit();
        }
    }
}

/// Length and version of an object; unused for files.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ObjectInfo {
    pub(super) length: u64,
    pub(super) version: Option<u64>,
}

/// Checks that no name leads outside its folder, unless that is `/`.
///
/// # Errors
///
/// [`Error::Config`] with the first name that does.
pub(super) fn check_inside<'a>(
    root: &Path,
    mut names: impl Iterator<Item = &'a str>,
) -> Result<(), Error> {
    let inside = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    let outside = names.find(|name| !Path::new(name).components().all(inside));
    let Some(name) = outside.filter(|_| root != Path::new("/")) else {
        return Ok(());
    };
    let problem = format!(
        "the list names {}, which lies outside the folder {}; list paths below the folder, or make \
         the folder / and list absolute paths",
        printable(name),
        root.display()
    );
    Err(Error::config("source", problem))
}

/// Returns a path with `/` between its parts on every platform.
pub(super) fn with_slashes(path: Cow<'_, str>) -> Cow<'_, str> {
    match MAIN_SEPARATOR {
        '/' => path,
        other => path.replace(other, "/").into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_names_stays_inside_its_folder_unless_that_is_the_root() {
        let named =
            |root: &str, name: &str| Paths::of_names(Path::new(root), &[name.to_owned()], true);

        assert!(named("photos", "cat/./1.jpg").is_ok());
        assert!(named("/", "/data/1.jpg").is_ok());
        for name in ["../1.jpg", "cat/../../1.jpg", "/etc/passwd.jpg"] {
            let error = named("photos", name).expect_err("outside").to_string();
            assert!(
                error.contains(name) && error.contains("make the folder /"),
                "{error}"
            );
        }
    }
}
