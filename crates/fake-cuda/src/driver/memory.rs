//! Memory of a GPU, and pinned memory of the host.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::code;
use super::lock;
use crate::ptx::{AddressFault, KernelMemory as Global};

/// Size of a GPU's address range.
const ADDRESSES: u64 = 64 << 30;

/// Gap between two blocks, so that an access beyond one block reaches no other.
const GAP: u64 = 4096;

/// Contents of new memory. Not zero, since programs may not rely on zeros.
const UNWRITTEN: u8 = 0xa5;

/// A block: bytes that any thread may read and write, as on a GPU.
pub(crate) struct Block {
    base: u64,
    bytes: Box<[AtomicU8]>,
}

impl Block {
    /// Returns the bytes from an address on, if all of them are inside of the block.
    fn part(&self, address: u64, len: usize) -> Option<&[AtomicU8]> {
        let from = usize::try_from(address.checked_sub(self.base)?).ok()?;
        self.bytes.get(from..from.checked_add(len)?)
    }
}

/// Memory of a GPU. Its addresses are reserved in the process without access: a program that
/// follows one on the host faults, as on a machine with a GPU. No address is used twice.
pub(crate) struct ReservedMemory {
    base: u64,
    capacity: usize,
    next: AtomicU64,
    used: AtomicUsize,
    blocks: Mutex<BTreeMap<u64, Arc<Block>>>,
    /// Blocks of pools whose allocation is enqueued, and blocks whose free is enqueued.
    reserved: Mutex<BTreeMap<u64, usize>>,
    freeing: Mutex<BTreeSet<u64>>,
}

