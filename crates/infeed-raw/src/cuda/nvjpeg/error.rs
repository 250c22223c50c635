//! What nvJPEG's numbers mean, and why there may be no decoder.

use std::ffi::c_uint;

use super::functions::status;
use crate::cuda::CudaError;

/// Why there is no decoder of JPEGs on a card.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoDecoder {
    /// The library is nowhere.
    #[error(
        "no nvJPEG: {file} cannot be loaded ({why}); install it (it comes with the CUDA toolkit, and \
         as the Python package nvidia-nvjpeg, for CUDA 12 nvidia-nvjpeg-cu12), or set INFEED_NVJPEG to \
         its file"
    )]
    NoLibrary {
        /// The last file that was tried.
        file: String,
        /// What the system says.
        why: String,
    },
    /// The library lacks a function, or has a fault that a later one has not.
    #[error("{file} is too old: {why}; install that of CUDA 12 or 13")]
    TooOld {
        /// Which file.
        file: String,
        /// What it lacks.
        why: String,
    },
    /// The library does not start on this card.
    #[error("{file} has no decoder for {card}: {why}")]
    NotOnThisCard {
        /// Which file.
        file: String,
        /// Name of the card.
        card: String,
        /// What it says of each way.
        why: String,
    },
    /// The card or its driver failed.
    #[error(transparent)]
    Cuda(#[from] CudaError),
}

/// What a status says, for a sentence that begins with the call.
pub(super) fn describe(code: c_uint) -> String {
    let known = match code {
        1 => "it is not initialised",
        status::INVALID_PARAMETER => "an argument is not valid",
        status::BAD_JPEG => "the JPEG is broken",
        status::JPEG_NOT_SUPPORTED => "it does not decode such a JPEG",
        status::ALLOCATOR_FAILURE => "it gets no memory",
        status::EXECUTION_FAILED => "the card did not execute it",
        7 => "the card is of another kind than this needs",
        status::INTERNAL_ERROR => "something failed inside of it",
        9 => "this library or card has no such decoder",
        status::INCOMPLETE_BITSTREAM => "the JPEG ends too early",
        _ => return format!("status {code}, which this build does not know"),
    };
    format!("{known} (status {code})")
}

/// A function's failure that is not one file's.
pub(super) fn failed(call: &'static str, code: c_uint, mend: String) -> CudaError {
    let what = format!("{}{mend}", describe(code));
    CudaError::Nvjpeg { call, code, what }
}
