//! Listing folders in parallel, and a million paths in flat arrays.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

use crate::random::{hash, hash_bytes};

/// Names by which files are taken for images. What a file really is, its bytes tell; the list
/// only keeps notes and checksums out of a dataset.
pub(super) const EXTENSIONS: [&str; 9] = [
    "jpg", "jpeg", "jpe", "png", "webp", "bmp", "gif", "tif", "tiff",
];

/// Threads that list; directories on networks answer in parallel.
const LISTERS: usize = 8;

/// Paths below one root, in three flat arrays: 13 bytes a path and the name's own.
#[derive(Debug, Default)]
pub(super) struct Paths {
    root: PathBuf,
    /// Folders relative to the root.
    folders: Vec<PathBuf>,
    folder: Vec<u32>,
    names: Vec<u8>,
    /// End of each name in `names`.
    ends: Vec<u64>,
}

impl Paths {
    pub(super) fn new(root: &Path) -> Paths {
        Paths {
            root: root.to_owned(),
            ..Paths::default()
        }
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Begins a folder; names pushed afterwards lie in it.
    pub(super) fn begin_folder(&mut self, folder: PathBuf) {
        self.folders.push(folder);
    }

    pub(super) fn push(&mut self, name: &str) {
        self.names.extend_from_slice(name.as_bytes());
        self.ends.push(self.names.len() as u64);
        self.folder
            .push(self.folders.len().saturating_sub(1) as u32);
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

    pub(super) fn path(&self, index: usize) -> PathBuf {
        self.root.join(self.relative(index))
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

    pub(super) fn shrink(&mut self) {
        self.names.shrink_to_fit();
        self.ends.shrink_to_fit();
        self.folder.shrink_to_fit();
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
}

impl Names {
    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        self.spans
            .iter()
            .map(|&(begin, end)| &self.text[begin as usize..end as usize])
    }

    pub(super) fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }
}

/// Lists the image files below `root`, folders sorted by path as components compare.
/// Hidden files and folders (a leading dot) are left out; links are followed, loops of links end
/// at the operating system's limit on them.
///
/// # Errors
///
/// The first folder that cannot be listed, or a name that is not Unicode.
pub(super) fn list(root: &Path) -> Result<Vec<Folder>, (PathBuf, io::Error)> {
    struct Work {
        todo: VecDeque<PathBuf>,
        busy: usize,
        done: Vec<Folder>,
        failed: Option<(PathBuf, io::Error)>,
    }
    let work = Mutex::new(Work {
        todo: VecDeque::from([PathBuf::new()]),
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
            let listed = list_one(root, folder.clone());
            state = work.lock().unwrap_or_else(PoisonError::into_inner);
            state.busy -= 1;
            match listed {
                Ok((listed, below)) => {
                    state.done.push(listed);
                    state.todo.extend(below);
                }
                Err(error) => state.failed = Some((root.join(folder), error)),
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

fn list_one(root: &Path, folder: PathBuf) -> io::Result<(Folder, Vec<PathBuf>)> {
    let mut text = String::new();
    let mut spans = Vec::new();
    let mut below = Vec::new();
    let mut ignored = 0;
    for entry in fs::read_dir(root.join(&folder))? {
        let entry = entry?;
        let name = entry.file_name().into_string().map_err(not_unicode)?;
        if name.starts_with('.') {
            continue;
        }
        let mut kind = entry.file_type()?;
        if kind.is_symlink() {
            kind = fs::metadata(entry.path())?.file_type();
        }
        if kind.is_dir() {
            below.push(folder.join(name));
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
            path: folder,
            names: Names { text, spans },
            ignored,
        },
        below,
    ))
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
