//! Lock files by which this user's processes find each other. A process holds the lock while its
//! entry is valid.
//!
//! The operating system releases a lock when its process ends, even in a crash, so nothing needs
//! cleaning up. If files cannot be created or locked, a process sees no others.

use infeed_raw::file;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Limits on the bytes read per file and on the number of files. Every process that can write to
/// the folder controls both.
const MAX_BYTES: u64 = 16 << 10;
const MAX_FILES: usize = 4096;

/// File whose lock makes reading and entering atomic.
const TURN: &str = ".turn";

/// Longest wait for the lock. Its owner needs a few system calls, unless it is stopped or was
/// forked meanwhile.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// Numbers files, so that a name just released is not used again.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Distinguishes processes with equal ids, in containers that share the folder.
static CHANCE: LazyLock<u64> = LazyLock::new(|| RandomState::new().build_hasher().finish());

/// Folder of lock files for one purpose.
#[derive(Clone, Debug)]
pub(super) struct ProcessRegister(PathBuf);

/// Entry of this process; removed on drop.
#[derive(Debug)]
pub(super) struct RegisterEntry {
    path: PathBuf,
    /// Keeps the lock.
    _file: File,
    process: u32,
}

impl ProcessRegister {
    /// Opens this user's register for a purpose, in the temporary folder. `None` if the folder
    /// cannot be created or belongs to another user.
    pub(super) fn of(what: &str) -> Option<ProcessRegister> {
        folder(what).map(ProcessRegister)
    }

    /// Opens a register in the given folder.
    #[cfg(test)]
    pub(super) fn at(folder: &Path) -> ProcessRegister {
        ProcessRegister(folder.to_owned())
    }

    /// Writes an entry for other processes.
    pub(super) fn enter(&self, text: &str) -> Option<RegisterEntry> {
        let process = std::process::id();
        let name = format!("{}{}", own(), NEXT.fetch_add(1, Ordering::Relaxed));
        // The file gets its visible name after it is locked. An unlocked visible file is a
        // leftover.
        let hidden = self.0.join(format!(".{name}"));
        let path = self.0.join(name);
        let made = || -> std::io::Result<File> {
            let mut file = file::create(&hidden)?;
            file.try_lock()?;
            file.write_all(text.as_bytes())?;
            fs::rename(&hidden, &path)?;
            Ok(file)
        };
        match made() {
            Ok(file) => Some(RegisterEntry {
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

    /// Returns the texts of all entries except this process's own.
    ///
    /// # Cost
    ///
    /// A few system calls per entry.
    pub(super) fn others(&self, is_own: impl Fn(&Path) -> bool) -> Vec<String> {
        let Ok(entries) = fs::read_dir(&self.0) else {
            return Vec::new();
        };
        let entries = entries.take(MAX_FILES).flatten();
        // Other files and links are not entries, and are not removed.
        let is_entry = |entry: &fs::DirEntry| {
            let name = entry.file_name();
            let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
            is_file && name.to_str().is_some_and(is_entry_name)
        };
        entries
            .filter(is_entry)
            .map(|entry| entry.path())
            .filter(|path| !is_own(path))
            .filter_map(|path| read_locked(&path))
            .collect()
    }

    /// Returns the texts of all other processes.
    pub(super) fn other_processes(&self) -> Vec<String> {
        let own = own();
        self.others(|path| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with(&own))
        })
    }

    /// Locks the register for reading and entering, until the guard is dropped. `None` if that
    /// takes too long: a division without the lock is better than no division.
    pub(super) fn turn(&self) -> Option<RegisterTurn> {
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(false);
        let file = file::open_own(self.0.join(TURN), options).ok()?;
        let begun = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Some(RegisterTurn(file)),
                Err(TryLockError::WouldBlock) if begun.elapsed() < LOCK_TIMEOUT => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                Err(_) => return None,
            }
        }
    }
}

/// Guard of the register's lock.
#[derive(Debug)]
pub(super) struct RegisterTurn(File);

impl Drop for RegisterTurn {
    fn drop(&mut self) {
        // Closing would not release the lock if a forked process has the file open.
        let _ = self.0.unlock();
    }
}

/// Prefix of this process's entry names.
fn own() -> String {
    format!("{}-{:x}-", std::process::id(), *CHANCE)
}

/// Whether a name is one of an entry: of a process, a random number and a count.
fn is_entry_name(name: &str) -> bool {
    let mut parts = name.split('-');
    let mut is_number =
        |radix| (parts.next()).is_some_and(|part| u64::from_str_radix(part, radix).is_ok());
    is_number(10) && is_number(16) && is_number(10) && parts.next().is_none()
}

impl RegisterEntry {
    /// Path of the entry's file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether this process is a fork of the one that made the entry. The parent owns the lock.
    pub(super) fn is_forked(&self) -> bool {
        std::process::id() != self.process
    }
}

impl Drop for RegisterEntry {
    fn drop(&mut self) {
        if !self.is_forked() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Returns the text of a locked file. Removes an unlocked one.
fn read_locked(path: &Path) -> Option<String> {
    let (file, _) = file::open(path).ok()?;
    // A shared lock, so that two readers do not take each other for the owner.
    match file.try_lock_shared() {
        Ok(()) => {
            let _ = fs::remove_file(path);
            None
        }
        Err(TryLockError::WouldBlock) => {
            let mut text = String::new();
            file.take(MAX_BYTES).read_to_string(&mut text).ok()?;
            Some(text)
        }
        Err(TryLockError::Error(_)) => None,
    }
}

/// Returns this user's folder and creates it if needed. `None` if it belongs to another user.
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
        let register = ProcessRegister::at(folder.path());
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
        let register = ProcessRegister::at(folder.path());
        let left = folder.path().join("77-a-0");
        fs::write(&left, "0,1").expect("writes");
        let held = folder.path().join("78-b1-0");
        fs::write(&held, "2").expect("writes");
        let others = ["77-0", "notes.txt", "77-a-0.txt", "77-a-0-0", "x-a-0"];
        let others = others.map(|name| folder.path().join(name));
        for path in &others {
            fs::write(path, "precious").expect("writes");
        }
        let lock = File::open(&held).expect("the file exists");
        lock.try_lock().expect("no process holds the lock");

        assert_eq!(register.other_processes(), ["2"]);
        assert!(!left.exists() && held.exists());
        assert!(others.iter().all(|path| path.exists()), "{others:?}");
    }
}
