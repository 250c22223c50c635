//! Shared libraries, loaded at their first use: no library of NVIDIA is linked.

use std::ffi::{CStr, CString, c_void};

/// A shared library, never closed: its functions are used until the process ends.
pub(super) struct Library {
    #[cfg(unix)]
    handle: *mut c_void,
}

impl Library {
    /// Loads a file, with the system's search path.
    ///
    /// # Errors
    ///
    /// The system's error.
    #[cfg(unix)]
    pub(super) fn open(name: &CStr) -> Result<Library, String> {
        // SAFETY: the name is NUL-terminated. Loading runs the library's initialisers. The library
        // is one of NVIDIA's under its system name, or the file that the user configured, or, in
        // tests, the C library.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        match handle.is_null() {
            true => Err(last_error()),
            false => Ok(Library { handle }),
        }
    }

    /// Finds a library that the process has already loaded, by its name.
    #[cfg(unix)]
    pub(super) fn find_loaded(name: &CStr) -> Option<Library> {
        let flags = libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NOLOAD;
        // SAFETY: the name is NUL-terminated; with this flag nothing is loaded.
        let handle = unsafe { libc::dlopen(name.as_ptr(), flags) };
        (!handle.is_null()).then_some(Library { handle })
    }

    /// Address of a function; None if the library lacks it.
    #[cfg(unix)]
    pub(super) fn function(&self, name: &str) -> Option<*mut c_void> {
        let symbol = CString::new(name).ok()?;
        // SAFETY: the library is open, and the name is NUL-terminated.
        let address = unsafe { libc::dlsym(self.handle, symbol.as_ptr()) };
        (!address.is_null()).then_some(address)
    }
}

#[cfg(not(unix))]
impl Library {
    pub(super) fn open(_name: &CStr) -> Result<Library, String> {
        Err("infeed uses CUDA on Linux only".to_owned())
    }

    pub(super) fn find_loaded(_name: &CStr) -> Option<Library> {
        None
    }

    pub(super) fn function(&self, name: &str) -> Option<*mut c_void> {
        let _ = CString::new(name);
        None
    }
}

/// Returns the loader's text for its last failure on this thread.
#[cfg(unix)]
fn last_error() -> String {
    // SAFETY: returns null or a string that is valid until the next call of this family on this
    // thread; the string is copied at once.
    unsafe {
        let text = libc::dlerror();
        if text.is_null() {
            return "no reason given".to_owned();
        }
        CStr::from_ptr(text).to_string_lossy().into_owned()
    }
}

/// Declares a table of functions, and fills it from a library. Functions after a `?`, which come
/// last, may be missing.
///
/// Each function returns its code as a number, 0 for success, and not as an enum: a newer library
/// returns codes that are unknown here, and an enum with an unknown value is undefined behaviour.
/// Handles are `usize`: they are pointers that only the library follows; 0 means none. Addresses on
/// a GPU are `u64`.
macro_rules! table {
    (
        $(#[$doc:meta])* $table:ident;
        $($name:ident = $symbol:literal ($($argument:ty),*);)*
        $(? $optional:ident = $optional_symbol:literal ($($optional_argument:ty),*);)*
    ) => {
        $(#[$doc])*
        pub(super) struct $table {
            $(#[doc = $symbol]
              pub(super) $name: unsafe extern "C" fn($($argument),*) -> std::ffi::c_uint,)*
            $(#[doc = $optional_symbol]
              pub(super) $optional: Option<
                  unsafe extern "C" fn($($optional_argument),*) -> std::ffi::c_uint,
              >,)*
        }

        impl $table {
            /// The table of the fake library that is linked into tests.
            #[cfg(test)]
            pub(super) fn fake_table() -> $table {
                unsafe extern "C" {
                    $(#[link_name = $symbol]
                      fn $name($(_: $argument),*) -> std::ffi::c_uint;)*
                    $(#[link_name = $optional_symbol]
                      fn $optional($(_: $optional_argument),*) -> std::ffi::c_uint;)*
                }
                $table {
                    $($name,)*
                    $($optional: Some($optional),)*
                }
            }

            /// Fills the table from a library, or returns the name of the first missing function.
            fn from(library: &$crate::cuda::library::Library) -> Result<$table, &'static str> {
                Ok($table {
                    $($name: {
                        let address = library.function($symbol).ok_or($symbol)?;
                        // SAFETY: the address belongs to a function with this signature: the lists
                        // follow the headers that the table's module names, and a function with a
                        // changed signature has received a new name. Data pointers and function
                        // pointers have the same size on these systems.
                        unsafe {
                            std::mem::transmute::<
                                *mut std::ffi::c_void,
                                unsafe extern "C" fn($($argument),*) -> std::ffi::c_uint,
                            >(address)
                        }
                    },)*
                    $($optional: library.function($optional_symbol).map(|address| {
                        // SAFETY: as above.
                        unsafe {
                            std::mem::transmute::<
                                *mut std::ffi::c_void,
                                unsafe extern "C" fn($($optional_argument),*) -> std::ffi::c_uint,
                            >(address)
                        }
                    }),)*
                })
            }
        }
    };
}

pub(super) use table;
