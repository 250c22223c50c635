//! Makes one record: checks and copies it, or decodes, transforms and encodes it.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;

use super::encode::{FileExtras, KEPT_QUALITY, PngPalette, encode_with};
use super::encoding::Encoding;
use super::error::PackError;
use super::fields::{FieldWork, Work};
use super::options::PackOptions;
use super::product::{Product, Shape};
use super::restart::with_restarts;
use infeed::fields::failure::{SampleError, StageFailure};
use infeed::fields::scratch::FieldLoss;
use infeed::loader::losses::LossLog;
use infeed::loader::sample_error;
use infeed::pipeline::{Decode, Pipeline};
use infeed_codec::decode::{ColorMode, Decoder, Format, Header, Limits, Request};
use infeed_codec::lossless;
use infeed_codec::transform::{PadMode, PixelView, Rng, Step, Transform, TransformScratch};
use infeed_core::error::Error;
use infeed_core::sample::{Depth, FieldKind, Image, Pixels, Record, Size};
use infeed_source::Source;

/// Makes the output of records. Shared by all threads.
pub(super) struct Maker<'a> {
    pub(super) source: &'a dyn Source,
    pub(super) fields: &'a [FieldWork],
    pub(super) transforms: &'a [Transform],
    pub(super) decode: Decode,
    /// Width of the tiles of JPEGs in MCUs. None: no restart markers.
    pub(super) restart: Option<u16>,
    /// Number of files that were copied although restart markers or lossless records were requested.
    pub(super) unchanged: AtomicU64,
    /// Whether copied images are decoded completely first.
    pub(super) verify: bool,
    /// Data that encoded pixels do not have.
    pub(super) losses: LossLog,
    /// Whether a record was reported whose orientation raw pixels cannot keep.
    pub(super) has_lost_turn: AtomicBool,
}

/// Buffers that a thread keeps between records.
#[derive(Default)]
pub(super) struct PackScratch {
    pub(super) decoder: Decoder,
    pub(super) current: Image,
    other: Image,
    transforms: TransformScratch,
}

/// An encoded image, and the mode that decodes it to its pixels.
pub(super) struct EncodedImage {
    pub(super) bytes: Bytes,
    pub(super) mode: ColorMode,
}

/// An image or mask of a record, after its header was read.
struct ImageInput {
    header: Option<Header>,
    shape: Shape,
    mode: ColorMode,
    /// EXIF orientation that the pixels do not have yet. The new file keeps it.
    orientation: u8,
}

impl<'a> Maker<'a> {
    /// Makes the fields of a source with the decoding of a pipeline.
    pub(super) fn new(
        source: &'a dyn Source,
        fields: &'a [FieldWork],
        pipeline: &Pipeline,
        options: &'a PackOptions,
    ) -> Maker<'a> {
        Maker {
            source,
            fields,
            transforms: &options.transforms,
            decode: pipeline.decode.clone().unwrap_or_default(),
            restart: options.restart,
            unchanged: AtomicU64::new(0),
            verify: options.verify,
            losses: LossLog::default(),
            has_lost_turn: AtomicBool::new(false),
        }
    }
}

