//! Sizes of a kernel's rows, each checked for overflow before it is used.

use super::colours;
use super::error::KernelError;
use super::operation::{BLOCK, Integer, Kernel, MAX_ELEMENTS};
use crate::simd::Layout;

/// Bytes that a thread writes at once.
const UNIT_BYTES: usize = 16;

/// Sizes for a kernel and a number of rows.
#[derive(Debug, Clone, Copy)]
pub(super) struct LaunchShape {
    pub(super) height: usize,
    pub(super) width: usize,
    /// Bytes of a pixel of the input.
    pub(super) pixel_bytes: usize,
    /// Bytes of a line of the input, without the bytes between lines.
    pub(super) line_bytes: usize,
    /// Elements of a pixel of the output.
    pub(super) pixel_elements: usize,
    /// Elements of a row of the output, at most [`MAX_ELEMENTS`].
    pub(super) elements: usize,
    /// Bytes of an element of the output.
    pub(super) element_bytes: usize,
    /// Bytes of all rows of the input; None if a table gives the size of each.
    pub(super) input_bytes: Option<usize>,
    /// Bytes of all rows of the output.
    pub(super) output_bytes: usize,
    /// Whether a thread writes its pixels to all planes, and not a part of the row.
    pub(super) is_by_pixel: bool,
    /// Number of items that the threads of a row divide: pixels or elements.
    pub(super) count: usize,
    /// Blocks of threads for a row; fewer than 2^31 for all rows.
    pub(super) blocks: u32,
}

impl LaunchShape {
    /// # Errors
    ///
    /// `TooLarge` if a number overflows; the error for an invalid kernel.
    pub(super) fn of(kernel: &Kernel, rows: usize) -> Result<LaunchShape, KernelError> {
        check_kernel(kernel)?;
        let (height, width) = kernel.size();
        let (pixel_bytes, pixel_elements) = (kernel.pixel_bytes(), kernel.pixel_elements());
        let too_large = KernelError::TooLarge {
            rows,
            height,
            width,
            elements: pixel_elements,
        };
        let shape = || {
            let pixels = height.checked_mul(width)?;
            let elements = pixels.checked_mul(pixel_elements)?;
            let input = pixels.checked_mul(pixel_bytes)?;
            // An empty image may have one side of any length, which must still fit an index.
            let line_bytes = width.checked_mul(pixel_bytes)?;
            let sides = height.max(line_bytes).max(pixel_bytes.max(pixel_elements));
            if sides.max(elements).max(input) > MAX_ELEMENTS {
                return None;
            }
            let is_by_pixel = is_by_pixel(kernel);
            let count = if is_by_pixel { pixels } else { elements };
            let unit = UNIT_BYTES / kernel.element_bytes();
            let units = match count {
                0 => 0,
                // A thread makes one item.
                count if kernel.is_resize() => count,
                // A row that begins inside of a unit needs one more unit.
                count => (count + unit - 1).div_ceil(unit),
            };
            let blocks = u32::try_from(units.div_ceil(BLOCK as usize)).ok()?;
            let all = u32::try_from(rows).ok()?.checked_mul(blocks)?;
            i32::try_from(all).ok()?;
            Some(LaunchShape {
                height,
                width,
                pixel_bytes,
                line_bytes,
                pixel_elements,
                elements,
                element_bytes: kernel.element_bytes(),
                input_bytes: match kernel.is_resize() {
                    true => None,
                    false => Some(kernel.input_bytes(rows)?),
                },
                output_bytes: kernel.output_bytes(rows)?,
                is_by_pixel,
                count,
                blocks,
            })
        };
        shape().ok_or(too_large)
    }
}

fn is_by_pixel(kernel: &Kernel) -> bool {
    matches!(
        kernel,
        Kernel::Resize { .. }
            | Kernel::Expand {
                layout: Layout::Chw,
                channels: 2..,
                ..
            }
    )
}

fn check_kernel(kernel: &Kernel) -> Result<(), KernelError> {
    match kernel {
        Kernel::Expand { channels: 0, .. } | Kernel::Resize { channels: 0, .. } => {
            Err(KernelError::Nothing { what: "channels" })
        }
        Kernel::Resize {
            channels: channels @ 5..,
            ..
        } => Err(KernelError::Channels {
            channels: *channels,
        }),
        Kernel::Expand { scale, bias, .. } | Kernel::Resize { scale, bias, .. } => {
            for (what, values) in [("scale", scale), ("bias", bias)] {
                if let Some(channel) = values.iter().position(|value| !value.is_finite()) {
                    let value = values[channel];
                    return Err(KernelError::Factor {
                        what,
                        channel,
                        value,
                    });
                }
            }
            Ok(())
        }
        Kernel::OneHot { classes: 0, .. } => Err(KernelError::Nothing { what: "classes" }),
        Kernel::OneHot { .. } => Ok(()),
        Kernel::Classes {
            colours, classes, ..
        } => colours::Colours::of(colours, classes).map(|_| ()),
        Kernel::Widen {
            dtype: Integer::I32,
            unknown,
            ..
        } if i32::try_from(*unknown).is_err() => Err(KernelError::Unknown { unknown: *unknown }),
        Kernel::Widen { .. } => Ok(()),
    }
}
