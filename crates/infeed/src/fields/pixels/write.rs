//! The pass that writes a row: flip, cast, normalize and layout, or colors and indices to classes.

use half::{bf16, f16};
use infeed_raw::simd;

use super::classes::samples16;
use super::plan::{PixelPlan, RowPass};
use crate::fields::failure::SampleError;
use crate::fields::scratch::ClassScratch;
use crate::fields::steps::{Flips, FoldedSteps};
use crate::pipeline::Layout;
use infeed_codec::decode::PixelTable;
use infeed_codec::transform::{Affine, PixelView};
use infeed_core::batch::RowCell;
use infeed_core::error::Error;
use infeed_core::sample::{DType, Depth, Region, Size};
use infeed_device::ring::crops;

/// Rejects results that are infinite as 16-bit floats.
///
/// # Errors
///
/// [`Error::Config`] that names the field.
pub(crate) fn check_range(dtype: DType, affine: &Affine, field: &str) -> Result<(), Error> {
    let largest = affine.largest();
    if dtype != DType::Float16 || largest <= f64::from(f16::MAX) {
        return Ok(());
    }
    let problem = format!(
        "dtype=\"float16\" holds numbers up to {}, but the transforms give `{field}` numbers up to \
         {largest:.0}; use float32 or bfloat16, or a larger std",
        f16::MAX
    );
    Err(Error::config("output", problem))
}

impl PixelPlan {
    /// Writes pixels into their cell. With a table, `view` holds positions in it. Returns the number
    /// of pixels of unknown class.
    pub(crate) fn write(
        &self,
        view: PixelView<'_>,
        pixels: Option<&PixelTable>,
        flips: Flips,
        erase: &[(Region, Vec<f64>)],
        cell: &mut RowCell,
        classes: &mut ClassScratch,
    ) -> Result<u64, SampleError> {
        if let (Some(_), RowCell::Slab(row)) = (self.crop_bytes, &mut *cell) {
            self.write_crop(view, flips, row.bytes_mut())?;
            return Ok(0);
        }
        let shape = self.shape(view.size());
        let bytes = shape.iter().product::<usize>() * self.dtype().bytes();
        let out = match cell {
            RowCell::Slab(row) => {
                let row = row.bytes_mut();
                if row.len() != bytes {
                    return Err(SampleError::Shape {
                        found: format!("{shape:?}"),
                        expected: format!("{:?}", self.size.map(|size| self.shape(size))),
                        fix: "add Resize, CropOrPad or RandomResizedCrop, or use .batch(n, pad=True)",
                    });
                }
                row
            }
            RowCell::Own {
                shape: own,
                bytes: buffer,
            } => {
                *own = shape;
                buffer.clear();
                buffer.resize(bytes, 0);
                buffer
            }
        };
        match &self.finish {
            RowPass::Convert {
                dtype,
                layout,
                scale,
                bias,
            } => {
                convert(view, *dtype, *layout, flips, scale, bias, out);
                for (region, value) in erase {
                    fill(
                        out,
                        view.size(),
                        self.out_channels,
                        *dtype,
                        *layout,
                        *region,
                        value,
                    );
                }
                Ok(0)
            }
            RowPass::OneHot {
                classes: map,
                dtype,
                layout,
            } => {
                let ClassScratch { narrow, wide } = classes;
                let count = map.count();
                let size = view.size();
                // The number for unknown pixels is beyond all classes, so they become zeros.
                if count <= 255 {
                    let unknown = map.indices(&view, pixels, narrow, u8::MAX)?;
                    one_hot(narrow, count, *dtype, *layout, size, flips, out);
                    return Ok(unknown);
                }
                let unknown = map.indices(&view, pixels, wide, u16::MAX)?;
                wide_one_hot(wide, count, *dtype, *layout, size, flips, out);
                Ok(unknown)
            }
            RowPass::Classes {
                classes: map,
                dtype,
                none,
            } => {
                let ClassScratch { narrow, wide } = classes;
                if *dtype == DType::UInt8 {
                    let unknown = map.indices(&view, pixels, narrow, *none as u8)?;
                    numbers(narrow, view.size(), flips, out);
                    return Ok(unknown);
                }
                let unknown = map.indices(&view, pixels, wide, u16::MAX)?;
                let value = |class: u16| {
                    if class == u16::MAX {
                        *none
                    } else {
                        i64::from(class)
                    }
                };
                scatter(wide, view.size(), flips, |at, class| {
                    out[at * 8..at * 8 + 8].copy_from_slice(&value(class).to_ne_bytes());
                });
                Ok(unknown)
            }
        }
    }
}

