//! Images: [`decode`] decodes bytes to pixels, [`transform`] transforms pixels.
//!
//! This crate has no access to storage and starts no threads.
#![forbid(unsafe_code)]

pub mod decode;
pub mod transform;
