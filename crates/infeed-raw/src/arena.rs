//! Memory that processes share: numbered entries that are written once and then only read.
//!
//! An arena is an unnamed file that every process maps. It begins with a header, followed by one
//! word per entry and by the data. A writer claims an entry, fills its bytes, and publishes their
//! offset in the word of the entry. Published entries never change and never move, so a reader
//! needs one atomic load and no lock. The operating system frees the memory when the last process
//! that maps it ends, however it ends. A writer that is killed leaves one entry that stays empty.
//!
//! # Soundness
//!
//! The bytes of an entry are written by one thread only: the range comes from an atomic counter
//! that never returns the same range twice, and the entry's word is published after the last write
//! (release) and read before the first read (acquire). The size of the file is sealed, so no access
//! to the map can fail. As with [`crate::map`], this cannot be proved for a process of the same
//! user that writes to the file on purpose. Every offset and length is therefore checked against
//! the map, whatever the file says.

use std::fs::File;
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};

/// First word of the file. The last byte is the version of the layout.
const MAGIC: u64 = 0x0001_616e_6572_6101;

/// Bytes before the words of the entries.
const HEADER: u64 = 4096;

/// Alignment of the data of an entry. Writers of neighbouring entries share no cache line.
const ALIGN: u64 = 64;

/// Bytes before the data of an entry: the length.
const PREFIX: u64 = 64;

/// Memory is requested from the operating system in pieces of this size.
const PIECE: u64 = 16 << 20;

/// Positions of the words of the header.
const MAGIC_AT: u64 = 0;
const IDENTITY_AT: u64 = 8;
const ENTRIES_AT: u64 = 16;
const NEXT_AT: u64 = 64;
const ALLOCATED_AT: u64 = 128;
const PUBLISHED_AT: u64 = 192;

/// States of an entry's word. Other values are offsets.
const EMPTY: u64 = 0;
const CLAIMED: u64 = 1;
const ABANDONED: u64 = 2;

/// Memory with numbered entries that several processes share.
#[derive(Debug)]
pub struct SharedArena {
    map: MmapRaw,
    file: File,
    entries: u64,
    /// Whether the operating system refused memory.
    refused: AtomicBool,
}

impl SharedArena {
    /// Creates an arena for `entries` entries with up to `bytes` bytes of data. Memory is allocated
    /// as entries are written.
    ///
    /// # Errors
    ///
    /// The operating system's error: no file, or no address space for `bytes`.
    pub fn create(identity: u64, entries: u64, bytes: u64) -> io::Result<SharedArena> {
        let too_large = || io::Error::from(io::ErrorKind::InvalidInput);
        let begin = data_begin(entries).ok_or_else(too_large)?;
        let length = begin.checked_add(bytes).ok_or_else(too_large)?;
        let file = sealable_file()?;
        file.set_len(length)?;
        seal(&file)?;
        let arena = SharedArena::map(file, entries, length)?;
        arena.word(MAGIC_AT).store(MAGIC, Ordering::Relaxed);
        arena.word(IDENTITY_AT).store(identity, Ordering::Relaxed);
        arena.word(ENTRIES_AT).store(entries, Ordering::Relaxed);
        arena.word(ALLOCATED_AT).store(begin, Ordering::Relaxed);
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
        let length = usize::try_from(length).map_err(|_| io::ErrorKind::InvalidInput)?;
        let map = MmapOptions::new()
            .len(length)
            .no_reserve_swap()
            .map_raw(&file)?;
        Ok(SharedArena {
            map,
            file,
            entries,
            refused: AtomicBool::new(false),
        })
    }

    /// The file, which other processes open through `/proc`.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Whether an entry is published.
    pub fn contains(&self, entry: u64) -> bool {
        entry < self.entries && self.entry(entry).load(Ordering::Relaxed) > ABANDONED
    }

    /// Returns the bytes of a published entry.
    pub fn get(self: &Arc<SharedArena>, entry: u64) -> Option<SharedBytes> {
        if entry >= self.entries {
            return None;
        }
        let at = self.entry(entry).load(Ordering::Acquire);
        let data = at.checked_add(PREFIX)?;
        let is_data = at > ABANDONED
            && at.is_multiple_of(ALIGN)
            && at >= data_begin(self.entries)?
            && data <= self.len();
        if !is_data {
            return None;
        }
        let length = self.word(at).load(Ordering::Relaxed);
        (length <= self.len() - data).then(|| SharedBytes {
            arena: Arc::clone(self),
            at: data as usize,
            length: length as usize,
        })
    }

    /// Whether an entry with this number of bytes still fits.
    pub fn has_room(&self, length: u64) -> bool {
        let next = self.word(NEXT_AT).load(Ordering::Relaxed);
        let is_refused = self.refused.load(Ordering::Relaxed);
        !is_refused
            && needed(length).is_some_and(|needed| needed <= self.len().saturating_sub(next))
    }

