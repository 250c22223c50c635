//! Memory that processes share: numbered entries that are written once and then only read.
//!
//! An arena is an unnamed file that every process maps. It begins with a header, followed by two
//! words per entry (offset and length) and by the data. A writer claims an entry, writes its bytes
//! to the file, and publishes them in the words of the entry. Published entries never change and
//! never move, so a reader needs one atomic load and no lock. The operating system frees the memory
//! when the last process that maps it ends, however it ends. A writer that is killed leaves one
//! entry that stays empty.
//!
//! Data is written with system calls, not through a map: new pages need not be cleared first, cause
//! no page faults, and missing memory is an error instead of a signal. Where the system has free
//! memory in large pages, the arena takes them ahead of the writes.
//!
//! # Soundness
//!
//! Header and words are accessed only as atomics. Data is mapped read-only. The range of an entry
//! comes from an atomic counter that never returns the same range twice, and the entry is published
//! after the last write (release) and read before the first read (acquire). The size of the file is
//! sealed, so no access to the map can fail. As with [`crate::map`], this cannot be proved for a
//! process of the same user that writes to the file on purpose. Every offset and length is therefore
//! checked against the map, whatever the file says.

mod data;
mod large_pages;

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};

use data::DataMap;
use large_pages::LargePages;

/// First word of the file. The last byte is the version of the layout.
const MAGIC: u64 = 0x0001_616e_6572_6102;

/// Bytes before the words of the entries.
const HEADER: u64 = 4096;

/// Bytes of the words of an entry.
const WORDS: u64 = 16;

/// Alignment of the data of an entry: a page, so that new pages are written from their start.
const ALIGN: u64 = 4096;

/// Positions of the words of the header.
const MAGIC_AT: u64 = 0;
const IDENTITY_AT: u64 = 8;
const ENTRIES_AT: u64 = 16;
const NEXT_AT: u64 = 64;
const PUBLISHED_AT: u64 = 128;
const LARGE_AT: u64 = 192;

/// States of an entry. Other values are offsets.
const EMPTY: u64 = 0;
const CLAIMED: u64 = 1;
const ABANDONED: u64 = 2;

/// Memory with numbered entries that several processes share.
#[derive(Debug)]
pub struct SharedArena {
    /// The whole file, read-only.
    data: DataMap,
    /// Header and words of the entries.
    words: MmapRaw,
    file: File,
    entries: u64,
    /// Whether the operating system refused memory.
    is_refused: AtomicBool,
    large_pages: LargePages,
}

impl SharedArena {
    /// Creates an arena for `entries` entries with up to `bytes` bytes of data. Memory is allocated
    /// as entries are written.
    ///
    /// # Errors
    ///
    /// The operating system's error: no file, or no address space for `bytes`.
    pub fn create(identity: u64, entries: u64, bytes: u64) -> io::Result<SharedArena> {
        let begin = data_begin(entries).ok_or_else(too_large)?;
        let length = begin.checked_add(bytes).ok_or_else(too_large)?;
        let file = sealable_file()?;
        file.set_len(length)?;
        seal(&file)?;
        let arena = SharedArena::map(file, entries, length)?;
        arena.word(MAGIC_AT).store(MAGIC, Ordering::Relaxed);
        arena.word(IDENTITY_AT).store(identity, Ordering::Relaxed);
        arena.word(ENTRIES_AT).store(entries, Ordering::Relaxed);
        arena.word(NEXT_AT).store(begin, Ordering::Release);
        Ok(arena)
    }

    /// Opens the arena that another process created.
    ///
    /// # Errors
    ///
    /// `InvalidData` if the file is no arena with this identity and number of entries, or if its
    /// size is not sealed; otherwise the operating system's error.
    pub fn attach(file: File, identity: u64, entries: u64) -> io::Result<SharedArena> {
        let other = || io::Error::from(io::ErrorKind::InvalidData);
        if !is_sealed(&file) {
            return Err(other());
        }
        let length = file.metadata()?.len();
        let begin = data_begin(entries).ok_or_else(other)?;
        if length < begin {
            return Err(other());
        }
        let arena = SharedArena::map(file, entries, length)?;
        let is_same = arena.word(NEXT_AT).load(Ordering::Acquire) >= begin
            && arena.word(MAGIC_AT).load(Ordering::Relaxed) == MAGIC
            && arena.word(IDENTITY_AT).load(Ordering::Relaxed) == identity
            && arena.word(ENTRIES_AT).load(Ordering::Relaxed) == entries;
        is_same.then_some(arena).ok_or_else(other)
    }

