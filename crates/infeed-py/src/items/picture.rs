//! Conversion of Pillow images to files.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Meaning of the pixels of a Pillow image: colours, or class numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PixelMeaning {
    Image,
    Mask,
}

/// Returns whether a value is a Pillow image.
pub(super) fn is_picture(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    let module: String = value.get_type().module()?.extract()?;
    Ok(module.starts_with("PIL.") && value.hasattr("tobytes")?)
}

/// Returns the pixels of a Pillow image as an uncompressed TIFF file, so that images may differ in
/// size and the decoder crops and resizes them like files.
pub(super) fn picture_file(value: &Bound<'_, PyAny>, what: PixelMeaning) -> PyResult<Vec<u8>> {
    let mode: String = value.getattr("mode")?.extract()?;
    let converted = |to: &str| value.call_method1("convert", (to,));
    let (value, channels, bits) = match (mode.as_str(), what) {
        ("RGB", _) => (value.clone(), 3, 8),
        ("RGBA", _) => (value.clone(), 4, 8),
        ("L", _) => (value.clone(), 1, 8),
        // The palette indices of a mask are class numbers.
        ("P", PixelMeaning::Mask) => (value.clone(), 1, 8),
        ("P", PixelMeaning::Image) if !has_alpha(value)? => (converted("RGB")?, 3, 8),
        ("P" | "PA" | "RGBa", PixelMeaning::Image) | ("LA", _) => (converted("RGBA")?, 4, 8),
        ("1", _) => (converted("L")?, 1, 8),
        ("I;16", _) => (value.clone(), 1, 16),
        ("RGBX" | "CMYK" | "YCbCr" | "LAB" | "HSV", PixelMeaning::Image) => {
            (converted("RGB")?, 3, 8)
        }
        // A conversion of other modes to 8 bits would clip values.
        _ => {
            let name = match what {
                PixelMeaning::Image => "image",
                PixelMeaning::Mask => "mask",
            };
            return Err(PyTypeError::new_err(format!(
                "a {name} cannot have Pillow's mode {mode}; return an array (numpy.asarray(value)), or \
                     convert the image in the dataset"
            )));
        }
    };
    let (width, height): (u32, u32) = value.getattr("size")?.extract()?;
    let pixels = value.call_method0("tobytes")?;
    let pixels = pixels.cast::<PyBytes>()?.as_bytes();
    Ok(tiff(width, height, channels, bits, pixels))
}

/// Returns whether an image with a palette has alpha: an alpha palette, or one transparent colour.
fn has_alpha(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    let info = value.getattr("info")?;
    if info.contains("transparency")? {
        return Ok(true);
    }
    let palette = value.getattr("palette")?;
    if palette.is_none() {
        return Ok(false);
    }
    let mode: String = palette.getattr("mode")?.extract()?;
    Ok(mode == "RGBA")
}

/// Returns a TIFF file: one strip, little-endian, uncompressed (TIFF 6.0, sections 2 and 3).
fn tiff(width: u32, height: u32, channels: u16, bits: u16, pixels: &[u8]) -> Vec<u8> {
    const SHORT: u16 = 3;
    const LONG: u16 = 4;
    const ENTRIES: u32 = 11;
    let directory = 8 + 2 + ENTRIES * 12 + 4;
    // The bits per sample follow the directory, and the pixels follow the bits per sample.
    let strip = directory + 8;
    let mut file = Vec::with_capacity(strip as usize + pixels.len());
    file.extend(b"II\x2a\x00\x08\x00\x00\x00");
    file.extend((ENTRIES as u16).to_le_bytes());
    let mut entry = |tag: u16, kind: u16, count: u32, value: u32| {
        file.extend(tag.to_le_bytes());
        file.extend(kind.to_le_bytes());
        file.extend(count.to_le_bytes());
        file.extend(value.to_le_bytes());
    };
    entry(256, LONG, 1, width);
    entry(257, LONG, 1, height);
    match channels {
        // The value of one sample fits into the entry.
        1 => entry(258, SHORT, 1, u32::from(bits)),
        _ => entry(258, SHORT, u32::from(channels), directory),
    }
    entry(259, SHORT, 1, 1);
    entry(262, SHORT, 1, if channels == 1 { 1 } else { 2 });
    entry(273, LONG, 1, strip);
    entry(277, SHORT, 1, u32::from(channels));
    entry(278, LONG, 1, height);
    entry(279, LONG, 1, pixels.len() as u32);
    entry(284, SHORT, 1, 1);
    match channels {
        // Unassociated alpha.
        4 => entry(338, SHORT, 1, 2),
        _ => entry(339, SHORT, 1, 1),
    }
    file.extend(0_u32.to_le_bytes());
    for _ in 0..4 {
        file.extend(bits.to_le_bytes());
    }
    file.extend(pixels);
    file
}
