//! Decodes JPEGs with another library than nvJPEG and infeed.

use std::panic::{AssertUnwindSafe, catch_unwind};

use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

/// Header of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileHeader {
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) components: u32,
}

/// Reads the header; None if the file is not a JPEG or is damaged.
pub(super) fn header(bytes: &[u8]) -> Option<FileHeader> {
    catch_panic(|| {
        let mut decoder = JpegDecoder::new(ZCursor::new(bytes));
        decoder.decode_headers().ok()?;
        let info = decoder.info()?;
        Some(FileHeader {
            width: u32::from(info.width),
            height: u32::from(info.height),
            components: u32::from(info.components),
        })
    })
}

/// Returns the sampling factors of the components in the frame header; None without a frame header.
pub(super) fn sampling(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut rest = bytes.get(2..)?;
    loop {
        let &[0xFF, marker, high, low, ref behind @ ..] = rest else {
            return None;
        };
        let segment = behind.get(..usize::from(u16::from_be_bytes([high, low])).checked_sub(2)?)?;
        if (0xC0..=0xC2).contains(&marker) {
            let components = segment.get(6..)?.chunks_exact(3);
            return Some(components.map(|component| component[1]).collect());
        }
        rest = &behind[segment.len()..];
    }
}

/// Returns red, green and blue of each pixel; None if the file is damaged or truncated.
pub(crate) fn pixels(bytes: &[u8]) -> Option<Vec<u8>> {
    let header = header(bytes)?;
    let colours = match header.components {
        1 => ColorSpace::Luma,
        3 => ColorSpace::RGB,
        _ => return None,
    };
    let decoded = catch_panic(|| {
        let options = DecoderOptions::default()
            .set_strict_mode(true)
            .jpeg_set_out_colorspace(colours);
        let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
        decoder.decode().ok()
    })?;
    Some(match header.components {
        1 => decoded.iter().flat_map(|&grey| [grey; 3]).collect(),
        _ => decoded,
    })
}

/// Returns None if the library panics, which its authors do not rule out.
fn catch_panic<T>(body: impl FnOnce() -> Option<T>) -> Option<T> {
    catch_unwind(AssertUnwindSafe(body)).ok().flatten()
}
