//! Listing folders of a disk or a bucket, and a million paths in flat arrays.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use bytes::Bytes;

use crate::error::Error;
use crate::printable::printable;
use crate::random::{hash, hash_bytes};
use crate::store::{self, Bucket, Buffers, Cache, Found, Wanted};

/// Names by which files are taken for images. What a file really is, its bytes tell; the list
/// only keeps notes and checksums out of a dataset.
pub(super) const EXTENSIONS: [&str; 9] = [
    "jpg", "jpeg", "jpe", "png", "webp", "bmp", "gif", "tif", "tiff",
];

/// Threads that list; directories on networks answer in parallel.
const LISTERS: usize = 8;

/// Paths below one root, in three flat arrays: 13 bytes a path and the name's own; 24 more where
/// they lie in a bucket.
#[derive(Debug)]
pub(super) struct Paths {
    root: PathBuf,
    /// Folders relative to the root.
    folders: Vec<PathBuf>,
    /// One that was begun and has no name yet.
    begun: Option<PathBuf>,
    folder: Vec<u32>,
    names: Vec<u8>,
    /// End of each name in `names`.
    ends: Vec<u64>,
    place: Place,
}

/// Where files lie.
#[derive(Debug)]
enum Place {
    Here(Arc<Buffers>),
    There {
        bucket: Arc<Bucket>,
        /// Key of the root, with a slash at its end unless it is empty.
        prefix: String,
        /// Length and version of each object.
        lengths: Vec<u64>,
        versions: Vec<Option<u64>>,
        cache: Option<Arc<Cache>>,
        buffers: Arc<Buffers>,
    },
}

/// A file that is about to be read.
pub(super) enum Opened<'a> {
    File {
        path: PathBuf,
        file: fs::File,
        length: u64,
        buffers: &'a Arc<Buffers>,
    },
    Object {
        bucket: &'a Bucket,
        key: String,
        length: u64,
        version: Option<u64>,
        cache: Option<&'a Cache>,
        buffers: &'a Arc<Buffers>,
    },
}

impl Opened<'_> {
    /// Bytes of memory that it will hold.
    pub(super) fn held_bytes(&self) -> u64 {
        match *self {
            Opened::File { length, .. } => store::held_bytes(length),
            Opened::Object { length, cache, .. } => store::held_bytes(match cache {
                Some(_) => Cache::widened(length, length),
                None => length,
            }),
        }
    }

    /// Its content.
    pub(super) fn read(self) -> io::Result<Bytes> {
        match self {
            Opened::File {
                path,
                file,
                length,
                buffers,
            } => store::read_file(&path, file, length, buffers),
            Opened::Object {
                bucket,
                key,
                length,
                version,
                cache,
                buffers,
            } => {
                let wanted = Wanted {
                    key: &key,
                    range: 0..length,
                    length,
                    version,
                };
                store::read(bucket, &wanted, cache, buffers)
            }
        }
    }
}

