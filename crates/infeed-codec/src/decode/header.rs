//! Properties of a record from its first bytes, and requests for its pixels.

use super::color::ColorMode;
use super::error::DecodeError;
use super::format::Format;
use super::jpeg_frame::{DctScale, Frame};
use super::orient::ImageFrame;
use super::png_chunks::Ihdr;
use infeed_core::sample::{Depth, Region, Size};

/// Properties of a record from its first bytes. Created by `Decoder::header`.
#[derive(Clone, Debug)]
pub struct Header {
    /// File format.
    pub format: Format,
    /// Rows and columns of the image, after the EXIF orientation if it is applied.
    pub size: Size,
    /// Channels in the file: 1 (gray or palette index), 2 (gray, alpha), 3 or 4.
    pub channels: usize,
    /// Bits of a sample in the file. Fewer than 8 bits count as 8.
    pub depth: Depth,
    /// EXIF orientation that decoding applies, 1 to 8; 1 if it applies none. The orientation of a TIFF
    /// is always applied.
    pub orientation: u8,
    /// Rows and columns before the orientation.
    pub(super) coded: Size,
    pub(super) detail: Detail,
}

/// Properties that only one format has.
#[derive(Clone, Debug)]
pub(super) enum Detail {
    Jpeg(Frame),
    Coefficients(Coefficients),
    Png(Ihdr),
    Planes(Planes),
    Whole,
}

/// Properties of a lossless record of a JPEG, from its segments and its directory.
#[derive(Clone, Debug)]
pub(super) struct Coefficients {
    pub(super) frame: Frame,
    /// Segments of the JPEG up to the scan data.
    pub(super) head: Vec<u8>,
    /// Bytes of the tables and of the symbols of a strip.
    pub(super) strip_bytes: u64,
}

/// Properties of a lossless record of a PNG, from its chunks and its layout.
#[derive(Clone, Debug)]
pub(super) struct Planes {
    pub(super) ihdr: Ihdr,
    /// Bytes of the directory and of a strip.
    pub(super) strip_bytes: u64,
}

impl Header {
    /// Returns the size of the image at a DCT scale. `Request::region` counts these pixels. The
    /// scale changes only JPEGs.
    pub fn scaled_size(&self, scale: DctScale) -> Size {
        if self.format.has_dct() {
            scale.apply(self.size)
        } else {
            self.size
        }
    }

    /// Returns size and orientation of the image. A TIFF counts as stored upright, because no
    /// reader returns its pixels without the orientation.
    pub fn frame(&self) -> ImageFrame {
        if self.format == Format::Tiff {
            return ImageFrame::upright(self.size);
        }
        ImageFrame {
            size: self.size,
            orientation: self.orientation,
        }
    }

    /// Whether the file's layout has no colours, apart from alpha, so that all RGB channels equal
    /// the gray channel. False if the header does not show it, for example for a palette of grays.
    pub fn is_gray(&self) -> bool {
        match &self.detail {
            Detail::Jpeg(_) | Detail::Coefficients(_) => self.channels == 1,
            Detail::Png(ihdr) => ihdr.is_gray(),
            Detail::Planes(planes) => planes.ihdr.is_gray(),
            Detail::Whole => false,
        }
    }

    /// Returns the MCUs (jointly coded squares) per row of a JPEG, for files with all components in
    /// one scan. Regions can be decoded by tiles only if the restart interval divides this number.
    /// None for other formats.
    pub fn mcus_across(&self) -> Option<u32> {
        match &self.detail {
            Detail::Jpeg(frame) => Some(frame.mcus_across()),
            _ => None,
        }
    }

    /// Whether a JPEG has several scans: it is progressive, or its components are in separate
    /// scans. If such a file lacks its last scans, decoders smooth over the missing data.
    pub fn has_several_scans(&self) -> bool {
        match &self.detail {
            Detail::Jpeg(frame) => frame.has_several_scans(),
            _ => false,
        }
    }

    /// Returns the channels and depth that `decode` produces in a mode.
    ///
    /// # Errors
    ///
    /// `Unsupported` for `Stored` with a 16-bit file.
    pub fn output(&self, mode: ColorMode) -> Result<(usize, Depth), DecodeError> {
        // CMYK is converted, because no consumer of pixels supports inks.
        let stored = if self.format.has_dct() {
            self.channels.min(3)
        } else {
            self.channels
        };
        match mode {
            ColorMode::Rgb => Ok((3, Depth::U8)),
            ColorMode::Gray => Ok((1, Depth::U8)),
            ColorMode::Rgba => Ok((4, Depth::U8)),
            ColorMode::Stored if self.depth == Depth::U16 => Err(DecodeError::Unsupported {
                what: "16-bit samples in mode \"stored\"".into(),
                fix: "use mode \"stored16\"",
            }),
            ColorMode::Stored => Ok((stored, Depth::U8)),
            ColorMode::Stored16 => Ok((stored, Depth::U16)),
        }
    }

    pub(super) fn coded_at(&self, scale: DctScale) -> Size {
        if self.format.has_dct() {
            scale.apply(self.coded)
        } else {
            self.coded
        }
    }
}

/// Region, scale and mode of a decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Meaning of the samples.
    pub mode: ColorMode,
    /// Region in the pixels of the scaled and oriented image.
    pub region: Region,
    /// Whether the EXIF orientation is applied. Must equal the value given to `header`.
    pub orient: bool,
    /// DCT scale. Formats other than JPEG ignore it.
    pub scale: DctScale,
    /// Whether `check` verifies checksums. The caller passes this value on to `check`.
    pub verify: bool,
}

impl Request {
    /// Requests the whole image at full size. Applies the orientation if the header was read with
    /// it.
    pub fn whole(header: &Header, mode: ColorMode) -> Request {
        Request {
            mode,
            region: header.size.whole(),
            orient: header.orientation != 1,
            scale: DctScale::Full,
            verify: true,
        }
    }
}
