//! The kernels loaded into a context.

use std::collections::HashMap;
use std::ffi::CStr;

use super::driver::Driver;

/// Modules loaded into a context, and their kernels by name.
pub(super) struct Entries {
    pub(super) modules: Vec<usize>,
    pub(super) functions: HashMap<&'static CStr, usize>,
}

impl Entries {
    pub(super) fn none() -> Entries {
        Entries {
            modules: Vec::new(),
            functions: HashMap::new(),
        }
    }

    /// Unloads the modules when a context ends, while it is current and its streams are idle.
    ///
    /// # Safety
    ///
    /// May be called once, after the last launch.
    pub(super) unsafe fn unload(&self, driver: &Driver) {
        for &module in &self.modules {
            // SAFETY: loaded in `load`; the caller promises that this is the only unload.
            unsafe { (driver.module_unload)(module) };
        }
    }
}
