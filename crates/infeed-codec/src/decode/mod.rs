//! Decodes encoded bytes to pixels: one file per format, one `Decoder` per worker.
//!
//! The format is detected from the bytes. A caller takes three steps: `header` reads size and
//! layout, checks the size limit and allocates nothing; `check` tests whether the record is
//! complete; `decode` returns the pixels of a region. Damage that `check` finds makes a record bad,
//! whatever the region. Other damage is found only in the decoded rows and columns: in a JPEG, the
//! rows down to the end of the region or, with restart markers, only the tiles of the region.
//! Damage that a format cannot detect stays unnoticed: a flipped bit in the scan data of a JPEG
//! usually decodes to other pixels, as in WebP, BMP, GIF and TIFF. A PNG has checksums.
//!
//! Every result is a function of the bytes and the request; calls share no state. `Decoder` is the
//! only entry point. It contains panics of the codec libraries and returns them as errors of the
//! record. libjpeg-turbo calls no Rust function, so no panic unwinds through C.

mod coefficients;
mod color;
mod decoder;
mod error;
mod exif;
mod foreign;
mod format;
mod gif;
mod header;
mod jpeg;
mod jpeg_frame;
mod limits;
mod loss;
pub(crate) mod lossless;
mod orient;
mod other;
mod planes;
mod png;
pub(crate) mod png_chunks;
mod scratch;
#[cfg(test)]
mod tests;
mod tiff;
mod tiff_directories;
mod webp;

pub use self::color::ColorMode;
pub use self::decoder::Decoder;
#[cfg(any(test, feature = "panicking"))]
pub use self::decoder::PANIC;
pub use self::error::DecodeError;
pub(crate) use self::error::guard;
pub use self::exif::block as exif_block;
pub use self::foreign::{ForeignFile, is_undecoded_image};
pub use self::format::Format;
pub use self::header::{Header, Request};
pub use self::jpeg_frame::DctScale;
pub use self::limits::Limits;
pub use self::loss::Loss;
pub use self::orient::ImageFrame;
pub use self::planes::PixelTable;
