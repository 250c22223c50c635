//! Texts of nvJPEG's status codes, and reasons why there is no decoder.

use std::ffi::c_uint;

use super::functions::status;
use crate::cuda::CudaError;

/// Reason why there is no JPEG decoder on a GPU.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoDecoder {
    /// The library was not found.
    #[error(
        "no nvJPEG: {file} cannot be loaded ({why}); install it (it comes with the CUDA toolkit, and \
         as the Python package nvidia-nvjpeg, for CUDA 12 nvidia-nvjpeg-cu12), or set INFEED_NVJPEG to \
         its file"
    )]
    NoLibrary {
        /// The last file that was tried.
        file: String,
        /// The system's error.
        why: String,
    },
    /// The library lacks a function, or has a bug that a later version fixed.
    #[error("{file} is too old: {why}; install the one of CUDA 12 or 13")]
    TooOld {
        /// File of the library.
        file: String,
        /// The missing function or the bug.
        why: String,
    },
    /// The library cannot create a decoder on this GPU.
    #[error("{file} has no decoder for {gpu}: {why}")]
    NotOnThisGpu {
        /// File of the library.
        file: String,
        /// Name of the GPU.
        gpu: String,
        /// The library's error for each backend.
        why: String,
    },
    /// The GPU or its driver failed.
    #[error(transparent)]
    Cuda(#[from] CudaError),
}

/// Returns the text of a status, for a sentence that begins with the call.
pub(super) fn describe(code: c_uint) -> String {
    let known = match code {
        1 => "it is not initialised",
        status::INVALID_PARAMETER => "an argument is not valid",
        status::BAD_JPEG => "the JPEG is damaged",
        status::JPEG_NOT_SUPPORTED => "this kind of JPEG is not supported",
        status::ALLOCATOR_FAILURE => "out of memory",
        status::EXECUTION_FAILED => "the GPU did not execute it",
        7 => "the GPU does not support it",
        status::INTERNAL_ERROR => "internal error",
        9 => "this library or GPU has no such decoder",
        status::INCOMPLETE_BITSTREAM => "the JPEG is truncated",
        _ => return format!("status {code}, which this build does not know"),
    };
    format!("{known} (status {code})")
}

/// The failure of a function that is not caused by one file.
pub(super) fn call_error(call: &'static str, code: c_uint, fix: String) -> CudaError {
    let what = format!("{}{fix}", describe(code));
    CudaError::Nvjpeg { call, code, what }
}
