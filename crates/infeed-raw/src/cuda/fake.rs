//! A driver for tests, on the host: it does at once what it is told, on memory of the host, and
//! writes down what that was. State is a thread's own, so each test has its own card.

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use super::driver::Driver;

/// What a thread's card has and was told.
#[derive(Default)]
pub(super) struct State {
    /// Calls in order, with what matters of their arguments.
    pub(super) calls: Vec<String>,
    /// What calls of a name return in place of success.
    pub(super) failing: Vec<(&'static str, c_uint)>,
    /// Blocks of memory by their address.
    pub(super) blocks: Vec<(u64, Vec<u8>)>,
    /// Contexts pushed and not popped.
    pub(super) pushed: usize,
    /// Whether streams that are not ours are being captured.
    pub(super) capturing: bool,
    /// Argument of the last launch.
    pub(super) arguments: Vec<u8>,
    entries: Vec<&'static CStr>,
    next: usize,
}

thread_local! {
    static STATE: RefCell<State> = RefCell::default();
}

/// Looks at, or changes, this thread's card.
pub(super) fn state<T>(look: impl FnOnce(&mut State) -> T) -> T {
    STATE.with_borrow_mut(look)
}

/// A card that was told nothing: a thread may have run another test before.
pub(super) fn reset() {
    state(|state| *state = State::default());
}

/// The calls since the last time this was asked.
pub(super) fn calls() -> Vec<String> {
    state(|state| std::mem::take(&mut state.calls))
}

/// Writes a call down; what it shall return.
pub(super) fn told(name: &'static str, detail: String) -> c_uint {
    state(|state| {
        state.calls.push(if detail.is_empty() {
            name.to_owned()
        } else {
            format!("{name} {detail}")
        });
        let failing = state.failing.iter().find(|(call, _)| *call == name);
        failing.map_or(0, |&(_, code)| code)
    })
}

fn next() -> usize {
    state(|state| {
        state.next += 1;
        0x100 * state.next
    })
}

/// # Safety
///
/// `to` can be written to.
unsafe fn give<T>(to: *mut T, value: T, code: c_uint) -> c_uint {
    if code == 0 {
        // SAFETY: as the caller says.
        unsafe { to.write(value) };
    }
    code
}

/// # Safety
///
/// `to` has room for `text` and its end.
unsafe fn write_text(to: *mut c_char, room: c_int, text: &CStr) -> c_uint {
    let bytes = text.to_bytes_with_nul();
    assert!(bytes.len() <= room as usize);
    // SAFETY: as the caller says, and asserted.
    unsafe { to.cast::<u8>().copy_from(bytes.as_ptr(), bytes.len()) };
    0
}

/// Each function of the driver, as one of these tests needs it.
macro_rules! functions {
    ($($name:ident($($argument:ident: $ty:ty),*) $body:block)*) => {
        $(unsafe extern "C" fn $name($($argument: $ty),*) -> c_uint {
            // SAFETY: called by the code under test, as the driver wants to be called; a test
            // under Miri or valgrind would tell if it were not.
            #[allow(unused_unsafe, reason = "some of the functions write nothing")]
            unsafe { $body }
        })*

        /// The card of the thread that calls.
        pub(super) static FAKE: Driver = Driver {
            $($name,)*
            peer: None,
            pool_create: None,
            pool_destroy: None,
            pool_set: None,
            pool_access: None,
            pool_trim: None,
            pool_alloc: None,
            pool_free: None,
        };
    };
}

functions! {
    init(_flags: c_uint) { told("init", String::new()) }
    driver_version(version: *mut c_int) { give(version, 12_080, 0) }
    error_name(code: c_uint, text: *mut *const c_char) {
        match code {
            2 => give(text, c"CUDA_ERROR_OUT_OF_MEMORY".as_ptr(), 0),
            700 => give(text, c"CUDA_ERROR_ILLEGAL_ADDRESS".as_ptr(), 0),
            _ => 1,
        }
    }
    error_string(code: c_uint, text: *mut *const c_char) {
        match code {
            2 => give(text, c"out of memory".as_ptr(), 0),
            700 => give(text, c"an illegal memory access was encountered".as_ptr(), 0),
            _ => 1,
        }
    }
    device_count(count: *mut c_int) { give(count, 2, 0) }
    device_get(device: *mut c_int, ordinal: c_int) { give(device, ordinal + 40, 0) }
    device_name(name: *mut c_char, room: c_int, _device: c_int) {
        write_text(name, room, c"Fake 1")
    }
    device_memory(bytes: *mut usize, _device: c_int) { give(bytes, 1 << 30, 0) }
    device_attribute(value: *mut c_int, which: c_uint, _device: c_int) {
        give(value, match which { 16 => 132, 75 => 9, _ => 0 }, 0)
    }
    device_bus(bus: *mut c_char, room: c_int, _device: c_int) {
        write_text(bus, room, c"0000:3b:00.0")
    }
    primary_retain(context: *mut usize, device: c_int) {
        give(context, 0xc0, told("primary_retain", device.to_string()))
    }
    primary_release(device: c_int) { told("primary_release", device.to_string()) }
    context_push(context: usize) {
        assert_eq!(context, 0xc0);
        state(|state| state.pushed += 1);
        0
    }
    context_pop(context: *mut usize) {
        state(|state| state.pushed -= 1);
        give(context, 0xc0, 0)
    }
    context_synchronize() { told("context_synchronize", String::new()) }
    capture_mode(mode: *mut c_uint) { give(mode, 2 - mode.read(), 0) }
    memory_info(free: *mut usize, total: *mut usize) {
        give(free, 1000, 0);
        give(total, 1 << 30, 0)
    }
    memory_alloc(address: *mut u64, bytes: usize) {
        let code = told("memory_alloc", bytes.to_string());
        if code != 0 {
            return code;
        }
        let block = vec![0xcd_u8; bytes + 256];
        let start = block.as_ptr().expose_provenance().next_multiple_of(256) as u64;
        state(|state| state.blocks.push((start, block)));
        give(address, start, 0)
    }
    memory_free(address: u64) {
        state(|state| {
            let at = state.blocks.iter().position(|(start, _)| *start == address);
            state.blocks.remove(at.expect("memory is freed once"));
        });
        told("memory_free", String::new())
    }
    pointer_attribute(value: *mut c_void, which: c_uint, _address: u64) {
        assert_eq!(which, 9);
        give(value.cast::<c_int>(), 1, 0)
    }
    host_register(start: *mut c_void, bytes: usize, flags: c_uint) {
        assert!(start.cast::<u8>().align_offset(4096) == 0 && bytes.is_multiple_of(4096));
        told("host_register", format!("{bytes} {flags}"))
    }
    host_unregister(start: *mut c_void) {
        // The pages are still there.
        start.cast::<u8>().read_volatile();
        told("host_unregister", String::new())
    }
    copy_to_device(to: u64, from: *const c_void, bytes: usize, stream: usize) {
        let code = told("copy_to_device", format!("{bytes} on {stream:#x}"));
        if code == 0 {
            let to = std::ptr::with_exposed_provenance_mut::<u8>(to as usize);
            to.copy_from(from.cast(), bytes);
        }
        code
    }
    copy_to_host(to: *mut c_void, from: u64, bytes: usize, stream: usize) {
        let from = std::ptr::with_exposed_provenance::<u8>(from as usize);
        to.cast::<u8>().copy_from(from, bytes);
        told("copy_to_host", format!("{bytes} on {stream:#x}"))
    }
    copy_on_device(to: u64, from: u64, bytes: usize, stream: usize) {
        let from = std::ptr::with_exposed_provenance::<u8>(from as usize);
        std::ptr::with_exposed_provenance_mut::<u8>(to as usize).copy_from(from, bytes);
        told("copy_on_device", format!("{bytes} on {stream:#x}"))
    }
    stream_create(stream: *mut usize, flags: c_uint) {
        assert_eq!(flags, 1, "it ignores the default stream");
        give(stream, next(), told("stream_create", String::new()))
    }
    stream_destroy(_stream: usize) { told("stream_destroy", String::new()) }
    stream_synchronize(stream: usize) { told("stream_synchronize", format!("{stream:#x}")) }
    stream_wait(stream: usize, _event: usize, flags: c_uint) {
        assert_eq!(flags, 0);
        told("stream_wait", format!("{stream:#x}"))
    }
    stream_capturing(_stream: usize, status: *mut c_uint) {
        give(status, u32::from(state(|state| state.capturing)), 0);
        match state(|state| state.failing.iter().any(|(call, _)| *call == "stream_capturing")) {
            true => told("stream_capturing", String::new()),
            false => 0,
        }
    }
    event_create(event: *mut usize, flags: c_uint) {
        give(event, next(), told("event_create", flags.to_string()))
    }
    event_destroy(_event: usize) { told("event_destroy", String::new()) }
    event_record(_event: usize, stream: usize) { told("event_record", format!("{stream:#x}")) }
    event_query(_event: usize) { told("event_query", String::new()) }
    event_synchronize(_event: usize) { told("event_synchronize", String::new()) }
    event_elapsed(ms: *mut f32, from: usize, to: usize) {
        let sign = if to > from { 1.0 } else { -1.0 };
        give(ms, 1.5 * sign, 0)
    }
    module_load(module: *mut usize, image: *const c_void, count: c_uint, options: *mut c_uint,
                values: *mut *mut c_void) {
        assert!(!CStr::from_ptr(image.cast()).is_empty());
        assert_eq!(std::slice::from_raw_parts(options, count as usize), [5, 6]);
        let code = told("module_load", String::new());
        if code != 0 {
            let (log, room) = (values.read(), values.add(1).read().addr());
            write_text(log.cast(), room as c_int, c"ptxas: too old\n");
        }
        give(module, 0xd0, code)
    }
    module_function(function: *mut usize, module: usize, name: *const c_char) {
        assert_eq!(module, 0xd0);
        let name = CStr::from_ptr(name);
        let code = told("module_function", String::new());
        let id = state(|state| {
            let found = crate::kernel::ENTRIES.iter().find(|entry| **entry == name);
            state.entries.push(found.expect("an entry of the module"));
            state.entries.len()
        });
        give(function, id, code)
    }
    module_unload(_module: usize) { told("module_unload", String::new()) }
    launch(function: usize, x: c_uint, y: c_uint, z: c_uint, bx: c_uint, by: c_uint, bz: c_uint,
           shared: c_uint, stream: usize, params: *mut *mut c_void, extra: *mut *mut c_void) {
        assert!(params.is_null() && shared == 0);
        let extra = std::slice::from_raw_parts(extra, 5);
        assert_eq!([0, 2, 4].map(|n| extra[n].addr()), [1, 2, 0]);
        let bytes = extra[3].cast::<usize>().read();
        let arguments = std::slice::from_raw_parts(extra[1].cast::<u8>(), bytes).to_vec();
        let entry = state(|state| {
            state.arguments = arguments;
            state.entries[function - 1].to_string_lossy().into_owned()
        });
        told("launch", format!("{entry} {:?} {:?} on {stream:#x}", [x, y, z], [bx, by, bz]))
    }
}