impl Maker<'_> {
    /// Makes the output of each field, in their order.
    ///
    /// # Errors
    ///
    /// The error of the record, with its name.
    pub(super) fn make(
        &self,
        record: &Record,
        scratch: &mut PackScratch,
    ) -> Result<Vec<Product>, Error> {
        let mut first: Option<(&FieldWork, Size)> = None;
        let mut inputs = Vec::with_capacity(self.fields.len());
        for (at, (field, bytes)) in self.fields.iter().zip(&record.fields).enumerate() {
            let found = self
                .check_input(field, bytes, scratch)
                .map_err(|error| self.record_error(record, at, None, error))?;
            if let Some(found) = &found {
                self.check_turn(record, at, found)?;
                let size = found.shape.size;
                match first {
                    Some((named, expected)) if expected != size && !self.transforms.is_empty() => {
                        let error = SampleError::Shape {
                            found: format!("{size} px"),
                            expected: format!("{expected} px, the size of `{}`", named.name),
                            fix: "an image and its mask must have one size",
                        };
                        return Err(self.record_error(record, at, None, error));
                    }
                    Some(_) => {}
                    None => first = Some((field, size)),
                }
            }
            inputs.push(found);
        }
        let steps = match first {
            Some((_, size)) => self.draw(size).map_err(|(transform, error)| {
                let error = SampleError::Transform(error);
                self.record_error(record, 0, Some(transform), error)
            })?,
            None => Vec::new(),
        };
        let mut products = Vec::with_capacity(self.fields.len());
        for (at, (inputs, bytes)) in inputs.iter().zip(&record.fields).enumerate() {
            products.push(match inputs {
                Some(inputs) => self.visual(record, at, bytes, inputs, &steps, scratch)?,
                None => Product {
                    bytes: bytes.clone(),
                    shape: None,
                },
            });
        }
        Ok(products)
    }

    /// Makes the output of one image alone, and the mode that decodes it. Leaves the pixels in
    /// `scratch.current`.
    pub(super) fn visual_alone(
        &self,
        record: &Record,
        at: usize,
        scratch: &mut PackScratch,
    ) -> Result<EncodedImage, Error> {
        let failed = |error| self.record_error(record, at, None, error);
        let bytes = &record.fields[at];
        let inputs = self
            .check_input(&self.fields[at], bytes, scratch)
            .map_err(failed)?;
        let Some(inputs) = inputs else {
            let bytes = bytes.clone();
            let mode = ColorMode::default();
            return Ok(EncodedImage { bytes, mode });
        };
        let steps = self.draw(inputs.shape.size).map_err(|(transform, error)| {
            self.record_error(record, at, Some(transform), SampleError::Transform(error))
        })?;
        let bytes = self
            .visual(record, at, bytes, &inputs, &steps, scratch)?
            .bytes;
        let mode = match (scratch.current.channels, scratch.current.depth) {
            (3, Depth::U8) => ColorMode::Rgb,
            (4, Depth::U8) => ColorMode::Rgba,
            (_, Depth::U16) => ColorMode::Stored16,
            _ => ColorMode::Stored,
        };
        Ok(EncodedImage { bytes, mode })
    }

    /// Reads the header of an image or mask and checks that the record is complete, as a loader
    /// does.
    fn check_input(
        &self,
        field: &FieldWork,
        bytes: &Bytes,
        scratch: &mut PackScratch,
    ) -> Result<Option<ImageInput>, SampleError> {
        let (FieldKind::Image(stored) | FieldKind::Mask(stored)) = &field.kind else {
            return Ok(None);
        };
        if let Pixels::Raw {
            size,
            channels,
            depth,
        } = *stored
        {
            let shape = Shape {
                size,
                channels,
                depth,
            };
            return Ok(Some(ImageInput {
                header: None,
                shape,
                mode: ColorMode::Stored,
                orientation: 1,
            }));
        }
        let limits = Limits {
            max_pixels: self.decode.max_pixels,
        };
        let turns = self.turns(field);
        let header = scratch
            .decoder
            .header(bytes, turns, &limits)
            .map_err(SampleError::Decode)?;
        let orientation = match &field.work {
            Work::Encode { .. } | Work::Pixels { .. } if !turns => {
                let turned = scratch.decoder.header(bytes, true, &limits);
                turned.map_err(SampleError::Decode)?.frame().orientation
            }
            _ => 1,
        };
        let mode = mode(field, &header);
        let (channels, depth) = header.output(mode).map_err(SampleError::Decode)?;
        scratch
            .decoder
            .check(bytes, &header, self.decode.verify)
            .map_err(SampleError::Decode)?;
        let shape = Shape {
            size: header.size,
            channels,
            depth,
        };
        Ok(Some(ImageInput {
            header: Some(header),
            shape,
            mode,
            orientation,
        }))
    }

    /// Whether the pixels of a field are turned by their EXIF orientation.
    ///
    /// If pixels change only their encoding, the new file keeps the orientation instead. So it is
    /// read like the original, with and without `orient`, and coordinates still refer to its pixels.
    fn turns(&self, field: &FieldWork) -> bool {
        let keeps = self.transforms.is_empty() && matches!(field.work, Work::Encode { .. });
        self.decode.orient && !keeps
    }

    /// Checks that raw pixels, which have no orientation, do not lose one silently.
    fn check_turn(&self, record: &Record, at: usize, input: &ImageInput) -> Result<(), Error> {
        let field = &self.fields[at];
        if !field.is_pixels() {
            return Ok(());
        }
        let frame = input.header.as_ref().map(Header::frame);
        let is_turned = frame.is_some_and(|frame| frame.orientation != 1);
        if let Some(coordinates) = &field.stored_coordinates
            && is_turned
        {
            let problem = format!(
                "decode(orient=True) turns `{}` of {}, and packing does not move `{coordinates}`; \
                 pack encoded images, which keep their EXIF orientation, or declare \
                 oriented=True if the coordinates refer to the turned image",
                field.name,
                self.source.id(record.index, Some(at)),
            );
            return Err(Error::config("boxes", problem));
        }
        // Relaxed: only the first record is reported, whichever it is.
        if input.orientation != 1 && !self.has_lost_turn.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "raw pixels do not keep an EXIF orientation, and `{}` of {} has orientation {}; \
                 pack a pipeline with decode(orient=True) to turn such images, or pack encoded \
                 images",
                field.name,
                self.source.id(record.index, Some(at)),
                input.orientation,
            );
        }
        Ok(())
    }

    /// Returns the steps for a record of this size. Packable transforms are not random.
    fn draw(
        &self,
        mut size: Size,
    ) -> Result<Vec<Step>, (&'static str, infeed_codec::transform::TransformError)> {
        let mut all = Vec::new();
        for transform in self.transforms {
            let steps = transform
                .draw(size, &mut Rng::new(0, 0, 0, 0))
                .map_err(|error| (transform.name(), error))?;
            size = steps.iter().fold(size, |size, step| step.output_size(size));
            all.extend(steps);
        }
        Ok(all)
    }

    /// Makes the output of an image or mask. If it is encoded again, its pixels stay in
    /// `scratch.current`.
    fn visual(
        &self,
        record: &Record,
        at: usize,
        bytes: &Bytes,
        inputs: &ImageInput,
        steps: &[Step],
        scratch: &mut PackScratch,
    ) -> Result<Product, Error> {
        let field = &self.fields[at];
        if let Work::Copy { encoding, .. } = field.work {
            if self.verify {
                self.decode(bytes, inputs, scratch)
                    .map_err(|error| self.record_error(record, at, None, error))?;
            }
            return Ok(Product {
                bytes: match encoding {
                    Encoding::Lossless => self.recode(bytes, &mut scratch.decoder),
                    Encoding::Restore => restore_file(bytes)
                        .map_err(|error| self.record_error(record, at, None, error))?,
                    _ => self.copy(bytes, inputs),
                },
                shape: None,
            });
        }
        self.decode(bytes, inputs, scratch)
            .map_err(|error| self.record_error(record, at, None, error))?;
        if inputs.header.is_some() {
            for loss in scratch.decoder.losses() {
                let (record, field) = (record.index, at);
                let lost = FieldLoss {
                    record,
                    field,
                    loss,
                };
                self.losses.note(self.source, (0, record), lost);
            }
        }
        let before = field.is_mask.then(|| values(&scratch.current));
        let mut fills = HashSet::new();
        for step in steps {
            let input = PixelView::from(&scratch.current);
            step.apply(
                input,
                &mut scratch.other,
                field.is_mask,
                &mut scratch.transforms,
            )
            .map_err(|error| {
                let error = SampleError::Transform(error);
                self.record_error(record, at, Some(step.name()), error)
            })?;
            std::mem::swap(&mut scratch.current, &mut scratch.other);
            fills.extend(fill(step, &scratch.current));
        }
        let not_written = |transform: &'static str, error: PackError| Error::Transform {
            record: self.source.id(record.index, Some(at)),
            transform: transform.into(),
            source: Arc::new(error),
        };
        if let Some(before) = before.filter(|_| !steps.is_empty()) {
            let after = values(&scratch.current);
            let new = after
                .iter()
                .filter(|v| !before.contains(v) && !fills.contains(v));
            let new = new.count();
            if new > 0 {
                return Err(not_written("pack", PackError::NewValues { new }));
            }
        }
        let image = &scratch.current;
        let Work::Encode { encoding, .. } = field.work else {
            return Ok(Product {
                bytes: Bytes::copy_from_slice(&image.data),
                shape: Some(Shape {
                    size: image.size,
                    channels: image.channels,
                    depth: image.depth,
                }),
            });
        };
        let encoding = match encoding {
            Encoding::Keep if !field.is_mask && stays_jpeg(inputs, image) => Encoding::Jpeg {
                quality: KEPT_QUALITY,
            },
            other => other,
        };
        let is_index = matches!(inputs.mode, ColorMode::Stored);
        let extras = FileExtras {
            palette: PngPalette::of(bytes).filter(|_| is_index),
            restart: self.restart,
            orientation: inputs.orientation,
        };
        let name = match encoding {
            Encoding::Jpeg { .. } => "jpeg",
            Encoding::WebpLossless => "webp",
            _ => "png",
        };
        let bytes =
            encode_with(image, encoding, &extras).map_err(|error| not_written(name, error))?;
        Ok(Product {
            bytes: Bytes::from(bytes),
            shape: None,
        })
    }

    /// Copies the bytes, or adds restart markers to a JPEG. A JPEG that cannot be rewritten is
    /// copied.
    fn copy(&self, bytes: &Bytes, inputs: &ImageInput) -> Bytes {
        let (Some(wanted), Some(header)) = (self.restart, &inputs.header) else {
            return bytes.clone();
        };
        match with_restarts(bytes, header, wanted) {
            Some(rewritten) => Bytes::from(rewritten),
            None => {
                if header.format == Format::Jpeg {
                    // Relaxed: read after the threads have ended.
                    self.unchanged.fetch_add(1, Ordering::Relaxed);
                }
                bytes.clone()
            }
        }
    }

    /// Recodes a file without loss. A file that would not become smaller is copied.
    fn recode(&self, bytes: &Bytes, decoder: &mut Decoder) -> Bytes {
        match lossless::encode(bytes, decoder) {
            Ok(record) => Bytes::from(record.bytes),
            Err(_) => {
                // Relaxed: read after the threads have ended.
                self.unchanged.fetch_add(1, Ordering::Relaxed);
                bytes.clone()
            }
        }
    }

    /// Decodes the pixels of a field into `scratch.current`.
    fn decode(
        &self,
        bytes: &Bytes,
        inputs: &ImageInput,
        scratch: &mut PackScratch,
    ) -> Result<(), SampleError> {
        let Some(header) = &inputs.header else {
            let Shape {
                size,
                channels,
                depth,
            } = inputs.shape;
            scratch.current.reset(size, channels, depth);
            scratch.current.data.copy_from_slice(bytes);
            return Ok(());
        };
        let request = Request::whole(header, inputs.mode);
        scratch
            .decoder
            .decode(bytes, header, &request, &mut scratch.current)
            .map(drop)
            .map_err(SampleError::Decode)
    }

    fn record_error(
        &self,
        record: &Record,
        field: usize,
        transform: Option<&'static str>,
        error: SampleError,
    ) -> Error {
        let failure = StageFailure {
            field,
            transform,
            error,
        };
        sample_error(self.source, record.index, failure)
    }
}

