//! Converts a kernel, a number of rows and addresses to an entry, a grid and an argument.

use std::ffi::CStr;

use super::arguments::{Argument, Classes, Divider, Expand, KernelRows, Widen};
use super::colours::Colours;
use super::error::{KernelError, NO_IMAGES};
use super::operation::{BLOCK, Integer, Kernel};
use super::shape::LaunchShape;
use crate::simd::{Dtype, Layout};

/// A launch, as passed to a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Name in [`PTX`](super::PTX), one of [`ENTRIES`](super::ENTRIES).
    pub entry: &'static CStr,
    /// Blocks. If the first number is 0, there is no work, and drivers reject the launch.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// The only parameter, a struct by value: exactly its bytes, aligned to 8.
    pub arguments: Vec<u64>,
}

impl Launch {
    /// Whether the launch would write nothing.
    pub fn is_empty(&self) -> bool {
        self.grid[0] == 0
    }

    pub(super) fn of(
        kernel: &Kernel,
        rows: usize,
        input: u64,
        table: Option<u64>,
        output: u64,
    ) -> Result<Launch, KernelError> {
        let shape = LaunchShape::of(kernel, rows)?;
        if kernel.is_resize() && table.is_none() {
            return Err(NO_IMAGES);
        }
        let images = images(kernel, &shape, input, table.unwrap_or(0), output);
        let arguments = match kernel {
            Kernel::Expand { scale, bias, .. } | Kernel::Resize { scale, bias, .. } => Expand {
                rows: images,
                scale: *scale,
                bias: *bias,
            }
            .words(),
            Kernel::OneHot { .. } => images.words(),
            Kernel::Classes {
                colours,
                classes,
                unknown,
                ..
            } => Classes {
                rows: images,
                colours: Colours::of(colours, classes)?,
                unknown: u32::from(*unknown),
                unused: 0,
            }
            .words(),
            Kernel::Widen { unknown, .. } => Widen {
                rows: images,
                unknown: *unknown as u64,
            }
            .words(),
        };
        Ok(Launch {
            entry: entry(kernel),
            grid: [shape.blocks * rows as u32, 1, 1],
            block: [BLOCK, 1, 1],
            arguments,
        })
    }
}

fn images(kernel: &Kernel, shape: &LaunchShape, input: u64, table: u64, output: u64) -> KernelRows {
    let (line, group) = match kernel {
        Kernel::Expand { .. } if shape.is_by_pixel => (shape.width, 1),
        Kernel::Expand { .. } => (shape.line_bytes, shape.pixel_elements),
        Kernel::OneHot {
            layout: Layout::Hwc,
            classes,
            ..
        } => (shape.width, *classes),
        Kernel::OneHot { .. } => (shape.width, shape.height * shape.width),
        Kernel::Classes { .. } | Kernel::Resize { .. } | Kernel::Widen { .. } => (shape.width, 1),
    };
    // Every number is at most `MAX_ELEMENTS`, which `LaunchShape::of` ensures.
    KernelRows {
        input,
        output,
        table,
        input_row: (shape.height * shape.line_bytes) as u64,
        output_row: (shape.elements * shape.element_bytes) as u64,
        height: shape.height as u32,
        width: shape.width as u32,
        pixel: shape.pixel_bytes as u32,
        count: shape.count as u32,
        blocks: Divider::of(shape.blocks as usize),
        line: Divider::of(line),
        group: Divider::of(group),
        unused: 0,
    }
}

/// Returns the entry for a kernel's type and layout. For one channel, both layouts are the same.
fn entry(kernel: &Kernel) -> &'static CStr {
    match *kernel {
        Kernel::Expand {
            dtype,
            layout: Layout::Chw,
            channels: 2..,
            ..
        } => match dtype {
            Dtype::U8 => c"infeed_expand_u8_chw",
            Dtype::F32 => c"infeed_expand_f32_chw",
            Dtype::F16 => c"infeed_expand_f16_chw",
            Dtype::BF16 => c"infeed_expand_bf16_chw",
        },
        Kernel::Expand { dtype, .. } => match dtype {
            Dtype::U8 => c"infeed_expand_u8_hwc",
            Dtype::F32 => c"infeed_expand_f32_hwc",
            Dtype::F16 => c"infeed_expand_f16_hwc",
            Dtype::BF16 => c"infeed_expand_bf16_hwc",
        },
        Kernel::OneHot { dtype, layout, .. } => match (dtype, layout) {
            (Dtype::U8, Layout::Hwc) => c"infeed_onehot_u8_hwc",
            (Dtype::F32, Layout::Hwc) => c"infeed_onehot_f32_hwc",
            (Dtype::F16, Layout::Hwc) => c"infeed_onehot_f16_hwc",
            (Dtype::BF16, Layout::Hwc) => c"infeed_onehot_bf16_hwc",
            (Dtype::U8, Layout::Chw) => c"infeed_onehot_u8_chw",
            (Dtype::F32, Layout::Chw) => c"infeed_onehot_f32_chw",
            (Dtype::F16, Layout::Chw) => c"infeed_onehot_f16_chw",
            (Dtype::BF16, Layout::Chw) => c"infeed_onehot_bf16_chw",
        },
        Kernel::Classes { .. } => c"infeed_classes",
        Kernel::Resize {
            dtype,
            layout: Layout::Chw,
            channels: 2..,
            ..
        } => match dtype {
            Dtype::U8 => c"infeed_resize_u8_chw",
            Dtype::F32 => c"infeed_resize_f32_chw",
            Dtype::F16 => c"infeed_resize_f16_chw",
            Dtype::BF16 => c"infeed_resize_bf16_chw",
        },
        Kernel::Resize { dtype, .. } => match dtype {
            Dtype::U8 => c"infeed_resize_u8_hwc",
            Dtype::F32 => c"infeed_resize_f32_hwc",
            Dtype::F16 => c"infeed_resize_f16_hwc",
            Dtype::BF16 => c"infeed_resize_bf16_hwc",
        },
        Kernel::Widen { dtype, .. } => match dtype {
            Integer::I32 => c"infeed_widen_i32",
            Integer::I64 => c"infeed_widen_i64",
        },
    }
}

/// # Errors
///
/// `Address` for an address that the kernel's loads and stores do not support.
pub(super) fn check_addresses(
    kernel: &Kernel,
    table: Option<u64>,
    output: u64,
) -> Result<(), KernelError> {
    let checked = [
        ("output", output, kernel.element_bytes() as u64),
        ("table", table.unwrap_or(0), 8),
    ];
    for (what, address, align) in checked {
        if !address.is_multiple_of(align) {
            return Err(KernelError::Address {
                what,
                address,
                align,
            });
        }
    }
    Ok(())
}
