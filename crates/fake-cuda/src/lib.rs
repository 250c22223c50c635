//! A CUDA driver for machines without a GPU: a shared library with the functions of NVIDIA's
//! driver. Its GPUs are host memory, its streams are threads, and it interprets the PTX of kernels.
//! Tests load it instead of `libcuda.so.1`; no shipped code refers to it.
//!
//! Rust tests can link it instead: [`testing`] starts a separate driver for a thread.
//!
//! Only these parts are `unsafe`: functions that C calls, in `driver::api` and `nvjpeg`, whose
//! callers follow NVIDIA's manuals, and the reservation of addresses in `driver::memory`. All other
//! modules forbid or deny it.

#![deny(unsafe_code, unsafe_op_in_unsafe_fn)]

// infeed opens CUDA drivers on Unix systems only.
#[cfg(unix)]
mod driver;
#[cfg(unix)]
#[allow(unsafe_code, reason = "functions that C calls")]
mod nvjpeg;
pub mod ptx;
#[cfg(unix)]
pub mod testing;
