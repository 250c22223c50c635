//! Modules of PTX, and launches.

use std::ffi::{CStr, c_char, c_uint, c_void};
use std::sync::Arc;

use super::{functions, give};
use crate::driver::code;
use crate::driver::launch::{launch, parameters};
use crate::driver::world::Function;
use crate::ptx::Module;

functions! {
    fn cuModuleLoadDataEx(
        world, module: *mut usize, image: *const c_void, _options: c_uint,
        _names: *mut c_uint, _values: *mut *mut c_void
    ) {
        world.here()?;
        let text = CStr::from_ptr(image.cast()).to_str().map_err(|_| code::INVALID_PTX)?;
        let parsed = Module::parse(text).map_err(|error| {
            world.misuse(error.to_string());
            code::INVALID_PTX
        })?;
        give(module, world.modules.add(Arc::new(parsed)))
    }

    fn cuModuleGetFunction(world, function: *mut usize, module: usize, name: *const c_char) {
        let of = module;
        let module = world.modules.get(module)?;
        let entry = CStr::from_ptr(name).to_string_lossy().into_owned();
        if module.parameter_bytes(&entry).is_none() {
            return Err(code::NOT_FOUND);
        }
        give(function, world.functions.add(Arc::new(Function { module, entry, of })))
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