    /// Claims an empty entry, and memory for its bytes. `None` if another writer has the entry or
    /// the arena is full.
    pub fn claim(self: &Arc<SharedArena>, entry: u64, length: u64) -> Option<SharedSlot> {
        // Checked before the entry is claimed: a smaller one may find room later.
        if entry >= self.entries || !self.has_room(length) {
            return None;
        }
        let (needed, next) = (needed(length)?, self.word(NEXT_AT));
        self.entry(entry)
            .compare_exchange(EMPTY, CLAIMED, Ordering::AcqRel, Ordering::Relaxed)
            .ok()?;
        let begin = data_begin(self.entries)?;
        let grown = next.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |at| {
            let end = at.checked_add(needed)?;
            (at >= begin && at.is_multiple_of(ALIGN) && end <= self.len()).then_some(end)
        });
        let room = grown.ok().filter(|at| self.allocate(at + needed));
        let Some(at) = room else {
            self.entry(entry).store(EMPTY, Ordering::Release);
            return None;
        };
        Some(SharedSlot {
            bytes: SharedBytes {
                arena: Arc::clone(self),
                at: (at + PREFIX) as usize,
                length: length as usize,
            },
            entry,
            is_published: false,
        })
    }

    /// Bytes of all entries, as far as they are claimed, with the words of the entries.
    pub fn used_bytes(&self) -> u64 {
        self.word(NEXT_AT).load(Ordering::Relaxed).min(self.len())
    }

    /// Most bytes of the arena.
    pub fn limit_bytes(&self) -> u64 {
        self.len()
    }

    /// Number of published entries.
    pub fn published(&self) -> u64 {
        self.word(PUBLISHED_AT).load(Ordering::Relaxed)
    }

    fn len(&self) -> u64 {
        self.map.len() as u64
    }

    /// Requests memory up to `end` from the operating system. Without this, a write to memory that
    /// does not exist would end the process.
    fn allocate(&self, end: u64) -> bool {
        let allocated = self.word(ALLOCATED_AT);
        let have = allocated.load(Ordering::Acquire).min(self.len());
        if end <= have {
            return true;
        }
        let to = end.max(have.saturating_add(PIECE)).min(self.len());
        if reserve(&self.file, have, to - have).is_err() {
            self.refused.store(true, Ordering::Relaxed);
            return false;
        }
        allocated.fetch_max(to, Ordering::AcqRel);
        true
    }

    fn entry(&self, entry: u64) -> &AtomicU64 {
        self.word(HEADER + 8 * entry)
    }

    /// Returns the word at an offset.
    ///
    /// # Panics
    ///
    /// If the offset is no multiple of 8, or not inside the map.
    fn word(&self, at: u64) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at <= self.len() - 8);
        // SAFETY: the word is inside the map, as checked, and aligned: the map starts on a page.
        // The map lives as long as `self`. Words of the header, of entries and of lengths are only
        // accessed as atomics, by every process; the bytes of a slot never include one.
        unsafe { AtomicU64::from_ptr(self.map.as_mut_ptr().add(at as usize).cast()) }
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
        // SAFETY: `get` and `claim` checked that the range is inside the map, which lives as long
        // as `arena`. The range is published, so no process writes to it; or it belongs to the
        // slot that holds this value, which gives its bytes for writing only by exclusive reference.
        unsafe { std::slice::from_raw_parts(self.arena.map.as_ptr().add(self.at), self.length) }
    }
}

/// Memory of a claimed entry. If it is dropped without being published, the entry stays empty for
/// ever, because its memory cannot be used again.
#[derive(Debug)]
pub struct SharedSlot {
    bytes: SharedBytes,
    entry: u64,
    is_published: bool,
}

impl SharedSlot {
    /// Makes the bytes visible to all processes.
    pub fn publish(mut self) {
        let arena = &self.bytes.arena;
        let at = self.bytes.at as u64 - PREFIX;
        arena
            .word(at)
            .store(self.bytes.length as u64, Ordering::Relaxed);
        arena.entry(self.entry).store(at, Ordering::Release);
        arena.word(PUBLISHED_AT).fetch_add(1, Ordering::Relaxed);
        self.is_published = true;
    }
}

