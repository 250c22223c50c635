//! Memory of cards and of the host, and copies between them.

use std::ffi::{c_int, c_uint, c_void};

use super::{functions, give};
use crate::driver::code;

functions! {
    fn cuMemGetInfo_v2(world, free: *mut usize, total: *mut usize) {
        let info = world.here()?.memory.info();
        give(free, info.0)?;
        give(total, info.1)
    }

    fn cuMemAlloc_v2(world, address: *mut u64, bytes: usize) {
        world.not_captured()?;
        let memory = &world.here()?.memory;
        give(address, memory.allocate(bytes)?)
    }

    fn cuMemFree_v2(world, address: u64) {
        world.not_captured()?;
        let freed = world.here()?.memory.free(address);
        freed.inspect_err(|_| world.misuse(format!("{address:#x} is no memory to be freed")))
    }

    fn cuPointerGetAttribute(world, value: *mut c_void, which: c_uint, address: u64) {
        // The ordinal of the card; the others are not asked for.
        if which != 9 {
            return Err(code::INVALID_VALUE);
        }
        let card = world.card_with(address).ok_or(code::INVALID_VALUE)?;
        give(value.cast::<c_int>(), card.ordinal as c_int)
    }

    fn cuMemHostRegister_v2(world, start: *mut c_void, bytes: usize, _flags: c_uint) {
        world.here()?;
        world.pinned.register(start.expose_provenance(), bytes)
    }

    fn cuMemHostUnregister(world, start: *mut c_void) {
        world.here()?;
        let undone = world.pinned.unregister(start.addr());
        undone.inspect_err(|_| world.misuse("memory was unregistered that is not".to_owned()))
    }

    fn cuMemcpyHtoDAsync_v2(world, to: u64, from: *const c_void, bytes: usize, stream: usize) {
        let (card, stream) = world.to_put(stream)?;
        let from = from.expose_provenance();
        if !world.pinned.has(from, bytes) {
            world.seen.pageable();
        }
        card.put(&stream, Box::new(move || {
            let from = std::ptr::with_exposed_provenance(from);
            // SAFETY: bytes that whoever asked for the copy keeps until it is done.
            card.write("a copy to the card", to, std::slice::from_raw_parts(from, bytes));
        }));
        Ok(())
    }

    fn cuMemcpyDtoHAsync_v2(world, to: *mut c_void, from: u64, bytes: usize, stream: usize) {
        let (card, stream) = world.to_put(stream)?;
        let to = to.expose_provenance();
        card.put(&stream, Box::new(move || {
            if let Some(read) = card.read("a copy to the host", from, bytes) {
                let to = std::ptr::with_exposed_provenance_mut::<u8>(to);
                // SAFETY: room that whoever asked for the copy keeps until it is done.
                to.copy_from(read.as_ptr(), bytes);
            }
        }));
        if !world.pinned.has(to, bytes) {
            stream.tail().wait();
        }
        card.works()
    }

    fn cuMemcpyDtoDAsync_v2(world, to: u64, from: u64, bytes: usize, stream: usize) {
        const COPY: &str = "a copy on the card";
        let (card, stream) = world.to_put(stream)?;
        card.put(&stream, Box::new(move || {
            if let Some(read) = card.read(COPY, from, bytes) {
                card.write(COPY, to, &read);
            }
        }));
        Ok(())
    }
}
