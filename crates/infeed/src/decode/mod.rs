//! Encoded bytes to pixels: one file a format, one `Decoder` a worker.
//!
//! The format is told from the bytes. A caller goes in three steps: `header` (size and layout, the
//! size limit is checked, nothing is allocated), `check` (is the record whole?) and `decode` (the
//! pixels of a region). Whether a record is bad does not depend on the region asked for as far as
//! `check` can see it; beyond that, only damage in the rows and columns that are decoded is found:
//! of a JPEG the rows down to the end of the region, or, where restart markers allow it, the tiles
//! of the region alone.
//! What a format cannot show stays unseen: a flipped bit in a JPEG's scan data mostly decodes to
//! other pixels, and so does one in WebP, BMP, GIF and TIFF. A PNG carries checksums.
//!
//! Everything here is a function of the bytes and the request; no state passes between calls.
//! `Decoder` is the only way in, and contains panics of the codec libraries: they are errors of the
//! record. libjpeg-turbo calls no Rust function, so no panic unwinds through C.

mod convert;
mod error;
mod exif;
mod jpeg;
mod limits;
mod orient;
mod other;
mod png;
#[cfg(test)]
mod tests;
mod tiff;
mod webp;

use infeed_raw::jpeg::JpegDecoder;
use serde::{Deserialize, Serialize};

pub use self::error::DecodeError;
pub use self::limits::Limits;
use crate::panics::contain;
use crate::sample::{Depth, Image, Region, Size};

/// A record that ends in these bytes makes the decoder panic, in tests of this crate.
#[cfg(test)]
pub(crate) const PANIC: &[u8] = b"a panicking codec";

/// File formats that can be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Format {
    Jpeg,
    Png,
    WebP,
    Bmp,
    Gif,
    Tiff,
}

impl Format {
    /// Tells the format from the first bytes of a file; `None` when it is none of these.
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
            _ => None,
        }
    }

    /// The name people use, such as `JPEG`.
    pub fn name(self) -> &'static str {
        match self {
            Format::Jpeg => "JPEG",
            Format::Png => "PNG",
            Format::WebP => "WebP",
            Format::Bmp => "BMP",
            Format::Gif => "GIF",
            Format::Tiff => "TIFF",
        }
    }
}

/// What the samples of a decoded image mean.
///
/// Conversions, `/` rounding to the nearest:
/// - 16 bits become 8 by their high byte, except in `Stored16`;
/// - alpha is dropped, not blended; a palette is looked up; 1, 2 and 4-bit gray is spread to 0..=255;
///   TIFF gray whose 0 is white is inverted, in every mode;
/// - gray of colour is ITU-R 601-2 luma, `(19595 r + 38470 g + 7471 b + 32768) >> 16`; gray of a
///   YCbCr JPEG is its Y channel as stored, which differs from that formula by rounding and clamping;
/// - CMYK of a JPEG is taken as inverted, as Adobe writes it and Pillow reads it: `r = c k / 255`;
///   CMYK of a TIFF is not inverted: `r = (255 - c) (255 - k) / 255`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ColorMode {
    /// Three channels of 8 bits.
    #[default]
    Rgb,
    /// One channel of 8 bits.
    Gray,
    /// Four channels of 8 bits, alpha not multiplied in; 255 where the file has none.
    Rgba,
    /// The samples as they stand in the file, 8 bits: palette indices, class numbers, gray of 1, 2
    /// and 4 bits without spreading. A file with several channels keeps them; a 16-bit file is an
    /// error. JPEG gives gray or RGB, BMP with a palette RGB, and GIF RGBA.
    Stored,
    /// As `Stored`, in 16 bits; samples of fewer bits keep their value.
    Stored16,
}

impl ColorMode {
    /// The name in descriptions, such as `stored16`.
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

/// Size at which a JPEG is reconstructed from its 8x8 blocks. Other formats have full size only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DctScale {
    /// 1/8: one pixel a block.
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

    /// Eighths of full size: 1, 2, 4 or 8.
    pub fn eighths(self) -> u32 {
        match self {
            DctScale::Eighth => 1,
            DctScale::Quarter => 2,
            DctScale::Half => 4,
            DctScale::Full => 8,
        }
    }

    /// Size of an image at this scale; sides round up.
    pub fn apply(self, size: Size) -> Size {
        // The quotient is at most `side`, so it fits.
        let side = |side: u32| (u64::from(side) * u64::from(self.eighths())).div_ceil(8) as u32;
        Size {
            height: side(size.height),
            width: side(size.width),
        }
    }
}

/// What the first bytes of a record say; made by `Decoder::header`.
#[derive(Clone, Debug)]
pub struct Header {
    /// File format.
    pub format: Format,
    /// Rows and columns of the image, after the EXIF orientation if it was asked for.
    pub size: Size,
    /// Channels in the file: 1 (gray or palette index), 2 (gray, alpha), 3 or 4.
    pub channels: usize,
    /// Bits of a sample in the file; fewer than 8 count as 8.
    pub depth: Depth,
    /// EXIF orientation, 1 to 8; 1 if it was not asked for.
    pub orientation: u8,
    /// Rows and columns before the orientation.
    coded: Size,
    detail: Detail,
}

