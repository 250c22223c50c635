//! Objects of nvJPEG behind handles, and the faults of files that a test added.

use std::collections::HashMap;
use std::ffi::c_uint;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::decode::FileHeader;
use crate::driver::lock;

/// Codes of `nvjpegStatus_t`.
pub(super) mod status {
    use std::ffi::c_uint;

    pub(crate) const NOT_INITIALIZED: c_uint = 1;
    pub(crate) const INVALID_PARAMETER: c_uint = 2;
    pub(crate) const BAD_JPEG: c_uint = 3;
    pub(crate) const EXECUTION_FAILED: c_uint = 6;
}

/// A fault of a JPEG file in nvJPEG only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFault {
    /// Calls that decode it return this status.
    Broken(c_uint),
    /// Its width is reported one too large.
    Misread,
    /// The hardware engine does not decode it.
    Unsupported,
}

/// Objects of nvJPEG by their handles; each handle is used for one object only.
#[derive(Default)]
pub(crate) struct NvjpegObjects {
    handles: Mutex<HashMap<usize, LibraryObject>>,
    next: AtomicUsize,
    /// Faults of files, by their length.
    faults: Mutex<HashMap<usize, FileFault>>,
}

#[derive(Clone)]
pub(super) enum LibraryObject {
    /// `nvjpegHandle_t`, with its backend.
    Handle(c_uint),
    State(Arc<DecoderState>),
    /// `nvjpegJpegStream_t`: the last parsed file.
    File(Arc<Mutex<Option<ParsedHeader>>>),
}

/// A header as this library reads it.
#[derive(Clone, Copy)]
pub(super) struct ParsedHeader {
    pub(super) header: FileHeader,
    pub(super) is_supported: bool,
}

#[derive(Default)]
pub(super) struct DecoderState {
    /// Number of files of a batch, set by the initialization.
    pub(super) files: Mutex<usize>,
    /// Whether a batch is being decoded.
    pub(super) is_busy: AtomicBool,
}

impl NvjpegObjects {
    pub(super) fn add(&self, thing: LibraryObject) -> usize {
        let handle = 0xdec0_0000 + 0x10 * self.next.fetch_add(1, Ordering::SeqCst);
        lock(&self.handles).insert(handle, thing);
        handle
    }

    pub(super) fn get(&self, handle: usize) -> Result<LibraryObject, c_uint> {
        let found = lock(&self.handles).get(&handle).cloned();
        found.ok_or(status::INVALID_PARAMETER)
    }

    pub(super) fn backend(&self, handle: usize) -> Result<c_uint, c_uint> {
        match self.get(handle)? {
            LibraryObject::Handle(backend) => Ok(backend),
            _ => Err(status::INVALID_PARAMETER),
        }
    }

    pub(super) fn state(&self, handle: usize) -> Result<Arc<DecoderState>, c_uint> {
        match self.get(handle)? {
            LibraryObject::State(state) => Ok(state),
            _ => Err(status::INVALID_PARAMETER),
        }
    }

    pub(super) fn file(&self, handle: usize) -> Result<Arc<Mutex<Option<ParsedHeader>>>, c_uint> {
        match self.get(handle)? {
            LibraryObject::File(file) => Ok(file),
            _ => Err(status::INVALID_PARAMETER),
        }
    }

    pub(super) fn remove(&self, handle: usize) -> Result<(), c_uint> {
        let removed = lock(&self.handles).remove(&handle);
        removed.map(drop).ok_or(status::INVALID_PARAMETER)
    }

    pub(super) fn fault(&self, file_bytes: usize) -> Option<FileFault> {
        lock(&self.faults).get(&file_bytes).copied()
    }

    pub(crate) fn add_fault(&self, file_bytes: usize, fault: FileFault) {
        lock(&self.faults).insert(file_bytes, fault);
    }

    pub(crate) fn clear_faults(&self) {
        lock(&self.faults).clear();
    }

    /// Number of handles, states and streams.
    pub(crate) fn live(&self) -> usize {
        lock(&self.handles).len()
    }
}
