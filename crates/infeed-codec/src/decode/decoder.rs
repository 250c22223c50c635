//! Decodes records of all formats: calls the code of each, contains panics of the codec libraries and
//! applies the orientation.

use infeed_raw::jpeg::JpegDecoder;

use super::color::ColorMode;
use super::error::{DecodeError, guard};
use super::foreign::ForeignFile;
use super::format::Format;
use super::header::{Detail, Header, Planes, Request};
use super::jpeg_frame::{DctScale, RegionDecode};
use super::limits::Limits;
use super::loss::{Loss, NarrowedSamples};
use super::planes::PixelTable;
use super::scratch::Scratch;
use super::{coefficients, gif, jpeg, orient, other, planes, png, tiff, webp};
use infeed_core::sample::{Depth, Image, Region, Size};

/// In tests, a record that ends in these bytes makes the decoder panic.
#[cfg(any(test, feature = "panicking"))]
pub const PANIC: &[u8] = b"a panicking codec";

/// Decodes records one after another; each worker reuses one decoder.
#[derive(Debug, Default)]
pub struct Decoder {
    /// Created at the first JPEG.
    pub(super) jpeg: Option<JpegDecoder>,
    pub(super) scratch: Scratch,
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
        let mut header = guard(format.name(), || match format {
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
        guard(header.format.name(), || match &header.detail {
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
        self.run_guarded(header.format, |decoder| {
            let shape = header.output(request.mode)?;
            decoder.scratch.narrowed = NarrowedSamples::default();
            decoder.scratch.losses.clear();
            decoder.decode_oriented(header, request, shape, out, |decoder, region, out| {
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
        let Detail::Planes(Planes { ihdr, .. }) = &header.detail else {
            return Ok(None);
        };
        self.run_guarded(header.format, |decoder| {
            let (channels, depth) = header.output(request.mode)?;
            let pixel = channels * depth.bytes();
            let Some(table) = planes::table(bytes, ihdr, request.mode, pixel)? else {
                return Ok(None);
            };
            let shape = (1, Depth::U8);
            decoder.decode_oriented(header, request, shape, out, |decoder, region, out| {
                let scratch = &mut decoder.scratch;
                planes::decode_positions(bytes, ihdr, &table, region, scratch, out).map(|()| 0)
            })?;
            Ok(Some(table))
        })
    }

    /// Runs `work`; converts a panic of a codec to an error.
    fn run_guarded<T>(
        &mut self,
        format: Format,
        work: impl FnOnce(&mut Decoder) -> Result<T, DecodeError>,
    ) -> Result<T, DecodeError> {
        let done = guard(format.name(), || work(self));
        if matches!(done, Err(DecodeError::Panicked { .. })) {
            // The codec may have left its state and the buffers incomplete.
            *self = Decoder::new();
        }
        done
    }

    /// Calls `coded` with the region of the image as stored in the file, and applies the
    /// orientation. `shape` is the channels and depth of the result.
    fn decode_oriented(
        &mut self,
        header: &Header,
        request: &Request,
        (channels, depth): (usize, Depth),
        out: &mut Image,
        coded: impl FnOnce(&mut Decoder, Region, &mut Image) -> Result<u32, DecodeError>,
    ) -> Result<u32, DecodeError> {
        let size = header.scaled_size(request.scale);
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
                let job = RegionDecode {
                    frame,
                    mode,
                    region,
                    scale,
                };
                jpeg::decode(jpeg, bytes, &job, scratch, out)
            }
            Detail::Coefficients(image) => {
                let job = RegionDecode {
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
