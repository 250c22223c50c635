//! Log of the calls of a thread, with their arguments.

use std::cell::RefCell;
use std::ffi::{c_int, c_uint};

thread_local! {
    static CALLS: RefCell<Vec<Call>> = const { RefCell::new(Vec::new()) };
}

/// A call of one of the library's functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Name of the function in `cuda.h` or `nvjpeg.h`, or the text of a test's note.
    pub function: &'static str,
    /// Arguments as numbers; for a pointer, its address.
    pub arguments: Vec<u64>,
}

/// Appends a call to the log. Takes no lock, so it works in a forked child.
pub(crate) fn log(function: &'static str, arguments: &[u64]) {
    let arguments = arguments.to_vec();
    CALLS.with_borrow_mut(|calls| {
        calls.push(Call {
            function,
            arguments,
        })
    });
}

/// Returns the log and clears it.
pub(crate) fn take() -> Vec<Call> {
    CALLS.take()
}

/// An argument as it is logged.
pub(crate) trait LoggedArgument {
    fn word(self) -> u64;
}

impl LoggedArgument for u64 {
    fn word(self) -> u64 {
        self
    }
}

impl LoggedArgument for usize {
    fn word(self) -> u64 {
        self as u64
    }
}

impl LoggedArgument for c_uint {
    fn word(self) -> u64 {
        u64::from(self)
    }
}

impl LoggedArgument for c_int {
    fn word(self) -> u64 {
        i64::from(self).cast_unsigned()
    }
}

impl<T> LoggedArgument for *const T {
    fn word(self) -> u64 {
        self.addr() as u64
    }
}

impl<T> LoggedArgument for *mut T {
    fn word(self) -> u64 {
        self.addr() as u64
    }
}
