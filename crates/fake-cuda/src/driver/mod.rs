//! The driver: functions of `cuda.h` for GPUs that consist of threads and host memory.
//!
//! It guarantees what NVIDIA's documentation guarantees, and no more: new memory is not zero,
//! addresses cannot be followed on the host, freeing waits for nothing, copies read the host's
//! memory when the stream reaches them, and a kernel that reads an invalid address makes the GPU
//! unusable for the process. Errors that real drivers sometimes tolerate (a handle of another GPU,
//! a context left on a thread) are recorded as misuse.
//!
//! Source: the CUDA Driver API's reference manual, version 12.

#[allow(unsafe_code, reason = "functions that C calls")]
mod api;
pub(crate) mod call_log;
pub(crate) mod code;
mod counts;
mod gpu;
mod launch;
#[allow(unsafe_code, reason = "addresses are reserved by a system call")]
mod memory;
pub(crate) mod report;
pub(crate) mod settings;
mod stream;
pub(crate) mod thread;
pub(crate) mod world;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) use gpu::FakeGpu;

/// Locks a mutex, even after a panic of another thread.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