/// Restores the file of a lossless record.
fn restore_file(bytes: &Bytes) -> Result<Bytes, SampleError> {
    match Format::of(bytes).filter(|format| format.is_lossless_record()) {
        Some(_) => lossless::restore(bytes)
            .map(|file| Bytes::from(file.bytes))
            .map_err(SampleError::Decode),
        None => Ok(bytes.clone()),
    }
}

/// Returns the decode mode that keeps everything that the pipeline would see.
fn mode(field: &FieldWork, header: &Header) -> ColorMode {
    let keeps_more = |mode: ColorMode, named: bool| match mode {
        // In 8 bits, a 16-bit mask would be a bad record. Its numbers are kept instead.
        ColorMode::Stored if field.is_mask && !named && header.depth == Depth::U16 => {
            ColorMode::Stored16
        }
        mode => mode,
    };
    match field.work {
        // A file with three equal channels is larger and slower to read.
        Work::Encode {
            mode: ColorMode::Rgb,
            ..
        } if header.is_gray() => ColorMode::Gray,
        Work::Encode { mode, named, .. } | Work::Pixels { mode, named } => keeps_more(mode, named),
        Work::Copy { mode, .. } => keeps_more(mode, false),
        Work::Numbers | Work::Plain | Work::Label(_) => ColorMode::default(),
    }
}

