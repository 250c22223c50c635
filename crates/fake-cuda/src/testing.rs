//! Drivers for tests in the same program, which link this crate and call its functions by name.
//!
//! [`start`] sets a driver for the calling thread that no other thread uses, so tests may run
//! concurrently in one process. The thread's calls are logged with their arguments, and the test
//! can make them fail at any time. Misuse of such a driver ends the process.

use std::ffi::{c_int, c_uint};

use crate::driver::settings::Settings;
use crate::driver::world::{self, Driver};
use crate::driver::{report, thread};
use crate::nvjpeg;

/// A call of one of the library's functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Name of the function in `cuda.h` or `nvjpeg.h`, or the text of a [`note`].
    pub function: &'static str,
    /// Arguments as numbers; for a pointer, its address.
    pub arguments: Vec<u64>,
}

/// A fault of a JPEG file in nvJPEG only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFault {
    /// Calls that decode it return this status.
    Broken(c_uint),
    /// Its width is reported one too large.
    Misread,
    /// The hardware engine does not decode it.
    Unsupported,
}

/// Starts a driver for this thread: two devices of 1 GiB without memory pools, each with a JPEG
/// engine.
///
/// # Panics
///
/// If the system has no addresses left.
pub fn start() {
    thread::reset();
    let world = Driver::new(Settings::of_test()).expect("the system has addresses");
    world::set_own(world);
}

fn own() -> &'static Driver {
    world::get().expect("the test has called start")
}

/// Returns the calls and notes since `start` or the last time, in order.
pub fn calls() -> Vec<Call> {
    thread::take_log()
}

/// Logs an event of the test between the calls.
pub fn note(text: &'static str) {
    thread::log(text, &[]);
}

/// Makes a function return `code` instead of taking effect, from now on.
pub fn fail(function: &str, code: c_uint) {
    own().fail(function, code, 0);
}

/// Makes the `nth` call of a function from now on return `code` instead of taking effect.
pub fn fail_call(function: &str, code: c_uint, nth: u64) {
    own().fail(function, code, nth);
}

/// Removes all failures of functions.
pub fn fail_nothing() {
    own().fail_nothing();
}

/// Gives all files with this length a fault.
pub fn add_fault(file_bytes: usize, fault: FileFault) {
    own().nvjpeg.add_fault(file_bytes, fault);
}

/// Removes the faults of all files.
pub fn clear_faults() {
    own().nvjpeg.clear_faults();
}

/// Returns the pixels that the fake nvJPEG decodes from a file: red, green and blue of each pixel,
/// or None if the file is damaged.
pub fn pixels(file: &[u8]) -> Option<Vec<u8>> {
    nvjpeg::pixels(file)
}

/// Returns the name of the kernel of a launch.
pub fn kernel(function: u64) -> Option<String> {
    let function = usize::try_from(function).ok()?;
    let found = own().functions.get(function).ok()?;
    Some(found.entry.clone())
}

/// Returns the number of live objects of a kind, such as `memory`, `streams`, `decoders` or
/// `contexts`.
///
/// # Panics
///
/// If the report does not have this kind.
pub fn live(kind: &str) -> u64 {
    let live = report::live(own());
    live[kind].as_u64().expect("a kind of the report")
}

/// Returns the number of contexts on this thread's stack.
pub fn context_depth() -> usize {
    thread::depth()
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
