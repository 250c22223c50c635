//! Utilisation of NVIDIA GPUs as `nvidia-smi` reports it, from the management library, which comes
//! with the driver and is loaded at its first use. Without the library, nothing is reported.
//!
//! Every `unsafe` here is a call through the table below. Its functions have these signatures in
//! every version of the library that has these names. They write only to the pointer that is
//! passed, do not keep it, and are safe to call from any thread. Handles are pointers that only the
//! library follows. They are valid until the process ends, since the library is initialised once
//! and never shut down.
//!
//! Source: `nvml.h` of CUDA 11.0, whose functions every later library still has under these names.

// Other systems have the functions' types, and load no library.
#![cfg_attr(not(unix), allow(dead_code, unused_imports))]

use std::ffi::{CStr, CString, c_char, c_uint, c_void};
use std::sync::OnceLock;

/// `NVML_SUCCESS`.
const SUCCESS: c_uint = 0;

/// Utilisation of a GPU during the last sixth of a second to second, by its own counters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GpuUtilisation {
    /// Share of the time in which any kernel ran, however small, 0 to 1.
    pub busy: f64,
    /// Share of the time in which the GPU's memory was read or written, 0 to 1.
    pub memory: f64,
}

/// A GPU that the library can query.
#[derive(Clone, Copy)]
pub struct MonitoredGpu {
    table: &'static NvmlFunctions,
    handle: usize,
}

/// `nvmlUtilization_t`: two shares in percent.
#[repr(C)]
#[derive(Default)]
struct UtilizationRates {
    kernels: c_uint,
    memory: c_uint,
}

/// Functions of the library. Each returns a code, 0 for success.
struct NvmlFunctions {
    init: unsafe extern "C" fn() -> c_uint,
    by_bus: unsafe extern "C" fn(*const c_char, *mut usize) -> c_uint,
    rates: unsafe extern "C" fn(usize, *mut UtilizationRates) -> c_uint,
}

impl MonitoredGpu {
    /// Finds the GPU with a PCI address such as `0000:3b:00.0`; None without the library, or if it
    /// does not know the GPU or denies access.
    pub fn at(bus: &str) -> Option<MonitoredGpu> {
        static TABLE: OnceLock<Option<NvmlFunctions>> = OnceLock::new();
        let table = TABLE.get_or_init(NvmlFunctions::load).as_ref()?;
        MonitoredGpu::of(table, bus)
    }

    fn of(table: &'static NvmlFunctions, bus: &str) -> Option<MonitoredGpu> {
        let bus = CString::new(bus).ok()?;
        let mut handle = 0;
        // SAFETY: as the module documentation states; the string is NUL-terminated, and `handle`
        // has the size of a pointer.
        let code = unsafe { (table.by_bus)(bus.as_ptr(), &mut handle) };
        (code == SUCCESS && handle != 0).then_some(MonitoredGpu { table, handle })
    }

    /// Returns the utilisation; None if the GPU has no counters, as for MIG instances.
    pub fn utilisation(&self) -> Option<GpuUtilisation> {
        let mut rates = UtilizationRates::default();
        // SAFETY: as the module documentation states; the handle comes from the library.
        let code = unsafe { (self.table.rates)(self.handle, &mut rates) };
        let share = |percent: c_uint| f64::from(percent.min(100)) / 100.0;
        (code == SUCCESS).then(|| GpuUtilisation {
            busy: share(rates.kernels),
            memory: share(rates.memory),
        })
    }
}

impl std::fmt::Debug for MonitoredGpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MonitoredGpu").finish_non_exhaustive()
    }
}

