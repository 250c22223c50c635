//! The functions of nvJPEG used here, with their structs and constants.
//!
//! Source: `nvjpeg.h` of CUDA 12 and 13, which agree on all of them; `nvjpeg.h` of CUDA 11 has the
//! required functions, too.

use std::ffi::{c_int, c_uint, c_void};

use crate::cuda::library::{Library, table};
use crate::jpeg_batch::Backend;
use crate::jpeg_encode::Subsampling;

/// `nvjpegImage_t`: for each of four channels, an address on the GPU, and the bytes from row to
/// row.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NvjpegImage {
    pub(super) channel: [u64; 4],
    pub(super) pitch: [usize; 4],
}

/// Value of `nvjpegBackend_t`.
pub(super) fn backend_code(backend: Backend) -> c_uint {
    match backend {
        // `NVJPEG_BACKEND_GPU_HYBRID` decodes Huffman codes and transforms on the GPU's cores.
        Backend::Cores => 2,
        // `NVJPEG_BACKEND_HARDWARE`.
        Backend::Engine => 3,
    }
}

/// `NVJPEG_OUTPUT_RGBI`: interleaved red, green and blue in the first channel.
pub(super) const INTERLEAVED: c_uint = 5;

/// Values of `nvjpegChromaSubsampling_t`.
pub(super) fn chroma(subsampling: Subsampling) -> c_uint {
    match subsampling {
        Subsampling::None => 0,
        Subsampling::Half => 1,
        Subsampling::Quarter => 2,
        Subsampling::HalfRows => 3,
        Subsampling::Gray => 6,
    }
}

/// `NVJPEG_FLAGS_UPSAMPLING_WITH_INTERPOLATION`.
pub(super) const INTERPOLATED: c_uint = 1 << 5;

/// `MAJOR_VERSION` and `MINOR_VERSION` of `libraryPropertyType`.
const PROPERTIES: [c_uint; 2] = [0, 1];

/// Values of `nvjpegStatus_t` that this module distinguishes.
pub(super) mod status {
    use std::ffi::c_uint;

    pub(crate) const SUCCESS: c_uint = 0;
    pub(crate) const INVALID_PARAMETER: c_uint = 2;
    pub(crate) const BAD_JPEG: c_uint = 3;
    pub(crate) const JPEG_NOT_SUPPORTED: c_uint = 4;
    pub(crate) const ALLOCATOR_FAILURE: c_uint = 5;
    pub(crate) const EXECUTION_FAILED: c_uint = 6;
    pub(crate) const INTERNAL_ERROR: c_uint = 8;
    pub(crate) const INCOMPLETE_BITSTREAM: c_uint = 10;

    /// Statuses that a single file can cause; the decoder then rejects that file. Different
    /// versions have returned each of these for files that they could not decode.
    pub(crate) const OF_A_FILE: [c_uint; 6] = [
        INVALID_PARAMETER,
        BAD_JPEG,
        JPEG_NOT_SUPPORTED,
        EXECUTION_FAILED,
        INTERNAL_ERROR,
        INCOMPLETE_BITSTREAM,
    ];
}

table! {
    /// Functions of nvJPEG.
    Functions;
    property = "nvjpegGetProperty" (c_uint, *mut c_int);
    create = "nvjpegCreateEx" (c_uint, *const c_void, *const c_void, c_uint, *mut usize);
    destroy = "nvjpegDestroy" (usize);
    device_padding = "nvjpegSetDeviceMemoryPadding" (usize, usize);
    pinned_padding = "nvjpegSetPinnedMemoryPadding" (usize, usize);
    state_create = "nvjpegJpegStateCreate" (usize, *mut usize);
    state_destroy = "nvjpegJpegStateDestroy" (usize);
    stream_create = "nvjpegJpegStreamCreate" (usize, *mut usize);
    stream_destroy = "nvjpegJpegStreamDestroy" (usize);
    parse = "nvjpegJpegStreamParse" (usize, *const u8, usize, c_int, c_int, usize);
    frame_size = "nvjpegJpegStreamGetFrameDimensions" (usize, *mut c_uint, *mut c_uint);
    components = "nvjpegJpegStreamGetComponentsNum" (usize, *mut c_uint);
    initialize = "nvjpegDecodeBatchedInitialize" (usize, usize, c_int, c_int, c_uint);
    decode = "nvjpegDecodeBatched"
        (usize, usize, *const usize, *const usize, *mut NvjpegImage, usize);
    ? supported = "nvjpegDecodeBatchedSupported" (usize, usize, *mut c_int);
    ? engines = "nvjpegGetHardwareDecoderInfo" (usize, *mut c_uint, *mut c_uint);
    ? reserve = "nvjpegDecodeBatchedPreAllocate"
        (usize, usize, c_int, c_int, c_int, c_uint, c_uint);
}

/// The loaded library.
pub(super) struct Nvjpeg {
    pub(super) functions: Functions,
    /// File from which the library was loaded.
    pub(super) file: String,
}

impl Nvjpeg {
    /// Fills the table from a library, or returns the name of the first missing function.
    pub(super) fn new(library: &Library, file: String) -> Result<Nvjpeg, &'static str> {
        let functions = Functions::from(library)?;
        Ok(Nvjpeg { functions, file })
    }

    /// Version, major and minor; zeros if the library does not report it.
    pub(super) fn version(&self) -> (i32, i32) {
        let [major, minor] = PROPERTIES.map(|which| {
            let mut value = 0;
            // SAFETY: writes one integer.
            let code = unsafe { (self.functions.property)(which, &raw mut value) };
            if code == status::SUCCESS { value } else { 0 }
        });
        (major, minor)
    }
}
