//! The unsafe code of infeed: memory and foreign libraries, behind safe functions. The crate
//! handles bytes and pixels and has no notion of datasets. Every other shipped crate forbids
//! `unsafe`, so an audit needs to read only this one.
//!
//! | module | contents | why it is sound |
//! |---|---|---|
//! | [`host`] | aligned, zeroed memory | one owner frees the memory with the matching call; it is zeroed before any code reads it |
//! | [`slab`] | a batch cut into rows filled in parallel | only a row gives access to its bytes; the slab is restored only by unwrapping the `Arc` that every row shares |
//! | [`mod@file`] | regular files, opened without waiting | a system call that changes the flags of a file just opened |
//! | [`map`] | files mapped read-only | not provable: no process may change a mapped file, and the module documents this |
//! | [`anonymous`] | files in memory without a name | a descriptor that was just made and that no other code has |
//! | [`arena`] | entries that processes share, written once | a counter gives each range to one writer; readers see it after its last write; the size of the file is sealed |
//! | [`machine`] | cores, memory, clocks | system calls that fill local integers |
//! | [`simd`] | pixels to rows of a batch | slices are checked first; vector operations take arrays of the exact length; a level runs only on a processor that supports it |
//! | [`jpeg`] | region and scaled decode | libjpeg-turbo gets buffers whose size is checked against the header |
//! | [`jpeg_batch`] | JPEGs that a device decodes, and the positions of their pixels | no unsafe code: it checks the conditions that decoders on devices rely on |
//! | [`jpeg_coefficients`] | pixels from coefficients, and coefficients of a file | the C code checks size and MCUs of the header before it writes; callbacks do not unwind and call nothing of libjpeg |
//! | [`jpeg_encode`], [`jpeg_restart`] | JPEGs written and rewritten | libjpeg-turbo reads slices whose length is checked, and allocates its output, which one owner frees |
//! | [`kernel`] | operations of a device on all rows of a column | every length and view is checked against the shape first; the C code computes with that shape alone |
//! | `cuda` (feature `cuda`) | memory, copies, events, kernels and JPEG decoding on NVIDIA GPUs | memory that a GPU reads or writes is held until the GPU is done; its modules state the argument and the unproved assumptions |
//! | `nvml` (feature `cuda`) | utilisation of GPUs | functions of the driver's library fill local integers; the library owns its handles |
//! | [`dlpack`] | a buffer as a tensor for other libraries | the struct owns a share of the memory until its deleter, called once, drops it |
//! | `arrow` (feature `python`) | tables of other libraries | the stream is moved out of its capsule under its first name, once; its contents are validated in full |
//! | `foreign` (feature `python`) | tensors of other libraries as targets of copies | the address comes from the other library and cannot be verified; the tensor is held until no command uses it |
//! | `python` (feature) | DLPack capsules, Python buffers as bytes | a capsule frees only under its first name; a held buffer keeps its address; that the user does not write to it cannot be proved, and is documented |
//!
//! Bytes from outside (files, `/proc`, arrays) never cause a panic. The remaining panics guard
//! contracts between functions, and the documentation of these functions names them.

#![deny(unsafe_op_in_unsafe_fn)]

pub mod anonymous;
pub mod arena;
#[cfg(feature = "python")]
pub mod arrow;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod dlpack;
pub mod file;
#[cfg(feature = "python")]
pub mod foreign;
pub mod host;
pub mod jpeg;
pub mod jpeg_batch;
pub mod jpeg_coefficients;
pub mod jpeg_encode;
pub mod jpeg_restart;
pub mod kernel;
pub mod machine;
pub mod map;
pub mod near;
#[cfg(feature = "cuda")]
pub mod nvml;
#[cfg(feature = "python")]
pub mod python;
pub mod simd;
pub mod slab;
