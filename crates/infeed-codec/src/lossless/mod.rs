//! Lossless records: the pixels of a file in fewer bytes, in a form that decodes several times
//! faster.
//!
//! [`encode`] makes a record from a file, [`restore`] makes the file from the record, and
//! [`crate::decode::Decoder`] decodes records as it does files. Each kind has a specification in
//! `docs/formats`.

mod coefficients;
mod huffman;
pub(crate) mod jpeg;
mod keep_reason;
mod plane_writer;
pub(crate) mod planes;
mod recode;
pub(crate) mod record;
mod segments;
mod tables;
#[cfg(test)]
mod tests;
mod varint;
mod zigzag;

pub use self::keep_reason::KeepReason;
pub use self::recode::{EncodedRecord, RestoredFile, encode, restore};
