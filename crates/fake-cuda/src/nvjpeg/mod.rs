//! nvJPEG: the functions of `nvjpeg.h` that decode batches, on the fake GPUs.
//!
//! Its pixels differ from NVIDIA's, as NVIDIA's differ from libjpeg's: tests that compare pixels
//! allow for that. A file that cannot be decoded makes the call fail for its batch. The files are
//! read again when the stream reaches the batch, to detect files that are freed too early.
//!
//! The hardware backend writes as soon as it is called, even if the stream waits, as NVIDIA's does;
//! the other backend writes in the order of its stream.
//!
//! Source: nvJPEG's documentation, version 12.

mod decode;
pub(crate) mod library;

pub(crate) use decode::pixels;

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use library::{FileFault, LibraryObject, ParsedHeader, status};

use crate::driver::world::Driver;
use crate::driver::{FakeGpu, lock, world};

/// `NVJPEG_BACKEND_GPU_HYBRID`.
const GPU_HYBRID: c_uint = 2;

/// `NVJPEG_BACKEND_HARDWARE`.
const HARDWARE: c_uint = 3;

/// `nvjpegImage_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct OutputImage {
    channel: [u64; 4],
    pitch: [usize; 4],
}

/// Functions of nvJPEG, like those of the driver.
macro_rules! functions {
    ($(fn $symbol:ident($world:ident, $library:ident $(, $argument:ident: $ty:ty)*) $body:block)*) => {
        $(
            #[allow(non_snake_case, reason = "names of nvjpeg.h")]
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $symbol($($argument: $ty),*) -> c_uint {
                let arguments: &[u64] = &[$($crate::driver::call_log::LoggedArgument::word($argument)),*];
                world::run_call(stringify!($symbol), arguments, status::NOT_INITIALIZED, |$world| {
                    let $library = &$world.nvjpeg;
                    // SAFETY: callers follow the documentation: pointers are valid, and lengths
                    // match.
                    #[allow(unused_unsafe, reason = "some take no pointers")]
                    unsafe { $body }
                })
            }
        )*
    };
}

