//! Chunks of a PNG: the first one, its metadata, and the search for others.
//!
//! Source: W3C PNG (Third Edition), 5 (chunks), 11.2 (IHDR).

use png::{BitDepth, ColorType};

use super::error::DecodeError;
use super::exif;
use infeed_core::sample::Size;

/// Bytes before the first chunk.
pub(crate) const SIGNATURE: usize = 8;

/// Layout of rows from the first chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ihdr {
    pub(crate) size: Size,
    pub(crate) color: ColorType,
    pub(crate) bits: BitDepth,
    pub(super) is_interlaced: bool,
}

impl Ihdr {
    pub(super) fn is_gray(&self) -> bool {
        matches!(self.color, ColorType::Grayscale | ColorType::GrayscaleAlpha)
    }
}

/// One chunk, and the offset after it.
pub(crate) struct Chunk<'a> {
    pub(crate) kind: [u8; 4],
    /// Kind and data, the bytes that the checksum covers.
    pub(super) covered: &'a [u8],
    pub(super) crc: u32,
    pub(crate) end: usize,
}

impl<'a> Chunk<'a> {
    pub(crate) fn at(bytes: &'a [u8], at: usize) -> Option<Chunk<'a>> {
        let rest = bytes.get(at..)?;
        let length = u32::from_be_bytes(rest.get(..4)?.try_into().ok()?) as usize;
        let covered = rest.get(4..length.checked_add(8)?)?;
        let crc = u32::from_be_bytes(
            rest.get(length + 8..length.checked_add(12)?)?
                .try_into()
                .ok()?,
        );
        let kind = covered.get(..4)?.try_into().ok()?;
        Some(Chunk {
            kind,
            covered,
            crc,
            end: at + length + 12,
        })
    }

    fn data(&self) -> &'a [u8] {
        &self.covered[4..]
    }

    /// Returns the data of the first chunk of a kind.
    pub(super) fn find(bytes: &'a [u8], kind: &[u8; 4]) -> Option<&'a [u8]> {
        let mut at = SIGNATURE;
        while let Some(chunk) = Chunk::at(bytes, at) {
            if &chunk.kind == kind {
                return Some(chunk.data());
            }
            at = chunk.end;
        }
        None
    }
}

/// The last EXIF block and the last XMP packet of a file. Compressed text is not read.
#[derive(Default)]
pub(super) struct Metadata<'a> {
    exif: Option<&'a [u8]>,
    xmp: Option<&'a [u8]>,
}

impl<'a> Metadata<'a> {
    /// Searches the chunks from an offset. They may also follow the pixels.
    pub(super) fn search(&mut self, bytes: &'a [u8], mut at: usize) {
        while let Some(chunk) = Chunk::at(bytes, at) {
            match &chunk.kind {
                b"eXIf" => self.exif = Some(chunk.data()),
                b"iTXt" => {
                    // The keyword, then no compression.
                    let text = chunk.data().strip_prefix(b"XML:com.adobe.xmp\0\0");
                    self.xmp = text.or(self.xmp);
                }
                _ => {}
            }
            at = chunk.end;
        }
    }

    pub(super) fn orientation(&self) -> u8 {
        exif::orientation(self.exif, self.xmp)
    }
}

/// Reads the first chunk.
pub(crate) fn ihdr_of(bytes: &[u8]) -> Result<Ihdr, DecodeError> {
    let first = Chunk::at(bytes, SIGNATURE).ok_or(DecodeError::Truncated)?;
    if &first.kind != b"IHDR" {
        return Err(DecodeError::from_damage("the first chunk is not IHDR"));
    }
    ihdr(first.data())
}

fn ihdr(data: &[u8]) -> Result<Ihdr, DecodeError> {
    let &[
        w3,
        w2,
        w1,
        w0,
        h3,
        h2,
        h1,
        h0,
        bits,
        color,
        compression,
        filter,
        interlace,
    ] = data
    else {
        return Err(DecodeError::from_damage("IHDR is not 13 bytes long"));
    };
    let size = Size {
        height: u32::from_be_bytes([h3, h2, h1, h0]),
        width: u32::from_be_bytes([w3, w2, w1, w0]),
    };
    let color = ColorType::from_u8(color);
    let layout = match (color, BitDepth::from_u8(bits)) {
        (Some(color), Some(bits)) if is_combination(color, bits) => Some((color, bits)),
        _ => None,
    };
    match (layout, compression, filter, interlace) {
        (Some((color, bits)), 0, 0, 0 | 1) => Ok(Ihdr {
            size,
            color,
            bits,
            is_interlaced: interlace == 1,
        }),
        _ => Err(DecodeError::from_damage(
            "IHDR has an invalid colour type or bit depth",
        )),
    }
}

/// Whether PNG has this colour type in this depth (11.2.1, Table 12).
fn is_combination(color: ColorType, bits: BitDepth) -> bool {
    match color {
        ColorType::Grayscale => true,
        ColorType::Indexed => bits != BitDepth::Sixteen,
        _ => matches!(bits, BitDepth::Eight | BitDepth::Sixteen),
    }
}

/// Whether colours depend on a palette or a transparent colour, not only on the samples.
pub(crate) fn has_colors_beyond_samples(bytes: &[u8]) -> bool {
    [b"PLTE", b"tRNS"]
        .iter()
        .any(|kind| Chunk::find(bytes, kind).is_some())
}
