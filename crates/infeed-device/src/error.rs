//! Errors of a device.

use std::sync::Arc;

use infeed_core::error::{Cause, Error};

/// An error of a device. [`Error::Device`] names the device.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The device has no memory left.
    #[error(
        "out of device memory: cannot allocate {requested_bytes} bytes ({free_bytes} are free)"
    )]
    OutOfMemory {
        /// Bytes requested.
        requested_bytes: u64,
        /// Bytes that are free.
        free_bytes: u64,
    },

    /// A command would exceed a memory, or would read the memory that it writes.
    #[error("{command} needs {needed_bytes} bytes of {of}, which has {found_bytes}")]
    Bounds {
        /// The command.
        command: &'static str,
        /// Name of the memory, such as `the input`.
        of: &'static str,
        /// Bytes that the command needs.
        needed_bytes: u64,
        /// Bytes that the memory has; 0 if input and output are the same memory.
        found_bytes: u64,
    },

    /// At least one of two events has no time.
    #[error(
        "cannot measure the time between two events: one is not timed, not recorded or not done"
    )]
    Untimed,

    /// The device cannot decode JPEGs.
    #[error("the device cannot decode JPEGs")]
    NoDecoder {
        /// The reason and the fix.
        source: Cause,
    },

    /// A command was rejected before it was enqueued, for example because its stream is being
    /// captured into a graph. The device remains usable.
    #[error("the device rejected {call}")]
    Rejected {
        /// The command.
        call: &'static str,
        /// The reason and the fix.
        source: Cause,
    },

    /// A command was rejected because its stream no longer exists. The device remains usable.
    #[error("{call} uses a stream that was destroyed")]
    NoStream {
        /// The command.
        call: &'static str,
        /// The error of the device's library, and the fix.
        source: Cause,
    },

    /// A call failed.
    #[error("{call} failed")]
    Failed {
        /// Name of the call in its library.
        call: &'static str,
        /// The library's error, and the fix.
        source: Cause,
    },
}

impl DeviceError {
    /// Whether an error means that a device has no memory left, or rejected an allocation now. The
    /// device remains usable.
    pub fn is_out_of_memory(error: &Error) -> bool {
        let Error::Device { source, .. } = error else {
            return false;
        };
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&**source);
        while let Some(error) = cause {
            if let Some(DeviceError::OutOfMemory { .. } | DeviceError::Rejected { .. }) =
                error.downcast_ref()
            {
                return true;
            }
            cause = error.source();
        }
        false
    }

    /// Converts this error into an engine error that names `device`.
    pub fn on(self, device: impl Into<String>) -> Error {
        Error::Device {
            device: device.into(),
            source: Arc::new(self),
        }
    }
}
