//! GPUs, and contexts on threads.

use std::ffi::{c_char, c_int, c_uint};

use super::{functions, give, give_text};
use crate::driver::report::report;
use crate::driver::{code, thread};

functions! {
    fn cuDeviceGetCount(world, count: *mut c_int) { give(count, world.gpus.len() as c_int) }

    fn cuDeviceGet(world, device: *mut c_int, ordinal: c_int) {
        world.gpu(ordinal)?;
        give(device, ordinal)
    }

    fn cuDeviceGetName(world, name: *mut c_char, room: c_int, device: c_int) {
        world.gpu(device)?;
        give_text(name, room, "Fake GPU")
    }

    fn cuDeviceTotalMem_v2(world, bytes: *mut usize, device: c_int) {
        give(bytes, world.gpu(device)?.memory.info().1)
    }

    fn cuDeviceGetAttribute(world, value: *mut c_int, which: c_uint, device: c_int) {
        world.gpu(device)?;
        // Multiprocessors, both numbers of the compute capability, and support of memory pools.
        let pools = i32::from(world.settings.pools != 0);
        let found = match which { 16 => 4, 75 => 9, 76 => 0, 115 => pools, _ => return Err(code::INVALID_VALUE) };
        give(value, found)
    }

    fn cuDeviceGetPCIBusId(world, bus: *mut c_char, room: c_int, device: c_int) {
        let gpu = world.gpu(device)?;
        // In the driver's format. No machine has this PCI domain, so no NUMA node is found for it.
        give_text(bus, room, &format!("FFFF:{:02X}:00.0", gpu.ordinal))
    }

    fn cuDeviceCanAccessPeer(world, can: *mut c_int, device: c_int, peer: c_int) {
        world.gpu(device)?;
        world.gpu(peer)?;
        give(can, c_int::from(device != peer))
    }

    fn cuDevicePrimaryCtxRetain(world, context: *mut usize, device: c_int) {
        let gpu = world.gpu(device)?;
        gpu.retain();
        give(context, gpu.context())
    }

    fn cuDevicePrimaryCtxRelease_v2(world, device: c_int) {
        match world.gpu(device)?.release() {
            true => Ok(()),
            false => {
                world.misuse("a context was released more often than retained".to_owned());
                Err(code::INVALID_CONTEXT)
            }
        }
    }

    fn cuCtxPushCurrent_v2(world, context: usize) {
        world.gpu_of(context)?;
        thread::push(context);
        Ok(())
    }

    fn cuCtxPopCurrent_v2(world, context: *mut usize) {
        let Some(popped) = thread::pop() else {
            world.misuse("a context was popped from an empty stack".to_owned());
            return Err(code::INVALID_CONTEXT);
        };
        give(context, popped)
    }

    fn cuCtxSetCurrent(world, context: usize) {
        world.gpu_of(context)?;
        thread::set(context);
        Ok(())
    }

    fn cuCtxSynchronize(world) {
        let gpu = world.here()?;
        if gpu.is_captured() {
            return Err(code::STREAM_CAPTURE_UNSUPPORTED);
        }
        world.check_not_captured()?;
        let mut streams = world.streams.all();
        streams.retain(|stream| stream.gpu == gpu.ordinal);
        streams.extend(gpu.ordered_streams());
        streams.iter().for_each(|stream| stream.tail().wait());
        gpu.wait_for_destroyed_streams();
        gpu.works()
    }

    // Not in any real driver: writes the report as NUL-terminated text into at most `room` bytes,
    // for tests that check it while the process runs.
    fn fake_report(world, text: *mut c_char, room: usize) {
        let report = report(world);
        give_text(text, c_int::try_from(room).unwrap_or(c_int::MAX), &report)
    }
}