impl Paths {
    fn new(root: &Path, place: Place) -> Paths {
        Paths {
            root: root.to_owned(),
            folders: Vec::new(),
            begun: None,
            folder: Vec::new(),
            names: Vec::new(),
            ends: Vec::new(),
            place,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Begins a folder; names pushed afterwards lie in it. One that gets none leaves no trace: a disk
    /// tells of folders that hold folders alone, a bucket does not.
    pub(super) fn begin_folder(&mut self, folder: PathBuf) {
        self.begun = Some(folder);
    }

    /// Adds a file of the folder begun last; what `object` says is for a bucket's.
    pub(super) fn push(&mut self, name: &str, object: Meta) {
        self.folders.extend(self.begun.take());
        self.names.extend_from_slice(name.as_bytes());
        self.ends.push(self.names.len() as u64);
        self.folder
            .push(self.folders.len().saturating_sub(1) as u32);
        if let Place::There {
            lengths, versions, ..
        } = &mut self.place
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

    /// Path relative to the root, with slashes everywhere.
    pub(super) fn name(&self, index: usize) -> String {
        let path = self.relative(index);
        let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
        parts.join("/")
    }

    /// Path or, in a bucket, URL.
    pub(super) fn path(&self, index: usize) -> PathBuf {
        match &self.place {
            Place::Here(_) => self.root.join(self.relative(index)),
            Place::There { bucket, .. } => bucket.url(&self.key(index)).into(),
        }
    }

    /// Key in the bucket.
    fn key(&self, index: usize) -> String {
        let prefix = match &self.place {
            Place::Here(_) => "",
            Place::There { prefix, .. } => prefix,
        };
        format!("{prefix}{}", self.relative(index).display())
    }

    /// What differs if a name or the number of them does; the root is left out.
    pub(super) fn fingerprint(&self) -> u64 {
        let folders = self.folders.iter();
        let folders: Vec<u64> = folders
            .map(|folder| hash_bytes(folder.to_string_lossy().as_bytes()))
            .collect();
        let below = self.folder.iter().map(|&folder| u64::from(folder));
        hash(&[
            hash(&folders),
            hash_bytes(&self.names),
            hash(&below.collect::<Vec<_>>()),
            hash(&self.ends),
        ])
    }

    /// How many reads should be under way at once, where a disk's number is not it.
    pub(super) fn parallel_reads(&self) -> Option<usize> {
        match self.place {
            Place::Here(_) => None,
            Place::There { .. } => Some(store::PARALLEL_READS),
        }
    }

    /// Opens a file; an object is known already.
    pub(super) fn open(&self, index: usize) -> io::Result<Opened<'_>> {
        match &self.place {
            Place::Here(buffers) => {
                let path = self.path(index);
                let (file, length) = store::open_file(&path)?;
                Ok(Opened::File {
                    path,
                    file,
                    length,
                    buffers,
                })
            }
            Place::There {
                bucket,
                lengths,
                versions,
                cache,
                buffers,
                ..
            } => Ok(Opened::Object {
                bucket,
                key: self.key(index),
                length: lengths[index],
                version: versions[index],
                cache: cache.as_deref(),
                buffers,
            }),
        }
    }

    pub(super) fn shrink(&mut self) {
        self.names.shrink_to_fit();
        self.ends.shrink_to_fit();
        self.folder.shrink_to_fit();
        if let Place::There {
            lengths, versions, ..
        } = &mut self.place
        {
            lengths.shrink_to_fit();
            versions.shrink_to_fit();
        }
    }
}

/// What a list says of an object; nothing of a file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Meta {
    pub(super) length: u64,
    pub(super) version: Option<u64>,
}

/// What lies below a root: its folders, and paths to be filled with what is chosen of them.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) folders: Vec<Folder>,
    pub(super) paths: Paths,
}

impl Tree {
    /// Lists the image files below a folder, or below the URL of one. Symbolic links that lead
    /// outside the folder are left out unless `follow_links`.
    ///
    /// # Errors
    ///
    /// [`Error::Open`] for the first folder that cannot be listed, or a name that is not Unicode.
    pub(super) fn list(root: &Path, follow_links: bool) -> Result<Tree, Error> {
        if !store::is_url(root) {
            let folders = list(root, follow_links);
            let folders = folders.map_err(|(path, error)| Error::open(path, error))?;
            let paths = Paths::new(root, Place::Here(Arc::default()));
            return Ok(Tree { folders, paths });
        }
        let (bucket, prefix, found) = store::below(root)?;
        let folders = sorted(found).map_err(|error| Error::open(root, error))?;
        let place = Place::There {
            bucket,
            prefix,
            lengths: Vec::new(),
            versions: Vec::new(),
            cache: Cache::of_process()?,
            buffers: Arc::default(),
        };
        let paths = Paths::new(root, place);
        Ok(Tree { folders, paths })
    }