/// What one format needs besides.
#[derive(Clone, Debug)]
enum Detail {
    Jpeg(jpeg::Frame),
    Png(png::Ihdr),
    Whole,
}

impl Header {
    /// Size of the image at a DCT scale: the pixels that `Request::region` counts. The scale
    /// changes JPEGs only.
    pub fn scaled(&self, scale: DctScale) -> Size {
        if self.format == Format::Jpeg {
            scale.apply(self.size)
        } else {
            self.size
        }
    }

    /// Whether the file's layout has no colours, alpha aside: its RGB is its gray, three times.
    /// False where that takes more than the header, as for a palette of grays.
    pub fn is_gray(&self) -> bool {
        match &self.detail {
            Detail::Jpeg(_) => self.channels == 1,
            Detail::Png(ihdr) => ihdr.is_gray(),
            Detail::Whole => false,
        }
    }

    /// MCUs (the squares that are coded together) side by side in a JPEG whose components are all
    /// in one scan: what the interval of its restart markers must divide if regions are to be
    /// decoded by tiles. None for other formats.
    pub fn mcus_across(&self) -> Option<u32> {
        match &self.detail {
            Detail::Jpeg(frame) => Some(frame.mcus_across()),
            Detail::Png(_) | Detail::Whole => None,
        }
    }

    /// Whether a JPEG's first scan is not its only one: a progressive file, or one component after
    /// the other. If such a file lacks its last scans, decoders smooth over what is missing.
    pub fn has_several_scans(&self) -> bool {
        match &self.detail {
            Detail::Jpeg(frame) => frame.has_several_scans(),
            Detail::Png(_) | Detail::Whole => false,
        }
    }

    /// Channels and bits of what `decode` gives in a mode.
    ///
    /// # Errors
    ///
    /// `Unsupported` for `Stored` and a file of 16 bits.
    pub fn output(&self, mode: ColorMode) -> Result<(usize, Depth), DecodeError> {
        // CMYK is not kept: no consumer of pixels here knows inks.
        let stored = if self.format == Format::Jpeg {
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
        if self.format == Format::Jpeg {
            scale.apply(self.coded)
        } else {
            self.coded
        }
    }
}

/// What to decode of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What the samples mean.
    pub mode: ColorMode,
    /// The part wanted, in the pixels of the scaled and oriented image.
    pub region: Region,
    /// Whether the EXIF orientation is applied; the same as for `header`.
    pub orient: bool,
    /// DCT scale; other formats than JPEG ignore it.
    pub scale: DctScale,
    /// Whether checksums are verified, for callers that pass it on to `check`.
    pub verify: bool,
}

impl Request {
    /// The whole of an image at full size, turned if the header was read so.
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

/// Decodes records, one after another; a worker owns one and reuses it.
#[derive(Debug, Default)]
pub struct Decoder {
    /// Made at the first JPEG.
    jpeg: Option<JpegDecoder>,
    scratch: Scratch,
}

/// Buffers that keep their allocation from record to record.
#[derive(Debug, Default)]
struct Scratch {
    /// Rows as a decoder gives them, before columns are cut or samples converted.
    wide: Vec<u8>,
    /// The file that a JPEG's tiles make.
    tiles: Vec<u8>,
    /// Rows of converted pixels before they are scattered.
    narrow: Vec<u8>,
    /// The region before it is turned.
    unturned: Image,
}

/// Runs a codec; its panic becomes an error of the record.
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
    /// Makes a decoder with empty buffers.
    pub fn new() -> Decoder {
        Decoder::default()
    }

