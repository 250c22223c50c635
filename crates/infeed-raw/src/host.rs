//! Host memory for batches: aligned and zeroed. Returns an error instead of aborting when the
//! system has no memory left.
//!
//! From 2 MiB up, memory is mapped from the system and may use transparent huge pages: a slab of
//! batches is written once from end to end, and with 4 KiB pages that first pass is mostly page
//! faults.

#[cfg(feature = "cuda")]
mod pages;

use std::alloc::{self, Layout};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

/// Bytes on the host that a copy to a device reads. Shared ownership keeps them alive until the
/// copy is done.
pub type HostSource = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// Alignment of every allocation in bytes: a cache line, and the widest vector.
pub const ALIGN: usize = 64;

/// Size of a huge page, and length from which memory is mapped, in bytes.
const HUGE_PAGE: usize = 2 << 20;

/// The system cannot provide the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("out of memory: cannot allocate {requested_bytes} bytes; use smaller or fewer batches")]
pub struct OutOfMemory {
    /// Bytes requested; `usize::MAX` if the number itself overflows.
    pub requested_bytes: usize,
}

/// Owned bytes, aligned to [`ALIGN`], initially zero; 2 MiB aligned from 2 MiB up.
pub struct HostBytes {
    start: NonNull<u8>,
    len: usize,
    home: Allocation,
    /// Receives the memory when its owner drops it.
    held: Option<Box<dyn MemoryGuard>>,
}

/// State that another module attaches to memory.
pub(crate) trait MemoryGuard: Send + Sync {
    /// Receives the memory when its owner drops it. Dropping it frees it.
    fn release(self: Box<Self>, memory: HostBytes);
}

/// Source of the memory, which decides how it is freed.
enum Allocation {
    /// Nothing was allocated.
    Empty,
    Allocator(Layout),
    #[cfg(all(unix, not(miri)))]
    Mapping {
        base: NonNull<u8>,
        len: usize,
    },
}

impl HostBytes {
    /// Allocates `len` bytes of zeros.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] if the system cannot provide that many bytes.
    ///
    /// # Cost
    ///
    /// From 2 MiB up, no page is touched: the page faults happen at the first write.
    pub fn zeroed(len: usize) -> Result<HostBytes, OutOfMemory> {
        if len == 0 {
            let layout = Layout::new::<CacheLine>();
            return Ok(HostBytes {
                start: layout.dangling_ptr(),
                len,
                home: Allocation::Empty,
                held: None,
            });
        }
        #[cfg(all(unix, not(miri)))]
        if len >= HUGE_PAGE {
            return map_pages(len);
        }
        let align = if len >= HUGE_PAGE { HUGE_PAGE } else { ALIGN };
        let failed = OutOfMemory {
            requested_bytes: len,
        };
        let layout = Layout::from_size_align(len, align).map_err(|_| failed)?;
        // SAFETY: the layout is not of size zero, checked above.
        let start = NonNull::new(unsafe { alloc::alloc_zeroed(layout) }).ok_or(failed)?;
        Ok(HostBytes {
            start,
            len,
            home: Allocation::Allocator(layout),
            held: None,
        })
    }

    /// Address of the first byte; valid for `len` bytes, reads and writes, until drop. Rows of a
    /// slab are cut from it, so it must not be derived from a reference.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }
}

/// Supplies the alignment of an empty allocation.
#[repr(align(64))]
struct CacheLine;

