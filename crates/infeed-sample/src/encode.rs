//! Pixels to the bytes of image files.

use std::io;

use infeed_raw::jpeg_encode::{self, Subsampling};

use infeed_core::sample::{Depth, Image};

/// Encodes an RGB image as a baseline JPEG of a quality from 1 to 100.
///
/// # Errors
///
/// `InvalidInput` if the image is not 8-bit RGB, or quality or size are out of range.
pub fn jpeg(image: &Image, quality: u8, subsampling: Subsampling) -> io::Result<Vec<u8>> {
    jpeg_encode::encode(
        &image.data,
        image.size.width,
        image.size.height,
        quality,
        subsampling,
    )
    .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}

/// Encodes an image as a PNG the way libpng does by default: adaptive filters, level 6, no
/// interlacing.
///
/// # Errors
///
/// `InvalidInput` if the image has no pixels or its data does not fit its shape.
pub fn png(image: &Image) -> io::Result<Vec<u8>> {
    let colour = match image.channels {
        1 => png::ColorType::Grayscale,
        2 => png::ColorType::GrayscaleAlpha,
        3 => png::ColorType::Rgb,
        _ => png::ColorType::Rgba,
    };
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, image.size.width, image.size.height);
    encoder.set_color(colour);
    encoder.set_depth(match image.depth {
        Depth::U8 => png::BitDepth::Eight,
        Depth::U16 => png::BitDepth::Sixteen,
    });
    encoder.set_filter(png::Filter::Adaptive);
    encoder.set_deflate_compression(png::DeflateCompression::Level(6));
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
    let mut writer = encoder.write_header().map_err(invalid)?;
    match image.depth {
        Depth::U8 => writer.write_image_data(&image.data).map_err(invalid)?,
        Depth::U16 => {
            // PNG holds 16-bit samples with the high byte first.
            let big_endian: Vec<u8> = image
                .data
                .chunks_exact(2)
                .flat_map(|pair| u16::from_ne_bytes([pair[0], pair[1]]).to_be_bytes())
                .collect();
            writer.write_image_data(&big_endian).map_err(invalid)?;
        }
    }
    writer.finish().map_err(invalid)?;
    Ok(bytes)
}