impl ReservedMemory {
    /// # Errors
    ///
    /// If the system has no addresses left.
    pub(crate) fn new(capacity: usize) -> Result<ReservedMemory, String> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let len = ADDRESSES as usize;
        // SAFETY: a new mapping without access, kept until the process ends.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_NONE, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error().to_string());
        }
        let base = base.expose_provenance() as u64;
        Ok(ReservedMemory {
            base,
            capacity,
            next: AtomicU64::new(base),
            used: AtomicUsize::new(0),
            blocks: Mutex::default(),
            reserved: Mutex::default(),
            freeing: Mutex::default(),
        })
    }

    /// Returns free and total bytes.
    pub(crate) fn info(&self) -> (usize, usize) {
        let used = self.used.load(Ordering::SeqCst);
        (self.capacity.saturating_sub(used), self.capacity)
    }

    /// Number of blocks that are not freed.
    pub(crate) fn live(&self) -> usize {
        lock(&self.blocks).len() + lock(&self.reserved).len()
    }

    /// # Errors
    ///
    /// The code for out of memory.
    pub(crate) fn allocate(&self, len: usize) -> Result<u64, u32> {
        let base = self.reserve(len)?;
        self.arrive(base);
        Ok(base)
    }

    /// Reserves an address that is invalid until [`arrive`](ReservedMemory::arrive).
    ///
    /// # Errors
    ///
    /// The code for out of memory.
    pub(crate) fn reserve(&self, len: usize) -> Result<u64, u32> {
        if len == 0 {
            return Err(code::INVALID_VALUE);
        }
        let mut reserved = lock(&self.reserved);
        if len > self.info().0 {
            return Err(code::OUT_OF_MEMORY);
        }
        let room = (len as u64).next_multiple_of(256) + GAP;
        let base = self.next.load(Ordering::SeqCst);
        if base + room > self.base + ADDRESSES {
            return Err(code::OUT_OF_MEMORY);
        }
        self.next.store(base + room, Ordering::SeqCst);
        self.used.fetch_add(len, Ordering::SeqCst);
        reserved.insert(base, len);
        Ok(base)
    }

    /// Makes an address valid when a stream has reached its allocation.
    pub(crate) fn arrive(&self, base: u64) {
        let Some(len) = lock(&self.reserved).remove(&base) else {
            return;
        };
        let bytes = (0..len).map(|_| AtomicU8::new(UNWRITTEN)).collect();
        lock(&self.blocks).insert(base, Arc::new(Block { base, bytes }));
    }

    /// Records that the free of an address was enqueued; the stream later calls
    /// [`free`](ReservedMemory::free).
    ///
    /// # Errors
    ///
    /// The code for an address that was never allocated, or that is being freed.
    pub(crate) fn begin_free(&self, address: u64) -> Result<(), u32> {
        let is_block = lock(&self.blocks).contains_key(&address)
            || lock(&self.reserved).contains_key(&address);
        match is_block && lock(&self.freeing).insert(address) {
            true => Ok(()),
            false => Err(code::INVALID_VALUE),
        }
    }

    /// # Errors
    ///
    /// The code for an address that was never allocated, or was freed.
    pub(crate) fn free(&self, address: u64) -> Result<(), u32> {
        lock(&self.freeing).remove(&address);
        let block = lock(&self.blocks).remove(&address);
        let block = block.ok_or(code::INVALID_VALUE)?;
        self.used.fetch_sub(block.bytes.len(), Ordering::SeqCst);
        Ok(())
    }

    /// Returns the block that contains an address.
    pub(crate) fn block(&self, address: u64) -> Option<Arc<Block>> {
        let blocks = lock(&self.blocks);
        let (_, block) = blocks.range(..=address).next_back()?;
        block.part(address, 1).map(|_| Arc::clone(block))
    }

    /// # Errors
    ///
    /// [`AddressFault`] if the bytes are not in one block.
    pub(crate) fn read(&self, address: u64, to: &mut [u8]) -> Result<(), AddressFault> {
        let block = self.block(address).ok_or(AddressFault)?;
        let part = block.part(address, to.len()).ok_or(AddressFault)?;
        for (to, from) in to.iter_mut().zip(part) {
            *to = from.load(Ordering::Relaxed);
        }
        Ok(())
    }

    /// # Errors
    ///
    /// [`AddressFault`] if the bytes are not in one block.
    pub(crate) fn write(&self, address: u64, from: &[u8]) -> Result<(), AddressFault> {
        let block = self.block(address).ok_or(AddressFault)?;
        let part = block.part(address, from.len()).ok_or(AddressFault)?;
        for (to, from) in part.iter().zip(from) {
            to.store(*from, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// A kernel's view of a GPU's memory, which looks up each block once and not for each access.
pub(crate) struct MemoryView<'a> {
    memory: &'a ReservedMemory,
    blocks: RefCell<Vec<Arc<Block>>>,
}

impl<'a> MemoryView<'a> {
    pub(crate) fn of(memory: &'a ReservedMemory) -> MemoryView<'a> {
        let blocks = RefCell::default();
        MemoryView { memory, blocks }
    }

    fn with(
        &self,
        address: u64,
        len: usize,
        each: impl FnOnce(&[AtomicU8]),
    ) -> Result<(), AddressFault> {
        let mut blocks = self.blocks.borrow_mut();
        if let Some(part) = blocks.iter().find_map(|block| block.part(address, len)) {
            each(part);
            return Ok(());
        }
        let block = self.memory.block(address).ok_or(AddressFault)?;
        each(block.part(address, len).ok_or(AddressFault)?);
        blocks.push(block);
        Ok(())
    }
}

impl Global for MemoryView<'_> {
    fn load(&self, address: u64, to: &mut [u8]) -> Result<(), AddressFault> {
        self.with(address, to.len(), |part| {
            for (to, from) in to.iter_mut().zip(part) {
                *to = from.load(Ordering::Relaxed);
            }
        })
    }

    fn store(&self, address: u64, from: &[u8]) -> Result<(), AddressFault> {
        self.with(address, from.len(), |part| {
            for (to, from) in part.iter().zip(from) {
                to.store(*from, Ordering::Relaxed);
            }
        })
    }
}

/// Registered memory of the host: lengths by start address.
#[derive(Default)]
pub(crate) struct PinnedRanges {
    ranges: Mutex<BTreeMap<usize, usize>>,
}

impl PinnedRanges {
    /// # Errors
    ///
    /// The code for a range that overlaps registered memory.
    pub(crate) fn register(&self, start: usize, len: usize) -> Result<(), u32> {
        let mut ranges = lock(&self.ranges);
        let end = start.checked_add(len).filter(|_| len > 0);
        let end = end.ok_or(code::INVALID_VALUE)?;
        let before = ranges.range(..end).next_back();
        if before.is_some_and(|(from, bytes)| from + bytes > start) {
            return Err(code::HOST_MEMORY_ALREADY_REGISTERED);
        }
        ranges.insert(start, len);
        Ok(())
    }

    /// # Errors
    ///
    /// The code for an address that does not start registered memory.
    pub(crate) fn unregister(&self, start: usize) -> Result<(), u32> {
        let removed = lock(&self.ranges).remove(&start);
        removed.map(drop).ok_or(code::HOST_MEMORY_NOT_REGISTERED)
    }

    /// Whether one call registered all of these bytes.
    pub(crate) fn has(&self, start: usize, len: usize) -> bool {
        let ranges = lock(&self.ranges);
        let before = ranges.range(..=start).next_back();
        before.is_some_and(|(from, bytes)| start + len <= from + bytes)
    }

    pub(crate) fn live(&self) -> usize {
        lock(&self.ranges).len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_beyond_a_block_reaches_no_other_block() {
        let memory = ReservedMemory::new(1 << 20).expect("addresses");
        let first = memory.allocate(100).expect("room");
        let second = memory.allocate(100).expect("room");

        assert_eq!(first % 256, 0);
        assert_eq!(memory.write(first + 90, &[1; 10]), Ok(()));
        assert_eq!(memory.write(first + 90, &[1; 11]), Err(AddressFault));
        assert_eq!(memory.read(second - 1, &mut [0]), Err(AddressFault));
        let mut bytes = [0; 11];
        assert_eq!(memory.read(first + 89, &mut bytes), Ok(()));
        assert_eq!(bytes, [UNWRITTEN, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
    }

    #[test]
    fn addresses_are_unique_and_memory_is_limited() {
        let memory = ReservedMemory::new(1000).expect("addresses");
        let first = memory.allocate(600).expect("room");

        assert_eq!(memory.allocate(600), Err(code::OUT_OF_MEMORY));
        assert_eq!(memory.free(first), Ok(()));
        assert_eq!(memory.free(first), Err(code::INVALID_VALUE));
        assert_eq!(memory.read(first, &mut [0]), Err(AddressFault));
        assert_ne!(memory.allocate(600), Ok(first));
        assert_eq!(memory.info(), (400, 1000));
    }

    #[test]
    fn memory_can_be_pinned_only_once() {
        let pinned = PinnedRanges::default();

        assert_eq!(pinned.register(100, 50), Ok(()));
        for (start, len) in [(100, 50), (60, 41), (149, 1), (120, 5), (90, 100)] {
            let code = code::HOST_MEMORY_ALREADY_REGISTERED;
            assert_eq!(pinned.register(start, len), Err(code), "{start} {len}");
        }
        assert_eq!(pinned.register(150, 10), Ok(()));
        assert!(pinned.has(100, 50) && pinned.has(120, 30));
        assert!(!pinned.has(120, 31) && !pinned.has(99, 1));
        assert_eq!(
            pinned.unregister(101),
            Err(code::HOST_MEMORY_NOT_REGISTERED)
        );
        assert_eq!(pinned.unregister(100), Ok(()));
        assert_eq!(pinned.live(), 1);
    }
}
