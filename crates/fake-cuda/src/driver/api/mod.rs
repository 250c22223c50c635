//! The functions, under their current names in `cuda.h`.

mod gpus;
mod kernels;
mod memory;
mod streams;

use std::ffi::{c_char, c_int, c_uint};
use std::sync::Once;

use super::code;
use super::report::report;
use super::world;

/// # Safety
///
/// `to` can be written to.
unsafe fn give<T>(to: *mut T, value: T) -> Result<(), c_uint> {
    if to.is_null() {
        return Err(code::INVALID_VALUE);
    }
    // SAFETY: not null, and valid as the caller promises.
    unsafe { to.write(value) };
    Ok(())
}

/// # Safety
///
/// `to` has space for `room` bytes.
unsafe fn give_text(to: *mut c_char, room: c_int, text: &str) -> Result<(), c_uint> {
    let room = usize::try_from(room).unwrap_or(0);
    if room <= text.len() {
        return Err(code::INVALID_VALUE);
    }
    // SAFETY: as the caller promises; the text with its NUL is not longer.
    unsafe {
        to.cast::<u8>().copy_from(text.as_ptr(), text.len());
        to.cast::<u8>().add(text.len()).write(0);
    }
    Ok(())
}

/// Functions of the driver: each body returns a code if it fails.
macro_rules! functions {
    ($(fn $symbol:ident($world:ident $(, $argument:ident: $ty:ty)*) $body:block)*) => {
        $(
            #[allow(non_snake_case, reason = "names of cuda.h")]
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $symbol($($argument: $ty),*) -> c_uint {
                let arguments: &[u64] = &[$($crate::driver::call_log::LoggedArgument::word($argument)),*];
                $crate::driver::world::run_call(stringify!($symbol), arguments, $crate::driver::code::NOT_INITIALIZED, |$world| {
                    // SAFETY: callers of a driver follow its manual: pointers are valid, and
                    // lengths match.
                    #[allow(unused_unsafe, reason = "some take no pointers")]
                    unsafe { $body }
                })
            }
        )*
    };
}

use functions;

/// `cuInit`.
#[allow(non_snake_case, reason = "a name of cuda.h")]
#[unsafe(no_mangle)]
extern "C" fn cuInit(flags: c_uint) -> c_uint {
    match flags {
        0 => {
            let initialised = world::initialise();
            if initialised.is_ok() {
                write_at_exit();
            }
            initialised.err().unwrap_or(0)
        }
        _ => code::INVALID_VALUE,
    }
}

/// Makes the process write `FAKE_CUDA_REPORT` when it ends.
fn write_at_exit() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: a function without arguments that lives as long as the library, which is never
        // closed.
        unsafe { libc::atexit(at_exit) };
    });
}

extern "C" fn at_exit() {
    let Some(world) = world::get() else { return };
    if world.is_forked() {
        return;
    }
    if let Some(path) = &world.settings.report
        && let Err(error) = std::fs::write(path, report(world))
    {
        eprintln!("fake CUDA driver: {}: {error}", path.display());
    }
}

/// `cuDriverGetVersion`, which may be called before `cuInit`.
#[allow(non_snake_case, reason = "a name of cuda.h")]
#[unsafe(no_mangle)]
unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> c_uint {
    let settings = super::settings::FakeSettings::of_environment();
    let found = settings.map_or(0, |settings| settings.version);
    // SAFETY: the manual requires a pointer that can be written to.
    unsafe { give(version, found) }.err().unwrap_or(0)
}

/// `cuGetErrorName`.
#[allow(non_snake_case, reason = "a name of cuda.h")]
#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorName(error: c_uint, text: *mut *const c_char) -> c_uint {
    let name = code::describe(error).map(|(name, _)| name.as_ptr());
    // SAFETY: the manual requires a pointer that can be written to.
    unsafe { give_or_null(text, name) }
}

/// `cuGetErrorString`.
#[allow(non_snake_case, reason = "a name of cuda.h")]
#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorString(error: c_uint, text: *mut *const c_char) -> c_uint {
    let what = code::describe(error).map(|(_, what)| what.as_ptr());
    // SAFETY: the manual requires a pointer that can be written to.
    unsafe { give_or_null(text, what) }
}

/// # Safety
///
/// `to` can be written to.
unsafe fn give_or_null(to: *mut *const c_char, text: Option<*const c_char>) -> c_uint {
    // SAFETY: as the caller promises.
    let given = unsafe { give(to, text.unwrap_or(std::ptr::null())) };
    given.err().unwrap_or(match text {
        Some(_) => 0,
        None => code::INVALID_VALUE,
    })
}
