//! The functions of the CUDA driver that are used here, found when they are first asked for.
//!
//! A program with these modules in it runs on a machine without a driver: nothing is linked.
//!
//! Source: `cuda.h` of CUDA 11.0, whose functions every later driver still has under these names.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use super::error::{CudaError, NoCuda};
use super::library::{Library, table};
use super::pool::{PoolAccess, PoolProperties};

/// The oldest driver that has every function of the table, as `cuDriverGetVersion` counts: 11.0.
const OLDEST: c_int = 11_000;

/// `CUDA_SUCCESS` and the other codes that are told apart here.
pub(super) mod code {
    use std::ffi::c_uint;

    pub(crate) const SUCCESS: c_uint = 0;
    pub(crate) const OUT_OF_MEMORY: c_uint = 2;
    pub(crate) const NOT_INITIALIZED: c_uint = 3;
    pub(crate) const NO_DEVICE: c_uint = 100;
    pub(crate) const NOT_READY: c_uint = 600;
    pub(crate) const CAPTURE_IMPLICIT: c_uint = 906;

    /// Of a stream: an invalid handle, and one of a context that was destroyed.
    pub(crate) const OF_STREAMS: [c_uint; 2] = [400, 709];

    /// Of streams while one is captured: `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED` and its kin.
    pub(crate) const OF_CAPTURES: std::ops::RangeInclusive<c_uint> = 900..=908;

    /// Of an image of kernels: invalid, none for the card, PTX that is invalid, not supported, has no
    /// compiler, or is of a later version.
    pub(crate) const OF_KERNELS: [c_uint; 6] = [200, 209, 218, 221, 222, 223];
}

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
    context_synchronize = "cuCtxSynchronize" ();
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
    /// The driver of this machine, loaded and initialised by whoever asks first. What that gave
    /// stays: drivers do not appear in a running process.
    pub(super) fn get() -> Result<&'static Driver, NoCuda> {
        static DRIVER: OnceLock<Result<Driver, NoCuda>> = OnceLock::new();
        let driver = DRIVER
            .get_or_init(|| Driver::load(&[c"libcuda.so.1", c"libcuda.so"]))
            .as_ref()
            .map_err(NoCuda::clone)?;
        // Asked every time: a child of a fork inherits the table, and learns here that it has
        // no CUDA. In a process that has it, this is a look at a flag.
        driver.start()?;
        Ok(driver)
    }

    /// The driver in the first of these files that there is.
    pub(super) fn load(names: &[&CStr]) -> Result<Driver, NoCuda> {
        let mut failed = None;
        for name in names {
            match Library::open(name) {
                Ok(library) => {
                    return Driver::from(&library).map_err(|function| NoCuda::NoFunction {
                        function: function.to_owned(),
                    });
                }
                // The first name is the one that drivers install; its error tells most.
                Err(why) => _ = failed.get_or_insert((name, why)),
            }
        }
        let (library, why) = match failed {
            Some((name, why)) => (name.to_string_lossy().into_owned(), why),
            None => (
                "libcuda.so.1".to_owned(),
                "nothing was looked for".to_owned(),
            ),
        };
        Err(NoCuda::NoDriver { library, why })
    }

    /// Initialises the driver and looks at its version.
    pub(super) fn start(&self) -> Result<(), NoCuda> {
        let failed = |call, code| match code {
            code::NO_DEVICE => NoCuda::NoCard,
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
        // A machine with the library and without the kernel's module says 0.
        if version != 0 && version < OLDEST {
            return Err(NoCuda::TooOld {
                major: version / 1000,
                minor: version % 1000 / 10,
            });
        }
        // SAFETY: flags must be 0, and are; any thread may call it, at any time, repeatedly.
        match unsafe { (self.init)(0) } {
            code::SUCCESS => Ok(()),
            code => Err(failed("cuInit", code)),
        }
    }

    /// Version of CUDA that the driver was made for, as major and minor.
    pub(super) fn version(&self) -> (i32, i32) {
        let mut version = 0;
        // SAFETY: writes one integer.
        unsafe { (self.driver_version)(&raw mut version) };
        (version / 1000, version % 1000 / 10)
    }

    /// Name and meaning of a code; none if the driver does not know it.
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

    /// What a call returned, as a result.
    pub(super) fn check(&self, call: &'static str, code: c_uint) -> Result<(), CudaError> {
        match code {
            code::SUCCESS => Ok(()),
            code => Err(CudaError::call(call, code, self.describe(code))),
        }
    }
}
