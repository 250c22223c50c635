//! A CUDA driver for machines without a GPU: a shared library with the functions of NVIDIA's. Its
//! GPUs are host memory, its streams are threads, and it interprets the PTX of kernels. Tests load
//! it instead of `libcuda.so.1`; nothing that is shipped knows it.
//!
//! Tests in Rust can link it instead: [`testing`] gives a thread its own driver.

//! `unsafe` code is only where C calls, in `driver::api` and `nvjpeg`, whose callers follow
//! NVIDIA's manuals, and where `driver::memory` reserves addresses. All other modules forbid or
//! deny it.

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