    fn map(file: File, entries: u64, length: u64) -> io::Result<SharedArena> {
        let begin = data_begin(entries).ok_or_else(too_large)?;
        let size = |length: u64| usize::try_from(length).map_err(|_| too_large());
        let words = MmapOptions::new().len(size(begin)?).map_raw(&file)?;
        let data = DataMap::new(&file, size(length)?)?;
        Ok(SharedArena {
            data,
            words,
            file,
            entries,
            is_refused: AtomicBool::new(false),
            large_pages: LargePages::default(),
        })
    }

    /// The file, which other processes open through `/proc`.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Whether an entry is published.
    pub fn contains(&self, entry: u64) -> bool {
        entry < self.entries && self.offset(entry).load(Ordering::Relaxed) > ABANDONED
    }

    /// Returns the bytes of a published entry.
    pub fn get(self: &Arc<SharedArena>, entry: u64) -> Option<SharedBytes> {
        if entry >= self.entries {
            return None;
        }
        let at = self.offset(entry).load(Ordering::Acquire);
        let length = self.length(entry).load(Ordering::Relaxed);
        let is_data = at > ABANDONED
            && at >= data_begin(self.entries)?
            && at.checked_add(length)? <= self.len();
        is_data.then(|| SharedBytes {
            arena: Arc::clone(self),
            at: at as usize,
            length: length as usize,
        })
    }

    /// Whether an entry with this number of bytes still fits.
    pub fn has_room(&self, length: u64) -> bool {
        let next = self.word(NEXT_AT).load(Ordering::Relaxed);
        let room = self.len().saturating_sub(next);
        let needed = length.checked_next_multiple_of(ALIGN);
        !self.is_refused.load(Ordering::Relaxed) && needed.is_some_and(|needed| needed <= room)
    }

    /// Writes and publishes an entry. Returns false if it is not empty, or the arena is full.
    pub fn store(&self, entry: u64, bytes: &[u8]) -> bool {
        let length = bytes.len() as u64;
        // Checked before the entry is claimed: a smaller one may find room later.
        if entry >= self.entries || !self.has_room(length) {
            return false;
        }
        let offset = self.offset(entry);
        let claimed = offset.compare_exchange(EMPTY, CLAIMED, Ordering::AcqRel, Ordering::Relaxed);
        if claimed.is_err() {
            return false;
        }
        let Some(at) = self.range(length) else {
            offset.store(EMPTY, Ordering::Release);
            return false;
        };
        if write_at(&self.file, bytes, at).is_err() {
            self.is_refused.store(true, Ordering::Relaxed);
            // The range cannot be used again.
            offset.store(ABANDONED, Ordering::Release);
            return false;
        }
        self.length(entry).store(length, Ordering::Relaxed);
        offset.store(at, Ordering::Release);
        self.word(PUBLISHED_AT).fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Takes a range of the file for an entry.
    fn range(&self, length: u64) -> Option<u64> {
        let begin = data_begin(self.entries)?;
        let needed = length.checked_next_multiple_of(ALIGN)?;
        let next = self.word(NEXT_AT);
        let grown = next.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |at| {
            let end = at.checked_add(needed)?;
            (at >= begin && at.is_multiple_of(ALIGN) && end <= self.len()).then_some(end)
        });
        let at = grown.ok()?;
        self.take_large_pages(begin, at + needed);
        Some(at)
    }

    /// Takes large pages for the data after that of entries that end at `end`, if a process did not
    /// do so yet. Other entries may be written there meanwhile.
    fn take_large_pages(&self, begin: u64, end: u64) {
        let taken = self.word(LARGE_AT);
        let old = taken.load(Ordering::Relaxed);
        let Some(range) = self.large_pages.next(begin, end, old, self.len()) else {
            return;
        };
        let won = taken.compare_exchange(old, range.end, Ordering::Relaxed, Ordering::Relaxed);
        if won.is_ok() {
            self.large_pages.take(&self.data, &self.file, range);
        }
    }

    /// Bytes of all entries, with their words.
    pub fn used_bytes(&self) -> u64 {
        self.word(NEXT_AT).load(Ordering::Relaxed).min(self.len())
    }

    /// Most bytes of the arena.
    pub fn limit_bytes(&self) -> u64 {
        self.len()
    }

    /// Number of published entries.
    pub fn published_entries(&self) -> u64 {
        self.word(PUBLISHED_AT).load(Ordering::Relaxed)
    }

    fn len(&self) -> u64 {
        self.data.len() as u64
    }

