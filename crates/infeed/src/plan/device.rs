//! What of the pass that writes a row a device does instead: what makes rows larger goes behind the
//! copy, so that pixels and class numbers cross the bus as bytes, and never floats or one-hot masks.
//!
//! The device's kernels have the host's formulas, so a batch has the same bits either way.

use infeed_raw::kernel::{Integer, Kernel};
use infeed_raw::simd;

use super::write::simd_layout;
use super::{FieldPlan, Finish, PixelPlan, Plan};
use crate::batch::{ColumnKind, ColumnSpec};
use crate::device::ring::Route;
use crate::pipeline::Layout;
use crate::sample::{DType, Depth, Size};
use crate::transform::Transform;

impl Plan {
    /// How the columns that are delivered reach a device. With `expands`, what a device can make
    /// larger by itself is left to it, and the host makes smaller rows from here on.
    ///
    /// Columns that functions of the user's or mixing look at stay as they are described: those see
    /// finished rows.
    pub(crate) fn for_device(&mut self, expands: bool) -> Vec<Route> {
        let looked_at = self.mixer.is_some() || !self.calls.is_empty();
        // Rows of padding are zeros, which an image expanded from zeros is not.
        let padded = self.columns.len() > self.fields.len();
        if looked_at || padded || !expands {
            return self.delivered().iter().map(unchanged).collect();
        }
        let erased = self.transforms.iter().any(|planned| {
            matches!(planned.transform, Transform::RandomErasing(_)) && planned.finished
        });
        let mut routes = Vec::with_capacity(self.columns.len());
        for (at, column) in self.columns.iter_mut().enumerate() {
            let route = if let Some(FieldPlan::Pixels(plan)) = self.fields.get_mut(at)
                && (!erased || plan.is_mask)
                && let Some((kernel, layout)) = plan.leave_to_device()
            {
                let device = column.clone();
                plan.on_device = Some((layout, device.kind.clone()));
                column.kind = plan.kind();
                Route::expand(column.clone(), kernel, device)
            } else {
                unchanged(column)
            };
            routes.push(route);
        }
        routes
    }
}

/// The way of a column that no kernel changes.
fn unchanged(column: &ColumnSpec) -> Route {
    match column.kind.row_bytes() {
        Some(1..) => Route::copy(column.clone()),
        // Kept by row, or nothing to copy.
        _ => Route::stay(column.clone()),
    }
}

impl PixelPlan {
    /// What a device has to do so that the host may write bytes; None where that gains nothing or
    /// there is no kernel for it.
    fn leave_to_device(&mut self) -> Option<(Kernel, Layout)> {
        let Size { height, width } = self.size?;
        let (height, width) = (height as usize, width as usize);
        let (kernel, layout, finish) = match &self.finish {
            Finish::Convert {
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
                let bytes = Finish::Convert {
                    dtype: DType::UInt8,
                    layout: Layout::Hwc,
                    scale: [1.0; 4],
                    bias: [0.0; 4],
                };
                (kernel, *layout, bytes)
            }
            // A class number that is no class, as 255 is then, becomes zeros.
            Finish::OneHot {
                palette,
                classes,
                dtype,
                layout,
            } if *classes <= 255 && self.depth == Depth::U8 => {
                let kernel = Kernel::OneHot {
                    height,
                    width,
                    classes: *classes,
                    dtype: element(*dtype)?,
                    layout: simd_layout(*layout),
                };
                let numbers = match palette {
                    Some(palette) => Finish::Classes {
                        palette: palette.clone(),
                        dtype: DType::UInt8,
                        unknown: i64::from(u8::MAX),
                    },
                    None => Finish::Numbers { classes: *classes },
                };
                (kernel, *layout, numbers)
            }
            // Bytes tell as many classes apart, and 255 that there is none.
            Finish::Classes {
                palette,
                dtype: DType::Int64,
                unknown,
            } if palette.classes() <= 255 => {
                let kernel = Kernel::Widen {
                    height,
                    width,
                    dtype: Integer::I64,
                    unknown: *unknown,
                };
                let numbers = Finish::Classes {
                    palette: palette.clone(),
                    dtype: DType::UInt8,
                    unknown: i64::from(u8::MAX),
                };
                (kernel, Layout::Hwc, numbers)
            }
            _ => return None,
        };
        self.finish = finish;
        Some((kernel, layout))
    }

    /// The column of rows of its size.
    fn kind(&self) -> ColumnKind {
        let dtype = self.dtype();
        match self.size {
            Some(size) => ColumnKind::Fixed {
                dtype,
                shape: self.shape(size),
            },
            None => ColumnKind::Padded {
                dtype,
                rank: self.rank(),
            },
        }
    }
}

/// Element types that kernels write.
fn element(dtype: DType) -> Option<simd::Dtype> {
    match dtype {
        DType::UInt8 => Some(simd::Dtype::U8),
        DType::Float32 => Some(simd::Dtype::F32),
        DType::Float16 => Some(simd::Dtype::F16),
        DType::BFloat16 => Some(simd::Dtype::BF16),
        _ => None,
    }
}
