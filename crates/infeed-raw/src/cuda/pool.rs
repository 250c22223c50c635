//! Memory of a GPU that is allocated and freed without a wait for the GPU.
//!
//! `cuMemFree` waits for all work of the GPU, and so does every thread that launches a command
//! meanwhile. So memory comes from a pool of the driver and is freed in stream order. The pool
//! keeps freed memory until a loader closes and trims it.
//!
//! **Allocations** go to a stream with no other commands and no waits, and the host waits for it at
//! once: when `memory` returns, every stream and the host may use the memory. Consumers, whose
//! streams are unknown, need no order beyond the one that DLPack requires. The pool must not make
//! an allocation wait for another stream's free, since that would be a wait for a consumer.
//!
//! **Frees** go to a stream that waits, on the GPU, for everything that may use the memory: the
//! context's streams, and the events after consumers' commands.
//!
//! **Consumers.** Addresses are ordinary: `cuPointerGetAttribute` reports the device and the kind
//! of memory. Two features of `cuMemAlloc` memory are missing, and no framework uses them on memory
//! that it did not allocate: legacy IPC handles, and the context of an address. Other GPUs may read
//! pool memory only with access rights, which all peers get. If some visible GPUs are not peers,
//! only `cuMemAlloc` memory can be copied between them (see PyTorch's `Copy.cu`), so no pool is
//! used there.

use std::ffi::{c_int, c_uint, c_void};

use super::context::{Context, CurrentContext};
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
    /// Streams of allocations and of frees.
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
    /// Makes a pool on a device, readable from the other visible devices; None if the driver or the
    /// devices do not support it.
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
        // SAFETY: writes one handle, and reads a struct that is as long as in every version.
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
        let rights: Vec<PoolAccess> = others.iter().map(access_of).collect();
        // SAFETY: an attribute of 64 bits and one of 32, a list of `rights.len()` structs, and two
        // handles that are written; the context is current. The flag is `CU_STREAM_NON_BLOCKING`.
        let codes = unsafe {
            [
                set(handle, RELEASE_THRESHOLD, (&raw mut kept).cast()),
                set(
                    handle,
                    INTERNAL_DEPENDENCIES,
                    (&raw mut dependencies).cast(),
                ),
                match rights.is_empty() {
                    true => code::SUCCESS,
                    false => access(handle, rights.as_ptr(), rights.len()),
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

    /// Destroys the pool. Call this when no memory of the pool is in use and the context is
    /// current.
    pub(super) fn close(&self, driver: &Driver) {
        for stream in [self.allocations, self.frees] {
            if stream != 0 {
                // SAFETY: created in `new`; no more commands are put on it.
                unsafe {
                    (driver.stream_synchronize)(stream);
                    (driver.stream_destroy)(stream);
                }
            }
        }
        // SAFETY: created in `new`; all its memory was freed before.
        unsafe { (self.functions.destroy)(self.handle) };
    }

    /// Allocates memory. Returns its address, and a code.
    pub(super) fn allocate(
        &self,
        driver: &Driver,
        bytes: usize,
        _: &CurrentContext<'_>,
    ) -> (u64, c_uint) {
        let mut address = 0;
        let mut allocate = || {
            // SAFETY: writes one address; the pool and the stream live as long as `self`.
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
            // The pool may keep freed memory because its stream has not reached the free.
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
    /// Returns the stream of frees, if memory is freed in stream order.
    fn frees(&self) -> Option<Queue> {
        let pool = self.pool.as_ref()?;
        Some(Queue::own(pool.frees, self.id))
    }

    /// Makes memory that is dropped from now on wait, on the GPU, for the event's last record
    /// before it is freed. Without pools, waits here for the event.
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

    /// Returns an event after the frees of all memory dropped so far; None if memory is freed when
    /// it is dropped.
    ///
    /// # Errors
    ///
    /// The driver's error.
    pub fn freed(self: &std::sync::Arc<Context>) -> Result<Option<Event>, CudaError> {
        let Some(frees) = self.frees() else {
            return Ok(None);
        };
        let event = self.event(false)?;
        event.record(frees)?;
        Ok(Some(event))
    }

    /// Returns freed memory to the GPU, for other libraries and processes.
    pub fn trim(&self) {
        if let (Some(pool), Ok(_bound)) = (&self.pool, self.bind()) {
            // SAFETY: the pool lives as long as `self`. Memory that cannot be returned now stays in
            // the pool.
            unsafe { (pool.functions.trim)(pool.handle, 0) };
        }
    }

    /// Frees memory after all commands on the context's streams so far, and after `used`.
    ///
    /// # Errors
    ///
    /// The driver's error; the memory is then not freed.
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
        // SAFETY: allocated from the pool, freed once; all commands that use it come before in the
        // stream.
        let code = unsafe { (pool.functions.free)(address, pool.frees) };
        self.driver.check("cuMemFreeAsync", code)
    }
}
