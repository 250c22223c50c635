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
mod convert;
mod error;
mod exif;
mod foreign;
mod gif;
mod jpeg;
mod limits;
mod loss;
mod orient;
mod other;
mod planes;
pub(crate) mod png;
#[cfg(test)]
mod tests;
mod tiff;
mod tiff_directories;
mod webp;

use infeed_raw::jpeg::JpegDecoder;
use serde::{Deserialize, Serialize};

pub use self::error::DecodeError;
pub use self::exif::block as exif_block;
pub use self::foreign::{ForeignFile, is_undecoded_image};
pub use self::limits::Limits;
pub use self::loss::Loss;
pub use self::orient::ImageFrame;
pub use self::planes::PixelTable;
use crate::lossless::LosslessScratch;
use infeed_core::panics::contain;
use infeed_core::sample::{Depth, Image, Region, Size};
use loss::NarrowedSamples;

/// In tests, a record that ends in these bytes makes the decoder panic.
#[cfg(any(test, feature = "panicking"))]
pub const PANIC: &[u8] = b"a panicking codec";

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

/// Meaning of the samples of a decoded image.
///
/// Conversions (`/` rounds to nearest):
/// - 16-bit samples keep their high byte in 8-bit modes;
/// - PNM of a maximum below 255 or 65535 is scaled to it, as Pillow does;
/// - alpha is dropped, not blended; a palette is looked up; 1, 2 and 4-bit gray is scaled to
///   0..=255; TIFF gray whose 0 is white is inverted, in every mode;
/// - colours become gray by ITU-R 601-2 luma, `(19595 r + 38470 g + 7471 b + 32768) >> 16`; a YCbCr
///   JPEG becomes gray by its Y channel as stored, which differs from that formula by rounding and
///   clamping;
/// - CMYK of a JPEG is assumed to be inverted, as Adobe writes it and Pillow reads it: `r = c k /
///   255`; CMYK of a TIFF is not inverted: `r = (255 - c) (255 - k) / 255`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ColorMode {
    /// Three channels of 8 bits.
    #[default]
    Rgb,
    /// One channel of 8 bits.
    Gray,
    /// Four channels of 8 bits. Alpha is not premultiplied; it is 255 if the file has none.
    Rgba,
    /// The samples as stored in the file, 8 bits: palette indices, class numbers, gray of 1, 2 and
    /// 4 bits without scaling. A file with several channels keeps them; a 16-bit file is an error.
    /// JPEG gives gray or RGB, BMP with a palette gives RGB, and GIF gives RGBA.
    Stored,
    /// Like `Stored`, in 16 bits. Samples of fewer bits keep their value.
    Stored16,
}

impl ColorMode {
    /// Returns the name in descriptions, such as `stored16`.
    pub fn name(self) -> &'static str {
        match self {
            ColorMode::Rgb => "rgb",
            ColorMode::Gray => "gray",
            ColorMode::Rgba => "rgba",
            ColorMode::Stored => "stored",
            ColorMode::Stored16 => "stored16",
        }
    }
}

/// Scale at which a JPEG is reconstructed from its 8x8 blocks. Other formats support only full
/// size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DctScale {
    /// 1/8: one pixel per block.
    Eighth,
    /// 1/4.
    Quarter,
    /// 1/2.
    Half,
    /// Full size.
    #[default]
    Full,
}

impl DctScale {
    /// All scales, smallest first.
    pub const ALL: [DctScale; 4] = [
        DctScale::Eighth,
        DctScale::Quarter,
        DctScale::Half,
        DctScale::Full,
    ];

    /// Returns the scale in eighths of full size: 1, 2, 4 or 8.
    pub fn eighths(self) -> u32 {
        match self {
            DctScale::Eighth => 1,
            DctScale::Quarter => 2,
            DctScale::Half => 4,
            DctScale::Full => 8,
        }
    }

    /// Returns the size of an image at this scale. Sides round up.
    pub fn apply(self, size: Size) -> Size {
        // The quotient is at most `side`, so it fits.
        let side = |side: u32| (u64::from(side) * u64::from(self.eighths())).div_ceil(8) as u32;
        Size {
            height: side(size.height),
            width: side(size.width),
        }
    }
}

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
    coded: Size,
    detail: Detail,
}

