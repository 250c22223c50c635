//! Memory of a GPU that is allocated and freed without a wait for the GPU.
//!
//! `cuMemFree` waits for all work of the GPU, and with it every thread that launches something meanwhile.
//! So memory comes from a pool of the driver, and is freed in the order of a stream. The pool keeps freed
//! memory until it is trimmed, when a loader is closed.
//!
//! **Allocations** go to a stream that has nothing else and waits for nothing, which is waited for at once:
//! the memory is there for every stream and for the host when `memory` returns. So consumers, whose streams
//! we do not know, need no order except the one that DLPack requires. The pool must not make an
//! allocation wait for another stream's free, or this wait would be one for a consumer.
//!
//! **Frees** go to a stream that waits, on the GPU, for all that may use the memory: our streams, and the
//! events behind consumers' commands.
//!
//! **Consumers.** The address is an ordinary one: `cuPointerGetAttribute` reports the device and its kind of
//! memory. Two things differ from `cuMemAlloc`, and no framework uses them on memory that it has not
//! allocated: legacy IPC handles, and the context of an address, which is none. Other GPUs may read
//! pool memory only by leave, which all peers get; where GPUs are visible that are no peers, copies between
//! them work with `cuMemAlloc` alone (PyTorch's `Copy.cu` says so of pools), so that is used there.

use std::ffi::{c_int, c_uint, c_void};

use super::context::{Bound, Context};
use super::driver::{Driver, code};
use super::error::CudaError;
use super::event::Event;
use super::queue::Queue;

/// `CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED`.
const SUPPORTED: c_uint = 115;

/// `CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES` and `CU_MEMPOOL_ATTR_RELEASE_THRESHOLD`.
const INTERNAL_DEPENDENCIES: c_uint = 3;
const RELEASE_THRESHOLD: c_uint = 4;

/// `CUmemPoolProps`.
#[repr(C)]
pub(super) struct PoolProperties {
    /// `CU_MEM_ALLOCATION_TYPE_PINNED`: memory of the device.
    allocations: c_int,
    /// `CU_MEM_HANDLE_TYPE_NONE`: not for other processes.
    handles: c_int,
    location: Location,
    security: *const c_void,
    reserved: [u8; 64],
}

/// `CUmemLocation`.
#[repr(C)]
struct Location {
    /// `CU_MEM_LOCATION_TYPE_DEVICE`.
    kind: c_int,
    device: c_int,
}

/// `CUmemAccessDesc`.
#[repr(C)]
pub(super) struct PoolAccess {
    location: Location,
    /// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
    flags: c_int,
}

const _: () = assert!(size_of::<PoolProperties>() == 88 && size_of::<PoolAccess>() == 12);

/// A pool of a context.
pub(super) struct Pool {
    handle: usize,
    functions: Functions,
    /// Streams.
    allocations: usize,
    frees: usize,
}

/// Functions that older drivers lack.
#[derive(Clone, Copy)]
struct Functions {
    destroy: unsafe extern "C" fn(usize) -> c_uint,
    trim: unsafe extern "C" fn(usize, usize) -> c_uint,
    allocate: unsafe extern "C" fn(*mut u64, usize, usize, usize) -> c_uint,
    free: unsafe extern "C" fn(u64, usize) -> c_uint,
}

impl Pool {
    /// A pool on a device with these others visible; none if the driver or the devices do not support it.
    pub(super) fn new(driver: &Driver, device: c_int, others: &[c_int]) -> Option<Pool> {
        let functions = Functions {
            destroy: driver.pool_destroy?,
            trim: driver.pool_trim?,
            allocate: driver.pool_alloc?,
            free: driver.pool_free?,
        };
        let (create, set, access) = (driver.pool_create?, driver.pool_set?, driver.pool_access?);
        let (peer, is_done) = (driver.peer?, |code| (code == code::SUCCESS).then_some(()));
        let mut supported = 0;
        // SAFETY: writes one integer.
        is_done(unsafe { (driver.device_attribute)(&raw mut supported, SUPPORTED, device) })?;
        let mut are_peers = supported != 0;
        for &other in others {
            let mut is_peer = 0;
            // SAFETY: writes one integer.
            is_done(unsafe { peer(&raw mut is_peer, other, device) })?;
            are_peers &= is_peer != 0;
        }
        if !are_peers {
            return None;
        }
        let at = |device| Location { kind: 1, device };
        let properties = PoolProperties {
            allocations: 1,
            handles: 0,
            location: at(device),
            security: std::ptr::null(),
            reserved: [0; 64],
        };
        let mut handle = 0;
        // SAFETY: writes one handle, and reads a struct as long as every version of it.
        is_done(unsafe { create(&raw mut handle, &raw const properties) })?;
        let mut pool = Pool {
            handle,
            functions,
            allocations: 0,
            frees: 0,
        };
        let (mut kept, mut dependencies) = (u64::MAX, 0 as c_int);
        let access_of = |&other: &c_int| PoolAccess {
            location: at(other),
            flags: 3,
        };
        let leave: Vec<PoolAccess> = others.iter().map(access_of).collect();
        // SAFETY: an attribute of 64 bits and one of 32, a list of that many structs, and two handles that
        // are written; the context is current. The flag is `CU_STREAM_NON_BLOCKING`.
        let codes = unsafe {
            [
                set(handle, RELEASE_THRESHOLD, (&raw mut kept).cast()),
                set(
                    handle,
                    INTERNAL_DEPENDENCIES,
                    (&raw mut dependencies).cast(),
                ),
                match leave.is_empty() {
                    true => code::SUCCESS,
                    false => access(handle, leave.as_ptr(), leave.len()),
                },
                (driver.stream_create)(&raw mut pool.allocations, 1),
                (driver.stream_create)(&raw mut pool.frees, 1),
            ]
        };
        if codes.iter().any(|&code| code != code::SUCCESS) {
            pool.close(driver);
            return None;
        }
        Some(pool)
    }