    fn offset(&self, entry: u64) -> &AtomicU64 {
        self.word(HEADER + WORDS * entry)
    }

    fn length(&self, entry: u64) -> &AtomicU64 {
        self.word(HEADER + WORDS * entry + 8)
    }

    /// Returns the word at an offset.
    ///
    /// # Panics
    ///
    /// If the offset is no multiple of 8, or not in the header or the words of entries.
    fn word(&self, at: u64) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at <= self.words.len() as u64 - 8);
        // SAFETY: the word is inside the map, as checked, and aligned: the map starts on a page.
        // The map lives as long as `self`. Its bytes are only accessed as atomics, by every process;
        // data begins behind it.
        unsafe { AtomicU64::from_ptr(self.words.as_mut_ptr().add(at as usize).cast()) }
    }
}

/// Published bytes of an entry.
#[derive(Debug)]
pub struct SharedBytes {
    arena: Arc<SharedArena>,
    at: usize,
    length: usize,
}

impl AsRef<[u8]> for SharedBytes {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `get` checked that the range is inside the map, behind the words, and the map
        // lives as long as `arena`. The range is published, so no process writes to it.
        unsafe { std::slice::from_raw_parts(self.arena.data.as_ptr().add(self.at), self.length) }
    }
}

/// Offset of the data behind the words of the entries.
fn data_begin(entries: u64) -> Option<u64> {
    let words = entries.checked_mul(WORDS)?;
    HEADER.checked_add(words)?.checked_next_multiple_of(ALIGN)
}

fn too_large() -> io::Error {
    io::Error::from(io::ErrorKind::InvalidInput)
}

#[cfg(unix)]
fn write_at(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, at)
}

#[cfg(windows)]
fn write_at(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    let mut written = 0;
    while written < bytes.len() {
        let offset = at + written as u64;
        match std::os::windows::fs::FileExt::seek_write(file, &bytes[written..], offset)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            more => written += more,
        }
    }
    Ok(())
}

