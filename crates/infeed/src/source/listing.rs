//! Listing folders in parallel, and a million paths in flat arrays.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use bytes::Bytes;
use memmap2::MmapMut;

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

/// Attempts at a read that fails in a way that may pass.
const ATTEMPTS: u32 = 3;

/// Opens a file and tells its length, trying again if the storage hiccups.
pub(super) fn open_file(path: &Path) -> io::Result<(fs::File, u64)> {
    retry(|| {
        let file = fs::File::open(path)?;
        let length = file.metadata()?.len();
        Ok((file, length))
    })
}

/// Reads at most `length` bytes of a file just opened, into a buffer that was used before where
/// there is one. Fewer bytes come if the file was cut meanwhile; that shows when they are decoded.
pub(super) fn read_file(
    path: &Path,
    file: fs::File,
    length: u64,
    buffers: &Arc<Buffers>,
) -> io::Result<Bytes> {
    let mut first = Some(file);
    retry(|| {
        let mut file = match first.take() {
            Some(file) => file,
            None => fs::File::open(path)?,
        };
        if length < LARGE {
            let mut bytes = Vec::with_capacity(length as usize);
            file.take(length).read_to_end(&mut bytes)?;
            return Ok(Bytes::from(bytes));
        }
        let mut memory = buffers.take(held_bytes(length) as usize)?;
        let mut used = 0;
        while used < length as usize {
            match file.read(&mut memory[used..length as usize]) {
                Ok(0) => break,
                Ok(read) => used += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let buffers = Arc::clone(buffers);
        Ok(Bytes::from_owner(Lent {
            memory: Some(memory),
            used,
            buffers,
        }))
    })
}

/// Files from this length on are read into mapped buffers that are used again.
const LARGE: u64 = 64 << 10;

/// Capacity of free buffers that are kept.
const KEPT_BYTES: usize = 16 << 20;

/// Bytes that reading a file of this length holds: large ones are rounded up to one of four sizes
/// an octave, so that a buffer fits the next file too.
pub(super) fn held_bytes(length: u64) -> u64 {
    if length < LARGE {
        return length;
    }
    length.next_multiple_of(1 << (length.ilog2() - 2))
}

/// Buffers for files, used again: fresh ones of a megabyte cost as many page faults as reading
/// them from the page cache costs copying. They are mapped, since blocks of differing sizes freed
/// by other threads than took them leave the allocator's arenas in pieces that grow over hours.
#[derive(Debug, Default)]
pub(super) struct Buffers(Mutex<Free>);

#[derive(Debug, Default)]
struct Free {
    buffers: Vec<MmapMut>,
    bytes: usize,
}

impl Buffers {
    fn take(&self, capacity: usize) -> io::Result<MmapMut> {
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = free
            .buffers
            .iter()
            .rposition(|buffer| buffer.len() == capacity)
        {
            free.bytes -= capacity;
            return Ok(free.buffers.swap_remove(at));
        }
        drop(free);
        MmapMut::map_anon(capacity)
    }

    fn give(&self, buffer: MmapMut) {
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        free.bytes += buffer.len();
        free.buffers.push(buffer);
        // The oldest go first: their size may be rare.
        while free.bytes > KEPT_BYTES && !free.buffers.is_empty() {
            let oldest = free.buffers.remove(0);
            free.bytes -= oldest.len();
        }
    }
}

/// The bytes of a file; their buffer goes back when the last slice of them is dropped.
struct Lent {
    /// None once it went back.
    memory: Option<MmapMut>,
    used: usize,
    buffers: Arc<Buffers>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        self.memory
            .as_ref()
            .map_or(&[], |memory| &memory[..self.used])
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.buffers.give(memory);
        }
    }
}

/// Calls until it succeeds, fails for good, or failed three times.
fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut attempt = 1;
    loop {
        match call() {
            Err(error) if attempt < ATTEMPTS && may_pass(&error) => attempt += 1,
            result => return result,
        }
    }
}

fn may_pass(error: &io::Error) -> bool {
    !matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied | io::ErrorKind::IsADirectory
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_that_fails_twice_in_a_passing_way_succeeds_at_the_third_attempt() {
        let mut calls = 0;

        let result = retry(|| {
            calls += 1;
            if calls < 3 {
                Err(io::Error::other("hiccup"))
            } else {
                Ok(calls)
            }
        });

        assert_eq!(result.expect("third time"), 3);
    }

    #[test]
    fn buffers_are_used_again_by_files_of_about_the_same_length() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let buffers = Arc::new(Buffers::default());
        let read = |length: usize, fill: u8| {
            let path = root.path().join("file");
            fs::write(&path, vec![fill; length]).expect("writes");
            let (file, length) = open_file(&path).expect("it is there");
            read_file(&path, file, length, &buffers).expect("reads")
        };

        let first = read(200_000, 1);
        let place = first.as_ptr();
        drop(first);
        let second = read(210_000, 2);

        assert_eq!(second.as_ptr(), place);
        assert_eq!(second.len(), 210_000);
        assert!(second.iter().all(|&byte| byte == 2));
        assert!((200_000..250_000).contains(&held_bytes(200_000)));
    }

    #[test]
    fn a_missing_file_is_not_tried_again() {
        let mut calls = 0;

        let result: io::Result<()> = retry(|| {
            calls += 1;
            Err(io::ErrorKind::NotFound.into())
        });

        assert!(result.is_err());
        assert_eq!(calls, 1);
    }
}
