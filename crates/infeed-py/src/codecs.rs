//! Encoded images for callers without a pipeline.

use std::borrow::Cow;
use std::cell::RefCell;

use infeed_codec::decode::{ColorMode, DecodeError, Decoder, Limits, Request};
use infeed_codec::lossless;
use infeed_core::sample::Image;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyByteArray;

thread_local! {
    /// Each thread keeps the buffers of its decoder.
    static DECODER: RefCell<Decoder> = RefCell::new(Decoder::new());
}

fn mode_of(mode: &str) -> PyResult<ColorMode> {
    let all = [
        ColorMode::Rgb,
        ColorMode::Gray,
        ColorMode::Rgba,
        ColorMode::Stored,
        ColorMode::Stored16,
    ];
    all.into_iter()
        .find(|one| one.name() == mode)
        .ok_or_else(|| {
            let names = all.map(ColorMode::name).join(", ");
            PyValueError::new_err(format!("mode: no mode {mode:?}; use one of {names}"))
        })
}

fn decode_error(error: DecodeError) -> PyErr {
    PyValueError::new_err(format!("cannot decode the image: {error}"))
}

/// Decodes an image; returns its bytes, `[height, width, channels]` and the bytes of a sample.
#[pyfunction]
pub(crate) fn decode_image<'py>(
    py: Python<'py>,
    data: &[u8],
    mode: &str,
    orient: bool,
    max_pixels: u64,
) -> PyResult<(Bound<'py, PyByteArray>, [usize; 3], usize)> {
    let mode = mode_of(mode)?;
    // `data` is a bytes object, which no thread can change while the interpreter is released.
    let image = py.detach(|| {
        DECODER.with_borrow_mut(|decoder| {
            let header = decoder.header(data, orient, &Limits { max_pixels })?;
            decoder.check(data, &header, true)?;
            let mut out = Image::default();
            decoder.decode(data, &header, &Request::whole(&header, mode), &mut out)?;
            Ok(out)
        })
    });
    let image = image.map_err(decode_error)?;
    let shape = [image.height(), image.width(), image.channels];
    Ok((
        PyByteArray::new(py, &image.data),
        shape,
        image.depth.bytes(),
    ))
}

/// Returns height and width of an image, from its header.
#[pyfunction]
pub(crate) fn image_size(data: &[u8], orient: bool, max_pixels: u64) -> PyResult<(u32, u32)> {
    let limits = Limits { max_pixels };
    let header = DECODER
        .with_borrow_mut(|decoder| decoder.header(data, orient, &limits).map_err(decode_error))?;
    Ok((header.size.height, header.size.width))
}

/// Encodes a file without loss; returns the record and whether it restores the file's bytes.
#[pyfunction]
pub(crate) fn encode_lossless(py: Python<'_>, data: &[u8]) -> PyResult<(Cow<'static, [u8]>, bool)> {
    let encoded = py.detach(|| DECODER.with_borrow_mut(|decoder| lossless::encode(data, decoder)));
    match encoded {
        Ok(record) => Ok((record.bytes.into(), record.restores_bytes)),
        Err(reason) => {
            let message = format!("cannot make a lossless record: {reason}; keep the file");
            Err(PyValueError::new_err(message))
        }
    }
}

/// Restores the file of a lossless record; returns it and whether its bytes are the original's.
#[pyfunction]
pub(crate) fn restore_lossless(
    py: Python<'_>,
    data: &[u8],
) -> PyResult<(Cow<'static, [u8]>, bool)> {
    let restored = py
        .detach(|| lossless::restore(data))
        .map_err(decode_error)?;
    Ok((restored.bytes.into(), restored.is_original))
}
