//! The part of writing an image or mask that a device can do.
//!
//! The device's kernels use the host's formulas, so all placements give the same bits.

use infeed_raw::kernel::{Integer, Kernel};
use infeed_raw::simd;

use super::classes::ClassMap;
use super::plan::{PixelPlan, RowPass};
use super::write::simd_layout;
use crate::fields::steps::{FieldStep, StepStage};
use crate::pipeline::Layout;
use infeed_codec::decode::ColorMode;
use infeed_codec::transform::{Effect, Filter, Transform};
use infeed_core::batch::ColumnKind;
use infeed_core::sample::{DType, Depth, Pixels, Size};
use infeed_device::ring::crops;

/// The host's pass over pixels that a device expands.
const BYTES: RowPass = RowPass::Convert {
    dtype: DType::UInt8,
    layout: Layout::Hwc,
    scale: [1.0; 4],
    bias: [0.0; 4],
};

impl PixelPlan {
    /// Whether a single bilinear resize, of a part of the stored image, gives images their size,
    /// and only flip, cast and scale follow.
    pub(crate) fn resizes_last(&self, transforms: &[Transform]) -> bool {
        let mut resizes = 0;
        self.steps.iter().all(|step| {
            let transform = &transforms[step.transform];
            match (step.stage, step.effect) {
                (StepStage::Decode, _) => {
                    transform.effect() != Effect::Crop || !transform.is_random()
                }
                (StepStage::Row, Effect::Flip | Effect::Scale) => true,
                (StepStage::Pass, Effect::Resize) => {
                    resizes += 1;
                    transform.filter() == Some(Filter::Bilinear) && transform.is_antialiased()
                }
                _ => step.is_rare,
            }
        }) && resizes == 1
    }

    /// Moves steps to a device, which makes `kind`. The host's pass becomes `finish`.
    pub(crate) fn leave(
        &mut self,
        kind: &ColumnKind,
        finish: RowPass,
        moves: impl Fn(&FieldStep) -> bool,
    ) {
        self.on_device = Some((self.finish.layout(), kind.clone()));
        self.finish = finish;
        for step in self.steps.iter_mut().filter(|step| moves(step)) {
            step.stage = StepStage::Device;
        }
    }

    /// Changes the plan so that the host writes bytes, and returns the device's kernel. `None` if
    /// that saves nothing or no kernel exists.
    pub(crate) fn leave_to_device(&mut self, kind: &ColumnKind) -> Option<Kernel> {
        let Size { height, width } = self.size?;
        let (height, width) = (height as usize, width as usize);
        let (kernel, finish) = match &self.finish {
            RowPass::Convert {
                dtype: dtype @ (DType::Float32 | DType::Float16 | DType::BFloat16),
                layout,
                scale,
                bias,
            } if self.depth == Depth::U8 => {
                let kernel = Kernel::Expand {
                    height,
                    width,
                    channels: self.out_channels,
                    dtype: element(*dtype)?,
                    layout: simd_layout(*layout),
                    scale: *scale,
                    bias: *bias,
                };
                (kernel, BYTES)
            }
            // The value 255 is then no class and becomes zeros.
            RowPass::OneHot {
                classes,
                dtype,
                layout,
            } if classes.count() <= 255 => {
                let kernel = Kernel::OneHot {
                    height,
                    width,
                    classes: classes.count(),
                    dtype: element(*dtype)?,
                    layout: simd_layout(*layout),
                };
                (kernel, class_bytes(classes))
            }
            // A byte holds all classes, and 255 for unknown pixels.
            RowPass::Classes {
                classes,
                dtype: DType::Int64,
                none,
            } if classes.count() <= 255 => {
                let kernel = Kernel::Widen {
                    height,
                    width,
                    dtype: Integer::I64,
                    unknown: *none,
                };
                (kernel, class_bytes(classes))
            }
            _ => return None,
        };
        self.leave(kind, finish, |step| {
            matches!(step.effect, Effect::Scale | Effect::Classes)
        });
        Some(kernel)
    }

    /// Changes the plan so that the host need not resize, and returns the device's kernel. `None`
    /// if no kernel exists.
    pub(crate) fn leave_resize(&mut self, kind: &ColumnKind) -> Option<Kernel> {
        let to = self.size?;
        let RowPass::Convert {
            dtype,
            layout,
            scale,
            bias,
        } = &self.finish
        else {
            return None;
        };
        let channels = self.channels;
        let is_plain = self.depth == Depth::U8 && self.out_channels == channels && channels <= 4;
        if self.is_mask || !is_plain {
            return None;
        }
        let kernel = Kernel::Resize {
            height: to.height as usize,
            width: to.width as usize,
            channels,
            dtype: element(*dtype)?,
            layout: simd_layout(*layout),
            scale: *scale,
            bias: *bias,
        };
        self.crop_bytes = Some(crops::row_bytes(to, channels)?);
        self.leave(kind, BYTES, |step| step.stage != StepStage::Decode);
        Some(kernel)
    }

    /// Whether records contain files that the device's decoder can decode to RGB.
    pub(crate) fn is_file_of_colours(&self) -> bool {
        self.stored == Pixels::Encoded && self.mode == ColorMode::Rgb
    }
}

/// Class numbers as bytes, 255 for pixels of unknown class.
fn class_bytes(classes: &ClassMap) -> RowPass {
    RowPass::Classes {
        classes: classes.clone(),
        dtype: DType::UInt8,
        none: i64::from(u8::MAX),
    }
}

/// Element type of the kernel's output.
fn element(dtype: DType) -> Option<simd::Dtype> {
    match dtype {
        DType::UInt8 => Some(simd::Dtype::U8),
        DType::Float32 => Some(simd::Dtype::F32),
        DType::Float16 => Some(simd::Dtype::F16),
        DType::BFloat16 => Some(simd::Dtype::BF16),
        _ => None,
    }
}
