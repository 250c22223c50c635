//! Pieces of objects on a local disk, shared by all processes that use the folder.
//!
//! A piece is an aligned mebibyte of one version of one object, in its own file with its identity
//! and a checksum. A partly read shard is therefore cached in part, an image is one file, and
//! reading needs no lock. Files appear complete, by renaming: a file that a crash left incomplete
//! has no final name, and a damaged one fails its checksum. Both are fetched again. Only the total
//! number of bytes is shared: a number in a file that is locked while it changes. When the total
//! exceeds the limit, the least recently used pieces are removed. Other files in the folder stay,
//! and links are not followed; see `files`.
//!
//! Decoded records are pieces too; see [`RecordPieces`].

mod files;
mod manage;
mod piece;
mod records;

use std::fs::{self, File};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;

use super::buffers::{BufferPool, FillingBuffer};
use super::is_url;
use files::{PARTIAL, PIECES, RemovablePiece};
use infeed_core::error::Error;
use infeed_core::own_files::is_inside;
use infeed_core::units::parse_bytes;
use piece::{HEAD, LONGEST, OTHER, OpenPiece, PieceName};

pub use files::OtherFiles;
pub use manage::{
    CacheGroup, RemovedPieces, VerifiedCache, list_cache, remove_cached, verify_cache,
};
pub use records::{FoundPiece, RecordPieces};

/// Bytes of a piece, except the last one of an object: as many as another request is worth.
const PIECE: u64 = 1 << 20;

/// Default limit of the cache in bytes.
const USUAL: u64 = 32 << 30;

/// Share of the limit that remains after the oldest pieces are removed.
const LEFT: (u64, u64) = (9, 10);

/// A temporary file that is older was left by a crash.
const ABANDONED: Duration = Duration::from_secs(3600);

static HITS: AtomicU64 = AtomicU64::new(0);
static MISSES: AtomicU64 = AtomicU64::new(0);
static DAMAGED: AtomicU64 = AtomicU64::new(0);

/// Folder and limit that the program set; they override the environment.
static PROGRAM_CACHE: Mutex<Option<(PathBuf, u64)>> = Mutex::new(None);

/// Cache that was opened last.
static CURRENT: Mutex<Option<Arc<Cache>>> = Mutex::new(None);

/// Hits and misses of this process's cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheCounts {
    /// Pieces that were in the cache.
    pub hits: u64,
    /// Pieces that were fetched.
    pub misses: u64,
    /// Misses whose piece was in the cache but failed its checksum.
    pub damaged: u64,
}

/// Returns the hits and misses of this process's cache so far.
pub fn cache_use() -> CacheCounts {
    CacheCounts {
        hits: HITS.load(Ordering::Relaxed),
        misses: MISSES.load(Ordering::Relaxed),
        damaged: DAMAGED.load(Ordering::Relaxed),
    }
}

/// Caches reads from buckets in a folder, up to `bytes`, for datasets that are opened from now on.
/// None restores `INFEED_CACHE_DIR` and `INFEED_CACHE_BYTES`.
pub fn set_cache(folder: Option<&Path>, bytes: u64) {
    let mut given = PROGRAM_CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    *given = folder.map(|folder| (folder.to_owned(), bytes));
}

/// A folder with pieces.
#[derive(Debug)]
pub struct Cache {
    root: PathBuf,
    limit: u64,
    /// Whether its pieces can be read.
    is_readable: bool,
    /// Set once a write failed; existing pieces are still read.
    full: AtomicBool,
}

/// Result of adding a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AddedPiece {
    Added,
    NoRoom,
    /// A link, or a file that infeed did not write, has the name of the piece or of its folder.
    NameTaken,
}

