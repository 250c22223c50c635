//! JPEGs, or their lossless records: the region of a random resized crop decoded, resized and
//! written; normalized channels first, or as uint8 channels last.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use fast_image_resize::images::{Image, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};
use infeed_codec::decode::{ColorMode, Decoder, Limits, Request};
use infeed_core::sample::{Image as RgbImage, Region, Size};
use infeed_raw::host::HostBytes;
use infeed_raw::jpeg::{JpegDecoder, JpegTask, PixelFormat, Window};
use infeed_raw::simd::{Convert, Dtype, Layout, Level, SourcePixels, convert};

use crate::decoded_rows::normalize;
use crate::records::{Random, Turn, files, read};
use crate::{Job, Step};

const SIDE: u32 = 224;
const SAMPLE: usize = (SIDE * SIDE * 3) as usize;
const BATCH: usize = 64;

/// Decodes a random window of a file.
trait DecodeWindow {
    fn new() -> Result<Self>
    where
        Self: Sized;

    /// Returns a drawn window, a part of the image that contains it, and the RGB pixels of the part.
    fn decode(&mut self, bytes: &[u8], random: &mut Random) -> Result<(Window, Window, &[u8])>;
}

/// Random resized crop of JPEGs to 224, flip, and if `floats` normalize to float32.
pub fn jpegs(root: &Path, floats: bool) -> Result<Job> {
    job::<Jpegs>(root, floats)
}

/// The same for lossless records, and the JPEGs that have none.
pub fn records(root: &Path, floats: bool) -> Result<Job> {
    job::<Records>(root, floats)
}

fn job<D: DecodeWindow + Send + 'static>(root: &Path, floats: bool) -> Result<Job> {
    let shared = Arc::new((files(root)?, Turn::default()));
    let element = if floats { 4 } else { 1 };
    Ok(Box::new(move |thread| {
        let shared = shared.clone();
        let mut random = Random(thread);
        let mut bytes = Vec::new();
        let mut decoder = D::new()?;
        let mut writer = Writer::new(floats);
        let mut slab = HostBytes::zeroed(BATCH * SAMPLE * element)?;
        let step = move || {
            let (records, turn) = &*shared;
            for out in slab.chunks_exact_mut(SAMPLE * element) {
                let record = &records[turn.next(records.len())];
                read(record, &mut bytes)?;
                decoder
                    .decode(&bytes, &mut random)
                    .and_then(|decoded| writer.write(decoded, random.coin(), out))
                    .with_context(|| format!("{record:?}"))?;
            }
            Ok(BATCH as u64)
        };
        Ok(Box::new(step) as Step)
    }))
}

/// Decodes JPEGs with libjpeg-turbo.
struct Jpegs {
    decoder: JpegDecoder,
    pixels: Vec<u8>,
}

impl DecodeWindow for Jpegs {
    fn new() -> Result<Jpegs> {
        Ok(Jpegs {
            decoder: JpegDecoder::new()?,
            pixels: Vec::new(),
        })
    }

    fn decode(&mut self, bytes: &[u8], random: &mut Random) -> Result<(Window, Window, &[u8])> {
        let frame = Frame::of(bytes).context("no JPEG")?;
        let crop = random_window(random, frame.height, frame.width);
        // One more block of chroma on every side than the crop needs: upsampling reads it.
        let left = (crop.left / frame.block_width).saturating_sub(1) * frame.block_width;
        let top = crop.top.saturating_sub(frame.block_height);
        let right = (crop.left + crop.width + frame.block_width).min(frame.width);
        let bottom = (crop.top + crop.height + frame.block_height).min(frame.height);
        let part = Window {
            top,
            left,
            height: bottom - top,
            width: right - left,
        };
        let length = (part.height * part.width * 3) as usize;
        if self.pixels.len() < length {
            self.pixels.resize(length, 0);
        }
        let task = JpegTask {
            width: frame.width,
            height: frame.height,
            eighths: 8,
            window: part,
            format: PixelFormat::Rgb,
            max_scans: 500,
            max_memory_mib: 1024,
        };
        let pixels = &mut self.pixels[..length];
        self.decoder.decode(bytes, &task, pixels)?;
        Ok((crop, part, pixels))
    }
}

/// Decodes lossless records, and other files, with infeed's decoder.
#[derive(Default)]
struct Records {
    decoder: Decoder,
    image: RgbImage,
}

impl DecodeWindow for Records {
    fn new() -> Result<Records> {
        Ok(Records::default())
    }

