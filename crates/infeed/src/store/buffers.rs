//! Reading files: retries, and buffers that are used again.

use std::fs;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use memmap2::MmapMut;

/// Attempts at a read that fails in a way that may pass.
const ATTEMPTS: u32 = 3;

/// Opens a file and tells its length, trying again if the storage hiccups.
pub(crate) fn open_file(path: &Path) -> io::Result<(fs::File, u64)> {
    retry(|| {
        let file = fs::File::open(path)?;
        let length = file.metadata()?.len();
        Ok((file, length))
    })
}

/// Reads at most `length` bytes of a file just opened, into a buffer that was used before where
/// there is one. Fewer bytes come if the file was cut meanwhile; that shows when they are decoded.
pub(crate) fn read_file(
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
        let fill = |memory: &mut [u8]| file.read(memory);
        lend(length, buffers, fill)
    })
}

/// Reads at most `length` bytes of an open file from an offset on.
pub(super) fn read_at(
    file: &fs::File,
    offset: u64,
    length: u64,
    buffers: &Arc<Buffers>,
) -> io::Result<Bytes> {
    let mut used = 0;
    let mut fill = |memory: &mut [u8]| {
        let read = positioned(file, memory, offset + used)?;
        used += read as u64;
        Ok(read)
    };
    if length >= LARGE {
        return lend(length, buffers, fill);
    }
    let mut bytes = vec![0; length as usize];
    let used = fill_from(&mut bytes, &mut fill)?;
    bytes.truncate(used);
    Ok(Bytes::from(bytes))
}

#[cfg(unix)]
fn positioned(file: &fs::File, memory: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, memory, offset)
}

#[cfg(windows)]
fn positioned(file: &fs::File, memory: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, memory, offset)
}

/// Fills a buffer that was used before, where there is one.
fn lend(
    length: u64,
    buffers: &Arc<Buffers>,
    mut read: impl FnMut(&mut [u8]) -> io::Result<usize>,
) -> io::Result<Bytes> {
    let mut memory = buffers.take(held_bytes(length) as usize)?;
    let used = fill_from(&mut memory[..length as usize], &mut read)?;
    Ok(Bytes::from_owner(Lent {
        memory: Some(memory),
        used,
        buffers: Arc::clone(buffers),
    }))
}

/// Reads until the memory is full or there is no more; tells how many bytes came.
fn fill_from(
    memory: &mut [u8],
    read: &mut impl FnMut(&mut [u8]) -> io::Result<usize>,
) -> io::Result<usize> {
    let mut used = 0;
    while used < memory.len() {
        match read(&mut memory[used..]) {
            Ok(0) => break,
            Ok(more) => used += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(used)
}

/// Files from this length on are read into mapped buffers that are used again.
const LARGE: u64 = 64 << 10;

/// Capacity of free buffers that are kept.
const KEPT_BYTES: usize = 16 << 20;

/// Bytes that reading a file of this length holds: large ones are rounded up to one of four sizes
/// an octave, so that a buffer fits the next file too.
pub(crate) fn held_bytes(length: u64) -> u64 {
    if length < LARGE {
        return length;
    }
    length.next_multiple_of(1 << (length.ilog2() - 2))
}

/// Buffers for files, used again: fresh ones of a megabyte cost as many page faults as reading
/// them from the page cache costs copying. They are mapped, since blocks of differing sizes freed
/// by other threads than took them leave the allocator's arenas in pieces that grow over hours.
#[derive(Debug, Default)]
pub(crate) struct Buffers(Mutex<Free>);

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

/// A buffer of known length that bytes come into piece by piece.
pub(super) struct Filling {
    length: usize,
    memory: Memory,
}

enum Memory {
    Small(Vec<u8>),
    Large(Lent),
}

impl Filling {
    /// Memory for `length` bytes, none of which is there yet.
    pub(super) fn new(length: u64, buffers: &Arc<Buffers>) -> io::Result<Filling> {
        let memory = if length < LARGE {
            Memory::Small(Vec::with_capacity(length as usize))
        } else {
            Memory::Large(Lent {
                memory: Some(buffers.take(held_bytes(length) as usize)?),
                used: 0,
                buffers: Arc::clone(buffers),
            })
        };
        Ok(Filling {
            length: length as usize,
            memory,
        })
    }

    /// Bytes that are there.
    pub(super) fn len(&self) -> usize {
        match &self.memory {
            Memory::Small(bytes) => bytes.len(),
            Memory::Large(lent) => lent.used,
        }
    }

    /// Whether all bytes are there.
    pub(super) fn is_full(&self) -> bool {
        self.len() == self.length
    }

    /// Begins again.
    pub(super) fn clear(&mut self) {
        match &mut self.memory {
            Memory::Small(bytes) => bytes.clear(),
            Memory::Large(lent) => lent.used = 0,
        }
    }

    /// Takes bytes that follow; false, taking none, if they are more than there should be.
    pub(super) fn push(&mut self, more: &[u8]) -> bool {
        let used = self.len();
        if more.len() > self.length - used {
            return false;
        }
        match &mut self.memory {
            Memory::Small(bytes) => bytes.extend_from_slice(more),
            Memory::Large(lent) => {
                if let Some(memory) = &mut lent.memory {
                    memory[used..used + more.len()].copy_from_slice(more);
                }
                lent.used += more.len();
            }
        }
        true
    }

    /// What came.
    pub(super) fn finish(self) -> Bytes {
        match self.memory {
            Memory::Small(bytes) => Bytes::from(bytes),
            Memory::Large(lent) => Bytes::from_owner(lent),
        }
    }
}

/// Calls until it succeeds, fails for good, or failed three times.
pub(super) fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
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
