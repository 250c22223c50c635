//! Lists the image files of folders of a disk or a bucket.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

use crate::extensions::{has_extension, has_image_extension, left_out_file};
use crate::left_out::LeftOut;
use crate::paths::{ObjectInfo, Paths, with_slashes};
use crate::store::links::{LinkedFolders, check_stop, contains, of_link, target};
use crate::store::{self, ListedObject};
use infeed_core::error::Error;
use infeed_core::printable::printable;
use infeed_core::stop::Stop;

/// Named pipes, sockets and devices. Opening one could wait for ever.
const SPECIAL_FILE: &str = "pipe, socket or device";

/// Threads that list folders; network file systems answer in parallel.
const LISTERS: usize = 8;

/// Listed folders below a root, and an empty [`Paths`] for the selected files.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) folders: Vec<ListedFolder>,
    pub(super) paths: Paths,
}

impl Tree {
    /// Lists the image files below a folder or its URL. Symbolic links below the folder are left out
    /// unless `follow_links` is set. The caller reads files with the extension `companion` itself.
    ///
    /// # Errors
    ///
    /// [`Error::Open`] for the first folder that cannot be listed, or a name that is not Unicode.
    pub(super) fn list(
        root: &Path,
        follow_links: bool,
        companion: Option<&str>,
    ) -> Result<Tree, Error> {
        if !store::is_url(root) {
            let folders = list(root, follow_links, companion);
            let folders = folders.map_err(|(path, error)| Error::open(path, error))?;
            return Ok(Tree::new(root, folders, Paths::local(root, follow_links)));
        }
        let (bucket, prefix, found) = store::below(root)?;
        let folders = sort_objects(found, companion).map_err(|error| Error::open(root, error))?;
        let paths = Paths::remote(root, bucket, prefix)?;
        Ok(Tree::new(root, folders, paths))
    }

    fn new(root: &Path, mut folders: Vec<ListedFolder>, mut paths: Paths) -> Tree {
        let location = root.display().to_string();
        let mut left_out = Vec::new();
        for mut parts in folders
            .iter_mut()
            .flat_map(|folder| folder.left_out.drain(..))
        {
            parts.location.clone_from(&location);
            parts.append_to(&mut left_out);
        }
        // The entries of a folder come in any order.
        left_out.sort_by_key(|parts| parts.kind);
        left_out
            .into_iter()
            .for_each(|parts| paths.leave_out(parts));
        Tree { folders, paths }
    }
}

/// The image files of one folder, sorted by name.
#[derive(Debug)]
pub(super) struct ListedFolder {
    /// Path relative to the root; empty for the root itself.
    pub(super) path: PathBuf,
    /// Sorted names, in one string since a folder may hold a million.
    pub(super) names: SortedNames,
    /// Files that are not listed, with paths relative to the root.
    left_out: Vec<LeftOut>,
}

impl ListedFolder {
    fn new(path: PathBuf) -> ListedFolder {
        ListedFolder {
            path,
            names: SortedNames::default(),
            left_out: Vec::new(),
        }
    }

    /// Counts a file that is not listed.
    fn leave_out(&mut self, kind: LeftOut, name: &str) {
        let path = self.path.join(name);
        let part = kind.with(&with_slashes(path.to_string_lossy()));
        part.append_to(&mut self.left_out);
    }
}

/// Sorted names in one string.
#[derive(Debug, Default)]
pub(super) struct SortedNames {
    text: String,
    spans: Vec<(u32, u32)>,
    /// Lengths and versions of objects; empty for files.
    metas: Vec<ObjectInfo>,
}