functions! {
    fn nvjpegGetProperty(_world, _library, which: c_uint, value: *mut c_int) {
        // Version 12.4.
        value.write(match which { 0 => 12, 1 => 4, _ => 0 });
        Ok(())
    }

    fn nvjpegCreateEx(
        world, library, backend: c_uint, _device: *const c_void, _pinned: *const c_void,
        _flags: c_uint, handle: *mut usize
    ) {
        world.here().map_err(|_| status::NOT_INITIALIZED)?;
        if ![GPU_HYBRID, HARDWARE].contains(&backend) {
            return Err(status::INVALID_PARAMETER);
        }
        handle.write(library.add(LibraryObject::Handle(backend)));
        Ok(())
    }

    fn nvjpegDestroy(_world, library, handle: usize) { library.remove(handle) }

    fn nvjpegSetDeviceMemoryPadding(_world, library, _bytes: usize, handle: usize) {
        library.get(handle).map(drop)
    }

    fn nvjpegSetPinnedMemoryPadding(_world, library, _bytes: usize, handle: usize) {
        library.get(handle).map(drop)
    }

    fn nvjpegGetHardwareDecoderInfo(world, library, handle: usize, engines: *mut c_uint, cores: *mut c_uint) {
        library.get(handle)?;
        engines.write(world.settings.engines);
        cores.write(1);
        Ok(())
    }

    fn nvjpegJpegStateCreate(_world, library, handle: usize, state: *mut usize) {
        library.get(handle)?;
        state.write(library.add(LibraryObject::State(Arc::default())));
        Ok(())
    }

    fn nvjpegJpegStateDestroy(world, library, state: usize) {
        if library.state(state)?.is_busy.load(Ordering::SeqCst) {
            world.misuse("a decoder's state was destroyed while a batch is being decoded".to_owned());
        }
        library.remove(state)
    }

    fn nvjpegJpegStreamCreate(_world, library, handle: usize, file: *mut usize) {
        library.get(handle)?;
        file.write(library.add(LibraryObject::File(Arc::default())));
        Ok(())
    }

    fn nvjpegJpegStreamDestroy(_world, library, file: usize) { library.remove(file) }

    fn nvjpegJpegStreamParse(
        _world, library, handle: usize, bytes: *const u8, len: usize, _metadata: c_int,
        _save: c_int, file: usize
    ) {
        library.get(handle)?;
        let fault = library.fault(len);
        let parsed = decode::header(std::slice::from_raw_parts(bytes, len)).map(|mut header| {
            header.width += u32::from(fault == Some(FileFault::Misread));
            let is_supported = fault != Some(FileFault::Unsupported);
            ParsedHeader { header, is_supported }
        });
        *lock(&*library.file(file)?) = parsed;
        parsed.map(drop).ok_or(status::BAD_JPEG)
    }

    fn nvjpegJpegStreamGetFrameDimensions(
        _world, library, file: usize, width: *mut c_uint, height: *mut c_uint
    ) {
        let parsed = *lock(&*library.file(file)?);
        let ParsedHeader { header, .. } = parsed.ok_or(status::INVALID_PARAMETER)?;
        width.write(header.width);
        height.write(header.height);
        Ok(())
    }

    fn nvjpegJpegStreamGetComponentsNum(_world, library, file: usize, components: *mut c_uint) {
        let parsed = *lock(&*library.file(file)?);
        components.write(parsed.ok_or(status::INVALID_PARAMETER)?.header.components);
        Ok(())
    }

    fn nvjpegDecodeBatchedSupported(
        _world, library, handle: usize, file: usize, is_not: *mut c_int
    ) {
        library.get(handle)?;
        let parsed = *lock(&*library.file(file)?);
        is_not.write(c_int::from(!parsed.ok_or(status::INVALID_PARAMETER)?.is_supported));
        Ok(())
    }

    fn nvjpegDecodeBatchedPreAllocate(
        _world, library, handle: usize, state: usize, _files: c_int, _width: c_int,
        _height: c_int, _chroma: c_uint, _format: c_uint
    ) {
        library.get(handle)?;
        library.state(state).map(drop)
    }

    fn nvjpegDecodeBatchedInitialize(
        _world, library, handle: usize, state: usize, files: c_int, _threads: c_int,
        format: c_uint
    ) {
        library.get(handle)?;
        // Only `NVJPEG_OUTPUT_RGBI` is supported.
        let files = usize::try_from(files).ok().filter(|&n| n > 0 && format == 5);
        *lock(&library.state(state)?.files) = files.ok_or(status::INVALID_PARAMETER)?;
        Ok(())
    }

    fn nvjpegDecodeBatched(
        world, library, handle: usize, state: usize, data: *const usize, lengths: *const usize,
        images: *mut OutputImage, stream: usize
    ) {
        let is_hardware = library.backend(handle)? == HARDWARE;
        let state = library.state(state)?;
        let count = *lock(&state.files);
        if count == 0 {
            return Err(status::NOT_INITIALIZED);
        }
        let jobs: Vec<DecodeJob> = (0..count)
            .map(|n| DecodeJob { world, data: *data.add(n), len: *lengths.add(n), to: *images.add(n) })
            .collect();
        // A faulty file is detected immediately and fails its batch.
        for job in &jobs {
            if let Some(FileFault::Broken(code)) = library.fault(job.len) {
                return Err(code);
            }
            decode::pixels(job.bytes()).ok_or(status::BAD_JPEG)?;
            let header = decode::header(job.bytes()).ok_or(status::BAD_JPEG)?;
            if job.to.pitch[0] < 3 * header.width as usize {
                return Err(status::INVALID_PARAMETER);
            }
        }
        let (gpu, stream) = world.to_put(stream).map_err(|_| status::EXECUTION_FAILED)?;
        if state.is_busy.swap(true, Ordering::SeqCst) {
            world.misuse("a decoder's state was used for a second batch before the first is done".to_owned());
        }
        if is_hardware {
            // SAFETY: as in `DecodeJob::bytes`: the caller has just passed the files.
            let kinds: Vec<_> = jobs.iter().map(|job| unsafe { decode::sampling(job.bytes()) }).collect();
            if kinds.iter().any(|kind| *kind != kinds[0]) {
                world.misuse("files of several subsamplings in one call of the hardware".to_owned());
            }
            run(gpu, &jobs);
        }
        gpu.put(&stream, Box::new(move || {
            match is_hardware {
                true => jobs.iter().for_each(DecodeJob::reread),
                false => run(gpu, &jobs),
            }
            state.is_busy.store(false, Ordering::SeqCst);
        }));
        Ok(())
    }
}

/// A file, and the position of its pixels.
struct DecodeJob {
    world: &'static Driver,
    data: usize,
    len: usize,
    to: OutputImage,
}

impl DecodeJob {
    /// # Safety
    ///
    /// The file is still in memory.
    unsafe fn bytes(&self) -> &[u8] {
        let data = std::ptr::with_exposed_provenance(self.data);
        // SAFETY: as the caller promises.
        unsafe { std::slice::from_raw_parts(data, self.len) }
    }
}

impl DecodeJob {
    /// Header and pixels; None if the file changed since the call.
    fn decode_file(&self) -> Option<(decode::FileHeader, Vec<u8>)> {
        // SAFETY: the documentation requires files to live until their batch is decoded.
        let bytes = unsafe { self.bytes() };
        let found = decode::header(bytes).zip(decode::pixels(bytes));
        if found.is_none() {
            self.world
                .misuse("a file changed before it was decoded".to_owned());
        }
        found
    }

    /// Reads the file again, as the engine does until its stream reaches the batch.
    fn reread(&self) {
        let _ = self.decode_file();
    }
}

fn run(gpu: &FakeGpu, jobs: &[DecodeJob]) {
    for job in jobs {
        let Some((header, pixels)) = job.decode_file() else {
            continue;
        };
        let ([to, ..], [pitch, ..]) = (job.to.channel, job.to.pitch);
        let rows = pixels.chunks_exact(3 * header.width as usize);
        for (n, row) in rows.enumerate() {
            gpu.write("a decoder", to + (n * pitch) as u64, row);
        }
    }
}
