//! Processes of this user that tune their workers on the same cores, known by files they lock.
//!
//! Each has a file that says which cores it may run on, and holds a lock on it that the system
//! takes away with the process, however it ends. Where files cannot be made or locked, nobody is
//! seen, and the environment alone says how many ranks there are.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use infeed_raw::machine::{allowed_cores, cores_from_list};

/// Bytes that are read of a file at most, and files that are looked at: both are anybody's who may
/// write to the folder.
const MOST_BYTES: u64 = 16 << 10;
const MOST_FILES: usize = 4096;

/// The file of this process, shared by its loaders.
static OWN: Mutex<Weak<Neighbours>> = Mutex::new(Weak::new());

/// Numbers files, so that one that was just given up is not met again.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// This process among its neighbours, until the last share is dropped.
#[derive(Debug)]
pub(super) struct Neighbours {
    folder: PathBuf,
    name: String,
    cores: Vec<u32>,
    /// Holds the lock.
    _file: File,
    process: u32,
}

impl Neighbours {
    /// This process's file, made if it has none.
    pub(super) fn join() -> Option<Arc<Neighbours>> {
        let mut own = OWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(here) = own.upgrade().filter(|here| !here.is_forked()) {
            return Some(here);
        }
        let folder = folder()?;
        let here = Arc::new(Neighbours::join_in(&folder, allowed_cores()?)?);
        *own = Arc::downgrade(&here);
        Some(here)
    }

    fn join_in(folder: &Path, cores: Vec<u32>) -> Option<Neighbours> {
        let process = std::process::id();
        let name = format!("{process}-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        // It gets its name once it is locked: what has a name and no lock is left over.
        let hidden = folder.join(format!(".{name}"));
        let made = || -> std::io::Result<File> {
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .open(&hidden)?;
            file.try_lock()?;
            let list: Vec<String> = cores.iter().map(u32::to_string).collect();
            file.write_all(list.join(",").as_bytes())?;
            fs::rename(&hidden, folder.join(&name))?;
            Ok(file)
        };
        match made() {
            Ok(file) => Some(Neighbours {
                folder: folder.to_owned(),
                name,
                cores,
                _file: file,
                process,
            }),
            Err(_) => {
                let _ = fs::remove_file(&hidden);
                None
            }
        }
    }

    /// The part of this process's cores that is left to it where each core is shared equally by
    /// the processes that may run on it; and how many those are, this one too.
    ///
    /// # Cost
    ///
    /// A few system calls a process; ask now and then, not per batch.
    pub(super) fn share(&self) -> (f64, usize) {
        let others = self.others();
        (share(&self.cores, &others), 1 + others.len())
    }

    /// Cores of each other process that shares some with this one.
    fn others(&self) -> Vec<Vec<u32>> {
        let Ok(entries) = fs::read_dir(&self.folder) else {
            return Vec::new();
        };
        let mut others = Vec::new();
        for entry in entries.take(MOST_FILES).flatten() {
            let name = entry.file_name();
            let Some(name) = name.to_str().filter(|name| !name.starts_with('.')) else {
                continue;
            };
            if name == self.name {
                continue;
            }
            if let Some(cores) = held(&entry.path())
                && cores.iter().any(|core| self.cores.contains(core))
            {
                others.push(cores);
            }
        }
        others
    }

    /// Whether this process is a fork of the one that joined: the lock is its parent's.
    fn is_forked(&self) -> bool {
        std::process::id() != self.process
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        if !self.is_forked() {
            let _ = fs::remove_file(self.folder.join(&self.name));
        }
    }
}

/// The cores in a file that somebody holds. One that nobody holds is removed.
fn held(path: &Path) -> Option<Vec<u32>> {
    let file = File::open(path).ok()?;
    // Shared, so that two who look at once do not take each other for the owner.
    match file.try_lock_shared() {
        Ok(()) => {
            let _ = fs::remove_file(path);
            None
        }
        Err(TryLockError::WouldBlock) => {
            let mut list = String::new();
            file.take(MOST_BYTES).read_to_string(&mut list).ok()?;
            cores_from_list(&list)
        }
        Err(TryLockError::Error(_)) => None,
    }
}

/// The folder of this user's files, made where it is missing. None where it is somebody else's.
#[cfg(unix)]
fn folder() -> Option<PathBuf> {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt};
    let user = fs::metadata("/proc/self").ok()?.uid();
    let path = std::env::temp_dir().join(format!("infeed-cores-{user}"));
    let _ = DirBuilder::new().mode(0o700).create(&path);
    let found = fs::symlink_metadata(&path).ok()?;
    (found.is_dir() && found.uid() == user).then_some(path)
}

#[cfg(not(unix))]
fn folder() -> Option<PathBuf> {
    let path = std::env::temp_dir().join("infeed-cores");
    let _ = DirBuilder::new().create(&path);
    path.is_dir().then_some(path)
}

/// How much of `own` is left, between 0 and 1, when others may run on some of it.
fn share(own: &[u32], others: &[Vec<u32>]) -> f64 {
    if own.is_empty() {
        return 1.0;
    }
    let part = |core: &u32| {
        let also = others.iter().filter(|cores| cores.contains(core)).count();
        1.0 / (1 + also) as f64
    };
    own.iter().map(part).sum::<f64>() / own.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_shared_by_those_who_may_run_on_them() {
        let all = || (0..8).collect::<Vec<u32>>();

        assert_eq!(share(&all(), &[]), 1.0);
        assert_eq!(share(&all(), &[all(), all(), all()]), 0.25);
        assert_eq!(share(&[0, 1], &[vec![2, 3], vec![4, 5]]), 1.0);
        assert_eq!(share(&[0, 1], &[vec![1, 2]]), 0.75);
        assert_eq!(share(&[], &[all()]), 1.0);
    }

    #[test]
    fn processes_see_each_other_for_as_long_as_they_hold_their_files() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let join = |cores: &[u32]| {
            Neighbours::join_in(folder.path(), cores.to_vec()).expect("files can be locked here")
        };
        let first = join(&[0, 1]);
        assert_eq!(first.share(), (1.0, 1));

        let second = join(&[0, 1]);
        let elsewhere = join(&[2, 3]);
        assert_eq!(first.share(), (0.5, 2));
        assert_eq!(elsewhere.share(), (1.0, 1));

        drop(second);
        assert_eq!(first.share(), (1.0, 1));
    }

    #[test]
    fn a_file_that_a_process_left_behind_is_removed_and_a_strange_one_is_no_neighbour() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let here = Neighbours::join_in(folder.path(), vec![0]).expect("files can be locked here");
        let left = folder.path().join("77-0");
        fs::write(&left, "0,1").expect("writes");
        let strange = folder.path().join("78-0");
        fs::write(&strange, "0-99999999999").expect("writes");
        let lock = File::open(&strange).expect("it is there");
        lock.try_lock().expect("nobody holds it");

        assert_eq!(here.share(), (1.0, 1));
        assert!(!left.exists() && strange.exists());
    }
}
