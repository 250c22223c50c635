//! The unsafe corner of infeed.

#![deny(unsafe_op_in_unsafe_fn)]

pub mod host;
pub mod jpeg;
pub mod jpeg_encode;
pub mod machine;
pub mod map;
pub mod simd;
pub mod slab;
