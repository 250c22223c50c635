//! The functions of the CUDA driver used here, looked up at the first use.
//!
//! Nothing is linked, so a program that contains these modules runs on a machine without a driver.
//!
//! Source: `cuda.h` of CUDA 11.0; every later driver has these functions under the same names.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use super::error::{CudaError, NoCuda};
use super::library::{Library, table};

/// The oldest driver that has every function of the table, in the format of `cuDriverGetVersion`:
/// 11.0.
const OLDEST: c_int = 11_000;

/// `CUDA_SUCCESS` and the other codes that this module distinguishes.
pub(super) mod code {
    use std::ffi::c_uint;

    pub(crate) const SUCCESS: c_uint = 0;
    pub(crate) const OUT_OF_MEMORY: c_uint = 2;
    pub(crate) const NOT_INITIALIZED: c_uint = 3;
    pub(crate) const NO_DEVICE: c_uint = 100;
    pub(crate) const NOT_READY: c_uint = 600;
    pub(crate) const CAPTURE_IMPLICIT: c_uint = 906;

    /// For a stream: an invalid handle, or a stream of a destroyed context.
    pub(crate) const OF_STREAMS: [c_uint; 2] = [400, 709];

    /// For an image of kernels: invalid, not for this GPU, or PTX that is invalid, unsupported, of
    /// a later version, or that the driver has no compiler for.
    pub(crate) const OF_KERNELS: [c_uint; 6] = [200, 209, 218, 221, 222, 223];
}

/// `CUmemPoolProps`.
#[repr(C)]
pub(super) struct PoolProperties {
    /// `CU_MEM_ALLOCATION_TYPE_PINNED`: memory of the device.
    pub(super) allocations: c_int,
    /// `CU_MEM_HANDLE_TYPE_NONE`: not for other processes.
    pub(super) handles: c_int,
    pub(super) location: MemoryLocation,
    pub(super) security: *const c_void,
    pub(super) reserved: [u8; 64],
}

/// `CUmemLocation`.
#[repr(C)]
pub(super) struct MemoryLocation {
    /// `CU_MEM_LOCATION_TYPE_DEVICE`.
    pub(super) kind: c_int,
    pub(super) device: c_int,
}

/// `CUmemAccessDesc`.
#[repr(C)]
pub(super) struct PoolAccess {
    pub(super) location: MemoryLocation,
    /// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
    pub(super) flags: c_int,
}

const _: () = assert!(size_of::<PoolProperties>() == 88 && size_of::<PoolAccess>() == 12);

table! {
    /// Functions of the driver.
    Driver;
    init = "cuInit" (c_uint);
    driver_version = "cuDriverGetVersion" (*mut c_int);
    error_name = "cuGetErrorName" (c_uint, *mut *const c_char);
    error_string = "cuGetErrorString" (c_uint, *mut *const c_char);
    device_count = "cuDeviceGetCount" (*mut c_int);
    device_get = "cuDeviceGet" (*mut c_int, c_int);
    device_name = "cuDeviceGetName" (*mut c_char, c_int, c_int);
    device_memory = "cuDeviceTotalMem_v2" (*mut usize, c_int);
    device_attribute = "cuDeviceGetAttribute" (*mut c_int, c_uint, c_int);
    device_bus = "cuDeviceGetPCIBusId" (*mut c_char, c_int, c_int);
    primary_retain = "cuDevicePrimaryCtxRetain" (*mut usize, c_int);
    primary_release = "cuDevicePrimaryCtxRelease_v2" (c_int);
    context_push = "cuCtxPushCurrent_v2" (usize);
    context_pop = "cuCtxPopCurrent_v2" (*mut usize);
    capture_mode = "cuThreadExchangeStreamCaptureMode" (*mut c_uint);
    memory_info = "cuMemGetInfo_v2" (*mut usize, *mut usize);
    memory_alloc = "cuMemAlloc_v2" (*mut u64, usize);
    memory_free = "cuMemFree_v2" (u64);
    pointer_attribute = "cuPointerGetAttribute" (*mut c_void, c_uint, u64);
    host_register = "cuMemHostRegister_v2" (*mut c_void, usize, c_uint);
    host_unregister = "cuMemHostUnregister" (*mut c_void);
    copy_to_device = "cuMemcpyHtoDAsync_v2" (u64, *const c_void, usize, usize);
    copy_to_host = "cuMemcpyDtoHAsync_v2" (*mut c_void, u64, usize, usize);
    copy_on_device = "cuMemcpyDtoDAsync_v2" (u64, u64, usize, usize);
    stream_create = "cuStreamCreate" (*mut usize, c_uint);
    stream_destroy = "cuStreamDestroy_v2" (usize);
    stream_synchronize = "cuStreamSynchronize" (usize);
    stream_wait = "cuStreamWaitEvent" (usize, usize, c_uint);
    stream_capturing = "cuStreamIsCapturing" (usize, *mut c_uint);
    event_create = "cuEventCreate" (*mut usize, c_uint);
    event_destroy = "cuEventDestroy_v2" (usize);
    event_record = "cuEventRecord" (usize, usize);
    event_query = "cuEventQuery" (usize);
    event_synchronize = "cuEventSynchronize" (usize);
    event_elapsed = "cuEventElapsedTime" (*mut f32, usize, usize);
    module_load = "cuModuleLoadDataEx"
        (*mut usize, *const c_void, c_uint, *mut c_uint, *mut *mut c_void);
    module_function = "cuModuleGetFunction" (*mut usize, usize, *const c_char);
    module_unload = "cuModuleUnload" (usize);
    launch = "cuLaunchKernel"
        (usize, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, usize,
         *mut *mut c_void, *mut *mut c_void);
    // Since CUDA 11.2.
    ? peer = "cuDeviceCanAccessPeer" (*mut c_int, c_int, c_int);
    ? pool_create = "cuMemPoolCreate" (*mut usize, *const PoolProperties);
    ? pool_destroy = "cuMemPoolDestroy" (usize);
    ? pool_set = "cuMemPoolSetAttribute" (usize, c_uint, *mut c_void);
    ? pool_access = "cuMemPoolSetAccess" (usize, *const PoolAccess, usize);
    ? pool_trim = "cuMemPoolTrimTo" (usize, usize);
    ? pool_alloc = "cuMemAllocFromPoolAsync" (*mut u64, usize, usize, usize);
    ? pool_free = "cuMemFreeAsync" (u64, usize);
}

