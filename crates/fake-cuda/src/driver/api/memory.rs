//! Memory of GPUs and of the host, and copies between them.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use super::{functions, give};
use crate::driver::code;
use crate::driver::world::FakePool;

functions! {
    fn cuMemGetInfo_v2(world, free: *mut usize, total: *mut usize) {
        let info = world.here()?.memory.info();
        give(free, info.0)?;
        give(total, info.1)
    }

    fn cuMemAlloc_v2(world, address: *mut u64, bytes: usize) {
        world.check_not_captured()?;
        let memory = &world.here()?.memory;
        give(address, memory.allocate(bytes)?)
    }

    fn cuMemFree_v2(world, address: u64) {
        world.check_not_captured()?;
        let freed = world.here()?.memory.free(address);
        freed.inspect_err(|_| world.misuse(format!("{address:#x} was freed, but is not allocated")))
    }

    fn cuMemPoolCreate(world, pool: *mut usize, properties: *const c_int) {
        // Device memory for this process only.
        let [allocations, handles, location, device] = properties.cast::<[c_int; 4]>().read();
        if [allocations, handles, location] != [1, 0, 1] {
            return Err(code::INVALID_VALUE);
        }
        let gpu = world.gpu(device)?.ordinal;
        give(pool, world.pools.add(Arc::new(FakePool { gpu })))
    }

    fn cuMemPoolDestroy(world, pool: usize) { world.pools.remove(pool).map(drop) }

    fn cuMemPoolSetAttribute(world, pool: usize, which: c_uint, value: *mut c_void) {
        world.pools.get(pool)?;
        match which {
            // Whether an allocation may wait for another stream; here, none does.
            1..=3 if [0, 1].contains(&value.cast::<c_int>().read()) => Ok(()),
            4 => Ok(()),
            _ => Err(code::INVALID_VALUE),
        }
    }

    fn cuMemPoolSetAccess(world, pool: usize, access: *const c_int, count: usize) {
        world.pools.get(pool)?;
        let access = std::slice::from_raw_parts(access.cast::<[c_int; 3]>(), count);
        access.iter().try_for_each(|&[location, device, flags]| {
            world.gpu(device)?;
            if [location, flags] == [1, 3] { Ok(()) } else { Err(code::INVALID_VALUE) }
        })
    }

    fn cuMemPoolTrimTo(world, pool: usize, _keep: usize) { world.pools.get(pool).map(drop) }

    fn cuMemAllocFromPoolAsync(world, address: *mut u64, bytes: usize, pool: usize, stream: usize) {
        let (gpu, stream) = world.to_put(stream)?;
        if world.pools.get(pool)?.gpu != gpu.ordinal {
            world.misuse("a pool of another device was used".to_owned());
            return Err(code::INVALID_VALUE);
        }
        let reserved = gpu.memory.reserve(bytes)?;
        gpu.put(&stream, Box::new(move || gpu.memory.arrive(reserved)));
        give(address, reserved)
    }

    fn cuMemFreeAsync(world, address: u64, stream: usize) {
        let (gpu, stream) = world.to_put(stream)?;
        let begun = gpu.memory.begin_free(address);
        begun.inspect_err(|_| world.misuse(format!("{address:#x} was freed, but is not allocated")))?;
        gpu.put(&stream, Box::new(move || {
            if gpu.memory.free(address).is_err() {
                gpu.lose(code::ILLEGAL_ADDRESS, "memory was freed before its stream reached the allocation".to_owned());
            }
        }));
        Ok(())
    }

    fn cuPointerGetAttribute(world, value: *mut c_void, which: c_uint, address: u64) {
        // Attribute 9 is the GPU's ordinal; no others are supported.
        if which != 9 {
            return Err(code::INVALID_VALUE);
        }
        let gpu = world.gpu_with(address).ok_or(code::INVALID_VALUE)?;
        give(value.cast::<c_int>(), gpu.ordinal as c_int)
    }

    fn cuMemHostRegister_v2(world, start: *mut c_void, bytes: usize, _flags: c_uint) {
        world.check_not_captured()?;
        world.here()?;
        world.pinned.register(start.expose_provenance(), bytes)
    }

    fn cuMemHostUnregister(world, start: *mut c_void) {
        world.check_not_captured()?;
        world.here()?;
        if world.pinned.has(start.addr(), 1) {
            // Unregistering unlocks the pages, so they must still be mapped.
            start.cast::<u8>().read_volatile();
        }
        let undone = world.pinned.unregister(start.addr());
        undone.inspect_err(|_| world.misuse("memory was unregistered, but is not registered".to_owned()))
    }

    fn cuMemcpyHtoDAsync_v2(world, to: u64, from: *const c_void, bytes: usize, stream: usize) {
        let (gpu, stream) = world.to_put(stream)?;
        let from = from.expose_provenance();
        if !world.pinned.has(from, bytes) {
            world.counts.pageable();
        }
        gpu.put(&stream, Box::new(move || {
            let from = std::ptr::with_exposed_provenance(from);
            // SAFETY: the caller of the copy keeps the bytes until the copy is done.
            gpu.write("a copy to the GPU", to, std::slice::from_raw_parts(from, bytes));
        }));
        Ok(())
    }

    fn cuMemcpyDtoHAsync_v2(world, to: *mut c_void, from: u64, bytes: usize, stream: usize) {
        let (gpu, stream) = world.to_put(stream)?;
        let to = to.expose_provenance();
        gpu.put(&stream, Box::new(move || {
            if let Some(read) = gpu.read("a copy to the host", from, bytes) {
                let to = std::ptr::with_exposed_provenance_mut::<u8>(to);
                // SAFETY: the caller of the copy keeps the target until the copy is done.
                to.copy_from(read.as_ptr(), bytes);
            }
        }));
        if !world.pinned.has(to, bytes) {
            stream.tail().wait();
        }
        gpu.works()
    }

    fn cuMemcpyDtoDAsync_v2(world, to: u64, from: u64, bytes: usize, stream: usize) {
        const COPY: &str = "a copy on the GPU";
        let (gpu, stream) = world.to_put(stream)?;
        gpu.put(&stream, Box::new(move || {
            if let Some(read) = gpu.read(COPY, from, bytes) {
                gpu.write(COPY, to, &read);
            }
        }));
        Ok(())
    }
}