impl Cache {
    /// Opens the cache that the program or the environment names, if any.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for an invalid size, or as [`Cache::open`].
    pub fn of_process() -> Result<Option<Arc<Cache>>, Error> {
        let given = PROGRAM_CACHE
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let (root, limit) = match given {
            Some(given) => given,
            None => {
                let folder = std::env::var_os("INFEED_CACHE_DIR");
                let Some(folder) = folder.filter(|folder| !folder.is_empty()) else {
                    return Ok(None);
                };
                let size = std::env::var("INFEED_CACHE_BYTES").ok();
                let limit = match size.filter(|size| !size.is_empty()) {
                    Some(text) => parse_bytes(&text)
                        .map_err(|problem| Error::config("INFEED_CACHE_BYTES", problem))?,
                    None => USUAL,
                };
                (PathBuf::from(folder), limit)
            }
        };
        let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cache) = &*current
            && cache.root == root
            && cache.limit == limit
        {
            return Ok(Some(Arc::clone(cache)));
        }
        let cache = Cache::open(&root, limit)?;
        Ok(Some(Arc::clone(current.insert(Arc::new(cache)))))
    }

    /// Limit in bytes.
    pub fn limit_bytes(&self) -> u64 {
        self.limit
    }

    /// Opens a cache in a folder, which is created if it is missing. Logs a warning for a folder
    /// that this user may not use or write to, and goes on without it or only reads it.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a URL; [`Error::Open`] for a folder that cannot be created for another
    /// reason than a missing permission.
    pub fn open(root: &Path, limit: u64) -> Result<Cache, Error> {
        if is_url(root) {
            let problem = format!("{} is a URL; use a local folder", root.display());
            return Err(Error::config("cache", problem));
        }
        let is_readable = match fs::create_dir_all(root) {
            Err(error) if !is_denied(&error) => return Err(Error::open(root, error)),
            created => created.and_then(|()| is_usable(&root.join(PIECES))),
        };
        let is_writable = match is_readable {
            Ok(()) => is_usable(&root.join(PARTIAL)),
            Err(_) => Ok(()),
        };
        let cache = Cache {
            root: root.to_owned(),
            limit,
            is_readable: is_readable.is_ok(),
            full: AtomicBool::new(is_readable.is_err() || is_writable.is_err()),
        };
        if let Err(error) = is_readable {
            let fix = fix_of(&error);
            tracing::warn!("the cache in {} is not used: {error}{fix}", root.display());
        } else if let Err(error) = is_writable {
            cache.warn(&error);
        }
        Ok(cache)
    }

    /// Bytes of memory that a read of `length` bytes of an object of `of` bytes holds at most,
    /// including whole pieces.
    pub fn max_read_bytes(length: u64, of: u64) -> u64 {
        match of <= PIECE {
            true => of,
            false => (length + 2 * PIECE).min(of + PIECE),
        }
    }

    /// Reads a range of an object of `length` bytes; calls `fetch` for the missing parts.
    ///
    /// # Errors
    ///
    /// Errors of `fetch`. A failure of the cache never fails the read.
    pub fn read(
        &self,
        identity: &str,
        range: Range<u64>,
        length: u64,
        fetch: impl Fn(Range<u64>) -> io::Result<Bytes>,
        buffers: &Arc<BufferPool>,
    ) -> io::Result<Bytes> {
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        let (first, end) = (range.start / PIECE, range.end.div_ceil(PIECE));
        let piece = |number: u64| number * PIECE..((number + 1) * PIECE).min(length);
        let name = |number: u64| PieceName::of_object(identity, number);
        let kept = |number: u64| {
            let own = piece(number);
            self.piece(&name(number), own.end - own.start, buffers)
        };
        // Part of a piece that is in the range.
        let part = |number: u64, bytes: &Bytes| {
            let own = piece(number);
            let begin = range.start.max(own.start) - own.start;
            let end = range.end.min(own.end) - own.start;
            bytes.slice(begin as usize..end as usize)
        };
        // Pieces in the cache: up to the first that is missing, and from the last that is missing.
        let mut missing = first..end;
        let (mut before, mut behind) = (Vec::new(), Vec::new());
        while !missing.is_empty()
            && let Some(bytes) = kept(missing.start)
        {
            before.push(part(missing.start, &bytes));
            missing.start += 1;
        }
        while !missing.is_empty()
            && let Some(bytes) = kept(missing.end - 1)
        {
            behind.push(part(missing.end - 1, &bytes));
            missing.end -= 1;
        }
        HITS.fetch_add((before.len() + behind.len()) as u64, Ordering::Relaxed);
        let mut parts = before;
        if !missing.is_empty() {
            // One request for everything between them. Requesting pieces one after another would
            // take longer than skipping the cached pieces in the middle saves.
            MISSES.fetch_add(missing.end - missing.start, Ordering::Relaxed);
            let mut span = piece(missing.start).start..piece(missing.end - 1).end;
            let bytes = match fetch(span.clone()) {
                // A server that sends only whole files never sends more than this.
                Err(error)
                    if error.kind() == io::ErrorKind::Unsupported && range == (0..length) =>
                {
                    span = 0..length;
                    fetch(span.clone())?
                }
                fetched => fetched?,
            };
            let within = |own: Range<u64>| {
                bytes.slice((own.start - span.start) as usize..(own.end - span.start) as usize)
            };
            for number in missing.clone() {
                self.keep(&name(number), &within(piece(number)));
            }
            let own = range.start.max(piece(missing.start).start);
            parts.push(within(own..range.end.min(piece(missing.end - 1).end)));
        }
        parts.extend(behind.into_iter().rev());
        if parts.len() == 1 {
            return Ok(parts.remove(0));
        }
        let mut filling = FillingBuffer::new(range.end - range.start, buffers)?;
        for part in &parts {
            filling.push(part);
        }
        Ok(filling.finish())
    }

    fn path(&self, name: &PieceName) -> PathBuf {
        let folder = format!("{:02x}", name.folder >> 56);
        self.root.join(PIECES).join(folder).join(&name.file)
    }

    /// Opens the piece with this name. `None` if there is none.
    fn find(&self, name: &PieceName) -> Result<Option<OpenPiece>, String> {
        match self.is_readable {
            true => OpenPiece::find(&self.root, &self.path(name), &name.text),
            false => Ok(None),
        }
    }

    /// Removes a damaged piece.
    fn discard(&self, name: &PieceName, problem: &str) {
        let path = self.path(name);
        tracing::debug!("{}: {problem}; made again", path.display());
        let _ = files::remove(&self.root, &path);
    }

    /// Returns a piece of this length that is in the cache and valid.
    fn piece(&self, name: &PieceName, length: u64, buffers: &Arc<BufferPool>) -> Option<Bytes> {
        let bytes = self.find(name).and_then(|found| match found {
            None => Ok(None),
            Some(piece) if piece.length == length => piece.read(buffers).map(Some),
            Some(_) => Err(OTHER.to_owned()),
        });
        bytes.unwrap_or_else(|problem| {
            DAMAGED.fetch_add(1, Ordering::Relaxed);
            self.discard(name, &problem);
            None
        })
    }

    /// Stores a piece, if there is room.
    fn keep(&self, name: &PieceName, bytes: &[u8]) {
        if self.full.load(Ordering::Relaxed) {
            return;
        }
        if let Err(error) = self.write(name, bytes, None)
            && !self.full.swap(true, Ordering::Relaxed)
        {
            self.warn(&error);
        }
    }

    fn warn(&self, error: &io::Error) {
        tracing::warn!(
            "cannot write to the cache in {} ({error}); later reads are not cached{}",
            self.root.display(),
            fix_of(error)
        );
    }

    /// Writes a piece to a temporary file, then adds it to the cache. There is no room if none is
    /// left after every piece that `removable` names is removed; `None` names all.
    fn write(
        &self,
        name: &PieceName,
        bytes: &[u8],
        removable: Option<&dyn Fn(&RemovablePiece) -> bool>,
    ) -> io::Result<AddedPiece> {
        let size = (HEAD + name.text.len() + bytes.len()) as u64;
        let too_long = name.text.len() > LONGEST || u32::try_from(bytes.len()).is_err();
        if size > self.limit || too_long {
            return Ok(AddedPiece::NoRoom);
        }
        let path = self.path(name);
        if let Some(folder) = path.parent() {
            create_folder(folder)?;
        }
        let is_taken = match files::open(&self.root, &path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => !is_inside(&self.root, &path),
            found => found?.is_none(),
        };
        if is_taken {
            return Ok(AddedPiece::NameTaken);
        }
        // Random for each piece: processes on several machines or in containers share the folder
        // and may have the same process number.
        let drawn = RandomState::new().build_hasher().finish();
        let partial = self.root.join(PARTIAL).join(format!("{drawn:016x}"));
        let head = name.head(bytes);
        let written = (|| {
            let mut file = File::create_new(&partial)?;
            file.write_all(&head)?;
            file.write_all(bytes)?;
            drop(file);
            self.enter(&partial, &path, size, removable)
        })();
        if !matches!(written, Ok(AddedPiece::Added)) {
            let _ = files::remove(&self.root, &partial);
        }
        written
    }

    /// Moves a file among the pieces and counts it; first removes the least recently used pieces of
    /// those that are `removable` if the total would exceed the limit. A lock admits one caller at a
    /// time, so that the count is right.
    fn enter(
        &self,
        file: &Path,
        piece: &Path,
        size: u64,
        removable: Option<&dyn Fn(&RemovablePiece) -> bool>,
    ) -> io::Result<AddedPiece> {
        let mut count = files::open_count(&self.root)?;
        // The lock is released when the file closes, however the process ends.
        count.lock()?;
        let mut number = [0; 8];
        let known = count.read_exact(&mut number).is_ok();
        let mut held = u64::from_le_bytes(number);
        if !known || held.saturating_add(size) > self.limit {
            held = self.shrink(size, removable)?;
        }
        if held.saturating_add(size) > self.limit {
            return Ok(AddedPiece::NoRoom);
        }
        // If two processes fetched the same piece, the later file replaces the earlier.
        let replaced = fs::symlink_metadata(piece).map_or(0, |data| data.len());
        fs::rename(file, piece)?;
        count.rewind()?;
        let held = held.saturating_sub(replaced).saturating_add(size);
        count.write_all(&held.to_le_bytes())?;
        Ok(AddedPiece::Added)
    }

    /// Removes pieces until there is room for `bytes`; returns the number of bytes left.
    fn shrink(
        &self,
        bytes: u64,
        removable: Option<&dyn Fn(&RemovablePiece) -> bool>,
    ) -> io::Result<u64> {
        let mut pieces = files::list(&self.root)?.pieces;
        for file in files::partial_files(&self.root)? {
            let age = file.metadata().and_then(|data| data.modified());
            let age = age.map(|time| time.elapsed().unwrap_or_default());
            if age.is_ok_and(|age| age > ABANDONED) {
                let _ = files::remove(&self.root, &file.path());
            }
        }
        let mut held: u64 = pieces.iter().map(|piece| piece.bytes).sum();
        if held.saturating_add(bytes) <= self.limit {
            return Ok(held);
        }
        if let Some(removable) = removable {
            pieces.retain(removable);
        }
        pieces.sort();
        let left = (self.limit / LEFT.1 * LEFT.0).saturating_sub(bytes);
        for piece in pieces {
            if held <= left {
                break;
            }
            match files::remove(&self.root, &piece.path) {
                Ok(true) => held -= piece.bytes,
                Ok(false) => {}
                // It belongs to another user.
                Err(error) if is_denied(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(held)
    }
}

/// Whether this user may not do something.
fn is_denied(error: &io::Error) -> bool {
    let kind = error.kind();
    kind == io::ErrorKind::PermissionDenied || kind == io::ErrorKind::ReadOnlyFilesystem
}

/// Returns the fix for an error of the disk, after a semicolon. Empty for errors of infeed, which
/// contain their fix, and for errors whose fix is unknown.
fn fix_of(error: &io::Error) -> &'static str {
    match error.kind() {
        _ if is_denied(error) => "; name a folder that this user may write to",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; free disk space, or set a smaller limit"
        }
        _ => "",
    }
}

