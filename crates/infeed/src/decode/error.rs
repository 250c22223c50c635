//! What can be wrong with an encoded image. The record's name is the caller's to add.

use std::borrow::Cow;
use std::io;

use crate::sample::{Region, Size};

/// Why a record did not become pixels.
///
/// All but `OutsideImage` and `NoMemory` are properties of the bytes: the same record fails the
/// same way on every run and machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The first bytes are those of no known format.
    #[error("not a JPEG, PNG, WebP, BMP, GIF or TIFF file")]
    UnknownFormat,
    /// The bytes end before the image does.
    #[error("ends before the image does; fetch the file again")]
    Truncated,
    /// The bytes contradict themselves or their checksum.
    #[error("damaged: {what}")]
    Damaged {
        /// What is wrong.
        what: Cow<'static, str>,
    },
    /// The header claims more pixels than the limit; nothing was allocated.
    #[error("{size} px is over the limit of {limit} px in total; raise max_pixels if it is wanted")]
    TooLarge {
        /// Size in the header.
        size: Size,
        /// Most pixels allowed.
        limit: u64,
    },
    /// A valid file that cannot be decoded, or not so.
    #[error("{what} cannot be decoded; {fix}")]
    Unsupported {
        /// What is not supported.
        what: Cow<'static, str>,
        /// What the user can do.
        fix: &'static str,
    },
    /// The codec library panicked on these bytes. It is a defect of the library, and this record
    /// cannot be decoded.
    #[error(
        "the {format} decoder failed internally ({what}); decode the file with another program and save it as PNG, or leave it out"
    )]
    Panicked {
        /// Format of the file.
        format: &'static str,
        /// Message of the panic.
        what: String,
    },
    /// The caller asked for pixels that do not exist.
    #[error("the region of {} px at row {}, column {} leaves the image of {size} px", .region.size, .region.top, .region.left)]
    OutsideImage {
        /// What was asked for.
        region: Region,
        /// Size of the image.
        size: Size,
    },
    /// The decoder's state could not be allocated.
    #[error("no memory for a decoder; lower the number of workers")]
    NoMemory,
}

impl DecodeError {
    /// `Damaged`, by what is wrong.
    pub(super) fn damaged(what: impl Into<Cow<'static, str>>) -> DecodeError {
        DecodeError::Damaged { what: what.into() }
    }

    /// What a reader over a slice says: it can only run out, or be given nonsense.
    pub(super) fn from_io(error: &io::Error) -> DecodeError {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => DecodeError::Truncated,
            _ => DecodeError::damaged(error.to_string()),
        }
    }
}