impl PixelPlan {
    /// Whether the image needs only a resize, which a device does.
    pub(crate) fn resized_behind(&self, folded: &FoldedSteps, size: Size) -> bool {
        let (Some(_), Some(to)) = (self.crop_bytes, self.size) else {
            return false;
        };
        folded.is_resize(to) && crops::takes(size, to)
    }

    /// Writes an image that a device resizes (or that has its final size) and mirrors.
    fn write_crop(
        &self,
        view: PixelView<'_>,
        flips: Flips,
        row: &mut [u8],
    ) -> Result<(), SampleError> {
        let (size, channels) = (view.size(), view.channels());
        let fits = self.size.is_some_and(|to| crops::takes(size, to));
        let place = crops::begin(row, size, channels, (flips.x, flips.y)).filter(|_| fits);
        let Some(out) = place else {
            return Err(SampleError::Shape {
                found: format!("{:?}", self.shape(size)),
                expected: format!("{:?}", self.size.map(|size| self.shape(size))),
                fix: "use placement=\"device\"",
            });
        };
        let (plain, scale, bias) = (Flips::default(), [1.0; 4], [0.0; 4]);
        convert(view, DType::UInt8, Layout::Hwc, plain, &scale, &bias, out);
        Ok(())
    }
}

/// Writes flipped class numbers of one byte each.
fn numbers(numbers: &[u8], size: Size, flips: Flips, out: &mut [u8]) {
    let (height, width) = (size.height as usize, size.width as usize);
    let source = simd::SourcePixels {
        data: numbers,
        width,
        height,
        channels: 1,
        row_bytes: width,
    };
    let plain = pass(DType::UInt8, Layout::Hwc, flips, &[1.0; 4], &[0.0; 4]);
    simd::convert(simd::Level::detect(), &source, &plain, out);
}

fn pass(
    dtype: DType,
    layout: Layout,
    flips: Flips,
    scale: &[f32; 4],
    bias: &[f32; 4],
) -> simd::Convert {
    simd::Convert {
        dtype: simd_dtype(dtype),
        layout: simd_layout(layout),
        flip_x: flips.x,
        flip_y: flips.y,
        scale: *scale,
        bias: *bias,
    }
}

fn simd_dtype(dtype: DType) -> simd::Dtype {
    match dtype {
        DType::Float32 => simd::Dtype::F32,
        DType::Float16 => simd::Dtype::F16,
        DType::BFloat16 => simd::Dtype::BF16,
        _ => simd::Dtype::U8,
    }
}

pub(crate) fn simd_layout(layout: Layout) -> simd::Layout {
    match layout {
        Layout::Hwc => simd::Layout::Hwc,
        Layout::Chw => simd::Layout::Chw,
    }
}

fn convert(
    view: PixelView<'_>,
    dtype: DType,
    layout: Layout,
    flips: Flips,
    scale: &[f32; 4],
    bias: &[f32; 4],
    out: &mut [u8],
) {
    if view.depth() == Depth::U16 {
        return convert16(view, dtype, layout, flips, scale, bias, out);
    }
    let (data, row_bytes) = view.bytes_and_stride();
    let source = simd::SourcePixels {
        data,
        width: view.width(),
        height: view.height(),
        channels: view.channels(),
        row_bytes,
    };
    simd::convert(
        simd::Level::detect(),
        &source,
        &pass(dtype, layout, flips, scale, bias),
        out,
    );
}

