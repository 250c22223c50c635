//! Reasons against a lossless record.

use std::fmt;

/// Reason why a file stays as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeepReason {
    /// Neither a PNG nor a JPEG that a record can hold: another format, or a JPEG with arithmetic
    /// coding, 12 bits, CMYK or hierarchical frames.
    Unsupported,
    /// The decoder reports damage; the text is its message.
    Damaged(String),
    /// A progressive file without its last scans: its pixels depend on more than its coefficients.
    Incomplete,
    /// The record would be larger than the file.
    Larger,
    /// The record does not decode to the pixels of the file.
    OtherPixels,
}

impl fmt::Display for KeepReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeepReason::Unsupported => f.write_str("the format is not supported"),
            KeepReason::Damaged(message) => write!(f, "the file is damaged: {message}"),
            KeepReason::Incomplete => f.write_str("the progressive file lacks scans"),
            KeepReason::Larger => f.write_str("the record would be larger than the file"),
            KeepReason::OtherPixels => f.write_str("the record would have other pixels"),
        }
    }
}
