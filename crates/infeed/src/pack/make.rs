//! One record: checked and copied, or decoded, transformed and encoded.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use super::PackError;
use super::encode::{KEPT_QUALITY, PngPalette, encode_with};
use super::encoding::Encoding;
use super::fields::{FieldWork, Work};
use super::restart::with_restarts;
use crate::decode::{ColorMode, Decoder, Format, Header, Limits, Request};
use crate::error::Error;
use crate::loader::sample_error;
use crate::pipeline::Decode;
use crate::plan::failure::{Failure, SampleError};
use crate::sample::{Depth, FieldKind, Image, Pixels, Record, Size};
use crate::source::Source;
use crate::transform::{PadMode, PixelView, Rng, Step, Transform, TransformScratch};

/// Makes what is written of a record; shared by all threads.
pub(super) struct Maker<'a> {
    pub(super) source: &'a dyn Source,
    pub(super) fields: &'a [FieldWork],
    pub(super) transforms: &'a [Transform],
    pub(super) decode: Decode,
    /// Width of tiles that JPEGs get, in MCUs.
    pub(super) restart: Option<u16>,
    /// JPEGs that should have been rewritten and were copied.
    pub(super) unmarked: AtomicU64,
    /// Whether images that are copied are decoded whole first.
    pub(super) verify: bool,
}

/// What one thread keeps between records.
#[derive(Default)]
pub(super) struct Bench {
    pub(super) decoder: Decoder,
    pub(super) current: Image,
    other: Image,
    scratch: TransformScratch,
}

/// What is written of one field.
pub(super) struct Product {
    pub(super) bytes: Bytes,
    /// Of pixels that are not encoded.
    pub(super) shape: Option<Shape>,
}

/// An image as it is written, and how to see its pixels.
pub(super) struct Alone {
    pub(super) bytes: Bytes,
    pub(super) mode: ColorMode,
}

/// Shape of pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) size: Size,
    pub(super) channels: usize,
    pub(super) depth: Depth,
}

impl Shape {
    /// `[H, W]` or `[H, W, C]`.
    pub(super) fn axes(&self) -> Vec<usize> {
        let mut axes = vec![self.size.height as usize, self.size.width as usize];
        if self.channels > 1 {
            axes.push(self.channels);
        }
        axes
    }
}

/// An image or mask of a record, its header read.
struct Looked {
    header: Option<Header>,
    shape: Shape,
    mode: ColorMode,
}

