//! nvJPEG for tests, beside the card for tests: it fills every place with one byte, and writes down
//! what it was told in the card's list. It stops a test that uses it as it must not be used.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{c_int, c_uint, c_void};

use super::functions::{Functions, INTERLEAVED, Image, Nvjpeg};
use crate::cuda::fake::told;
use crate::jpeg_batch::Baseline;
use crate::jpeg_encode::Subsampling;

/// What a thread's library has and was told. Files are named by their length.
#[derive(Default)]
pub(super) struct State {
    /// What creating by a backend with flags returns in place of success.
    pub(super) refused: Vec<(c_uint, c_uint, c_uint)>,
    /// What a batch returns in which there is such a file.
    pub(super) broken: Vec<(usize, c_uint)>,
    /// Files whose width it reads as one more.
    pub(super) misread: Vec<usize>,
    /// Files that the engine does not take.
    pub(super) unsupported: Vec<usize>,
    /// Handles that are alive, with what they are.
    pub(super) alive: HashMap<usize, &'static str>,
    /// Backend of the library that was created last.
    backend: c_uint,
    /// Files that a state is initialised for.
    ready: HashMap<usize, usize>,
    /// Header and length of the file that was parsed last.
    parsed: Option<(Baseline, usize)>,
    next: usize,
}

thread_local! {
    static STATE: RefCell<State> = RefCell::default();
}

/// Looks at, or changes, this thread's library.
pub(super) fn state<T>(look: impl FnOnce(&mut State) -> T) -> T {
    STATE.with_borrow_mut(look)
}

/// A library that was told nothing.
pub(super) fn reset() {
    state(|state| *state = State::default());
}

fn made(what: &'static str) -> usize {
    state(|state| {
        state.next += 0x10;
        state.alive.insert(state.next, what);
        state.next
    })
}

fn alive(handle: usize, what: &'static str) {
    let found = state(|state| state.alive.get(&handle).copied());
    assert_eq!(found, Some(what), "{handle:#x} is a {what}");
}

fn gone(handle: usize, what: &'static str) {
    alive(handle, what);
    state(|state| state.alive.remove(&handle));
}

/// Each function of the library, as one of these tests needs it.
macro_rules! functions {
    ($($name:ident($($argument:ident: $ty:ty),*) $body:block)*) => {
        $(unsafe extern "C" fn $name($($argument: $ty),*) -> c_uint {
            // SAFETY: called by the code under test, as the library wants to be called; a test
            // under Miri or valgrind would tell if it were not.
            #[allow(unused_unsafe, reason = "some of the functions write nothing")]
            unsafe { $body }
        })*
    };
}

