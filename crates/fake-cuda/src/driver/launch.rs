//! Kernel launches: checked as by a driver, then run as PTX on their stream.

use std::ffi::c_uint;
use std::sync::Arc;

use super::code;
use super::gpu::FakeGpu;
use super::memory::MemoryView;
use super::world::{Driver, LoadedKernel};
use crate::ptx::KernelFault;

/// Puts a kernel on a stream.
///
/// # Errors
///
/// The codes for launches that a GPU rejects.
pub(crate) fn launch(
    world: &'static Driver,
    function: &Arc<LoadedKernel>,
    grid: [c_uint; 3],
    block: [c_uint; 3],
    stream: usize,
    argument: Vec<u8>,
) -> Result<(), c_uint> {
    let threads: u64 = block.iter().map(|&n| u64::from(n)).product();
    let is_small = grid[1] <= 65_535 && grid[2] <= 65_535 && grid[0] < 1 << 31;
    if threads == 0 || threads > 1024 || grid.contains(&0) || !is_small {
        return Err(code::INVALID_VALUE);
    }
    if grid[1..] != [1, 1] || block[1..] != [1, 1] {
        world.misuse("the fake driver runs grids of one dimension".to_owned());
        return Err(code::INVALID_VALUE);
    }
    if function.module.parameter_bytes(&function.entry) != Some(argument.len()) {
        return Err(code::LAUNCH_OUT_OF_RESOURCES);
    }
    let (gpu, stream) = world.to_put(stream)?;
    let function = Arc::clone(function);
    let runs = move || run(gpu, &function, grid[0], block[0], &argument);
    gpu.put(&stream, Box::new(runs));
    Ok(())
}

fn run(gpu: &FakeGpu, function: &LoadedKernel, grid: u32, block: u32, argument: &[u8]) {
    if gpu.works().is_err() {
        return;
    }
    let (memory, entry) = (MemoryView::of(&gpu.memory), &function.entry);
    if let Err(fault) = function.module.run(entry, grid, block, argument, &memory) {
        let code = match fault {
            KernelFault::Outside { .. } => code::ILLEGAL_ADDRESS,
            KernelFault::Misaligned { .. } => code::MISALIGNED_ADDRESS,
            _ => code::LAUNCH_FAILED,
        };
        gpu.lose(code, fault.to_string());
    }
}
