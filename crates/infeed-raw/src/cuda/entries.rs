//! The kernels that are loaded into a context.

use std::collections::HashMap;
use std::ffi::CStr;

use super::driver::Driver;

/// What is loaded into a context: a module, and its kernels by name.
pub(super) struct Entries {
    pub(super) module: usize,
    pub(super) functions: HashMap<&'static CStr, usize>,
}

impl Entries {
    pub(super) fn none() -> Entries {
        Entries {
            module: 0,
            functions: HashMap::new(),
        }
    }

    /// For the end of a context, while it is current and its streams are idle.
    ///
    /// # Safety
    ///
    /// Called once, after the last launch.
    pub(super) unsafe fn unload(&self, driver: &Driver) {
        if self.module != 0 {
            // SAFETY: loaded in `load`; that this is the only unloading, the caller says.
            unsafe { (driver.module_unload)(self.module) };
        }
    }
}
