//! Images: [`decode`] decodes bytes to pixels, [`transform`] transforms pixels, [`lossless`] recodes
//! files so that they decode faster, and [`quality`] compares images. [`audio`] decodes files of
//! audio to samples.
//!
//! This crate has no access to storage and starts no threads.
#![forbid(unsafe_code)]

pub mod audio;
pub mod decode;
pub mod instances;
pub mod lossless;
pub mod quality;
pub mod transform;