/// Maps anonymous pages with one extra huge page, and uses the aligned part. The extra page is
/// address space only: a page that is never touched costs no memory.
#[cfg(all(unix, not(miri)))]
fn map_pages(len: usize) -> Result<HostBytes, OutOfMemory> {
    let failed = OutOfMemory {
        requested_bytes: len,
    };
    let map_len = len.checked_add(HUGE_PAGE).ok_or(failed)?;
    // SAFETY: a new private anonymous mapping at an address that the kernel chooses touches no
    // existing memory.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            map_len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANON,
            -1,
            0,
        )
    };
    if base == libc::MAP_FAILED {
        return Err(failed);
    }
    let base = NonNull::new(base.cast::<u8>()).ok_or(failed)?;
    let skip = base.as_ptr().align_offset(HUGE_PAGE);
    // SAFETY: `skip < HUGE_PAGE`, so `skip + len` lies within the `len + HUGE_PAGE`
    // bytes mapped above.
    let start = unsafe { base.add(skip) };
    #[cfg(linux_system)]
    {
        // The part after the last whole huge page stays in small pages, so that resident memory
        // does not exceed the requested size.
        let whole = len / HUGE_PAGE * HUGE_PAGE;
        // SAFETY: the range is within the mapping. The advice only affects speed, so a failure (no
        // huge pages on this system) is ignored.
        unsafe { libc::madvise(start.as_ptr().cast(), whole, libc::MADV_HUGEPAGE) };
    }
    Ok(HostBytes {
        start,
        len,
        home: Allocation::Mapping { base, len: map_len },
        held: None,
    })
}

impl Drop for HostBytes {
    fn drop(&mut self) {
        if let Some(guard) = self.held.take() {
            let home = std::mem::replace(&mut self.home, Allocation::Empty);
            return guard.release(HostBytes {
                start: self.start,
                len: self.len,
                home,
                held: None,
            });
        }
        match self.home {
            Allocation::Empty => {}
            // SAFETY: this allocator returned `start` for this layout, and its only owner is being
            // dropped.
            Allocation::Allocator(layout) => unsafe { alloc::dealloc(self.start.as_ptr(), layout) },
            #[cfg(all(unix, not(miri)))]
            // SAFETY: exactly the range that `map_pages` got from mmap, unmapped once, by its only
            // owner.
            Allocation::Mapping { base, len } => unsafe {
                libc::munmap(base.as_ptr().cast(), len);
            },
        }
    }
}

impl Deref for HostBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start` is valid for `len` bytes until drop, and zeroed at allocation, so
        // initialised. Writes need `&mut self` or a row of a slab, and while a row lives no code
        // can reach the `HostBytes` itself.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for HostBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` is the only way to these bytes.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl AsRef<[u8]> for HostBytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for HostBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostBytes")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

// SAFETY: plain memory with one owner; no part of it is bound to a thread.
unsafe impl Send for HostBytes {}
// SAFETY: through a shared reference the bytes are only read.
unsafe impl Sync for HostBytes {}

#[cfg(test)]
mod tests {
    use super::pages::page_bytes;
    use super::*;

    #[test]
    fn bytes_of_every_size_class_are_zero_aligned_and_writable() {
        for len in [0, 1, 63, 64, 4097, HUGE_PAGE - 1, HUGE_PAGE, HUGE_PAGE + 5] {
            // Under Miri, a megabyte byte by byte takes minutes.
            if cfg!(miri) && len > 4097 {
                continue;
            }
            let mut bytes = HostBytes::zeroed(len).unwrap();

            assert_eq!(bytes.len(), len);
            assert_eq!(bytes.as_ptr().align_offset(ALIGN), 0);
            assert!(bytes.iter().all(|&b| b == 0));
            bytes.fill(7);
            assert!(bytes.iter().all(|&b| b == 7));
        }
    }

    #[test]
    fn large_bytes_start_on_a_huge_page() {
        let bytes = HostBytes::zeroed(3 * HUGE_PAGE + 1).unwrap();

        assert_eq!(bytes.as_ptr().align_offset(HUGE_PAGE), 0);
    }