impl SortedNames {
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, ObjectInfo)> {
        self.spans.iter().enumerate().map(|(at, &(begin, end))| {
            let meta = self.metas.get(at).copied().unwrap_or_default();
            (&self.text[begin as usize..end as usize], meta)
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.spans.len()
    }
}

/// Returns the sorted paths of the image files below a folder or its URL, and the other files.
/// Symbolic links below the folder are left out unless `follow_links` is set.
///
/// # Errors
///
/// [`Error::Open`] for the first folder that cannot be listed, or a name that is not Unicode.
pub fn image_files(root: &Path, follow_links: bool) -> Result<(Vec<PathBuf>, Vec<LeftOut>), Error> {
    let Tree { folders, mut paths } = Tree::list(root, follow_links, None)?;
    for folder in folders {
        paths.begin_folder(folder.path);
        for (name, object) in folder.names.iter() {
            paths.push(name, object);
        }
    }
    let mut files: Vec<PathBuf> = (0..paths.len()).map(|at| paths.path(at)).collect();
    files.sort();
    Ok((files, paths.left_out().to_vec()))
}

/// Returns the sorted names of the folders directly below a folder or its URL, without hidden ones.
///
/// # Errors
///
/// [`Error::Open`] for a folder that cannot be listed, or a name that is not Unicode.
pub(super) fn class_folders(root: &Path) -> Result<Vec<String>, Error> {
    if store::is_url(root) {
        let entries = store::entries(&root.to_string_lossy())?.into_iter();
        let folders = entries.filter(|entry| entry.is_folder);
        return Ok(folders.map(|entry| entry.name).collect());
    }
    let named = || -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(root)? {
            let entry = entry?;
            let name = entry.file_name().into_string().map_err(not_unicode)?;
            if !name.starts_with('.') && entry.path().is_dir() {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    };
    named().map_err(|error| Error::open(root, error))
}

/// A folder that is not listed yet.
struct UnlistedFolder {
    /// Path relative to the root.
    path: PathBuf,
    /// The folder itself, if the path passes a symbolic link.
    target: Option<PathBuf>,
}

/// Lists the image files below `root`, folders sorted by path as components compare.
///
/// Leaves out hidden files and folders (leading dot), and, unless `follow_links` is set, symbolic
/// links. A link to a folder that contains it would list the same files endlessly and is never
/// followed.
///
/// # Errors
///
/// The first folder that cannot be listed, or a name that is not Unicode. A folder to which too many
/// paths lead through links. [`io::ErrorKind::Interrupted`] if this thread's [`Stop`] is requested.
fn list(
    root: &Path,
    follow_links: bool,
    companion: Option<&str>,
) -> Result<Vec<ListedFolder>, (PathBuf, io::Error)> {
    struct Work {
        todo: VecDeque<UnlistedFolder>,
        busy: usize,
        done: Vec<ListedFolder>,
        failed: Option<(PathBuf, io::Error)>,
        linked: LinkedFolders,
    }
    let work = Mutex::new(Work {
        todo: VecDeque::from([UnlistedFolder {
            path: PathBuf::new(),
            target: None,
        }]),
        busy: 0,
        done: Vec::new(),
        failed: None,
        linked: LinkedFolders::default(),
    });
    // The threads below do not observe the request of this one.
    let stop = Stop::here();
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
            let listed = list_one(root, &folder, follow_links, companion, stop.as_ref());
            state = work.lock().unwrap_or_else(PoisonError::into_inner);
            state.busy -= 1;
            match listed {
                Ok((listed, below)) => {
                    state.done.push(listed);
                    for mut folder in below {
                        let visited = match folder.target.clone() {
                            Some(target) => state.linked.visit(target, &root.join(&folder.path)),
                            None => Ok(()),
                        };
                        match visited {
                            Ok(()) => state.todo.push_back(folder),
                            Err(error) => {
                                let path = std::mem::take(&mut folder.path);
                                state.failed = Some((root.join(path), error));
                            }
                        }
                    }
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
    folder: &UnlistedFolder,
    follow_links: bool,
    companion: Option<&str>,
    stop: Option<&Stop>,
) -> io::Result<(ListedFolder, Vec<UnlistedFolder>)> {
    let mut listed = ListedFolder::new(folder.path.clone());
    let mut text = String::new();
    let mut spans = Vec::new();
    let mut below = Vec::new();
    for entry in fs::read_dir(root.join(&folder.path))? {
        check_stop(stop)?;
        let entry = entry?;
        let name = entry.file_name().into_string().map_err(not_unicode)?;
        if name.starts_with('.') {
            continue;
        }
        let mut kind = entry.file_type()?;
        let is_link = kind.is_symlink();
        if is_link && !follow_links {
            continue;
        }
        if is_link {
            let path = entry.path();
            kind = match fs::metadata(&path) {
                Ok(metadata) => metadata.file_type(),
                Err(error)
                    if error.kind() == io::ErrorKind::NotFound && !has_image_extension(&name) =>
                {
                    listed.leave_out(left_out_file(&name), &name);
                    continue;
                }
                Err(error) => return Err(of_link(&path, &error)),
            };
        }
        if kind.is_dir() {
            let target = match folder.target.is_some() || is_link {
                true => Some(target(&entry.path())?),
                false => None,
            };
            if let Some(target) = &target
                && contains(root, &folder.path, target)?
            {
                tracing::warn!(
                    "{} leads to a folder that contains it; its files are listed once",
                    printable(&entry.path().to_string_lossy())
                );
                continue;
            }
            let path = folder.path.join(name);
            below.push(UnlistedFolder { path, target });
        } else if !kind.is_file() {
            listed.leave_out(LeftOut::new("", SPECIAL_FILE), &name);
        } else if has_image_extension(&name) {
            let begin = u32::try_from(text.len()).map_err(|_| too_many())?;
            text.push_str(&name);
            spans.push((begin, u32::try_from(text.len()).map_err(|_| too_many())?));
        } else if !has_extension(&name, companion) {
            listed.leave_out(left_out_file(&name), &name);
        }
    }
    spans.sort_unstable_by(|&(a, b), &(c, d)| {
        text[a as usize..b as usize].cmp(&text[c as usize..d as usize])
    });
    listed.names = SortedNames {
        text,
        spans,
        metas: Vec::new(),
    };
    Ok((listed, below))
}

/// Sorts the objects of a bucket as [`list`] sorts the files of a disk: the same folders and names
/// in the same order.
fn sort_objects(
    mut found: Vec<ListedObject>,
    companion: Option<&str>,
) -> io::Result<Vec<ListedFolder>> {
    found.retain(|object| {
        // A leading dot means hidden; a trailing slash marks a folder.
        let hidden = object.key.split('/').any(|part| part.starts_with('.'));
        !hidden && !object.key.ends_with('/')
    });
    // Names within a folder sort like keys.
    found.sort_unstable_by(|a, b| a.key.cmp(&b.key));
    let mut folders: BTreeMap<PathBuf, ListedFolder> = BTreeMap::new();
    for object in found {
        let (folder, name) = object.key.rsplit_once('/').unwrap_or(("", &object.key));
        let entry = folders.entry(PathBuf::from(folder));
        let folder = entry.or_insert_with_key(|path| ListedFolder::new(path.clone()));
        if !has_image_extension(name) {
            if !has_extension(name, companion) {
                folder.leave_out(left_out_file(name), name);
            }
            continue;
        }
        let names = &mut folder.names;
        let begin = u32::try_from(names.text.len()).map_err(|_| too_many())?;
        names.text.push_str(name);
        let end = u32::try_from(names.text.len()).map_err(|_| too_many())?;
        names.spans.push((begin, end));
        names.metas.push(ObjectInfo {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(folders: Vec<ListedFolder>) -> Paths {
        let mut paths = Paths::local(Path::new("root"), true);
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
        let object = |name: &str| ListedObject {
            key: name.to_owned(),
            length: 0,
            version: None,
        };

        let disk = paths(list(root.path(), true, None).expect("lists"));
        let bucket = paths(sort_objects(names.map(object).into(), None).expect("sorts"));

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
        let paths = paths(list(root, follow_links, None).expect("lists"));
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

        // A link to another folder means that the user wants its data twice.
        assert_eq!(listed, ["cat/1.jpg", "cat/sub/2.jpg", "cat/twice/2.jpg"]);
        assert_eq!(image_files(&root, true).expect("lists").0.len(), 3);
    }

    #[cfg(unix)]
    #[test]
    fn a_link_to_nothing_is_an_error_that_names_it_unless_it_is_no_image() {
        let root = tempfile::tempdir().expect("a folder");
        let root = root.path();
        fs::write(root.join("1.jpg"), "x").expect("writes");
        std::os::unix::fs::symlink("gone", root.join("notes")).expect("links");
        assert_eq!(relative(root, true), ["1.jpg"]);

        std::os::unix::fs::symlink("gone", root.join("2.jpg")).expect("links");
        let error = Tree::list(root, true, None).expect_err("a link to nothing");

        assert!(
            error.chain().contains("2.jpg cannot be"),
            "{}",
            error.chain()
        );
    }

    #[cfg(unix)]
    #[test]
    fn links_below_the_folder_are_left_out_on_request() {
        let parent = tempfile::tempdir().expect("a temporary folder");
        let (root, other) = (parent.path().join("root"), parent.path().join("other"));
        fs::create_dir_all(root.join("cat")).expect("a folder");
        fs::create_dir_all(other.join("deep")).expect("a folder");
        for path in [
            root.join("cat/1.jpg"),
            other.join("2.jpg"),
            other.join("deep/3.jpg"),
        ] {
            fs::write(path, b"x").expect("writes");
        }
        let link = |target: &Path, at: &str| {
            std::os::unix::fs::symlink(target, root.join(at)).expect("links");
        };
        link(&other.join("2.jpg"), "cat/2.jpg");
        link(&other.join("deep"), "dog");
        link(Path::new("1.jpg"), "cat/4.jpg");
        link(&root, "../linked");

        let all = ["cat/1.jpg", "cat/2.jpg", "cat/4.jpg", "dog/3.jpg"];
        assert_eq!(relative(&root, true), all);
        assert_eq!(relative(&root, false), ["cat/1.jpg"]);
        // The path of the user is followed.
        assert_eq!(
            relative(&parent.path().join("linked"), false),
            ["cat/1.jpg"]
        );
        let names = ["cat/1.jpg", "cat/2.jpg", "dog/3.jpg"].map(str::to_owned);
        let named = Paths::of_names(&root, &names, false).expect("a list");
        assert!(named.open(0).is_ok());
        for (at, link) in [(1, "cat/2.jpg"), (2, "dog")] {
            let error = named.open(at).err().expect(link);
            assert!(
                error
                    .to_string()
                    .contains(&format!("{link} is a symbolic link"))
            );
            assert!(named.is_no_file(&error));
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_to_which_many_links_lead_is_an_error_with_two_of_its_paths() {
        let root = tempfile::tempdir().expect("a temporary folder");
        crate::store::links::multiply_folders(root.path());

        let error = list(root.path(), true, None).expect_err("2^25 paths").1;

        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        let text = error.to_string();
        assert_eq!(text.matches("/a").count().min(1), 1, "{text}");
        assert!(text.contains("set follow_links=False"), "{text}");
        assert!(list(root.path(), false, None).is_ok());
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_is_listed_by_each_of_a_hundred_links() {
        let parent = tempfile::tempdir().expect("a temporary folder");
        let (root, store) = (parent.path().join("root"), parent.path().join("store"));
        fs::create_dir(&store).expect("a folder");
        fs::write(store.join("1.jpg"), b"x").expect("writes");
        fs::create_dir(&root).expect("a folder");
        for number in 0..100 {
            let link = root.join(format!("{number:03}"));
            std::os::unix::fs::symlink(&store, link).expect("links");
        }
        assert_eq!(relative(&root, true).len(), 100);

        std::os::unix::fs::symlink(&store, root.join("100")).expect("links");

        assert!(list(&root, true, None).is_err());
    }

    #[test]
    fn listing_ends_when_a_stop_is_requested() {
        let root = tempfile::tempdir().expect("a temporary folder");
        fs::write(root.path().join("1.jpg"), b"x").expect("writes");
        let path = root.path().to_owned();
        let listed = thread::spawn(move || {
            let stop = Stop::default();
            stop.watch_here();
            stop.request();
            list(&path, true, None).map(|_| ())
        });

        let error = listed.join().expect("no panic").expect_err("stopped").1;

        assert_eq!(error.kind(), io::ErrorKind::Interrupted);
    }
}
