//! Operations on the rows of a column, and the sizes of their pixels and elements.

use crate::simd::{Dtype, Layout};

/// Threads of a block. The same number is in `kernels/target.h`.
pub const BLOCK: u32 = 256;

/// Maximum number of elements of a row in the output: indices have 31 bits.
pub const MAX_ELEMENTS: usize = 0x7fff_0000;

/// Maximum number of colours that [`Kernel::Classes`] distinguishes.
pub const MAX_COLOURS: usize = 255;

/// Operation on the rows of a column.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Kernel {
    /// Pixels to elements, as in [`simd::convert`](crate::simd::convert).
    ///
    /// # Shape
    ///
    /// `[rows, height, width, channels]` uint8 to the same or `[rows, channels, height, width]` of
    /// `dtype`; `f32(v) * scale + bias` by channel, with the fourth factor also for later channels.
    /// For [`Dtype::U8`] the bytes are copied.
    Expand {
        height: usize,
        width: usize,
        channels: usize,
        dtype: Dtype,
        layout: Layout,
        scale: [f32; 4],
        bias: [f32; 4],
    },
    /// Indices to one element per class, as in [`simd::one_hot`](crate::simd::one_hot).
    ///
    /// # Shape
    ///
    /// `[rows, height, width]` uint8 to `[rows, height, width, classes]` or `[rows, classes,
    /// height, width]` of `dtype`; an index that is not below `classes` gives zeros.
    OneHot {
        height: usize,
        width: usize,
        classes: usize,
        dtype: Dtype,
        layout: Layout,
    },
    /// Colours to their classes.
    ///
    /// # Shape
    ///
    /// `[rows, height, width, 3]` uint8 to `[rows, height, width]` uint8: the class of the pixel's
    /// colour in `colours`, or `unknown`.
    Classes {
        height: usize,
        width: usize,
        colours: Vec<[u8; 3]>,
        classes: Vec<u8>,
        unknown: u8,
    },
    /// Images of any size to elements of one size, bilinear, by a [`ResizeTable`](super::ResizeTable): the bytes that
    /// `fast_image_resize` computes, then as [`Kernel::Expand`].
    ///
    /// # Shape
    ///
    /// uint8 images of `channels`, at most 4, at the positions in the table, to `[rows, height,
    /// width, channels]` or `[rows, channels, height, width]` of `dtype`.
    Resize {
        height: usize,
        width: usize,
        channels: usize,
        dtype: Dtype,
        layout: Layout,
        scale: [f32; 4],
        bias: [f32; 4],
    },
    /// Class numbers of one byte to wider integers.
    ///
    /// # Shape
    ///
    /// `[rows, height, width]` uint8 to the same of `dtype`; 255 becomes `unknown`, which may be
    /// 255.
    Widen {
        height: usize,
        width: usize,
        dtype: Integer,
        unknown: i64,
    },
}

/// Integer type of more than one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Integer {
    /// 4 bytes, signed.
    I32,
    /// 8 bytes, signed.
    I64,
}

impl Integer {
    /// Bytes of one element.
    pub fn bytes(self) -> usize {
        match self {
            Integer::I32 => 4,
            Integer::I64 => 8,
        }
    }
}

impl Kernel {
    /// Returns the bytes of the rows of the input, one after another; `None` if that overflows, or
    /// if a table gives the size of each row.
    pub fn input_bytes(&self, rows: usize) -> Option<usize> {
        if self.is_resize() {
            return None;
        }
        let (height, width) = self.size();
        let pixels = height.checked_mul(width)?;
        pixels.checked_mul(self.pixel_bytes())?.checked_mul(rows)
    }

    /// Returns the bytes of the output; `None` if that overflows.
    pub fn output_bytes(&self, rows: usize) -> Option<usize> {
        let (height, width) = self.size();
        let pixels = height.checked_mul(width)?;
        let elements = pixels.checked_mul(self.pixel_elements())?;
        elements
            .checked_mul(self.element_bytes())?
            .checked_mul(rows)
    }

    /// Height and width.
    pub(super) fn size(&self) -> (usize, usize) {
        match *self {
            Kernel::Expand { height, width, .. }
            | Kernel::OneHot { height, width, .. }
            | Kernel::Classes { height, width, .. }
            | Kernel::Resize { height, width, .. }
            | Kernel::Widen { height, width, .. } => (height, width),
        }
    }

    /// Bytes of a pixel in the input.
    pub(super) fn pixel_bytes(&self) -> usize {
        match *self {
            Kernel::Expand { channels, .. } | Kernel::Resize { channels, .. } => channels,
            Kernel::OneHot { .. } | Kernel::Widen { .. } => 1,
            Kernel::Classes { .. } => 3,
        }
    }

    /// Number of elements of a pixel in the output.
    pub(super) fn pixel_elements(&self) -> usize {
        match *self {
            Kernel::Expand { channels, .. } | Kernel::Resize { channels, .. } => channels,
            Kernel::OneHot { classes, .. } => classes,
            Kernel::Classes { .. } | Kernel::Widen { .. } => 1,
        }
    }

    /// Bytes of an element in the output.
    pub(super) fn element_bytes(&self) -> usize {
        match *self {
            Kernel::Expand { dtype, .. }
            | Kernel::OneHot { dtype, .. }
            | Kernel::Resize { dtype, .. } => dtype.bytes(),
            Kernel::Classes { .. } => 1,
            Kernel::Widen { dtype, .. } => dtype.bytes(),
        }
    }

    /// Whether a table gives the size of each row of the input.
    pub(super) fn is_resize(&self) -> bool {
        matches!(self, Kernel::Resize { .. })
    }
}