/// Properties that only one format has.
#[derive(Clone, Debug)]
enum Detail {
    Jpeg(jpeg::Frame),
    Coefficients(coefficients::Coefficients),
    Png(png::Ihdr),
    Planes(planes::Planes),
    Whole,
}

impl Header {
    /// Returns the size of the image at a DCT scale. `Request::region` counts these pixels. The
    /// scale changes only JPEGs.
    pub fn scaled(&self, scale: DctScale) -> Size {
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

    fn coded_at(&self, scale: DctScale) -> Size {
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

/// Decodes records one after another; each worker reuses one decoder.
#[derive(Debug, Default)]
pub struct Decoder {
    /// Created at the first JPEG.
    jpeg: Option<JpegDecoder>,
    scratch: Scratch,
}

/// Buffers that are reused from record to record.
#[derive(Debug, Default)]
struct Scratch {
    /// Rows from a decoder, before columns are cut off or samples are converted.
    wide: Vec<u8>,
    /// File built from the tiles of a JPEG.
    tiles: Vec<u8>,
    /// Rows of converted pixels before they are scattered.
    narrow: Vec<u8>,
    /// Region before its orientation is applied.
    unturned: Image,
    /// Tables and symbols of lossless records.
    lossless: LosslessScratch,
    /// Samples of the last image that lost their low bytes.
    narrowed: NarrowedSamples,
    /// Other losses of the last image.
    losses: Vec<Loss>,
}

/// Runs a codec; converts its panic to an error of the record.
fn guard<T>(
    format: Format,
    work: impl FnOnce() -> Result<T, DecodeError>,
) -> Result<T, DecodeError> {
    contain(work).unwrap_or_else(|what| {
        Err(DecodeError::Panicked {
            format: format.name(),
            what,
        })
    })
}

impl Decoder {
    /// Creates a decoder with empty buffers.
    pub fn new() -> Decoder {
        Decoder::default()
    }

    /// Reads the properties of a record from its first bytes, and checks them against the limits.
    ///
    /// With `orient`, also reads the EXIF orientation, and `size` is the size after it. A TIFF has its
    /// orientation in any case.
    ///
    /// # Errors
    ///
    /// `UnknownFormat`, `Truncated`, `Damaged`, `Unsupported`, `TooLarge` or `Panicked`.
    ///
    /// # Cost
    ///
    /// Reads segments up to the pixels; its allocations do not grow with the image.
    pub fn header(
        &mut self,
        bytes: &[u8],
        orient: bool,
        limits: &Limits,
    ) -> Result<Header, DecodeError> {
        let unknown = || DecodeError::UnknownFormat(ForeignFile::of(bytes));
        let format = Format::of(bytes).ok_or_else(unknown)?;
        let mut header = guard(format, || match format {
            Format::Jpeg => jpeg::header(bytes, orient),
            Format::Png => png::header(bytes, orient),
            Format::WebP => webp::header(bytes, orient),
            Format::Tiff => tiff::header(bytes),
            Format::Gif => gif::header(bytes),
            Format::Bmp | Format::Pnm => other::header(format, bytes, orient),
            Format::Coefficients => coefficients::header(bytes, orient, &mut self.scratch),
            Format::Planes => planes::header(bytes, orient),
        })?;
        limits.check(header.size)?;
        if orient::swaps_sides(header.orientation) {
            let Size { height, width } = header.size;
            header.size = Size {
                height: width,
                width: height,
            };
        }
        Ok(header)
    }

    /// Checks cheaply that a record is complete, independent of the region.
    ///
    /// PNG: the chunks continue up to IEND and, with `verify`, their checksums match. Lossless
    /// records: with `verify`, the checksum matches. JPEG: an
    /// end-of-image marker follows the start of the first scan. WebP: the chunks named in the
    /// container are present. BMP, GIF and TIFF are always decoded whole, so `decode` finds any
    /// damage.
    ///
    /// # Errors
    ///
    /// `Truncated`, `Damaged` or `Panicked`.
    ///
    /// # Cost
    ///
    /// PNG and lossless records: one pass of CRC-32 over the bytes. Other formats: almost nothing.
    pub fn check(&self, bytes: &[u8], header: &Header, verify: bool) -> Result<(), DecodeError> {
        guard(header.format, || match &header.detail {
            Detail::Jpeg(frame) => jpeg::check(bytes, frame),
            Detail::Coefficients(_) | Detail::Planes(_) => coefficients::check(bytes, verify),
            Detail::Png(_) => png::check(bytes, verify),
            Detail::Whole if header.format == Format::WebP => webp::check(bytes),
            Detail::Whole => Ok(()),
        })
    }

    /// Returns an upper bound of the bytes that `decode` needs for this request, including its
    /// output.
    ///
    /// It includes the buffers that the decoder holds between records (rows, the last region before
    /// orientation).
    pub fn scratch_bytes(&self, header: &Header, request: &Request) -> u64 {
        let (channels, depth) = header.output(request.mode).unwrap_or((4, Depth::U16));
        let output = request.region.size.pixels() * (channels * depth.bytes()) as u64;
        let turned = if header.orientation == 1 { 0 } else { output };
        let inner = match &header.detail {
            Detail::Jpeg(frame) => jpeg::scratch_bytes(frame, header, request),
            Detail::Coefficients(image) => {
                jpeg::scratch_bytes(&image.frame, header, request) + image.strip_bytes
            }
            Detail::Png(ihdr) => png::scratch_bytes(ihdr, header.coded),
            Detail::Planes(planes) => {
                png::scratch_bytes(&planes.ihdr, header.coded) + planes.strip_bytes
            }
            Detail::Whole if header.format == Format::Gif => gif::scratch_bytes(header),
            Detail::Whole => other::scratch_bytes(header),
        };
        output + turned + inner
    }

    /// Decodes a region of a record into `out` and gives `out` the region's size.
    ///
    /// Returns the number of harmless warnings. For JPEG, 1 means one or more.
    ///
    /// # Shape
    ///
    /// `[region height, region width, channels]`, with channels and depth from `Header::output`.
    ///
    /// # Errors
    ///
    /// `Truncated`, `Damaged`, `Unsupported`, `NoMemory`, `Panicked`, or `OutsideImage` if the
    /// region exceeds the image. `out` is then unspecified.
    pub fn decode(
        &mut self,
        bytes: &[u8],
        header: &Header,
        request: &Request,
        out: &mut Image,
    ) -> Result<u32, DecodeError> {
        self.guarded(header.format, |decoder| {
            let shape = header.output(request.mode)?;
            decoder.scratch.narrowed = NarrowedSamples::default();
            decoder.scratch.losses.clear();
            decoder.oriented(header, request, shape, out, |decoder, region, out| {
                decoder.decode_coded(bytes, header, request.mode, region, request.scale, out)
            })
        })
    }

    /// Returns the data of the last decoded record that its pixels do not have.
    pub fn losses(&self) -> impl Iterator<Item = Loss> {
        let Scratch {
            narrowed, losses, ..
        } = &self.scratch;
        narrowed.loss().into_iter().chain(losses.iter().copied())
    }

    /// Decodes a region of a record with few different pixels to the position of each pixel in a
    /// table of these pixels. Lossless records of masks, and of PNGs with a palette, are stored that
    /// way. Returns the table, or None for all other records; `out` is then unchanged.
    ///
    /// # Shape
    ///
    /// `out` becomes `[region height, region width, 1]` of 8 bits. All positions are in the table.
    ///
    /// # Errors
    ///
    /// As [`Decoder::decode`].
    pub fn decode_positions(
        &mut self,
        bytes: &[u8],
        header: &Header,
        request: &Request,
        out: &mut Image,
    ) -> Result<Option<PixelTable>, DecodeError> {
        let Detail::Planes(planes::Planes { ihdr, .. }) = &header.detail else {
            return Ok(None);
        };
        self.guarded(header.format, |decoder| {
            let (channels, depth) = header.output(request.mode)?;
            let pixel = channels * depth.bytes();
            let Some(table) = planes::table(bytes, ihdr, request.mode, pixel)? else {
                return Ok(None);
            };
            let shape = (1, Depth::U8);
            decoder.oriented(header, request, shape, out, |decoder, region, out| {
                let scratch = &mut decoder.scratch;
                planes::decode_positions(bytes, ihdr, &table, region, scratch, out).map(|()| 0)
            })?;
            Ok(Some(table))
        })
    }

    /// Runs `work`; converts a panic of a codec to an error.
    fn guarded<T>(
        &mut self,
        format: Format,
        work: impl FnOnce(&mut Decoder) -> Result<T, DecodeError>,
    ) -> Result<T, DecodeError> {
        let done = guard(format, || work(self));
        if matches!(done, Err(DecodeError::Panicked { .. })) {
            // The codec may have left its state and the buffers incomplete.
            *self = Decoder::new();
        }
        done
    }

    /// Calls `coded` with the region of the image as stored in the file, and applies the
    /// orientation. `shape` is the channels and depth of the result.
    fn oriented(
        &mut self,
        header: &Header,
        request: &Request,
        (channels, depth): (usize, Depth),
        out: &mut Image,
        coded: impl FnOnce(&mut Decoder, Region, &mut Image) -> Result<u32, DecodeError>,
    ) -> Result<u32, DecodeError> {
        let size = header.scaled(request.scale);
        if !request.region.fits(size) {
            return Err(DecodeError::OutsideImage {
                region: request.region,
                size,
            });
        }
        if request.region.size.pixels() == 0 {
            out.reset(request.region.size, channels, depth);
            return Ok(0);
        }
        if header.orientation == 1 {
            out.reset(request.region.size, channels, depth);
            return coded(self, request.region, out);
        }
        let region = orient::coded_region(
            header.orientation,
            request.region,
            header.coded_at(request.scale),
        );
        let mut unturned = std::mem::take(&mut self.scratch.unturned);
        unturned.reset(region.size, channels, depth);
        let done = coded(self, region, &mut unturned);
        if done.is_ok() {
            orient::turn(&unturned, header.orientation, out);
        }
        self.scratch.unturned = unturned;
        done
    }

    /// Decodes a region of the image as stored in the file. `out` already has its shape.
    fn decode_coded(
        &mut self,
        bytes: &[u8],
        header: &Header,
        mode: ColorMode,
        region: Region,
        scale: DctScale,
        out: &mut Image,
    ) -> Result<u32, DecodeError> {
        #[cfg(any(test, feature = "panicking"))]
        assert!(!bytes.ends_with(PANIC), "injected");
        let scratch = &mut self.scratch;
        match &header.detail {
            Detail::Jpeg(frame) => {
                let jpeg = match &mut self.jpeg {
                    Some(jpeg) => jpeg,
                    slot => slot.insert(JpegDecoder::new().map_err(jpeg::error)?),
                };
                let job = jpeg::RegionDecode {
                    frame,
                    mode,
                    region,
                    scale,
                };
                jpeg::decode(jpeg, bytes, &job, scratch, out)
            }
            Detail::Coefficients(image) => {
                let job = jpeg::RegionDecode {
                    frame: &image.frame,
                    mode,
                    region,
                    scale,
                };
                coefficients::decode(bytes, &image.head, &job, scratch, out).map(|()| 0)
            }
            Detail::Png(ihdr) => png::decode(bytes, ihdr, mode, region, scratch, out).map(|()| 0),
            Detail::Planes(planes) => {
                planes::decode(bytes, &planes.ihdr, mode, region, scratch, out).map(|()| 0)
            }
            Detail::Whole if header.format == Format::WebP => {
                webp::decode(bytes, header, mode, region, scratch, out).map(|()| 0)
            }
            Detail::Whole if header.format == Format::Tiff => {
                tiff::decode(bytes, header, mode, region, scratch, out).map(|()| 0)
            }
            Detail::Whole if header.format == Format::Gif => {
                gif::decode(bytes, mode, region, scratch, out).map(|()| 0)
            }
            Detail::Whole => other::decode(bytes, header, mode, region, scratch, out).map(|()| 0),
        }
    }
}
