//! The unsafe corner of infeed: memory and libraries that leave Rust's sight, behind
//! safe functions. It knows bytes and pixels, nothing of datasets; every other crate that is
//! shipped forbids `unsafe`, so this one is what there is to audit.
//!
//! | module | what | why it is sound |
//! |---|---|---|
//! | [`host`] | aligned, zeroed memory | one owner frees what it got, with the call that fits; zeroed before anyone sees it |
//! | [`slab`] | a batch cut into rows filled in parallel | a row is the only way to its bytes; the whole comes back only by unwrapping the `Arc` that every row shares |
//! | [`map`] | files mapped read-only | not provable: nobody may change a mapped file, and the module says so |
//! | [`anonymous`] | files in memory without a name | a descriptor that was just made and that nobody else knows |
//! | [`machine`] | cores, memory, clocks | system calls that fill integers of ours |
//! | [`simd`] | pixels to rows of a batch | slices checked before; vector operations take arrays of their own length; a level runs only on a processor that has it |
//! | [`jpeg`] | region and scaled decode | libjpeg-turbo gets buffers whose size is checked against the header |
//! | [`jpeg_batch`] | which JPEGs a device decodes, and where to | no unsafe code: what decoders on devices rely on is checked here |
//! | [`jpeg_encode`], [`jpeg_restart`] | JPEGs written and rewritten | libjpeg-turbo reads slices whose length is checked, and allocates what it writes, which one owner frees |
//! | [`kernel`] | what a device does with all rows of a column | every length and view is checked against the shape before; the C computes with that shape alone |
//! | [`cuda`] | memory, copies, events, kernels and decoding of JPEGs on NVIDIA cards | what a card reads or writes is held until it is done; its modules list the argument, and what cannot be proved |
//! | [`nvml`] | how busy such a card is | calls of the driver's library fill integers of ours; its handles are its own |
//! | [`dlpack`] | a buffer as a tensor for others | the struct owns a share of the memory until its deleter, called once, drops it |
//! | `arrow` (feature `python`) | tables of other libraries | the stream is taken out of its capsule under its first name, once; what it brings is validated in full |
//! | `foreign` (feature `python`) | tensors of other libraries as places to copy to | where a tensor lies its library says, which cannot be proved; it is held until nothing is under way there |
//! | `python` (feature) | DLPack capsules, Python buffers as bytes | a capsule frees only under its first name; a held buffer stays in place; that its user does not write to it cannot be proved, and is said |
//!
//! Bytes from outside (files, `/proc`, arrays) never cause a panic. The panics there are
//! guard contracts between functions, and their documentation names them.

#![deny(unsafe_op_in_unsafe_fn)]

pub mod anonymous;
#[cfg(feature = "python")]
pub mod arrow;
pub mod cuda;
pub mod dlpack;
#[cfg(feature = "python")]
pub mod foreign;
pub mod host;
pub mod jpeg;
pub mod jpeg_batch;
pub mod jpeg_encode;
pub mod jpeg_restart;
pub mod kernel;
pub mod machine;
pub mod map;
pub mod near;
pub mod nvml;
#[cfg(feature = "python")]
pub mod python;
pub mod simd;
pub mod slab;