impl NvmlFunctions {
    #[cfg(unix)]
    fn load() -> Option<NvmlFunctions> {
        // Drivers install the first name; the name without a version comes with development
        // packages.
        //
        // SAFETY: the name is NUL-terminated. Loading runs the library's initialisers; the library
        // is the driver's, under its system name.
        let library = unsafe {
            libc::dlopen(
                c"libnvidia-ml.so.1".as_ptr(),
                libc::RTLD_NOW | libc::RTLD_LOCAL,
            )
        };
        if library.is_null() {
            return None;
        }
        let function = |name: &CStr| -> Option<*mut c_void> {
            // SAFETY: the library is open and stays open; the name is NUL-terminated.
            let address = unsafe { libc::dlsym(library, name.as_ptr()) };
            (!address.is_null()).then_some(address)
        };
        let (init, by_bus, rates) = (
            function(c"nvmlInit_v2")?,
            function(c"nvmlDeviceGetHandleByPciBusId_v2")?,
            function(c"nvmlDeviceGetUtilizationRates")?,
        );
        // SAFETY: addresses of functions with these signatures, as the module documentation states.
        // Data pointers and function pointers have the same size on these systems.
        let table = unsafe {
            NvmlFunctions {
                init: std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_uint>(init),
                by_bus: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(*const c_char, *mut usize) -> c_uint,
                >(by_bus),
                rates: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(usize, *mut UtilizationRates) -> c_uint,
                >(rates),
            }
        };
        table.initialise()
    }

    #[cfg(not(unix))]
    fn load() -> Option<NvmlFunctions> {
        None
    }

    /// Returns the table, if the library can be initialised.
    fn initialise(self) -> Option<NvmlFunctions> {
        // SAFETY: as the module documentation states; the function takes no arguments.
        let code = unsafe { (self.init)() };
        (code == SUCCESS).then_some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fake library with two GPUs: one is 97 % busy, the other has no counters.
    static FAKE: NvmlFunctions = NvmlFunctions {
        init: return_success,
        by_bus,
        rates,
    };

    extern "C" fn return_success() -> c_uint {
        SUCCESS
    }

    extern "C" fn return_error() -> c_uint {
        999
    }

    unsafe extern "C" fn by_bus(bus: *const c_char, handle: *mut usize) -> c_uint {
        // SAFETY: the caller passes a NUL-terminated string and a pointer for the handle.
        let (bus, handle) = unsafe { (CStr::from_ptr(bus), &mut *handle) };
        *handle = match bus.to_bytes() {
            b"0000:3b:00.0" => 1,
            b"0000:af:00.0" => 2,
            _ => return 6,
        };
        SUCCESS
    }

    unsafe extern "C" fn rates(handle: usize, rates: *mut UtilizationRates) -> c_uint {
        if handle != 1 {
            return 3;
        }
        // SAFETY: the caller passes a pointer to two numbers.
        let rates = unsafe { &mut *rates };
        (rates.kernels, rates.memory) = (97, 140);
        SUCCESS
    }

    #[test]
    fn a_gpu_is_found_by_its_pci_address_and_reports_utilisation() {
        let gpu = MonitoredGpu::of(&FAKE, "0000:3b:00.0").expect("the GPU exists");

        let found = gpu.utilisation().expect("it counts");

        assert_eq!(found.busy, 0.97);
        assert_eq!(found.memory, 1.0, "a share is at most 1");
    }

    #[test]
    fn an_unknown_gpu_and_missing_counters_are_none() {
        assert!(MonitoredGpu::of(&FAKE, "0000:00:00.0").is_none());
        assert!(MonitoredGpu::of(&FAKE, "a\0b").is_none());
        let silent = MonitoredGpu::of(&FAKE, "0000:af:00.0").expect("the GPU exists");
        assert_eq!(silent.utilisation(), None);
    }

    #[test]
    fn a_library_that_fails_to_initialise_is_ignored() {
        let table = NvmlFunctions {
            init: return_error,
            by_bus,
            rates,
        };

        assert!(table.initialise().is_none());
    }

    #[test]
    fn an_address_without_a_gpu_is_none() {
        assert!(MonitoredGpu::at("ffff:ff:1f.7").is_none());
    }
}