/// Creates a folder of a cache, unless it exists.
fn create_folder(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Returns an error unless a folder of a cache exists or can be created.
fn is_usable(path: &Path) -> io::Result<()> {
    // A folder of another user, or of a file system that is read only, can still be read.
    let created = create_folder(path);
    files::check_folder(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => created.err().unwrap_or(error),
        _ => error,
    })
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::time::SystemTime;

    use super::files::MAGIC;
    use super::*;
    use infeed_core::random::mix;

    /// An object in memory, and the ranges of it that were fetched.
    struct Remote {
        bytes: Bytes,
        fetched: RefCell<Vec<(u64, u64)>>,
    }

    impl Remote {
        fn new(length: u64, seed: u64) -> Remote {
            let bytes: Vec<u8> = (0..length).map(|n| mix(n ^ seed) as u8).collect();
            Remote {
                bytes: Bytes::from(bytes),
                fetched: RefCell::default(),
            }
        }

        fn read(&self, cache: &Cache, identity: &str, range: Range<u64>) -> Bytes {
            let fetch = |range: Range<u64>| {
                self.fetched.borrow_mut().push((range.start, range.end));
                Ok(self.bytes.slice(range.start as usize..range.end as usize))
            };
            let length = self.bytes.len() as u64;
            let buffers = Arc::default();
            let read = cache.read(identity, range.clone(), length, fetch, &buffers);
            let read = read.expect("the fetch never fails");
            assert_eq!(read, self.bytes[range.start as usize..range.end as usize]);
            read
        }

        fn take_fetches(&self) -> Vec<(u64, u64)> {
            self.fetched.take()
        }
    }

    fn pieces(cache: &Cache) -> Vec<PathBuf> {
        let folders = fs::read_dir(cache.root.join("pieces")).expect("a folder");
        let files = folders.flat_map(|folder| fs::read_dir(folder.expect("one").path()));
        files
            .flatten()
            .map(|file| file.expect("one").path())
            .collect()
    }

    fn bytes(cache: &Cache) -> u64 {
        let size = |path: &PathBuf| fs::metadata(path).map_or(0, |data| data.len());
        pieces(cache).iter().map(size).sum()
    }

    #[test]
    fn a_piece_in_the_cache_is_not_fetched_again() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let cache = Cache::open(root.path(), 1 << 30).expect("it is made");
        let remote = Remote::new(5 * PIECE + 77, 1);

        remote.read(&cache, "one", PIECE + 5..2 * PIECE + 9);
        assert_eq!(
            remote.take_fetches(),
            [(PIECE, 3 * PIECE)],
            "whole pieces, in one request"
        );
        remote.read(&cache, "one", PIECE..3 * PIECE);
        assert_eq!(remote.take_fetches(), []);
        remote.read(&cache, "one", 0..5 * PIECE + 77);
        assert_eq!(
            remote.take_fetches(),
            [(0, 5 * PIECE + 77)],
            "one request, across the cached piece in the middle"
        );
        remote.read(&cache, "one", 5 * PIECE + 70..5 * PIECE + 77);
        assert_eq!(remote.take_fetches(), []);
        // A cache of another process.
        let other = Cache::open(root.path(), 1 << 30).expect("it is there");
        remote.read(&other, "one", 17..4 * PIECE);
        assert_eq!(remote.take_fetches(), []);
    }

    #[test]
    fn another_version_is_another_object() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let cache = Cache::open(root.path(), 1 << 30).expect("it is made");
        let (old, new) = (Remote::new(1000, 1), Remote::new(1000, 2));

        old.read(&cache, "url tag-1 1000", 0..1000);
        new.read(&cache, "url tag-2 1000", 0..1000);

        assert_eq!(new.take_fetches(), [(0, 1000)]);
    }

    #[test]
    fn a_damaged_or_cut_piece_is_fetched_again() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let cache = Cache::open(root.path(), 1 << 30).expect("it is made");
        let remote = Remote::new(1000, 3);
        remote.read(&cache, "one", 0..1000);
        let [path] = &pieces(&cache)[..] else {
            panic!("one piece");
        };
        let whole = fs::read(path).expect("reads");
        remote.take_fetches();

        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 1 << (at % 8);
            fs::write(path, &flipped).expect("writes");
            remote.read(&cache, "one", 0..1000);
            assert_eq!(remote.take_fetches(), [(0, 1000)], "byte {at} flipped");
            // A file without the first bytes of a piece may be of another program.
            let left = if at < MAGIC.len() { &flipped } else { &whole };
            assert_eq!(fs::read(path).expect("reads"), *left, "byte {at} flipped");
        }
        for end in (0..whole.len()).step_by(7) {
            fs::write(path, &whole[..end]).expect("writes");
            remote.read(&cache, "one", 10..20);
            assert_eq!(remote.take_fetches(), [(0, 1000)], "cut at {end}");
        }
    }

    #[test]
    fn a_fix_for_a_full_disk_is_given_only_if_the_disk_is_full() {
        let root = tempfile::tempdir().expect("a folder");
        fs::write(root.path().join("bytes"), b"a note").expect("writes");
        let foreign = files::open_count(root.path()).expect_err("not a count");

        assert!(foreign.to_string().ends_with("; move it"), "{foreign}");
        assert_eq!(fix_of(&foreign), "");
        let full = io::Error::from(io::ErrorKind::StorageFull);
        assert_eq!(fix_of(&full), "; free disk space, or set a smaller limit");
    }

    #[test]
    fn the_limit_holds_and_the_least_recently_used_pieces_are_removed() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let cache = Cache::open(root.path(), 100_000).expect("it is made");
        let remote = Remote::new(9_000, 4);
        let ages = |path: &Path, seconds| {
            let file = File::options().write(true).open(path).expect("opens");
            let then = SystemTime::now() - Duration::from_secs(seconds);
            file.set_modified(then).expect("sets");
        };

        for n in 0..10_u64 {
            let name = format!("object {n}");
            remote.read(&cache, &name, 0..9_000);
            ages(
                &cache.path(&PieceName::of_object(&name, 0)),
                10_000 - n * 100,
            );
        }
        remote.take_fetches();
        // Uses the first piece, which was the oldest.
        remote.read(&cache, "object 0", 0..10);
        (20..23).for_each(|n| drop(remote.read(&cache, &format!("object {n}"), 0..9_000)));
        assert!(bytes(&cache) <= 100_000, "{}", bytes(&cache));
        remote.take_fetches();
        remote.read(&cache, "object 0", 0..9_000);
        assert_eq!(remote.take_fetches(), []);
        remote.read(&cache, "object 1", 0..9_000);
        assert_eq!(remote.take_fetches(), [(0, 9_000)], "the second went first");
    }

    #[test]
    fn threads_and_open_caches_share_one_limit() {
        let root = tempfile::tempdir().expect("a temporary folder");

        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let root = root.path();
                scope.spawn(move || {
                    let cache = Cache::open(root, 200_000).expect("opens");
                    let remote = Remote::new(9_000, 5);
                    for n in 0..50 {
                        let name = format!("object {}", mix(n * 4 + thread) % 60);
                        remote.read(&cache, &name, 0..9_000);
                    }
                });
            }
        });

        let cache = Cache::open(root.path(), 200_000).expect("opens");
        assert!(bytes(&cache) <= 200_000, "{}", bytes(&cache));
        assert!(bytes(&cache) > 100_000, "{}", bytes(&cache));
    }

    #[test]
    fn a_cache_that_cannot_be_written_still_serves_reads() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let cache = Cache::open(root.path(), 1 << 30).expect("it is made");
        fs::remove_dir_all(root.path()).expect("removes");
        fs::write(root.path(), "no folder").expect("writes");
        let remote = Remote::new(1000, 6);

        remote.read(&cache, "one", 0..1000);
        remote.read(&cache, "one", 0..1000);

        assert_eq!(remote.take_fetches().len(), 2);
        assert!(cache.full.load(Ordering::Relaxed));
        fs::remove_file(root.path()).expect("removes");
        fs::create_dir(root.path()).expect("tempdir removes it");
    }
}
