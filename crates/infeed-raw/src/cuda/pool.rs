//! Pools of memory that the driver allocates and frees without a wait for the GPU.
//!
//! `cuMemFree` waits for all work of the GPU, and so does every thread that launches a command
//! meanwhile. So memory comes from a pool of the driver and is freed in stream order. The pool
//! keeps freed memory until a loader closes and trims it.
//!
//! **Consumers.** Addresses are ordinary: `cuPointerGetAttribute` reports the device and the kind
//! of memory. Two features of `cuMemAlloc` memory are missing, and no framework uses them on memory
//! that it did not allocate: legacy IPC handles, and the context of an address. Other GPUs may read
//! pool memory only with access rights, which all peers get. If some visible GPUs are not peers,
//! only `cuMemAlloc` memory can be copied between them (see PyTorch's `Copy.cu`), so no pool is
//! used there.

use std::ffi::{c_int, c_uint};

use super::driver::{Driver, MemoryLocation, PoolAccess, PoolProperties, code};

/// `CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED`.
const SUPPORTED: c_uint = 115;

/// `CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES` and `CU_MEMPOOL_ATTR_RELEASE_THRESHOLD`.
const INTERNAL_DEPENDENCIES: c_uint = 3;
const RELEASE_THRESHOLD: c_uint = 4;

/// A pool of a context.
pub(super) struct Pool {
    pub(super) handle: usize,
    pub(super) functions: Functions,
    /// Streams of allocations and of frees.
    pub(super) allocations: usize,
    pub(super) frees: usize,
}

/// Functions that older drivers lack.
#[derive(Clone, Copy)]
pub(super) struct Functions {
    destroy: unsafe extern "C" fn(usize) -> c_uint,
    pub(super) trim: unsafe extern "C" fn(usize, usize) -> c_uint,
    pub(super) allocate: unsafe extern "C" fn(*mut u64, usize, usize, usize) -> c_uint,
    pub(super) free: unsafe extern "C" fn(u64, usize) -> c_uint,
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
        let at = |device| MemoryLocation { kind: 1, device };
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
}