impl Driver {
    /// Returns the driver of this machine. The first call loads and initialises it, and later calls
    /// return the same result: a driver does not appear in a running process.
    pub(super) fn get() -> Result<&'static Driver, NoCuda> {
        static DRIVER: OnceLock<Result<Driver, NoCuda>> = OnceLock::new();
        let driver = DRIVER
            .get_or_init(|| Driver::load(&[c"libcuda.so.1", c"libcuda.so"]))
            .as_ref()
            .map_err(NoCuda::clone)?;
        // Checked at every call: a forked child inherits the table and gets an error here. In the
        // process that initialised CUDA, this only reads a flag.
        driver.start()?;
        Ok(driver)
    }

    /// Loads the first of these files that exists.
    pub(super) fn load(names: &[&CStr]) -> Result<Driver, NoCuda> {
        let mut failed = None;
        for name in names {
            match Library::open(name) {
                Ok(library) => {
                    return Driver::from(&library).map_err(|function| NoCuda::NoFunction {
                        function: function.to_owned(),
                    });
                }
                // Drivers install the first name, so its error is the most useful one.
                Err(why) => _ = failed.get_or_insert((name, why)),
            }
        }
        let (library, why) = match failed {
            Some((name, why)) => (name.to_string_lossy().into_owned(), why),
            None => (
                "libcuda.so.1".to_owned(),
                "no file name was given".to_owned(),
            ),
        };
        Err(NoCuda::NoDriver { library, why })
    }

    /// Initialises the driver and checks its version.
    pub(super) fn start(&self) -> Result<(), NoCuda> {
        let failed = |call, code| match code {
            code::NO_DEVICE => NoCuda::NoGpu,
            code::NOT_INITIALIZED => NoCuda::Forked,
            code => NoCuda::Failed {
                call,
                code,
                name: self
                    .describe(code)
                    .map_or(String::new(), |(name, what)| format!(" {name}: {what}")),
            },
        };
        let mut version = 0;
        // SAFETY: writes one integer; allowed before `cuInit`.
        let code = unsafe { (self.driver_version)(&raw mut version) };
        if code != code::SUCCESS {
            return Err(failed("cuDriverGetVersion", code));
        }
        // Without the kernel module, the library reports version 0.
        if version != 0 && version < OLDEST {
            return Err(NoCuda::TooOld {
                major: version / 1000,
                minor: version % 1000 / 10,
            });
        }
        // SAFETY: the flags must be 0, and are; any thread may call this at any time, repeatedly.
        match unsafe { (self.init)(0) } {
            code::SUCCESS => Ok(()),
            code => Err(failed("cuInit", code)),
        }
    }

    /// CUDA version of the driver, major and minor.
    pub(super) fn version(&self) -> (i32, i32) {
        let mut version = 0;
        // SAFETY: writes one integer.
        unsafe { (self.driver_version)(&raw mut version) };
        (version / 1000, version % 1000 / 10)
    }

    /// Name and text of a code; None if the driver does not know it.
    pub(super) fn describe(&self, code: c_uint) -> Option<(String, String)> {
        let text = |function: unsafe extern "C" fn(c_uint, *mut *const c_char) -> c_uint| {
            let mut text = std::ptr::null();
            // SAFETY: writes a pointer to a string that lives as long as the library, or null.
            let found = unsafe { function(code, &raw mut text) } == code::SUCCESS;
            if !found || text.is_null() {
                return None;
            }
            // SAFETY: as above, and not null.
            let text = unsafe { CStr::from_ptr(text) };
            Some(text.to_string_lossy().into_owned())
        };
        Some((text(self.error_name)?, text(self.error_string)?))
    }

    /// Converts a call's code into a result.
    pub(super) fn check(&self, call: &'static str, code: c_uint) -> Result<(), CudaError> {
        match code {
            code::SUCCESS => Ok(()),
            code => Err(CudaError::call(call, code, self.describe(code))),
        }
    }
}