impl Maker<'_> {
    /// What is written of each field, in their order.
    ///
    /// # Errors
    ///
    /// What is wrong with the record, naming it.
    pub(super) fn make(&self, record: &Record, bench: &mut Bench) -> Result<Vec<Product>, Error> {
        let mut first: Option<(&FieldWork, Size)> = None;
        let mut looked = Vec::with_capacity(self.fields.len());
        for (at, (field, bytes)) in self.fields.iter().zip(&record.fields).enumerate() {
            let found = self
                .look(field, bytes, bench)
                .map_err(|error| self.failed(record, at, None, error))?;
            if let Some(found) = &found {
                let size = found.shape.size;
                match first {
                    Some((named, expected)) if expected != size && !self.transforms.is_empty() => {
                        let error = SampleError::Shape {
                            found: format!("{size} px"),
                            expected: format!("{expected} px, the size of `{}`", named.name),
                            mend: "an image and its mask must have one size",
                        };
                        return Err(self.failed(record, at, None, error));
                    }
                    Some(_) => {}
                    None => first = Some((field, size)),
                }
            }
            looked.push(found);
        }
        let steps = match first {
            Some((_, size)) => self.draw(size).map_err(|(transform, error)| {
                let error = SampleError::Transform(error);
                self.failed(record, 0, Some(transform), error)
            })?,
            None => Vec::new(),
        };
        let mut products = Vec::with_capacity(self.fields.len());
        for (at, (looked, bytes)) in looked.iter().zip(&record.fields).enumerate() {
            products.push(match looked {
                Some(looked) => self.visual(record, at, bytes, looked, &steps, bench)?,
                None => Product {
                    bytes: bytes.clone(),
                    shape: None,
                },
            });
        }
        Ok(products)
    }

    /// What is written of one image alone, and the mode that gives its pixels back, which are left
    /// in `bench.current`.
    pub(super) fn visual_alone(
        &self,
        record: &Record,
        at: usize,
        bench: &mut Bench,
    ) -> Result<Alone, Error> {
        let failed = |error| self.failed(record, at, None, error);
        let bytes = &record.fields[at];
        let looked = self.look(&self.fields[at], bytes, bench).map_err(failed)?;
        let Some(looked) = looked else {
            let bytes = bytes.clone();
            let mode = ColorMode::default();
            return Ok(Alone { bytes, mode });
        };
        let steps = self.draw(looked.shape.size).map_err(|(transform, error)| {
            self.failed(record, at, Some(transform), SampleError::Transform(error))
        })?;
        let bytes = self
            .visual(record, at, bytes, &looked, &steps, bench)?
            .bytes;
        let mode = match (bench.current.channels, bench.current.depth) {
            (3, Depth::U8) => ColorMode::Rgb,
            (4, Depth::U8) => ColorMode::Rgba,
            (_, Depth::U16) => ColorMode::Stored16,
            _ => ColorMode::Stored,
        };
        Ok(Alone { bytes, mode })
    }

    /// Reads the header of an image or mask and checks that the record is whole, as a loader does.
    fn look(
        &self,
        field: &FieldWork,
        bytes: &Bytes,
        bench: &mut Bench,
    ) -> Result<Option<Looked>, SampleError> {
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
            let mode = ColorMode::Stored;
            return Ok(Some(Looked {
                header: None,
                shape,
                mode,
            }));
        }
        let limits = Limits {
            max_pixels: self.decode.max_pixels,
        };
        let header = bench
            .decoder
            .header(bytes, self.decode.orient, &limits)
            .map_err(SampleError::Decode)?;
        let mode = mode(field, &header);
        let (channels, depth) = header.output(mode).map_err(SampleError::Decode)?;
        bench
            .decoder
            .check(bytes, &header, self.decode.verify)
            .map_err(SampleError::Decode)?;
        let shape = Shape {
            size: header.size,
            channels,
            depth,
        };
        Ok(Some(Looked {
            header: Some(header),
            shape,
            mode,
        }))
    }

    /// The steps for a record of this size. Nothing is random in what may be packed.
    fn draw(
        &self,
        mut size: Size,
    ) -> Result<Vec<Step>, (&'static str, crate::transform::TransformError)> {
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

    /// What is written of an image or mask; where it is encoded anew, its pixels are left in
    /// `bench.current`.
    fn visual(
        &self,
        record: &Record,
        at: usize,
        bytes: &Bytes,
        looked: &Looked,
        steps: &[Step],
        bench: &mut Bench,
    ) -> Result<Product, Error> {
        let field = &self.fields[at];
        if let Work::Copy { .. } = field.work {
            if self.verify {
                self.decode(bytes, looked, bench)
                    .map_err(|error| self.failed(record, at, None, error))?;
            }
            return Ok(Product {
                bytes: self.copy(bytes, looked),
                shape: None,
            });
        }
        self.decode(bytes, looked, bench)
            .map_err(|error| self.failed(record, at, None, error))?;
        let before = field.is_mask.then(|| values(&bench.current));
        let mut fills = HashSet::new();
        for step in steps {
            let input = PixelView::from(&bench.current);
            step.apply(input, &mut bench.other, field.is_mask, &mut bench.scratch)
                .map_err(|error| {
                    let error = SampleError::Transform(error);
                    self.failed(record, at, Some(step.name()), error)
                })?;
            std::mem::swap(&mut bench.current, &mut bench.other);
            fills.extend(fill(step, &bench.current));
        }
        let not_written = |transform: &'static str, error: PackError| Error::Transform {
            record: self.source.id(record.index, Some(at)),
            transform: transform.into(),
            source: Arc::new(error),
        };
        if let Some(before) = before.filter(|_| !steps.is_empty()) {
            let after = values(&bench.current);
            let new = after
                .iter()
                .filter(|v| !before.contains(v) && !fills.contains(v));
            let new = new.count();
            if new > 0 {
                return Err(not_written("pack", PackError::NewValues { new }));
            }
        }
        let image = &bench.current;
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
            Encoding::Keep if !field.is_mask && stays_jpeg(looked, image) => Encoding::Jpeg {
                quality: KEPT_QUALITY,
            },
            other => other,
        };
        let is_index = matches!(looked.mode, ColorMode::Stored);
        let palette = PngPalette::of(bytes).filter(|_| is_index);
        let name = match encoding {
            Encoding::Jpeg { .. } => "jpeg",
            Encoding::WebpLossless => "webp",
            Encoding::Png { .. } | Encoding::Keep | Encoding::Raw => "png",
        };
        let bytes = encode_with(image, encoding, palette.as_ref(), self.restart)
            .map_err(|error| not_written(name, error))?;
        Ok(Product {
            bytes: Bytes::from(bytes),
            shape: None,
        })
    }

    /// The bytes as they are, or a JPEG with restart markers. One that cannot be rewritten is as
    /// good as it was.
    fn copy(&self, bytes: &Bytes, looked: &Looked) -> Bytes {
        let (Some(wanted), Some(header)) = (self.restart, &looked.header) else {
            return bytes.clone();
        };
        match with_restarts(bytes, header, wanted) {
            Some(rewritten) => Bytes::from(rewritten),
            None => {
                if header.format == Format::Jpeg {
                    // Relaxed: read when the threads have ended.
                    self.unmarked.fetch_add(1, Ordering::Relaxed);
                }
                bytes.clone()
            }
        }
    }

    /// Pixels of a field into `bench.current`.
    fn decode(&self, bytes: &Bytes, looked: &Looked, bench: &mut Bench) -> Result<(), SampleError> {
        let Some(header) = &looked.header else {
            let Shape {
                size,
                channels,
                depth,
            } = looked.shape;
            bench.current.reset(size, channels, depth);
            bench.current.data.copy_from_slice(bytes);
            return Ok(());
        };
        let request = Request {
            orient: self.decode.orient,
            ..Request::whole(header, looked.mode)
        };
        bench
            .decoder
            .decode(bytes, header, &request, &mut bench.current)
            .map(drop)
            .map_err(SampleError::Decode)
    }

    fn failed(
        &self,
        record: &Record,
        field: usize,
        transform: Option<&'static str>,
        error: SampleError,
    ) -> Error {
        let failure = Failure {
            field,
            transform,
            error,
        };
        sample_error(self.source, record.index, failure)
    }
}

