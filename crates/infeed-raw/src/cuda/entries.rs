//! The kernels that are loaded into a context.

use std::collections::HashMap;
use std::ffi::CStr;

use super::driver::Driver;

/// What is loaded into a context: modules, and their kernels by name.
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

    /// For the end of a context, while it is current and its streams are idle.
    ///
    /// # Safety
    ///
    /// Called once, after the last launch.
    pub(super) unsafe fn unload(&self, driver: &Driver) {
        for &module in &self.modules {
            // SAFETY: loaded in `load`; that this is the only unloading, the caller says.
            unsafe { (driver.module_unload)(module) };
        }
    }
}