    /// The files below a folder, or the URL of one, that a list names. A name may lead outside the
    /// folder only if `root` is `/`.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a name that leads outside the folder, [`Error::Open`] for an object that
    /// does not exist. A file that does not exist is an error when it is read.
    pub(super) fn named(root: &Path, names: &[String]) -> Result<Paths, Error> {
        if let Some(name) = names.iter().find(|name| leads_outside(name, root)) {
            let problem = format!(
                "the list names {}, which lies outside the folder {}; list paths below the folder, or \
                 make the folder / and list absolute paths",
                printable(name),
                root.display()
            );
            return Err(Error::config("source", problem));
        }
        let (place, metas) = if store::is_url(root) {
            let (bucket, prefix, found) = store::look(root, names)?;
            let place = Place::There {
                bucket,
                prefix,
                lengths: Vec::new(),
                versions: Vec::new(),
                cache: Cache::of_process()?,
                buffers: Arc::default(),
            };
            let meta = |found: Found| Meta {
                length: found.length,
                version: found.version,
            };
            (place, found.into_iter().map(meta).collect())
        } else {
            (Place::Here(Arc::default()), Vec::new())
        };
        let mut paths = Paths::new(root, place);
        paths.begin_folder(PathBuf::new());
        for (at, name) in names.iter().enumerate() {
            paths.push(name, metas.get(at).copied().unwrap_or_default());
        }
        Ok(paths)
    }
}

/// The image files of one folder, sorted by name.
#[derive(Debug)]
pub(super) struct Folder {
    /// Path relative to the root; empty for the root itself.
    pub(super) path: PathBuf,
    /// Sorted names; in flat form, for a folder may hold a million.
    pub(super) names: Names,
    /// Files that are no images by name.
    pub(super) ignored: usize,
}

/// Sorted names in one string.
#[derive(Debug, Default)]
pub(super) struct Names {
    text: String,
    spans: Vec<(u32, u32)>,
    /// Of objects; empty for files.
    metas: Vec<Meta>,
}

