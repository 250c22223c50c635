//! Drivers for tests in the same program, which link this crate and call its functions by name.
//!
//! [`start`] sets a driver for the calling thread that no other thread uses, so tests may run
//! concurrently in one process. The thread's calls are logged with their arguments, and the test
//! can make them fail at any time. Misuse of such a driver ends the process.

use std::ffi::c_uint;

use crate::driver::call_log;
use crate::driver::settings::FakeSettings;
use crate::driver::world::{self, Driver};
use crate::driver::{report, thread};
use crate::nvjpeg;

pub use crate::driver::call_log::Call;
pub use crate::nvjpeg::library::FileFault;

/// Starts a driver for this thread: two devices of 1 GiB without memory pools, each with a JPEG
/// engine.
///
/// # Panics
///
/// If the system has no addresses left.
pub fn start() {
    thread::reset();
    call_log::take();
    let world = Driver::new(FakeSettings::of_test()).expect("the system has addresses");
    world::set_own(world);
}

fn own() -> &'static Driver {
    world::get().expect("the test has called start")
}

/// Returns the calls and notes since `start` or the last time, in order.
pub fn calls() -> Vec<Call> {
    call_log::take()
}

/// Logs an event of the test between the calls.
pub fn note(text: &'static str) {
    call_log::log(text, &[]);
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