    /// Ends it, once nothing of it is used. The context is current.
    pub(super) fn close(&self, driver: &Driver) {
        for stream in [self.allocations, self.frees] {
            if stream != 0 {
                // SAFETY: made in `new`; nothing is put there any more.
                unsafe {
                    (driver.stream_synchronize)(stream);
                    (driver.stream_destroy)(stream);
                }
            }
        }
        // SAFETY: made in `new`, and all its memory was freed before.
        unsafe { (self.functions.destroy)(self.handle) };
    }

    /// The address of new memory, and a code.
    pub(super) fn allocate(&self, driver: &Driver, bytes: usize, _: &Bound<'_>) -> (u64, c_uint) {
        let mut address = 0;
        let mut allocate = || {
            // SAFETY: writes one address; a pool and a stream that live as long as this.
            let code = unsafe {
                (self.functions.allocate)(&raw mut address, bytes, self.handle, self.allocations)
            };
            match code {
                // SAFETY: as above.
                code::SUCCESS => unsafe { (driver.stream_synchronize)(self.allocations) },
                code => code,
            }
        };
        let mut code = allocate();
        if code == code::OUT_OF_MEMORY {
            // What was freed may still be kept, for streams that are not there yet.
            //
            // SAFETY: as above.
            unsafe {
                (driver.stream_synchronize)(self.frees);
                (self.functions.trim)(self.handle, 0);
            }
            code = allocate();
        }
        (address, code)
    }
}

impl Context {
    /// The stream of frees, if memory is freed in a stream.
    fn frees(&self) -> Option<Queue> {
        let pool = self.pool.as_ref()?;
        Some(Queue::own(pool.frees, self.id))
    }

    /// Frees memory that is dropped from now on behind the moment last recorded, without a wait on the host;
    /// where the driver has no pools, this waits for that moment.
    ///
    /// # Errors
    ///
    /// As [`Event::hold`] and [`Event::synchronize`].
    pub fn free_behind(&self, event: &Event) -> Result<(), CudaError> {
        match self.frees() {
            Some(frees) => event.hold(frees),
            None => event.synchronize(),
        }
    }

    /// An event behind all memory that was dropped so far; none if that was freed when it was dropped.
    ///
    /// # Errors
    ///
    /// What the driver returns.
    pub fn freed(self: &std::sync::Arc<Context>) -> Result<Option<Event>, CudaError> {
        let Some(frees) = self.frees() else {
            return Ok(None);
        };
        let event = self.event(false)?;
        event.record(frees)?;
        Ok(Some(event))
    }

    /// Gives memory that was freed back to the GPU, for other libraries and processes.
    pub fn trim(&self) {
        if let (Some(pool), Ok(_bound)) = (&self.pool, self.bind()) {
            // SAFETY: a pool that lives as long as this. What cannot be given back now stays.
            unsafe { (pool.functions.trim)(pool.handle, 0) };
        }
    }

    /// Frees memory behind everything that was put on our streams so far, and behind `used`.
    ///
    /// # Errors
    ///
    /// What the driver returns; the memory is then not freed.
    pub(super) fn free_later(
        self: &std::sync::Arc<Context>,
        pool: &Pool,
        address: u64,
        used: &[Event],
    ) -> Result<(), CudaError> {
        let _bound = self.bind()?;
        let frees = Queue::own(pool.frees, self.id);
        used.iter().try_for_each(|event| event.hold(frees))?;
        let event = self.event(false)?;
        for stream in self.own_streams() {
            event.record(stream)?;
            event.hold(frees)?;
        }
        // SAFETY: allocated from the pool, freed once; what uses it is before this in the stream.
        let code = unsafe { (pool.functions.free)(address, pool.frees) };
        self.driver.check("cuMemFreeAsync", code)
    }
}
