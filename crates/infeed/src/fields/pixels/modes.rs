//! Colour modes of fields, and the pixels that they give.

use crate::pipeline::Pipeline;
use infeed_codec::decode::{ColorMode, Decoder, Limits};
use infeed_codec::transform::TransformError;
use infeed_core::error::Error;
use infeed_core::sample::{Depth, Field, FieldKind, Pixels};
use infeed_source::{Source, read_one};

/// Maximum number of records that are read to find the channels of stored samples.
const TRIES: u64 = 16;

/// Color mode of a field: the described one, else the one that its classes need.
pub fn color_mode(pipeline: &Pipeline, field: &str, is_mask: bool) -> ColorMode {
    let requested = pipeline
        .decode
        .as_ref()
        .and_then(|decode| decode.modes.get(field));
    if let Some(mode) = requested {
        return *mode;
    }
    let by_colour = pipeline
        .transforms
        .iter()
        .any(|transform| transform.field() == Some(field) && transform.palette().is_some());
    if is_mask && !by_colour {
        ColorMode::Stored
    } else {
        ColorMode::Rgb
    }
}

/// Returns the channels and depth of the decoded files of field `at`. Images whose samples stay as
/// stored have the channels of the first good record; masks have one.
pub(crate) fn decoded_pixels(
    mode: ColorMode,
    source: Option<&dyn Source>,
    (at, field): (usize, &Field),
) -> Result<(usize, Depth), Error> {
    let depth = match mode {
        ColorMode::Rgb => return Ok((3, Depth::U8)),
        ColorMode::Rgba => return Ok((4, Depth::U8)),
        ColorMode::Gray => return Ok((1, Depth::U8)),
        ColorMode::Stored => Depth::U8,
        ColorMode::Stored16 => Depth::U16,
    };
    let channels = match (source, &field.kind) {
        (Some(source), FieldKind::Image(_)) => stored_channels(source, at, mode)?,
        _ => 1,
    };
    Ok((channels, depth))
}

/// Returns the channels of the first of a few records that can be decoded; 1 if none can.
fn stored_channels(source: &dyn Source, field: usize, mode: ColorMode) -> Result<usize, Error> {
    let mut decoder = Decoder::new();
    for index in 0..source.len().min(TRIES) {
        let record = match read_one(source, index) {
            Ok(record) => record,
            Err(Error::Damaged { .. }) => continue,
            Err(error) => return Err(error),
        };
        let bytes = record.fields.get(field).map_or(&[][..], |bytes| bytes);
        let header = decoder.header(bytes, false, &Limits::default());
        if let Ok((channels, _)) = header.and_then(|header| header.output(mode)) {
            return Ok(channels);
        }
    }
    Ok(1)
}

/// Describes why a transform cannot run on the pixels of a field. Transforms of colours need 8 bits.
pub(crate) fn unsupported_pixels(
    error: &TransformError,
    field: &Field,
    stored: &Pixels,
    depth: Depth,
) -> String {
    if depth == Depth::U8 || !matches!(error, TransformError::Pixels { .. }) {
        return error.to_string();
    }
    match stored {
        Pixels::Encoded => format!(
            "{error}; remove the transform, or decode `{name}` to 8 bits with .decode({name}=\"rgb\")",
            name = field.name
        ),
        Pixels::Raw { .. } => format!(
            "{error}; remove the transform, or store `{}` as uint8",
            field.name
        ),
    }
}