    #[cfg(all(unix, not(miri)))]
    #[test]
    fn bytes_keep_their_contents_when_they_move_to_separate_pages() {
        for len in [1, 4096, 5000, HUGE_PAGE, HUGE_PAGE + 7] {
            let mut bytes = HostBytes::zeroed(len).unwrap();
            bytes.fill(5);

            let (start, whole) = bytes.whole_pages().unwrap().unwrap();

            assert_eq!(start.as_ptr().align_offset(page_bytes()), 0);
            assert!(whole >= len && whole.is_multiple_of(page_bytes()));
            assert_eq!(bytes.as_ptr(), start.as_ptr());
            assert!(bytes.len() == len && bytes.iter().all(|&byte| byte == 5));
            // The last of the pages is mapped and writable.
            //
            // SAFETY: inside of the pages, which belong to this memory alone.
            unsafe { start.add(whole - 1).write(6) };
        }
        assert_eq!(HostBytes::zeroed(0).unwrap().whole_pages(), Ok(None));
    }

    #[cfg(all(linux_system, not(miri)))]
    #[test]
    fn a_forked_child_reads_zeros_from_withheld_memory() {
        let seen_by_child = |bytes: &HostBytes| {
            let (first, last) = (bytes[0], bytes[bytes.len() - 1]);
            // SAFETY: the child only reads memory and exits, which needs no other thread and no
            // lock.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let zero = bytes.first() == Some(&0) && bytes.last() == Some(&0);
                let same = bytes.first() == Some(&first) && bytes.last() == Some(&last);
                // SAFETY: ends the child at once.
                unsafe { libc::_exit(i32::from(zero) + 2 * i32::from(same)) };
            }
            let mut status = 0;
            // SAFETY: waits for the child; writes one integer.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            libc::WEXITSTATUS(status)
        };
        let mut bytes = HostBytes::zeroed(HUGE_PAGE + 9).unwrap();
        bytes.fill(5);
        assert_eq!(seen_by_child(&bytes), 2, "shared");

        bytes.withhold(true);
        assert_eq!(seen_by_child(&bytes), 1, "zeros");
        assert!(bytes.iter().all(|&byte| byte == 5));

        bytes.withhold(false);
        assert_eq!(seen_by_child(&bytes), 2, "shared again");
    }

    #[test]
    fn a_guard_receives_the_memory_when_it_is_dropped() {
        struct Keeper(std::sync::mpsc::Sender<HostBytes>);
        impl MemoryGuard for Keeper {
            fn release(self: Box<Self>, memory: HostBytes) {
                self.0.send(memory).unwrap();
            }
        }
        for len in [100, HUGE_PAGE + 9] {
            let (sender, released) = std::sync::mpsc::channel();
            let mut bytes = HostBytes::zeroed(len).unwrap();
            bytes.fill(3);
            let start = bytes.as_ptr();

            bytes.hold(Box::new(Keeper(sender)));
            assert!(bytes.is_held());
            drop(bytes);

            let memory = released.recv().unwrap();
            assert!(!memory.is_held() && memory.as_ptr() == start);
            assert!(memory.len() == len && memory.iter().all(|&byte| byte == 3));
        }
    }

    #[cfg(all(unix, not(miri)))]
    #[test]
    fn the_length_of_separate_pages_changes_within_them() {
        let mut bytes = HostBytes::zeroed(5000).unwrap();
        let (_, whole) = bytes.whole_pages().unwrap().unwrap();

        bytes.set_len(whole);
        assert!(bytes.len() == whole && bytes.iter().all(|&byte| byte == 0));
        bytes.set_len(1);
        assert_eq!(bytes.len(), 1);
        for too_long in [8 * HUGE_PAGE, usize::MAX] {
            let set = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                bytes.set_len(too_long);
            }));
            assert!(set.is_err() && bytes.len() == 1);
        }
    }

    #[test]
    fn more_bytes_than_the_system_has_are_an_error() {
        for len in [usize::MAX, usize::MAX - HUGE_PAGE, isize::MAX as usize] {
            let error = HostBytes::zeroed(len).unwrap_err();

            assert_eq!(error.requested_bytes, len);
        }
    }
}
