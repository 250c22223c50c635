//! Errors of an encoded image or file of audio. The caller adds the name of the record.

use std::borrow::Cow;
use std::io;

use super::foreign::ForeignFile;
use infeed_core::panics::contain;
use infeed_core::sample::{Region, Size};

/// Reason why a record was not decoded.
///
/// All variants except `OutsideImage` and `NoMemory` are properties of the bytes: the same record
/// fails in the same way on every run and machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The first bytes are not those of a known format.
    #[error("{0}")]
    UnknownFormat(ForeignFile),
    /// The bytes end before the data does.
    #[error("the file is truncated; download it again")]
    Truncated,
    /// The bytes contradict themselves or their checksum.
    #[error("damaged: {what}")]
    Damaged {
        /// Description of the damage.
        what: Cow<'static, str>,
    },
    /// The header claims more pixels than the limit; nothing was allocated.
    #[error("{size} px is over the limit of {limit} px in total; raise max_pixels to accept it")]
    TooLarge {
        /// Size in the header.
        size: Size,
        /// Maximum number of pixels.
        limit: u64,
    },
    /// A valid file that the decoder or the requested mode does not support.
    #[error("{what} cannot be decoded; {fix}")]
    Unsupported {
        /// The unsupported property.
        what: Cow<'static, str>,
        /// Suggested change.
        fix: &'static str,
    },
    /// The codec library panicked on these bytes. This is a defect of the library, and the record
    /// cannot be decoded.
    #[error(
        "the {format} decoder failed internally ({what}); decode the file with another program and \
         save it in another format, or remove the record"
    )]
    Panicked {
        /// Format of the file.
        format: &'static str,
        /// Message of the panic.
        what: String,
    },
    /// The caller requested pixels outside the image.
    #[error("the region of {} px at row {}, column {} exceeds the image of {size} px", .region.size, .region.top, .region.left)]
    OutsideImage {
        /// The requested region.
        region: Region,
        /// Size of the image.
        size: Size,
    },
    /// The decoder's state could not be allocated.
    #[error("cannot allocate memory for a decoder; lower the number of workers")]
    NoMemory,
}

impl DecodeError {
    /// Creates `Damaged` with a description of the damage.
    pub(crate) fn from_damage(what: impl Into<Cow<'static, str>>) -> DecodeError {
        DecodeError::Damaged { what: what.into() }
    }

    /// Converts the error of a reader over a slice, which can only be the end of the bytes or
    /// invalid data.
    pub(crate) fn from_io(error: &io::Error) -> DecodeError {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => DecodeError::Truncated,
            _ => DecodeError::from_damage(error.to_string()),
        }
    }
}

/// Runs a codec of a format with this name; converts its panic to an error of the record.
pub(crate) fn guard<T>(
    format: &'static str,
    work: impl FnOnce() -> Result<T, DecodeError>,
) -> Result<T, DecodeError> {
    contain(work).unwrap_or_else(|what| Err(DecodeError::Panicked { format, what }))
}