impl Names {
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, Meta)> {
        self.spans.iter().enumerate().map(|(at, &(begin, end))| {
            let meta = self.metas.get(at).copied().unwrap_or_default();
            (&self.text[begin as usize..end as usize], meta)
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }
}

/// Whether a name in a list leaves the folder that it is relative to.
fn leads_outside(name: &str, root: &Path) -> bool {
    let inside = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    root != Path::new("/") && !Path::new(name).components().all(inside)
}

/// Paths of the image files below a folder on this machine, sorted, and the number of other files.
///
/// # Errors
///
/// [`Error::Open`] for the first folder that cannot be listed, or a name that is not Unicode.
pub fn image_files(root: &Path) -> Result<(Vec<PathBuf>, usize), Error> {
    let folders = list(root, true).map_err(|(path, error)| Error::open(path, error))?;
    let others = folders.iter().map(|folder| folder.ignored).sum();
    let below = |folder: &Folder| -> Vec<PathBuf> {
        let path = root.join(&folder.path);
        folder
            .names
            .iter()
            .map(|(name, _)| path.join(name))
            .collect()
    };
    let mut files: Vec<PathBuf> = folders.iter().flat_map(below).collect();
    files.sort();
    Ok((files, others))
}

/// A folder that is not listed yet.
#[derive(Clone)]
struct Unlisted {
    /// Path relative to the root.
    path: PathBuf,
    /// Whether the path passes a symbolic link.
    through_link: bool,
}

/// Lists the image files below `root`, folders sorted by path as components compare.
///
/// Leaves out hidden files and folders (a leading dot). Follows symbolic links, except one to a
/// folder that contains it, which would list the same files without end, and, unless
/// `follow_links`, those that lead outside `root`.
///
/// # Errors
///
/// The first folder that cannot be listed, or a name that is not Unicode.
fn list(root: &Path, follow_links: bool) -> Result<Vec<Folder>, (PathBuf, io::Error)> {
    struct Work {
        todo: VecDeque<Unlisted>,
        busy: usize,
        done: Vec<Folder>,
        failed: Option<(PathBuf, io::Error)>,
    }
    let work = Mutex::new(Work {
        todo: VecDeque::from([Unlisted {
            path: PathBuf::new(),
            through_link: false,
        }]),
        busy: 0,
        done: Vec::new(),
        failed: None,
    });
    let changed = Condvar::new();
    let lister = || {
        let mut state = work.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if state.failed.is_some() || (state.todo.is_empty() && state.busy == 0) {
                changed.notify_all();
                return;
            }
            let Some(folder) = state.todo.pop_front() else {
                state = changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            state.busy += 1;
            drop(state);
            let listed = list_one(root, &folder, follow_links);
            state = work.lock().unwrap_or_else(PoisonError::into_inner);
            state.busy -= 1;
            match listed {
                Ok((listed, below)) => {
                    state.done.push(listed);
                    state.todo.extend(below);
                }
                Err(error) => state.failed = Some((root.join(folder.path), error)),
            }
            changed.notify_all();
        }
    };
    thread::scope(|scope| {
        for _ in 0..LISTERS {
            scope.spawn(lister);
        }
    });
    let work = work.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(failed) = work.failed {
        return Err(failed);
    }
    let mut folders = work.done;
    folders.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(folders)
}

fn list_one(
    root: &Path,
    folder: &Unlisted,
    follow_links: bool,
) -> io::Result<(Folder, Vec<Unlisted>)> {
    let mut text = String::new();
    let mut spans = Vec::new();
    let mut below = Vec::new();
    let mut ignored = 0;
    for entry in fs::read_dir(root.join(&folder.path))? {
        let entry = entry?;
        let name = entry.file_name().into_string().map_err(not_unicode)?;
        if name.starts_with('.') {
            continue;
        }
        let mut kind = entry.file_type()?;
        let is_link = kind.is_symlink();
        if is_link {
            kind = fs::metadata(entry.path())?.file_type();
            if !follow_links
                && !entry
                    .path()
                    .canonicalize()?
                    .starts_with(root.canonicalize()?)
            {
                ignored += 1;
                continue;
            }
        }
        if kind.is_dir() {
            let through_link = folder.through_link || is_link;
            if through_link && contains(root, &folder.path, &entry.path().canonicalize()?)? {
                tracing::warn!(
                    "{} leads to a folder that contains it; its files are listed once",
                    printable(&entry.path().to_string_lossy())
                );
                continue;
            }
            below.push(Unlisted {
                path: folder.path.join(name),
                through_link,
            });
        } else if has_image_extension(&name) {
            let begin = u32::try_from(text.len()).map_err(|_| too_many())?;
            text.push_str(&name);
            spans.push((begin, u32::try_from(text.len()).map_err(|_| too_many())?));
        } else {
            ignored += 1;
        }
    }
    spans.sort_unstable_by(|&(a, b), &(c, d)| {
        text[a as usize..b as usize].cmp(&text[c as usize..d as usize])
    });
    Ok((
        Folder {
            path: folder.path.clone(),
            names: Names {
                text,
                spans,
                metas: Vec::new(),
            },
            ignored,
        },
        below,
    ))
}

/// Whether `target` is one of the folders from `root` down to `folder`, however they are reached.
fn contains(root: &Path, folder: &Path, target: &Path) -> io::Result<bool> {
    for ancestor in folder.ancestors() {
        if root.join(ancestor).canonicalize()? == target {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What a bucket holds, as [`list`] tells what a disk does: the same folders and names in the
/// same order.
fn sorted(mut found: Vec<Found>) -> io::Result<Vec<Folder>> {
    found.retain(|object| {
        // What begins with a dot is hidden, what ends with a slash stands for a folder.
        let hidden = object.key.split('/').any(|part| part.starts_with('.'));
        !hidden && !object.key.ends_with('/')
    });
    // Within a folder, names sort as keys do.
    found.sort_unstable_by(|a, b| a.key.cmp(&b.key));
    let mut folders: BTreeMap<PathBuf, Folder> = BTreeMap::new();
    for object in found {
        let (folder, name) = object.key.rsplit_once('/').unwrap_or(("", &object.key));
        let place = folders.entry(PathBuf::from(folder));
        let folder = place.or_insert_with_key(|path| Folder {
            path: path.clone(),
            names: Names::default(),
            ignored: 0,
        });
        if !has_image_extension(name) {
            folder.ignored += 1;
            continue;
        }
        let names = &mut folder.names;
        let begin = u32::try_from(names.text.len()).map_err(|_| too_many())?;
        names.text.push_str(name);
        let end = u32::try_from(names.text.len()).map_err(|_| too_many())?;
        names.spans.push((begin, end));
        names.metas.push(Meta {
            length: object.length,
            version: object.version,
        });
    }
    Ok(folders.into_values().collect())
}

fn not_unicode(name: OsString) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the name {name:?} is not Unicode"),
    )
}

fn too_many() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "the names in one folder exceed 4 GiB",
    )
}

