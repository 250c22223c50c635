//! Codes of `CUresult`, with their names and texts.

use std::ffi::{CStr, c_uint};

macro_rules! codes {
    ($($name:ident = $value:literal $text:literal;)*) => {
        $(pub(crate) const $name: c_uint = $value;)*

        /// Returns name and text of a code, as the driver does.
        pub(crate) fn describe(code: c_uint) -> Option<(&'static CStr, &'static CStr)> {
            const NAMES: &[(c_uint, &str, &str)] = &[$(($value, concat!("CUDA_ERROR_", stringify!($name), "\0"), concat!($text, "\0"))),*];
            let (_, name, text) = NAMES.iter().find(|(value, ..)| *value == code)?;
            let ended = |text: &'static str| CStr::from_bytes_with_nul(text.as_bytes()).ok();
            Some((ended(name)?, ended(text)?))
        }
    };
}

codes! {
    INVALID_VALUE = 1 "invalid argument";
    OUT_OF_MEMORY = 2 "out of memory";
    NOT_INITIALIZED = 3 "initialization error";
    NO_DEVICE = 100 "no CUDA-capable device is detected";
    INVALID_DEVICE = 101 "invalid device ordinal";
    INVALID_CONTEXT = 201 "invalid device context";
    INVALID_PTX = 218 "a PTX JIT compilation failed";
    INVALID_HANDLE = 400 "invalid resource handle";
    NOT_FOUND = 500 "named symbol not found";
    NOT_READY = 600 "device not ready";
    ILLEGAL_ADDRESS = 700 "an illegal memory access was encountered";
    LAUNCH_OUT_OF_RESOURCES = 701 "too many resources requested for launch";
    HOST_MEMORY_ALREADY_REGISTERED = 712 "part or all of the requested memory range is already mapped";
    HOST_MEMORY_NOT_REGISTERED = 713 "pointer does not correspond to a registered memory region";
    MISALIGNED_ADDRESS = 716 "misaligned address";
    LAUNCH_FAILED = 719 "unspecified launch failure";
    STREAM_CAPTURE_UNSUPPORTED = 900 "operation not permitted when stream is capturing";
    STREAM_CAPTURE_INVALIDATED = 901 "operation failed due to a previous error during capture";
    STREAM_CAPTURE_IMPLICIT = 906 "operation would make the legacy stream depend on a capturing blocking stream";
    UNKNOWN = 999 "unknown error";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_the_drivers_names_and_texts() {
        let (name, text) = describe(OUT_OF_MEMORY).expect("the code exists");

        assert_eq!(
            (name, text),
            (c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory")
        );
        assert_eq!(describe(12_345), None);
    }
}