impl Deref for SharedSlot {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

impl DerefMut for SharedSlot {
    fn deref_mut(&mut self) -> &mut [u8] {
        let SharedBytes { arena, at, length } = &self.bytes;
        // SAFETY: the range is inside the map, as `claim` checked. It came from the atomic counter,
        // so no other slot has a part of it, and no reader has it before it is published, which
        // consumes the slot.
        unsafe { std::slice::from_raw_parts_mut(arena.map.as_mut_ptr().add(*at), *length) }
    }
}

impl Drop for SharedSlot {
    fn drop(&mut self) {
        if !self.is_published {
            let word = self.bytes.arena.entry(self.entry);
            word.store(ABANDONED, Ordering::Release);
        }
    }
}

/// Bytes that an entry takes from the arena.
fn needed(length: u64) -> Option<u64> {
    length.checked_add(PREFIX)?.checked_next_multiple_of(ALIGN)
}

/// Offset of the data behind the words of the entries.
fn data_begin(entries: u64) -> Option<u64> {
    let words = entries.checked_mul(8)?;
    HEADER.checked_add(words)?.checked_next_multiple_of(4096)
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

#[cfg(linux_system)]
fn reserve(file: &File, from: u64, length: u64) -> io::Result<()> {
    use std::os::fd::AsRawFd;

    let wrong = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let from = libc::off_t::try_from(from).map_err(wrong)?;
    let length = libc::off_t::try_from(length).map_err(wrong)?;
    loop {
        // SAFETY: the descriptor is open; the call changes no address space.
        if unsafe { libc::fallocate(file.as_raw_fd(), 0, from, length) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
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

#[cfg(not(linux_system))]
fn reserve(_file: &File, _from: u64, _length: u64) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATA: u64 = 1 << 20;

    fn arena(entries: u64) -> Arc<SharedArena> {
        Arc::new(SharedArena::create(7, entries, DATA).expect("memory"))
    }

    fn publish(arena: &Arc<SharedArena>, entry: u64, bytes: &[u8]) -> bool {
        let Some(mut slot) = arena.claim(entry, bytes.len() as u64) else {
            return false;
        };
        slot.copy_from_slice(bytes);
        slot.publish();
        true
    }

    #[test]
    fn an_entry_is_readable_once_it_is_published() {
        let arena = arena(10);
        let mut slot = arena.claim(3, 5).expect("is empty");
        slot.copy_from_slice(b"hello");
        assert!(!arena.contains(3) && arena.get(3).is_none());
        assert!(arena.claim(3, 5).is_none(), "has a writer");

        slot.publish();

        assert!(arena.contains(3));
        assert_eq!(arena.get(3).expect("is there").as_ref(), b"hello");
        assert!(arena.claim(3, 5).is_none(), "is written once");
        assert_eq!(arena.published(), 1);
        assert!(!arena.contains(10) && arena.get(10).is_none() && arena.claim(10, 1).is_none());
    }

    #[test]
    fn an_abandoned_entry_stays_empty() {
        let arena = arena(4);
        drop(arena.claim(0, 100));

        assert!(arena.claim(0, 100).is_none() && arena.get(0).is_none());
        assert!(publish(&arena, 1, b"next"));
    }

    #[test]
    fn a_full_arena_takes_no_more_and_keeps_its_entries() {
        let arena = arena(1000);
        let stored = (0..1000)
            .filter(|&n| publish(&arena, n, &[n as u8; 10_000]))
            .count();

        assert_eq!(
            stored as u64,
            DATA / (10_000 + PREFIX).next_multiple_of(ALIGN)
        );
        assert!(arena.used_bytes() <= arena.limit_bytes());
        for n in 0..stored as u64 {
            let bytes = arena.get(n).expect("is there");
            assert!(bytes.as_ref().iter().all(|&byte| byte == n as u8));
        }
        assert!(arena.claim(999, u64::MAX).is_none() && arena.claim(999, DATA).is_none());
        assert!(publish(&arena, 999, b"a small one still fits"));
    }

    #[test]
    fn threads_never_get_overlapping_memory() {
        let arena = arena(400);
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let arena = &arena;
                scope.spawn(move || {
                    for n in 0..400 {
                        publish(
                            arena,
                            (n * 7 + thread) % 400,
                            &[(n * 7 + thread) as u8; 1000],
                        );
                    }
                });
            }
        });

        assert_eq!(arena.published(), 400);
        for n in 0..400 {
            let bytes = arena.get(n).expect("is there");
            let first = bytes.as_ref()[0];
            assert!(bytes.as_ref().iter().all(|&byte| byte == first));
            let is_of_entry = [0, 400, 800, 1200, 1600, 2000, 2400, 2800];
            assert!(
                is_of_entry.iter().any(|more| (n + more) as u8 == first),
                "{n}: {first}"
            );
        }
    }

    #[test]
    #[cfg(linux_system)]
    fn a_second_map_of_the_file_sees_the_entries() {
        use std::os::fd::AsRawFd;

        let first = arena(10);
        publish(&first, 1, b"one");
        let open = || {
            let path = format!("/proc/self/fd/{}", first.file().as_raw_fd());
            let mut options = File::options();
            options.read(true).write(true).open(path).expect("opens")
        };

        let second = Arc::new(SharedArena::attach(open(), 7, 10).expect("is an arena"));
        assert_eq!(second.get(1).expect("is there").as_ref(), b"one");
        assert!(publish(&second, 2, b"two"));
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
    fn words_of_any_value_are_no_entries_outside_the_map() {
        let arena = arena(10);
        publish(&arena, 0, b"first");
        for word in [
            3,
            64,
            4095,
            4096,
            arena.len() - 64,
            arena.len(),
            u64::MAX - 63,
            u64::MAX,
        ] {
            arena.entry(5).store(word, Ordering::Relaxed);
            if let Some(bytes) = arena.get(5) {
                assert!(bytes.as_ref().len() as u64 <= arena.len());
            }
        }
        let at = arena.entry(0).load(Ordering::Relaxed);
        arena.word(at).store(u64::MAX, Ordering::Relaxed);
        assert!(arena.get(0).is_none(), "its length exceeds the map");
        arena.word(NEXT_AT).store(5, Ordering::Relaxed);
        assert!(arena.claim(6, 10).is_none());
    }
}