    /// Reads what the first bytes of a record say, and holds it against the limits.
    ///
    /// With `orient`, the EXIF orientation is looked for and `size` is the size after it.
    ///
    /// # Errors
    ///
    /// `UnknownFormat`, `Truncated`, `Damaged`, `Unsupported`, `TooLarge` or `Panicked`.
    ///
    /// # Cost
    ///
    /// Walks segments up to the pixels; allocates nothing that grows with the image.
    pub fn header(
        &mut self,
        bytes: &[u8],
        orient: bool,
        limits: &Limits,
    ) -> Result<Header, DecodeError> {
        let format = Format::of(bytes).ok_or(DecodeError::UnknownFormat)?;
        let mut header = guard(format, || match format {
            Format::Jpeg => jpeg::header(bytes, orient),
            Format::Png => png::header(bytes, orient),
            Format::WebP => webp::header(bytes, orient),
            Format::Tiff => tiff::header(bytes, orient),
            Format::Bmp | Format::Gif => other::header(format, bytes, orient),
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

    /// Checks cheaply that a record is whole, whatever part of it will be decoded.
    ///
    /// PNG: chunks follow each other up to IEND, and with `verify` the checksum of each is right.
    /// JPEG: there is an end-of-image marker after the first scan begins. WebP: the chunks named
    /// in the container are there. BMP, GIF and TIFF are always decoded whole, so `decode` finds
    /// what there is to find.
    ///
    /// # Errors
    ///
    /// `Truncated`, `Damaged` or `Panicked`.
    ///
    /// # Cost
    ///
    /// PNG: one pass of CRC-32 over the bytes; others next to nothing.
    pub fn check(&self, bytes: &[u8], header: &Header, verify: bool) -> Result<(), DecodeError> {
        guard(header.format, || match &header.detail {
            Detail::Jpeg(frame) => jpeg::check(bytes, frame),
            Detail::Png(_) => png::check(bytes, verify),
            Detail::Whole if header.format == Format::WebP => webp::check(bytes),
            Detail::Whole => Ok(()),
        })
    }

    /// Upper bound of the bytes `decode` takes for this request, its output included.
    ///
    /// What the decoders hold between records (rows, the last turned region) counts as part of it.
    pub fn scratch_bytes(&self, header: &Header, request: &Request) -> u64 {
        let (channels, depth) = header.output(request.mode).unwrap_or((4, Depth::U16));
        let output = request.region.size.pixels() * (channels * depth.bytes()) as u64;
        let turned = if header.orientation == 1 { 0 } else { output };
        let inner = match &header.detail {
            Detail::Jpeg(frame) => jpeg::scratch_bytes(frame, header, request),
            Detail::Png(ihdr) => png::scratch_bytes(ihdr, header.coded),
            Detail::Whole => other::scratch_bytes(header),
        };
        output + turned + inner
    }

    /// Decodes a region of a record into `out`, which takes the region's size.
    ///
    /// Returns the number of harmless warnings (for JPEG 1 stands for one or more).
    ///
    /// # Shape
    ///
    /// `[region height, region width, channels]`, with channels and depth from `Header::output`.
    ///
    /// # Errors
    ///
    /// `Truncated`, `Damaged`, `Unsupported`, `NoMemory`, `Panicked`, or `OutsideImage` when the
    /// region leaves the image. `out` is unspecified then.
    pub fn decode(
        &mut self,
        bytes: &[u8],
        header: &Header,
        request: &Request,
        out: &mut Image,
    ) -> Result<u32, DecodeError> {
        let done = guard(header.format, || {
            self.decode_oriented(bytes, header, request, out)
        });
        if matches!(done, Err(DecodeError::Panicked { .. })) {
            // The codec may have left its state and the buffers half written.
            *self = Decoder::new();
        }
        done
    }

    /// Decodes a region and applies the orientation; `decode` without the guard.
    fn decode_oriented(
        &mut self,
        bytes: &[u8],
        header: &Header,
        request: &Request,
        out: &mut Image,
    ) -> Result<u32, DecodeError> {
        let size = header.scaled(request.scale);
        if !request.region.fits(size) {
            return Err(DecodeError::OutsideImage {
                region: request.region,
                size,
            });
        }
        let (channels, depth) = header.output(request.mode)?;
        if request.region.size.pixels() == 0 {
            out.reset(request.region.size, channels, depth);
            return Ok(0);
        }
        if header.orientation == 1 {
            out.reset(request.region.size, channels, depth);
            return self.decode_coded(
                bytes,
                header,
                request.mode,
                request.region,
                request.scale,
                out,
            );
        }
        let coded = header.coded_at(request.scale);
        let region = orient::coded_region(header.orientation, request.region, coded);
        let mut unturned = std::mem::take(&mut self.scratch.unturned);
        unturned.reset(region.size, channels, depth);
        let done = self.decode_coded(
            bytes,
            header,
            request.mode,
            region,
            request.scale,
            &mut unturned,
        );
        if done.is_ok() {
            orient::turn(&unturned, header.orientation, out);
        }
        self.scratch.unturned = unturned;
        done
    }

    /// Decodes a region of the image as it lies in the file; `out` has its shape already.
    fn decode_coded(
        &mut self,
        bytes: &[u8],
        header: &Header,
        mode: ColorMode,
        region: Region,
        scale: DctScale,
        out: &mut Image,
    ) -> Result<u32, DecodeError> {
        #[cfg(test)]
        assert!(!bytes.ends_with(PANIC), "injected");
        let scratch = &mut self.scratch;
        match &header.detail {
            Detail::Jpeg(frame) => {
                let jpeg = match &mut self.jpeg {
                    Some(jpeg) => jpeg,
                    slot => slot.insert(JpegDecoder::new().map_err(jpeg::error)?),
                };
                let job = jpeg::Job {
                    frame,
                    mode,
                    region,
                    scale,
                };
                jpeg::decode(jpeg, bytes, &job, scratch, out)
            }
            Detail::Png(ihdr) => png::decode(bytes, ihdr, mode, region, scratch, out).map(|()| 0),
            Detail::Whole if header.format == Format::WebP => {
                webp::decode(bytes, header, mode, region, scratch, out).map(|()| 0)
            }
            Detail::Whole if header.format == Format::Tiff => {
                tiff::decode(bytes, header, mode, region, scratch, out).map(|()| 0)
            }
            Detail::Whole => other::decode(bytes, header, mode, region, scratch, out).map(|()| 0),
        }
    }
}
