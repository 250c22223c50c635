//! The driver: functions of `cuda.h` over cards that are threads and memory of the host.
//!
//! What it promises is what NVIDIA's documentation does, and no more: memory is not zero when it is
//! allocated, addresses cannot be followed on the host, freeing waits for nobody, copies read the host's memory
//! when their turn comes, and a kernel that reads what is not there loses the card for the process.
//! What real drivers let pass now and then (a handle of another card, a context that is left on a
//! thread) is written down as misuse.
//!
//! Source: the CUDA Driver API's reference manual, version 12.

#[allow(unsafe_code, reason = "functions that C calls")]
mod api;
mod card;
pub(crate) mod code;
mod launch;
#[allow(unsafe_code, reason = "addresses are reserved by a system call")]
mod memory;
pub(crate) mod report;
mod seen;
pub(crate) mod settings;
mod stream;
pub(crate) mod thread;
pub(crate) mod world;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) use card::Card;

/// Locks, also after another thread's panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