#[cfg(linux_system)]
fn sealable_file() -> io::Result<File> {
    use std::os::fd::FromRawFd;

    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name is NUL-terminated and only read.
    let descriptor = unsafe { libc::memfd_create(c"infeed-cache".as_ptr(), flags) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so the descriptor is open, and only this function has it.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}

/// Seals that an arena needs: no process can change its size.
#[cfg(linux_system)]
const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

#[cfg(linux_system)]
fn seal(file: &File) -> io::Result<()> {
    use std::os::fd::AsRawFd;

    // SAFETY: the descriptor is open; the call changes only the seals of the file.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, SEALS) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(linux_system)]
fn is_sealed(file: &File) -> bool {
    use std::os::fd::AsRawFd;

    // SAFETY: the descriptor is open; the call reads the seals, or fails for other files.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    seals >= 0 && seals & SEALS == SEALS
}

/// Other systems: a file that only this process and its children have, in the temporary folder.
#[cfg(not(linux_system))]
fn sealable_file() -> io::Result<File> {
    crate::anonymous::anonymous_file(c"infeed-cache")
}

#[cfg(not(linux_system))]
fn seal(_file: &File) -> io::Result<()> {
    Ok(())
}

/// No other process finds the file, so this process decides its size.
#[cfg(not(linux_system))]
fn is_sealed(_file: &File) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATA: u64 = 1 << 20;

    fn arena(entries: u64) -> Arc<SharedArena> {
        Arc::new(SharedArena::create(7, entries, DATA).expect("memory"))
    }

    #[test]
    fn an_entry_is_readable_once_it_is_published() {
        let arena = arena(10);
        assert!(!arena.contains(3) && arena.get(3).is_none());

        assert!(arena.store(3, b"hello"));

        assert!(arena.contains(3));
        assert_eq!(arena.get(3).expect("is there").as_ref(), b"hello");
        assert!(!arena.store(3, b"again"), "is written once");
        assert_eq!(arena.published_entries(), 1);
        assert!(!arena.contains(10) && arena.get(10).is_none() && !arena.store(10, b""));
    }

    #[test]
    fn an_entry_whose_writer_was_killed_stays_empty() {
        let arena = arena(4);
        arena.offset(0).store(CLAIMED, Ordering::Relaxed);
        arena.range(100).expect("is large enough");

        assert!(!arena.store(0, b"late") && arena.get(0).is_none() && !arena.contains(0));
        assert!(arena.store(1, b"next"));
        assert_eq!(arena.get(1).expect("is there").as_ref(), b"next");
    }

    #[test]
    fn a_full_arena_takes_no_more_and_keeps_its_entries() {
        let arena = arena(1000);
        let stored = (0..1000).filter(|&n| arena.store(n, &[n as u8; 10_000]));
        let stored = stored.count() as u64;

        assert_eq!(stored, DATA / 10_000_u64.next_multiple_of(ALIGN));
        assert!(arena.used_bytes() <= arena.limit_bytes());
        for n in 0..stored {
            let bytes = arena.get(n).expect("is there");
            assert_eq!(bytes.as_ref(), [n as u8; 10_000]);
        }
        assert!(!arena.has_room(10_000) && !arena.has_room(u64::MAX) && !arena.has_room(DATA));
        assert!(arena.store(999, b"a small one still fits"));
    }

    #[test]
    fn threads_never_get_overlapping_memory() {
        let arena = arena(200);
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let arena = &arena;
                scope.spawn(move || {
                    for n in 0..200 {
                        let entry = (n * 7 + thread) % 200;
                        arena.store(entry, &[entry as u8; 1000]);
                    }
                });
            }
        });

        assert_eq!(arena.published_entries(), 200);
        for n in 0..200 {
            assert_eq!(arena.get(n).expect("is there").as_ref(), [n as u8; 1000]);
        }
    }

    #[test]
    fn entries_keep_their_bytes_while_large_pages_are_taken() {
        const EACH: usize = 300_000;
        let arena = Arc::new(SharedArena::create(7, 200, 80 << 20).expect("memory"));
        std::thread::scope(|scope| {
            for thread in 0..2_u64 {
                let arena = &arena;
                scope.spawn(move || {
                    for entry in (thread..200).step_by(2) {
                        assert!(arena.store(entry, &[entry as u8; EACH]));
                        let before = entry.saturating_sub(20) / 2 * 2 + thread;
                        assert_eq!(
                            arena.get(before).expect("is there").as_ref()[7],
                            before as u8
                        );
                    }
                });
            }
        });

        for entry in 0..200 {
            let bytes = arena.get(entry).expect("is there");
            assert_eq!(bytes.as_ref(), [entry as u8; EACH], "{entry}");
        }
        #[cfg(linux_system)]
        assert!(
            arena.word(LARGE_AT).load(Ordering::Relaxed) >= 2 << 20,
            "are tried"
        );
    }

    #[test]
    #[cfg(linux_system)]
    fn a_second_map_of_the_file_sees_the_entries() {
        use std::os::fd::AsRawFd;

        let first = arena(10);
        first.store(1, b"one");
        let open = || {
            let path = format!("/proc/self/fd/{}", first.file().as_raw_fd());
            let mut options = File::options();
            options.read(true).write(true).open(path).expect("opens")
        };

        let second = Arc::new(SharedArena::attach(open(), 7, 10).expect("is an arena"));
        assert_eq!(second.get(1).expect("is there").as_ref(), b"one");
        assert!(second.store(2, b"two"));
        assert_eq!(first.get(2).expect("is there").as_ref(), b"two");

        assert!(SharedArena::attach(open(), 8, 10).is_err(), "other data");
        assert!(
            SharedArena::attach(open(), 7, 11).is_err(),
            "another number"
        );
        assert!(first.file().set_len(1).is_err(), "the size is sealed");
        let other = crate::anonymous::anonymous_file(c"other").expect("a file");
        other.set_len(1 << 20).expect("grows");
        assert!(SharedArena::attach(other, 7, 10).is_err(), "not sealed");
    }

    #[test]
    fn words_of_any_value_give_no_bytes_outside_the_map() {
        let arena = arena(10);
        arena.store(0, b"first");
        let end = arena.len();
        for at in [
            3,
            64,
            4095,
            4096,
            8192,
            end - 64,
            end,
            u64::MAX - 63,
            u64::MAX,
        ] {
            for length in [0, 1, 4096, end, u64::MAX] {
                arena.offset(5).store(at, Ordering::Relaxed);
                arena.length(5).store(length, Ordering::Relaxed);
                if let Some(bytes) = arena.get(5) {
                    assert!(at >= 8192 && at + length <= end);
                    assert_eq!(bytes.as_ref().len() as u64, length);
                }
            }
        }
        for next in [0, 5, 4096, end + 4096, u64::MAX - 4095, u64::MAX] {
            arena.word(NEXT_AT).store(next, Ordering::Relaxed);
            assert!(!arena.store(6, b"nowhere"), "{next}");
        }
    }
}
