//! A CUDA driver for machines without a card: a shared library under the names of NVIDIA's, whose
//! cards are memory of the host, whose streams are threads, and whose kernels are the PTX that it
//! is given, interpreted. Tests load it in place of `libcuda.so.1`; nothing that is shipped knows it.
//!
//! Tests in Rust may link it instead: [`testing`] gives a thread a driver.

//! `unsafe` is where C calls: in `driver::api` and `nvjpeg`, whose callers keep to NVIDIA's manuals,
//! and for the addresses that `driver::memory` reserves. The rest forbids or denies it.

#![deny(unsafe_code, unsafe_op_in_unsafe_fn)]

// A driver that nothing loads where infeed asks for none.
#[cfg(unix)]
mod driver;
#[cfg(unix)]
#[allow(unsafe_code, reason = "functions that C calls")]
mod nvjpeg;
pub mod ptx;
#[cfg(unix)]
pub mod testing;
