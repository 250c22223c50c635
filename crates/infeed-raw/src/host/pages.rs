//! Pages of host memory that a GPU's driver pins, and the guard that unpins them.

use std::ptr::NonNull;

#[cfg(all(unix, not(miri)))]
use super::{Allocation, HUGE_PAGE, map_pages};
use super::{HostBytes, MemoryGuard, OutOfMemory};

impl HostBytes {
    /// Attaches a guard that receives the memory when its owner drops it.
    pub(crate) fn hold(&mut self, guard: Box<dyn MemoryGuard>) {
        self.held = Some(guard);
    }

    /// Whether a guard is attached.
    pub(crate) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Excludes the memory's own pages from those that forked children inherit, so that children
    /// see zeros there; or includes them again. Does nothing if the system does not support this,
    /// or if the memory shares its pages with other allocations.
    ///
    /// The pages are zeroed and not unmapped: dropping the memory in a child unmaps the pages,
    /// which must not be other memory by then.
    pub(crate) fn withhold(&mut self, is_withheld: bool) {
        #[cfg(all(linux_system, not(miri)))]
        if let Allocation::Mapping { .. } = self.home {
            let advice = match is_withheld {
                true => libc::MADV_WIPEONFORK,
                false => libc::MADV_KEEPONFORK,
            };
            let len = self.len.next_multiple_of(page_bytes());
            // SAFETY: whole pages of a private mapping that belongs to this value alone, as in
            // `whole_pages`. Their contents change only for children, where they are initialised to
            // zero.
            unsafe { libc::madvise(self.start.as_ptr().cast(), len, advice) };
        }
        #[cfg(not(all(linux_system, not(miri))))]
        let _ = is_withheld;
    }

    /// Changes the number of bytes within the [separate pages](HostBytes::whole_pages) of the
    /// memory.
    ///
    /// # Panics
    ///
    /// If the pages have fewer bytes.
    pub(crate) fn set_len(&mut self, len: usize) {
        let room = match self.home {
            #[cfg(all(unix, not(miri)))]
            Allocation::Mapping { base, len } => {
                len - (self.start.addr().get() - base.addr().get())
            }
            _ => self.len,
        };
        assert!(len <= room, "{len} bytes in pages of {room}");
        // All bytes of a mapping are initialised.
        self.len = len;
    }

    /// Returns the whole pages that contain only these bytes, valid until drop. Bytes that share
    /// pages with other data first move to separate pages. None for no bytes, and on systems
    /// without mapped pages.
    pub(crate) fn whole_pages(&mut self) -> Result<Option<(NonNull<u8>, usize)>, OutOfMemory> {
        #[cfg(all(unix, not(miri)))]
        {
            if let Allocation::Allocator(_) = self.home {
                let mut moved = map_pages(self.len)?;
                moved.copy_from_slice(self);
                moved.held = self.held.take();
                *self = moved;
            }
            if let Allocation::Mapping { .. } = self.home {
                // `map_pages` left more than a page after the bytes: it maps one huge page more than
                // necessary, and the bytes start at most at its last page.
                let len = self.len.next_multiple_of(page_bytes());
                return Ok(Some((self.start, len)));
            }
        }
        Ok(None)
    }
}

/// Size of a page. A huge page holds a whole number of them.
#[cfg(all(unix, not(miri)))]
pub(super) fn page_bytes() -> usize {
    // SAFETY: only returns a number.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).map_or(4096, |bytes| bytes.clamp(4096, HUGE_PAGE))
}