functions! {
    property(which: c_uint, value: *mut c_int) {
        value.write(match which { 0 => 12, 1 => 4, _ => panic!("no property that is asked for") });
        0
    }
    create(backend: c_uint, device: *const c_void, pinned: *const c_void, flags: c_uint,
           handle: *mut usize) {
        assert!(device.is_null() && pinned.is_null());
        let code = told("create", format!("{backend} {flags}"));
        let refused = state(|state| {
            let all = &state.refused;
            all.iter().find(|r| (r.0, r.1) == (backend, flags)).map(|r| r.2)
        });
        let code = refused.unwrap_or(code);
        if code == 0 {
            state(|state| state.backend = backend);
            handle.write(made("library"));
        }
        code
    }
    destroy(handle: usize) {
        gone(handle, "library");
        assert!(state(|state| state.alive.is_empty()), "it is the last");
        told("destroy", String::new())
    }
    device_padding(bytes: usize, handle: usize) {
        alive(handle, "library");
        assert!(bytes.is_power_of_two());
        told("device_padding", String::new())
    }
    pinned_padding(bytes: usize, handle: usize) {
        alive(handle, "library");
        assert!(bytes.is_power_of_two());
        told("pinned_padding", String::new())
    }
    state_create(handle: usize, made_state: *mut usize) {
        alive(handle, "library");
        let code = told("state_create", String::new());
        if code == 0 {
            made_state.write(made("state"));
        }
        code
    }
    state_destroy(state: usize) {
        gone(state, "state");
        told("state_destroy", String::new())
    }
    stream_create(handle: usize, stream: *mut usize) {
        alive(handle, "library");
        let code = told("header_create", String::new());
        if code == 0 {
            stream.write(made("header"));
        }
        code
    }
    stream_destroy(stream: usize) {
        gone(stream, "header");
        told("header_destroy", String::new())
    }
    parse(handle: usize, bytes: *const u8, len: usize, metadata: c_int, stream: c_int,
          header: usize) {
        alive(handle, "library");
        alive(header, "header");
        assert_eq!((metadata, stream), (0, 0));
        let bytes = std::slice::from_raw_parts(bytes, len);
        let read = Baseline::read(bytes, u64::MAX).expect("only such files come here");
        assert_eq!(read.len, len, "nothing behind the end comes here");
        state(|state| state.parsed = Some((read, len)));
        told("parse", String::new())
    }
    frame_size(header: usize, width: *mut c_uint, height: *mut c_uint) {
        alive(header, "header");
        let (read, more) = state(|state| {
            let (read, len) = state.parsed.expect("it was parsed");
            (read, u32::from(state.misread.contains(&len)))
        });
        width.write(read.width + more);
        height.write(read.height);
        0
    }
    components(header: usize, count: *mut c_uint) {
        alive(header, "header");
        let (read, _) = state(|state| state.parsed.expect("it was parsed"));
        count.write(if read.subsampling == Subsampling::Gray { 1 } else { 3 });
        0
    }
    supported(handle: usize, header: usize, is_not: *mut c_int) {
        alive(handle, "library");
        alive(header, "header");
        let is_refused = state(|state| {
            let (_, len) = state.parsed.expect("it was parsed");
            state.unsupported.contains(&len)
        });
        is_not.write(c_int::from(is_refused));
        0
    }
    engines(handle: usize, engines: *mut c_uint, cores: *mut c_uint) {
        alive(handle, "library");
        engines.write(7);
        cores.write(4);
        told("engines", String::new())
    }
    reserve(handle: usize, state: usize, files: c_int, width: c_int, height: c_int,
            chroma: c_uint, format: c_uint) {
        alive(handle, "library");
        alive(state, "state");
        assert_eq!(format, INTERLEAVED);
        told("reserve", format!("{files} of {width}x{height}, chroma {chroma}"))
    }
    initialize(handle: usize, lane: usize, files: c_int, threads: c_int, format: c_uint) {
        alive(handle, "library");
        alive(lane, "state");
        assert_eq!(format, INTERLEAVED);
        assert!(files > 0 && threads > 0);
        state(|state| state.ready.insert(lane, files as usize));
        told("initialize", format!("{files} by {threads}"))
    }
    decode(handle: usize, lane: usize, data: *const usize, lengths: *const usize,
           images: *mut Image, stream: usize) {
        alive(handle, "library");
        alive(lane, "state");
        let files = state(|state| state.ready.remove(&lane)).expect("it is initialised");
        let data = std::slice::from_raw_parts(data, files);
        let lengths = std::slice::from_raw_parts(lengths, files);
        let images = std::slice::from_raw_parts(images, files);
        let code = told("decode", format!("{lengths:?} on {stream:#x}"));
        let broken = state(|state| {
            let all = &state.broken;
            all.iter().find(|(len, _)| lengths.contains(len)).map(|&(_, code)| code)
        });
        let code = broken.unwrap_or(code);
        if code != 0 {
            return code;
        }
        let mut kinds = Vec::new();
        for ((&at, &len), image) in data.iter().zip(lengths).zip(images) {
            let bytes = std::slice::from_raw_parts(std::ptr::with_exposed_provenance(at), len);
            let read = Baseline::read(bytes, u64::MAX).expect("the bytes are there");
            kinds.push(read.subsampling);
            assert!(image.pitch[0] >= 3 * read.width as usize);
            assert_eq!((&image.channel[1..], &image.pitch[1..]), (&[0; 3][..], &[0; 3][..]));
            let to = std::ptr::with_exposed_provenance_mut::<u8>(image.channel[0] as usize);
            to.write_bytes(len as u8, image.pitch[0] * read.height as usize);
        }
        kinds.dedup();
        let is_engine = state(|state| state.backend == 3);
        assert!(kinds.len() == 1 || !is_engine, "the engine takes one kind a call: {kinds:?}");
        // It stays initialised for batches of this size.
        state(|state| state.ready.insert(lane, files));
        0
    }
}

/// The library of the thread that calls.
pub(super) static FAKE: Nvjpeg = Nvjpeg {
    functions: Functions {
        property,
        create,
        destroy,
        device_padding,
        pinned_padding,
        state_create,
        state_destroy,
        stream_create,
        stream_destroy,
        parse,
        frame_size,
        components,
        initialize,
        decode,
        supported: Some(supported),
        engines: Some(engines),
        reserve: Some(reserve),
    },
    file: String::new(),
};

/// A library that has only what every version has.
pub(super) static OLD: Nvjpeg = Nvjpeg {
    functions: Functions {
        property,
        create,
        destroy,
        device_padding,
        pinned_padding,
        state_create,
        state_destroy,
        stream_create,
        stream_destroy,
        parse,
        frame_size,
        components,
        initialize,
        decode,
        supported: None,
        engines: None,
        reserve: None,
    },
    file: String::new(),
};