/// How a file is decoded so that what is stored loses nothing the pipeline would see.
fn mode(field: &FieldWork, header: &Header) -> ColorMode {
    let keeps_more = |mode: ColorMode, named: bool| match mode {
        // A mask of 16 bits would be a bad record in 8; its numbers are kept instead.
        ColorMode::Stored if field.is_mask && !named && header.depth == Depth::U16 => {
            ColorMode::Stored16
        }
        mode => mode,
    };
    match field.work {
        // A file of three equal channels is larger and reads slower.
        Work::Encode {
            mode: ColorMode::Rgb,
            ..
        } if header.is_gray() => ColorMode::Gray,
        Work::Encode { mode, named, .. } | Work::Pixels { mode, named } => keeps_more(mode, named),
        Work::Copy { mode } => keeps_more(mode, false),
        Work::Numbers | Work::Plain | Work::Label(_) => ColorMode::default(),
    }
}

/// Whether a record that was a JPEG can be one again.
fn stays_jpeg(looked: &Looked, image: &Image) -> bool {
    let was = looked.header.as_ref().map(|header| header.format);
    was == Some(Format::Jpeg) && matches!((image.channels, image.depth), (1 | 3, Depth::U8))
}

/// The values in a mask, the bytes of a pixel as one number.
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

/// The bytes of a pixel, 8 at most, as one number.
fn key(pixel: &[u8]) -> u64 {
    pixel
        .iter()
        .fold(0, |key, &byte| key << 8 | u64::from(byte))
}

/// The value that a step adds to a mask of this layout.
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