    fn decode(&mut self, bytes: &[u8], random: &mut Random) -> Result<(Window, Window, &[u8])> {
        let header = self.decoder.header(bytes, true, &Limits::default())?;
        self.decoder.check(bytes, &header, true)?;
        let crop = random_window(random, header.size.height, header.size.width);
        let region = Region {
            top: crop.top,
            left: crop.left,
            size: Size {
                height: crop.height,
                width: crop.width,
            },
        };
        let request = Request {
            region,
            ..Request::whole(&header, ColorMode::Rgb)
        };
        self.decoder
            .decode(bytes, &header, &request, &mut self.image)?;
        Ok((crop, crop, &self.image.data))
    }
}

/// Resizes and writes samples.
struct Writer {
    floats: bool,
    resizer: Resizer,
    small: Image<'static>,
}

impl Writer {
    fn new(floats: bool) -> Writer {
        Writer {
            floats,
            resizer: Resizer::new(),
            small: Image::new(SIDE, SIDE, PixelType::U8x3),
        }
    }

    fn write(
        &mut self,
        (crop, part, pixels): (Window, Window, &[u8]),
        flip_x: bool,
        out: &mut [u8],
    ) -> Result<()> {
        let pixels = ImageRef::new(part.width, part.height, pixels, PixelType::U8x3)?;
        let options = ResizeOptions::new()
            .resize_alg(ResizeAlg::Convolution(FilterType::Bilinear))
            .crop(
                f64::from(crop.left - part.left),
                f64::from(crop.top - part.top),
                f64::from(crop.width),
                f64::from(crop.height),
            );
        self.resizer.resize(&pixels, &mut self.small, &options)?;

        let side = SIDE as usize;
        let source = SourcePixels {
            data: self.small.buffer(),
            width: side,
            height: side,
            channels: 3,
            row_bytes: side * 3,
        };
        let (scale, bias) = normalize();
        let (dtype, layout) = match self.floats {
            true => (Dtype::F32, Layout::Chw),
            false => (Dtype::U8, Layout::Hwc),
        };
        let pass = Convert {
            dtype,
            layout,
            flip_x,
            flip_y: false,
            scale,
            bias,
        };
        convert(Level::detect(), &source, &pass, out);
        Ok(())
    }
}

/// Size of a JPEG and of its blocks.
struct Frame {
    height: u32,
    width: u32,
    block_height: u32,
    block_width: u32,
}

impl Frame {
    /// Reads the frame header (ITU-T T.81, B.2.2) and skips the segments before it.
    fn of(bytes: &[u8]) -> Option<Frame> {
        let mut at = 2;
        loop {
            let [0xff, marker, high, low] = *bytes.get(at..at + 4)? else {
                return None;
            };
            let body = bytes.get(at + 4..)?;
            // Frame headers are C0 to CF except DHT, JPG and DAC.
            if (0xc0..=0xcf).contains(&marker) && ![0xc4, 0xc8, 0xcc].contains(&marker) {
                let side =
                    |n: usize| Some(u32::from(*body.get(n)?) << 8 | u32::from(*body.get(n + 1)?));
                let factors = (0..usize::from(*body.get(5)?))
                    .map(|component| body.get(7 + 3 * component).map(|f| (f >> 4, f & 15)))
                    .collect::<Option<Vec<_>>>()?;
                // A single component is not interleaved: its block is 8 by 8.
                let single = factors.len() == 1;
                let block = |largest: Option<u8>| {
                    if single {
                        8
                    } else {
                        8 * u32::from(largest.unwrap_or(1))
                    }
                };
                return Some(Frame {
                    height: side(1)?,
                    width: side(3)?,
                    block_width: block(factors.iter().map(|f| f.0).max()),
                    block_height: block(factors.iter().map(|f| f.1).max()),
                });
            }
            at += 2 + (usize::from(high) << 8 | usize::from(low));
        }
    }
}

/// Draws a random window as torchvision's RandomResizedCrop does.
fn random_window(random: &mut Random, height: u32, width: u32) -> Window {
    let area = f64::from(height) * f64::from(width);
    for _ in 0..10 {
        let target = area * random.uniform(0.08, 1.0);
        let ratio = random.uniform((3f64 / 4.0).ln(), (4f64 / 3.0).ln()).exp();
        let w = (target * ratio).sqrt().round() as u32;
        let h = (target / ratio).sqrt().round() as u32;
        if (1..=width).contains(&w) && (1..=height).contains(&h) {
            let top = random.uniform(0.0, f64::from(height - h + 1)) as u32;
            let left = random.uniform(0.0, f64::from(width - w + 1)) as u32;
            return Window {
                top,
                left,
                height: h,
                width: w,
            };
        }
    }
    let side = height.min(width);
    Window {
        top: (height - side) / 2,
        left: (width - side) / 2,
        height: side,
        width: side,
    }
}
