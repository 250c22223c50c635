//! Lossless records: the pixels of a file in fewer bytes, in a form that decodes several times
//! faster.
//!
//! [`encode`] makes a record from a file, [`restore`] makes the file from the record, and
//! [`crate::decode::Decoder`] decodes records as it does files. Each kind has a specification in
//! `docs/formats`.

mod recode;
#[cfg(test)]
mod tests;

pub use self::recode::{EncodedRecord, RestoredFile, encode, restore};
pub use crate::decode::lossless::keep_reason::KeepReason;