/// Converts 16-bit samples with the same formula; rare enough for plain code.
fn convert16(
    view: PixelView<'_>,
    dtype: DType,
    layout: Layout,
    flips: Flips,
    scale: &[f32; 4],
    bias: &[f32; 4],
    out: &mut [u8],
) {
    let (height, width, channels) = (view.height(), view.width(), view.channels());
    let element = dtype.bytes();
    for y in 0..height {
        let from = if flips.y { height - 1 - y } else { y };
        for (at, sample) in samples16(view.row(from)).enumerate() {
            let (x, channel) = (at / channels, at % channels);
            let x = if flips.x { width - 1 - x } else { x };
            let index = match layout {
                Layout::Hwc => (y * width + x) * channels + channel,
                Layout::Chw => (channel * height + y) * width + x,
            };
            let to = &mut out[index * element..(index + 1) * element];
            if dtype == DType::UInt16 {
                to.copy_from_slice(&sample.to_ne_bytes());
            } else {
                put(
                    to,
                    dtype,
                    f32::from(sample) * scale[channel] + bias[channel],
                );
            }
        }
    }
}

/// Writes one number in an element type of pixels.
fn put(to: &mut [u8], dtype: DType, value: f32) {
    match dtype {
        DType::Float32 => to.copy_from_slice(&value.to_ne_bytes()),
        DType::Float16 => to.copy_from_slice(&f16::from_f32(value).to_ne_bytes()),
        DType::BFloat16 => to.copy_from_slice(&bf16::from_f32(value).to_ne_bytes()),
        DType::UInt16 => to.copy_from_slice(&(value as u16).to_ne_bytes()),
        _ => to[0] = value as u8,
    }
}

/// Fills a rectangle of a finished row; `value` is in final units.
fn fill(
    out: &mut [u8],
    size: Size,
    channels: usize,
    dtype: DType,
    layout: Layout,
    region: Region,
    value: &[f64],
) {
    let (height, width) = (size.height as usize, size.width as usize);
    let element = dtype.bytes();
    for channel in 0..channels {
        let value = value.get(channel).or(value.first()).copied().unwrap_or(0.0) as f32;
        for y in region.top as usize..region.bottom() as usize {
            for x in region.left as usize..region.right() as usize {
                let index = match layout {
                    Layout::Hwc => (y * width + x) * channels + channel,
                    Layout::Chw => (channel * height + y) * width + x,
                };
                put(
                    &mut out[index * element..(index + 1) * element],
                    dtype,
                    value,
                );
            }
        }
    }
}

fn one_hot(
    indices: &[u8],
    classes: usize,
    dtype: DType,
    layout: Layout,
    size: Size,
    flips: Flips,
    out: &mut [u8],
) {
    simd::one_hot(
        simd::Level::detect(),
        indices,
        classes,
        simd_dtype(dtype),
        simd_layout(layout),
        size.width as usize,
        size.height as usize,
        flips.x,
        flips.y,
        out,
    );
}

/// Writes one-hot rows with more than 255 classes. Such wide rows are memory-bound in any code.
fn wide_one_hot(
    indices: &[u16],
    classes: usize,
    dtype: DType,
    layout: Layout,
    size: Size,
    flips: Flips,
    out: &mut [u8],
) {
    out.fill(0);
    let pixels = size.height as usize * size.width as usize;
    let element = dtype.bytes();
    scatter(indices, size, flips, |at, class| {
        let class = usize::from(class);
        if class >= classes {
            return;
        }
        let index = match layout {
            Layout::Hwc => at * classes + class,
            Layout::Chw => class * pixels + at,
        };
        put(&mut out[index * element..(index + 1) * element], dtype, 1.0);
    });
}

/// Calls `put` with the position of every value after the flips.
fn scatter(values: &[u16], size: Size, flips: Flips, mut put: impl FnMut(usize, u16)) {
    let (height, width) = (size.height as usize, size.width as usize);
    for (at, &value) in values.iter().enumerate() {
        let (y, x) = (at / width, at % width);
        let y = if flips.y { height - 1 - y } else { y };
        let x = if flips.x { width - 1 - x } else { x };
        put(y * width + x, value);
    }
}
