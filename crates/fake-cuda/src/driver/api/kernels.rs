//! Modules of PTX, and launches.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::Arc;

use super::{functions, give, give_text};
use crate::driver::call_log::LoggedArgument;
use crate::driver::code;
use crate::driver::launch::launch;
use crate::driver::world::{self, LoadedKernel};
use crate::ptx::Module;

/// `CU_LAUNCH_PARAM_BUFFER_POINTER` and `CU_LAUNCH_PARAM_BUFFER_SIZE`.
const POINTER: usize = 1;
const SIZE: usize = 2;

/// Reads the parameters of a launch from a list that ends with `CU_LAUNCH_PARAM_END`.
///
/// # Errors
///
/// The code for a list without both parameters.
///
/// # Safety
///
/// `extra` is such a list: alternating names and values. The values point to the buffer and its
/// length.
unsafe fn parameters(extra: *const *mut c_void) -> Result<Vec<u8>, c_uint> {
    let (mut bytes, mut len) = (None, None);
    if extra.is_null() {
        return Err(code::INVALID_VALUE);
    }
    for pair in 0.. {
        // SAFETY: the list has not ended yet.
        let name = unsafe { *extra.add(2 * pair) };
        if name.is_null() {
            break;
        }
        // SAFETY: every name except the last is followed by a value.
        let value = unsafe { *extra.add(2 * pair + 1) };
        match name.addr() {
            POINTER => bytes = Some(value.cast::<u8>().cast_const()),
            SIZE => {
                // SAFETY: a pointer to the length.
                len = Some(unsafe { *value.cast::<usize>() });
            }
            _ => return Err(code::INVALID_VALUE),
        }
    }
    let (Some(bytes), Some(len)) = (bytes, len) else {
        return Err(code::INVALID_VALUE);
    };
    // SAFETY: the buffer has this length.
    Ok(unsafe { std::slice::from_raw_parts(bytes, len) }.to_vec())
}

/// The load options that this driver accepts: `CU_JIT_ERROR_LOG_BUFFER` and
/// `CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES`.
const LOG: [c_uint; 2] = [5, 6];

/// `cuModuleLoadDataEx`, which writes the reason of a failure to the caller's log.
#[allow(non_snake_case, reason = "a name of cuda.h")]
#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleLoadDataEx(
    module: *mut usize,
    image: *const c_void,
    count: c_uint,
    options: *mut c_uint,
    values: *mut *mut c_void,
) -> c_uint {
    let arguments = &[module.word(), image.word()];
    let code = world::run_call(
        "cuModuleLoadDataEx",
        arguments,
        code::NOT_INITIALIZED,
        |world| {
            world.here()?;
            // SAFETY: NUL-terminated text, the only kind of image that this driver loads.
            let text = unsafe { CStr::from_ptr(image.cast()) };
            let text = text.to_str().map_err(|_| code::INVALID_PTX)?;
            let parsed = Module::parse(text).map_err(|error| {
                world.misuse(error.to_string());
                code::INVALID_PTX
            })?;
            // SAFETY: the manual requires a pointer that can be written to.
            unsafe { give(module, world.modules.add(Arc::new(parsed))) }
        },
    );
    // SAFETY: two options, each with a value.
    let has_log = count == 2 && unsafe { options.cast::<[c_uint; 2]>().read() } == LOG;
    if code != 0 && has_log {
        // SAFETY: values of these options: a buffer, and its length in place of a pointer.
        let (log, room) = unsafe { (values.read(), values.add(1).read().addr()) };
        let room = c_int::try_from(room).unwrap_or(c_int::MAX);
        let text = format!("the fake driver returns {code}\n");
        // SAFETY: as above. A log without space stays empty.
        let _ = unsafe { give_text(log.cast(), room, &text) };
    }
    code
}

functions! {
    fn cuModuleGetFunction(world, function: *mut usize, module: usize, name: *const c_char) {
        let of = module;
        let module = world.modules.get(module)?;
        let entry = CStr::from_ptr(name).to_string_lossy().into_owned();
        if module.parameter_bytes(&entry).is_none() {
            return Err(code::NOT_FOUND);
        }
        give(function, world.functions.add(Arc::new(LoadedKernel { module, entry, of })))
    }

    fn cuModuleUnload(world, module: usize) {
        world.modules.remove(module)?;
        world.functions.retain(|function| function.of != module);
        Ok(())
    }

    fn cuLaunchKernel(
        world, function: usize,
        x: c_uint, y: c_uint, z: c_uint,
        block_x: c_uint, block_y: c_uint, block_z: c_uint,
        _shared: c_uint, stream: usize,
        _arguments: *mut *mut c_void, extra: *mut *mut c_void
    ) {
        let function = world.functions.get(function)?;
        let argument = parameters(extra)?;
        launch(world, &function, [x, y, z], [block_x, block_y, block_z], stream, argument)
    }
}
