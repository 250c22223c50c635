//! Reads files, with retries and pooled buffers.

use std::fs;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use infeed_raw::file;
use memmap2::MmapMut;

/// Attempts at a read whose error may be temporary.
const ATTEMPTS: u32 = 3;

/// Opens a regular file and returns its length. Retries if the error may be temporary.
pub fn open_file(path: &Path) -> io::Result<(fs::File, u64)> {
    retry(|| file::open(path))
}

/// Reads at most `length` bytes of a file just opened, into a pooled buffer if one is free. Returns
/// fewer bytes if the file was cut meanwhile; decoding then reports the error.
pub fn read_file(
    path: &Path,
    file: fs::File,
    length: u64,
    buffers: &Arc<BufferPool>,
) -> io::Result<Bytes> {
    let mut first = Some(file);
    retry(|| {
        let mut file = match first.take() {
            Some(file) => file,
            None => file::open(path)?.0,
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

/// Reads at most `length` bytes of an open file from an offset.
pub(super) fn read_at(
    file: &fs::File,
    offset: u64,
    length: u64,
    buffers: &Arc<BufferPool>,
) -> io::Result<Bytes> {
    let mut used = 0;
    let mut fill = |memory: &mut [u8]| {
        let read = read_at_offset(file, memory, offset + used)?;
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
fn read_at_offset(file: &fs::File, memory: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, memory, offset)
}

#[cfg(windows)]
fn read_at_offset(file: &fs::File, memory: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, memory, offset)
}

/// Fills a pooled buffer, or a new one if none is free.
fn lend(
    length: u64,
    buffers: &Arc<BufferPool>,
    mut read: impl FnMut(&mut [u8]) -> io::Result<usize>,
) -> io::Result<Bytes> {
    let mut memory = buffers.take(held_bytes(length) as usize)?;
    let used = fill_from(&mut memory[..length as usize], &mut read)?;
    Ok(Bytes::from_owner(PooledBuffer {
        memory: Some(memory),
        used,
        buffers: Arc::clone(buffers),
    }))
}

/// Reads until the memory is full or the input ends; returns the number of bytes.
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

/// Files of at least this length are read into mapped buffers from the pool.
const LARGE: u64 = 64 << 10;

/// Capacity of the free buffers that are kept.
const KEPT_BYTES: usize = 16 << 20;

/// Bytes of memory that reading a file of this length holds. Large ones are rounded up to one of
/// four sizes per octave, so that a buffer also fits the next file.
pub fn held_bytes(length: u64) -> u64 {
    if length < LARGE {
        return length;
    }
    length.next_multiple_of(1 << (length.ilog2() - 2))
}

/// Pool of buffers for files. A new buffer of a megabyte costs as many page faults as copying it
/// from the page cache costs time. The buffers are mapped: if blocks of different sizes are freed
/// by other threads than the ones that allocated them, the allocator's arenas fragment and grow
/// over hours.
#[derive(Debug, Default)]
pub struct BufferPool(Mutex<FreeBuffers>);

#[derive(Debug, Default)]
struct FreeBuffers {
    buffers: Vec<MmapMut>,
    bytes: usize,
}

impl BufferPool {
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
        // Removes the oldest first: their size may be rare.
        while free.bytes > KEPT_BYTES && !free.buffers.is_empty() {
            let oldest = free.buffers.remove(0);
            free.bytes -= oldest.len();
        }
    }
}

/// Bytes of a file; the buffer returns to the pool when their last slice is dropped.
struct PooledBuffer {
    /// None once the buffer is back in the pool.
    memory: Option<MmapMut>,
    used: usize,
    buffers: Arc<BufferPool>,
}

impl AsRef<[u8]> for PooledBuffer {
    fn as_ref(&self) -> &[u8] {
        self.memory
            .as_ref()
            .map_or(&[], |memory| &memory[..self.used])
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.buffers.give(memory);
        }
    }
}

/// A buffer of known length that is filled in pieces.
pub(super) struct FillingBuffer {
    length: usize,
    memory: BufferMemory,
}

enum BufferMemory {
    Small(Vec<u8>),
    Large(PooledBuffer),
}

impl FillingBuffer {
    /// Allocates memory for `length` bytes, all of them missing.
    pub(super) fn new(length: u64, buffers: &Arc<BufferPool>) -> io::Result<FillingBuffer> {
        let memory = if length < LARGE {
            BufferMemory::Small(Vec::with_capacity(length as usize))
        } else {
            BufferMemory::Large(PooledBuffer {
                memory: Some(buffers.take(held_bytes(length) as usize)?),
                used: 0,
                buffers: Arc::clone(buffers),
            })
        };
        Ok(FillingBuffer {
            length: length as usize,
            memory,
        })
    }

    /// Number of bytes so far.
    pub(super) fn len(&self) -> usize {
        match &self.memory {
            BufferMemory::Small(bytes) => bytes.len(),
            BufferMemory::Large(lent) => lent.used,
        }
    }

    /// Whether all bytes are there.
    #[cfg_attr(not(feature = "remote"), allow(dead_code))]
    pub(super) fn is_full(&self) -> bool {
        self.len() == self.length
    }

    /// Drops all bytes.
    #[cfg_attr(not(feature = "remote"), allow(dead_code))]
    pub(super) fn clear(&mut self) {
        match &mut self.memory {
            BufferMemory::Small(bytes) => bytes.clear(),
            BufferMemory::Large(lent) => lent.used = 0,
        }
    }

    /// Appends bytes. Returns false, and appends none, if they exceed the length.
    pub(super) fn push(&mut self, more: &[u8]) -> bool {
        let used = self.len();
        if more.len() > self.length - used {
            return false;
        }
        match &mut self.memory {
            BufferMemory::Small(bytes) => bytes.extend_from_slice(more),
            BufferMemory::Large(lent) => {
                if let Some(memory) = &mut lent.memory {
                    memory[used..used + more.len()].copy_from_slice(more);
                }
                lent.used += more.len();
            }
        }
        true
    }

    /// Returns the bytes so far.
    pub(super) fn finish(self) -> Bytes {
        match self.memory {
            BufferMemory::Small(bytes) => Bytes::from(bytes),
            BufferMemory::Large(lent) => Bytes::from_owner(lent),
        }
    }
}

/// Calls until it succeeds, the error is permanent, or three attempts failed.
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
    use io::ErrorKind::{InvalidInput, IsADirectory, NotFound, PermissionDenied};
    !matches!(
        error.kind(),
        NotFound | PermissionDenied | IsADirectory | InvalidInput
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_succeeds_at_the_third_attempt_after_two_temporary_errors() {
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
    fn files_of_similar_length_reuse_buffers() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let buffers = Arc::new(BufferPool::default());
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
    fn a_missing_file_is_not_retried() {
        let mut calls = 0;

        let result: io::Result<()> = retry(|| {
            calls += 1;
            Err(io::ErrorKind::NotFound.into())
        });

        assert!(result.is_err());
        assert_eq!(calls, 1);
    }
}
