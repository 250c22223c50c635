//! Files by which processes of this user know of each other, locked for as long as what they say holds.
//!
//! The system takes a lock away with its process, however that ends, so that nothing has to be
//! cleaned up after a crash. Where files cannot be made or locked, nobody is seen.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Bytes that are read of a file at most, and files that are looked at: both are anybody's who may
/// write to the folder.
const MOST_BYTES: u64 = 16 << 10;
const MOST_FILES: usize = 4096;

/// The file whose lock makes looking and entering one step.
const TURN: &str = ".turn";

/// How long another process's turn is waited for: it takes a few system calls, unless the process is
/// stopped, or was forked meanwhile.
const PATIENCE: Duration = Duration::from_secs(1);

/// Numbers files, so that one that was just given up is not met again.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Tells processes apart that have one number, in containers that share the folder.
static CHANCE: LazyLock<u64> = LazyLock::new(|| RandomState::new().build_hasher().finish());

/// A folder of such files, all about one thing.
#[derive(Clone, Debug)]
pub(super) struct Register(PathBuf);

/// What this process says, until it is dropped.
#[derive(Debug)]
pub(super) struct Entry {
    path: PathBuf,
    /// Holds the lock.
    _file: File,
    process: u32,
}

impl Register {
    /// The register of this user about something, in the temporary folder. None where it cannot be
    /// made or is somebody else's.
    pub(super) fn of(what: &str) -> Option<Register> {
        folder(what).map(Register)
    }

    /// One in a folder of its own.
    #[cfg(test)]
    pub(super) fn at(folder: &Path) -> Register {
        Register(folder.to_owned())
    }

    /// Enters what others are to read.
    pub(super) fn enter(&self, text: &str) -> Option<Entry> {
        let process = std::process::id();
        let name = format!("{}{}", own(), NEXT.fetch_add(1, Ordering::Relaxed));
        // It gets its name once it is locked: what has a name and no lock is left over.
        let hidden = self.0.join(format!(".{name}"));
        let path = self.0.join(name);
        let made = || -> std::io::Result<File> {
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .open(&hidden)?;
            file.try_lock()?;
            file.write_all(text.as_bytes())?;
            fs::rename(&hidden, &path)?;
            Ok(file)
        };
        match made() {
            Ok(file) => Some(Entry {
                path,
                _file: file,
                process,
            }),
            Err(_) => {
                let _ = fs::remove_file(&hidden);
                None
            }
        }
    }

    /// What all say but `own` entries.
    ///
    /// # Cost
    ///
    /// A few system calls an entry.
    pub(super) fn others(&self, is_own: impl Fn(&Path) -> bool) -> Vec<String> {
        let Ok(entries) = fs::read_dir(&self.0) else {
            return Vec::new();
        };
        let paths = entries.take(MOST_FILES).flatten().map(|entry| entry.path());
        let hidden = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_none_or(|name| name.starts_with('.'))
        };
        paths
            .filter(|path| !hidden(path) && !is_own(path))
            .filter_map(|path| held(&path))
            .collect()
    }

    /// What all other processes say.
    pub(super) fn other_processes(&self) -> Vec<String> {
        let own = own();
        self.others(|path| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with(&own))
        })
    }

    /// Waits until no other process looks and enters; dropped, it is the next one's turn. None where
    /// that takes too long: what is shared out by turns is better shared badly than never.
    pub(super) fn turn(&self) -> Option<Turn> {
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(false);
        let file = options.open(self.0.join(TURN)).ok()?;
        let begun = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Some(Turn(file)),
                Err(TryLockError::WouldBlock) if begun.elapsed() < PATIENCE => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                Err(_) => return None,
            }
        }
    }
}

/// A turn to look and enter.
#[derive(Debug)]
pub(super) struct Turn(File);

impl Drop for Turn {
    fn drop(&mut self) {
        // Closing would not do: a process that was forked meanwhile has the file open too.
        let _ = self.0.unlock();
    }
}

/// How names of this process's entries begin.
fn own() -> String {
    format!("{}-{:x}-", std::process::id(), *CHANCE)
}

impl Entry {
    /// Where it lies.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether this process is a fork of the one that entered: the lock is its parent's.
    pub(super) fn is_forked(&self) -> bool {
        std::process::id() != self.process
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if !self.is_forked() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The text of a file that somebody holds. One that nobody holds is removed.
fn held(path: &Path) -> Option<String> {
    let file = File::open(path).ok()?;
    // Shared, so that two who look at once do not take each other for the owner.
    match file.try_lock_shared() {
        Ok(()) => {
            let _ = fs::remove_file(path);
            None
        }
        Err(TryLockError::WouldBlock) => {
            let mut text = String::new();
            file.take(MOST_BYTES).read_to_string(&mut text).ok()?;
            Some(text)
        }
        Err(TryLockError::Error(_)) => None,
    }
}

/// The folder of this user's files, made where it is missing. None where it is somebody else's.
#[cfg(unix)]
fn folder(what: &str) -> Option<PathBuf> {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt};
    let user = fs::metadata("/proc/self").ok()?.uid();
    let path = std::env::temp_dir().join(format!("infeed-{what}-{user}"));
    let _ = DirBuilder::new().mode(0o700).create(&path);
    let found = fs::symlink_metadata(&path).ok()?;
    (found.is_dir() && found.uid() == user).then_some(path)
}

#[cfg(not(unix))]
fn folder(what: &str) -> Option<PathBuf> {
    let path = std::env::temp_dir().join(format!("infeed-{what}"));
    let _ = DirBuilder::new().create(&path);
    path.is_dir().then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_seen_for_as_long_as_they_are_held() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let register = Register::at(folder.path());
        let enter = |text| register.enter(text).expect("files can be locked here");
        let first = enter("one");
        let second = enter("two");

        assert_eq!(register.others(|path| path == first.path()), ["two"]);
        assert!(register.other_processes().is_empty());

        drop(second);
        assert!(register.others(|path| path == first.path()).is_empty());
        assert!(register.turn().is_some());
    }

    #[test]
    fn a_file_that_a_process_left_behind_is_removed() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let register = Register::at(folder.path());
        let left = folder.path().join("77-0");
        fs::write(&left, "0,1").expect("writes");
        let held = folder.path().join("78-0");
        fs::write(&held, "2").expect("writes");
        let lock = File::open(&held).expect("it is there");
        lock.try_lock().expect("nobody holds it");

        assert_eq!(register.other_processes(), ["2"]);
        assert!(!left.exists() && held.exists());
    }
}