/// Returns whether a record that was a JPEG can be a JPEG again.
fn stays_jpeg(inputs: &ImageInput, image: &Image) -> bool {
    let was = inputs.header.as_ref().map(|header| header.format);
    was == Some(Format::Jpeg) && matches!((image.channels, image.depth), (1 | 3, Depth::U8))
}

/// Returns the values in a mask, with the bytes of a pixel as one number.
fn values(mask: &Image) -> HashSet<u64> {
    let mut found = HashSet::new();
    let mut last = None;
    for pixel in mask.data.chunks_exact(mask.pixel_bytes()) {
        // Masks are runs of equal pixels.
        if last != Some(pixel) {
            found.insert(key(pixel));
            last = Some(pixel);
        }
    }
    found
}

/// Returns the bytes of a pixel, at most 8, as one number.
fn key(pixel: &[u8]) -> u64 {
    pixel
        .iter()
        .fold(0, |key, &byte| key << 8 | u64::from(byte))
}

/// Returns the value that a step adds to a mask of this layout.
fn fill(step: &Step, mask: &Image) -> Option<u64> {
    let Step::Pad {
        mask_fill,
        mode: PadMode::Constant,
        ..
    } = step
    else {
        return None;
    };
    let sample = |channel: usize| {
        let value = mask_fill
            .get(channel)
            .or(mask_fill.first())
            .copied()
            .unwrap_or(0.0);
        match mask.depth {
            Depth::U8 => vec![value as u8],
            Depth::U16 => (value as u16).to_ne_bytes().to_vec(),
        }
    };
    let pixel: Vec<u8> = (0..mask.channels).flat_map(sample).collect();
    Some(key(&pixel))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(depth: Depth, data: &[u8]) -> Image {
        let mut mask = Image::default();
        let width = (data.len() / depth.bytes()) as u32;
        mask.reset(Size { height: 1, width }, 1, depth);
        mask.data.copy_from_slice(data);
        mask
    }

    #[test]
    fn the_values_of_a_mask_are_counted_once_each() {
        assert_eq!(values(&mask(Depth::U8, &[1, 1, 2, 1, 255])).len(), 3);
        let wide: Vec<u8> = [300_u16, 7, 300]
            .iter()
            .flat_map(|v| v.to_ne_bytes())
            .collect();
        assert_eq!(values(&mask(Depth::U16, &wide)).len(), 2);
    }

    #[test]
    fn the_fill_of_a_pad_is_a_value_a_mask_may_get() {
        let pad = Step::Pad {
            left: 1,
            top: 0,
            right: 0,
            bottom: 0,
            fill: vec![0.0],
            mask_fill: vec![300.0],
            mode: PadMode::Constant,
        };
        let padded = mask(Depth::U16, &300_u16.to_ne_bytes());

        let fill = fill(&pad, &padded).expect("a constant");

        assert!(values(&padded).contains(&fill));
    }
}
