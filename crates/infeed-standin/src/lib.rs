//! A CUDA driver for machines without a card: a shared library under the names of NVIDIA's, whose
//! cards are memory of the host, whose streams are threads, and whose kernels are the PTX that it
//! is given, interpreted. Tests load it in place of `libcuda.so.1`; nothing that is shipped knows it.

#![deny(unsafe_op_in_unsafe_fn)]

// A driver that nothing loads where infeed asks for none.
#[cfg(unix)]
mod driver;
#[cfg(unix)]
mod nvjpeg;
pub mod ptx;
