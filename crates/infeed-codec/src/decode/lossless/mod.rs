//! The format of lossless records: entropy-coded coefficients of JPEG, and planes of samples.
//!
//! `docs/formats` has the specifications. [`crate::lossless`] makes records of files, and files of
//! records.

mod coefficients;
mod huffman;
pub(crate) mod jpeg;
pub(crate) mod keep_reason;
pub(crate) mod plane_writer;
pub(crate) mod planes;
pub(crate) mod record;
mod segments;
mod tables;
pub(crate) mod varint;
mod zigzag;