fn has_image_extension(name: &str) -> bool {
    let Some((_, extension)) = name.rsplit_once('.') else {
        return false;
    };
    EXTENSIONS
        .iter()
        .any(|known| known.eq_ignore_ascii_case(extension))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(folders: Vec<Folder>) -> Paths {
        let mut paths = Paths::new(Path::new("root"), Place::Here(Arc::default()));
        for folder in folders {
            paths.begin_folder(folder.path);
            for (name, object) in folder.names.iter() {
                paths.push(name, object);
            }
        }
        paths
    }

    #[test]
    fn a_disk_and_a_bucket_with_the_same_files_are_the_same_data() {
        let names = ["cat/a/1.jpg", "cat/a/2.png", "cat/b/notes.txt", "dog/3.jpg"];
        let root = tempfile::tempdir().expect("a temporary folder");
        for name in names {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().expect("below the root")).expect("a folder");
            fs::write(path, b"").expect("writes");
        }
        fs::create_dir(root.path().join("zebra")).expect("an empty folder");
        let object = |name: &str| Found {
            key: name.to_owned(),
            length: 0,
            version: None,
        };

        let disk = paths(list(root.path(), true).expect("lists"));
        let bucket = paths(sorted(names.map(object).into()).expect("sorts"));

        let all = |paths: &Paths| -> Vec<PathBuf> {
            (0..paths.len()).map(|at| paths.relative(at)).collect()
        };
        assert_eq!(
            all(&disk),
            ["cat/a/1.jpg", "cat/a/2.png", "dog/3.jpg"].map(PathBuf::from)
        );
        assert_eq!(all(&bucket), all(&disk));
        assert_eq!(bucket.fingerprint(), disk.fingerprint());
    }

    fn relative(root: &Path, follow_links: bool) -> Vec<String> {
        let paths = paths(list(root, follow_links).expect("lists"));
        let path = |at| paths.relative(at).to_string_lossy().into_owned();
        (0..paths.len()).map(path).collect()
    }

    #[cfg(unix)]
    #[test]
    fn a_link_to_a_folder_that_contains_it_is_not_entered() {
        let parent = tempfile::tempdir().expect("a temporary folder");
        let root = parent.path().join("root");
        fs::create_dir_all(root.join("cat/sub")).expect("folders");
        fs::write(root.join("cat/1.jpg"), b"").expect("writes");
        fs::write(root.join("cat/sub/2.jpg"), b"").expect("writes");
        let link = |target: &str, at: &str| {
            std::os::unix::fs::symlink(target, root.join(at)).expect("links");
        };
        link("../..", "cat/up");
        link(".", "cat/sub/here");
        link("../../..", "cat/sub/above");
        link("sub", "cat/twice");

        let listed = relative(&root, true);

        // A link to another folder is data that the user wants twice.
        assert_eq!(listed, ["cat/1.jpg", "cat/sub/2.jpg", "cat/twice/2.jpg"]);
        assert_eq!(image_files(&root).expect("lists").0.len(), 3);
    }

    #[cfg(unix)]
    #[test]
    fn links_that_lead_outside_the_folder_are_left_out_on_request() {
        let parent = tempfile::tempdir().expect("a temporary folder");
        let (root, other) = (parent.path().join("root"), parent.path().join("other"));
        fs::create_dir_all(root.join("cat")).expect("a folder");
        fs::create_dir_all(other.join("deep")).expect("a folder");
        for path in [
            root.join("cat/1.jpg"),
            other.join("2.jpg"),
            other.join("deep/3.jpg"),
        ] {
            fs::write(path, b"").expect("writes");
        }
        std::os::unix::fs::symlink(other.join("2.jpg"), root.join("cat/2.jpg")).expect("links");
        std::os::unix::fs::symlink(other.join("deep"), root.join("dog")).expect("links");
        std::os::unix::fs::symlink("1.jpg", root.join("cat/4.jpg")).expect("links");

        let all = ["cat/1.jpg", "cat/2.jpg", "cat/4.jpg", "dog/3.jpg"];
        assert_eq!(relative(&root, true), all);
        assert_eq!(relative(&root, false), ["cat/1.jpg", "cat/4.jpg"]);
    }

    #[test]
    fn a_list_of_names_stays_inside_its_folder_unless_that_is_the_root() {
        let named = |root: &str, name: &str| Tree::named(Path::new(root), &[name.to_owned()]);

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
