//! File formats that are decoded, detected from the first bytes.

use serde::{Deserialize, Serialize};

/// Supported file formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Format {
    Jpeg,
    Png,
    WebP,
    Bmp,
    Gif,
    Tiff,
    /// PBM, PGM and PPM.
    Pnm,
    /// A lossless record of a JPEG, see [`crate::lossless`].
    Coefficients,
    /// A lossless record of a PNG, see [`crate::lossless`].
    Planes,
}

impl Format {
    /// Detects the format from the first bytes of a file. `None` for any other format.
    pub fn of(bytes: &[u8]) -> Option<Format> {
        match bytes {
            [0xFF, 0xD8, 0xFF, ..] => Some(Format::Jpeg),
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1A, b'\n', ..] => Some(Format::Png),
            [
                b'R',
                b'I',
                b'F',
                b'F',
                _,
                _,
                _,
                _,
                b'W',
                b'E',
                b'B',
                b'P',
                ..,
            ] => Some(Format::WebP),
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some(Format::Gif),
            [b'I', b'I', 42 | 43, 0, ..] | [b'M', b'M', 0, 42 | 43, ..] => Some(Format::Tiff),
            [b'B', b'M', ..] => Some(Format::Bmp),
            [b'P', b'1'..=b'6', b' ' | b'\t' | b'\n' | b'\r' | b'#', ..] => Some(Format::Pnm),
            [0x93, b'I', b'F', b'L', b'J', ..] => Some(Format::Coefficients),
            [0x93, b'I', b'F', b'L', b'P', ..] => Some(Format::Planes),
            _ => None,
        }
    }

    /// Returns the common name, such as `JPEG`.
    pub fn name(self) -> &'static str {
        match self {
            Format::Jpeg => "JPEG",
            Format::Png => "PNG",
            Format::WebP => "WebP",
            Format::Bmp => "BMP",
            Format::Gif => "GIF",
            Format::Tiff => "TIFF",
            Format::Pnm => "PNM",
            Format::Coefficients => "JPEG coefficients",
            Format::Planes => "pixel planes",
        }
    }

    /// Returns the extension of files, such as `jpg`; `ifl` for lossless records.
    pub fn extension(self) -> &'static str {
        match self {
            Format::Jpeg => "jpg",
            Format::Png => "png",
            Format::WebP => "webp",
            Format::Bmp => "bmp",
            Format::Gif => "gif",
            Format::Tiff => "tiff",
            Format::Pnm => "pnm",
            Format::Coefficients | Format::Planes => "ifl",
        }
    }

    /// Whether it is a record of [`crate::lossless`].
    pub fn is_lossless_record(self) -> bool {
        matches!(self, Format::Coefficients | Format::Planes)
    }

    /// Whether images can be reconstructed at a smaller scale from their 8x8 blocks.
    pub fn has_dct(self) -> bool {
        matches!(self, Format::Jpeg | Format::Coefficients)
    }
}
