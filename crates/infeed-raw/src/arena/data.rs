//! Read-only map of the file of an arena, at an address where large pages of the file can be mapped
//! as large pages.

use std::fs::File;
use std::io;
use std::ops::Range;

#[cfg(not(linux_system))]
use memmap2::{MmapOptions, MmapRaw};

/// Bytes of a large page. Where large pages have another size, the system takes none.
pub(super) const LARGE_PAGE: u64 = 2 << 20;

/// `MADV_COLLAPSE` of Linux 6.1, which not every C library defines.
#[cfg(linux_system)]
const MADV_COLLAPSE: libc::c_int = 25;

/// The mapped file.
#[cfg(linux_system)]
#[derive(Debug)]
pub(super) struct DataMap {
    /// First address, a multiple of [`LARGE_PAGE`].
    start: usize,
    length: usize,
    /// Reserved addresses: the map and what alignment left unused.
    reserved: Range<usize>,
}

#[cfg(linux_system)]
impl DataMap {
    /// Maps the whole file.
    pub(super) fn new(file: &File, length: usize) -> io::Result<DataMap> {
        use std::os::fd::AsRawFd;

        let align = LARGE_PAGE as usize;
        let too_large = || io::Error::from(io::ErrorKind::InvalidInput);
        let size = length.checked_add(align).ok_or_else(too_large)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new map at an address of the system's choice replaces nothing.
        let found =
            unsafe { libc::mmap(std::ptr::null_mut(), size, libc::PROT_NONE, flags, -1, 0) };
        if found == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let first = found as usize;
        let map = DataMap {
            start: first.next_multiple_of(align),
            length,
            reserved: first..first + size,
        };
        // SAFETY: the range is inside the addresses that were just reserved, because less than
        // `align` bytes precede it. Only this function knows them, so nothing in use is replaced.
        let found = unsafe {
            libc::mmap(
                map.start as *mut libc::c_void,
                length,
                libc::PROT_READ,
                libc::MAP_SHARED | libc::MAP_FIXED,
                file.as_raw_fd(),
                0,
            )
        };
        match found {
            libc::MAP_FAILED => Err(io::Error::last_os_error()),
            _ => Ok(map),
        }
    }

    pub(super) fn as_ptr(&self) -> *const u8 {
        self.start as *const u8
    }

    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// Moves a range of the file to large pages. Both ends are multiples of [`LARGE_PAGE`].
    ///
    /// # Errors
    ///
    /// The system has no large pages, or none are free.
    pub(super) fn collapse(&self, file: &File, range: Range<u64>) -> io::Result<()> {
        use std::os::fd::AsRawFd;

        let is_inside = range.start <= range.end && range.end <= self.length as u64;
        let is_aligned =
            range.start.is_multiple_of(LARGE_PAGE) && range.end.is_multiple_of(LARGE_PAGE);
        if !is_inside || !is_aligned {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        // The system makes no large page of nothing.
        for at in range.clone().step_by(LARGE_PAGE as usize) {
            // SAFETY: the descriptor is open. The call adds a page of zeros to the file where it has
            // none, and changes no byte.
            let added = unsafe {
                libc::fallocate(file.as_raw_fd(), libc::FALLOC_FL_KEEP_SIZE, at as i64, 1)
            };
            if added != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        let start = (self.start + range.start as usize) as *mut libc::c_void;
        let length = (range.end - range.start) as usize;
        // SAFETY: the range is inside the map, as checked. The call changes where the bytes are in
        // memory, and no byte.
        match unsafe { libc::madvise(start, length, MADV_COLLAPSE) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(linux_system)]
impl Drop for DataMap {
    fn drop(&mut self) {
        let Range { start, end } = self.reserved;
        // SAFETY: `new` reserved these addresses, and only this value unmaps them. Pointers into the
        // map are used only by `SharedArena`, which owns this value.
        unsafe { libc::munmap(start as *mut libc::c_void, end - start) };
    }
}

#[cfg(not(linux_system))]
pub(super) use PortableDataMap as DataMap;

/// The mapped file.
#[cfg(not(linux_system))]
#[derive(Debug)]
pub(super) struct PortableDataMap(MmapRaw);

#[cfg(not(linux_system))]
impl PortableDataMap {
    /// Maps the whole file.
    pub(super) fn new(file: &File, length: usize) -> io::Result<PortableDataMap> {
        MmapOptions::new()
            .len(length)
            .map_raw_read_only(file)
            .map(PortableDataMap)
    }

    pub(super) fn as_ptr(&self) -> *const u8 {
        self.0.as_ptr()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Large pages need Linux.
    pub(super) fn collapse(&self, _file: &File, _range: Range<u64>) -> io::Result<()> {
        Err(io::Error::from(io::ErrorKind::Unsupported))
    }
}
