//! What an accelerator does with all rows of one column in one pass: pixels to elements of a
//! batch, images of any size to elements of one, indices to one-hot masks or to numbers of more
//! bytes, colours to classes.
//!
//! Each kernel is one C function, compiled twice: by the host compiler when this crate is built
//! ([`Kernel::run`], for tests and for the simulated device), and by clang to [`PTX`], which is
//! checked in so that a build needs no clang and a machine without CUDA no driver. Both do the same
//! index arithmetic for the same grid, and give the bits of [`simd`](crate::simd): a product and a
//! sum that are each rounded, then nearest even for float16 and bfloat16.
//!
//! **Why a kernel stays inside its memory.** [`Kernel::check`] holds the input, the table and the
//! output against the shape, in checked arithmetic. A kernel writes element *e* of a row only where
//! *e* is below the row's count of elements, and the row only where it is below the grid's rows;
//! it reads the pixel at line *y* and column *x* of a view only for `y < height` and `x < width`,
//! which is what `check` found to lie in the input. A resize reads the pixels that its table names,
//! and a [`ResizeTable`] is made, or taken from bytes, only if they are inside the image, which
//! `check` holds against the input. Of the words of 4 bytes at the ends of what it reads there, a device
//! reads all bytes and uses those inside: memory of a device begins and ends with a whole word. The numbers it computes with are those of the
//! argument struct, which [`Kernel::launch`] makes from the same shape. What it cannot know is
//! whether the addresses are those of memory as long as was checked, and whether the table on the
//! device is the one that was: that is for who launches it.

mod arguments;
mod colours;
mod host;
mod launch;
mod resize;
mod shape;
mod table;
#[cfg(all(test, not(miri)))]
mod tests;
#[cfg(all(test, not(miri)))]
mod tests_resize;

use std::ffi::CStr;

pub use host::ENTRIES;
pub(crate) use host::ENTRIES_SM80;
pub use launch::Launch;
pub use resize::{Bilinear, MAX_SIDE, ResizeTable, ResizeView};
pub use table::{RowView, Table};

use crate::simd::{Dtype, Layout};

/// All kernels for NVIDIA cards, as text that the driver compiles for the card it finds: PTX 6.0
/// for compute capability 6.0, which is Pascal and every card since. Made by `scripts/kernels`.
pub const PTX: &CStr = match CStr::from_bytes_with_nul(
    concat!(include_str!("../../kernels/infeed.ptx"), "\0").as_bytes(),
) {
    Ok(text) => text,
    Err(_) => panic!("the PTX has a zero byte inside"),
};

/// Those of the kernels that devices of compute capability 8.0 and newer have instructions for, under the
/// same names: PTX 7.0. Where it can be loaded, they take the place of the others.
pub const PTX_SM80: &CStr = match CStr::from_bytes_with_nul(
    concat!(include_str!("../../kernels/infeed_sm80.ptx"), "\0").as_bytes(),
) {
    Ok(text) => text,
    Err(_) => panic!("the PTX has a zero byte inside"),
};

/// Threads of a block. The same number is in `kernels/target.h`.
pub const BLOCK: u32 = 256;

/// Elements that one row may have in the output: indices are 31 bits long.
pub const MAX_ELEMENTS: usize = 0x7fff_0000;

/// Colours that [`Kernel::Classes`] tells apart at most.
pub const MAX_COLOURS: usize = 255;

/// What becomes of the rows of a column.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Kernel {
    /// Pixels to elements, as [`simd::convert`](crate::simd::convert) does it.
    ///
    /// # Shape
    ///
    /// `[rows, height, width, channels]` uint8 to the same or `[rows, channels, height, width]` of
    /// `dtype`; `f32(v) * scale + bias` by channel, the fourth factor also for those beyond. For
    /// [`Dtype::U8`] the bytes stay as they are.
    Expand {
        height: usize,
        width: usize,
        channels: usize,
        dtype: Dtype,
        layout: Layout,
        scale: [f32; 4],
        bias: [f32; 4],
    },
    /// Indices to one element per class, as [`simd::one_hot`](crate::simd::one_hot) does it.
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
    /// Colours to the classes they stand for.
    ///
    /// # Shape
    ///
    /// `[rows, height, width, 3]` uint8 to `[rows, height, width]` uint8: the class beside the
    /// pixel's colour in `colours`, or `unknown`.
    Classes {
        height: usize,
        width: usize,
        colours: Vec<[u8; 3]>,
        classes: Vec<u8>,
        unknown: u8,
    },
    /// Images of any size to elements of one, bilinear, by a [`ResizeTable`]: the bytes that
    /// `fast_image_resize` gives, then as [`Kernel::Expand`].
    ///
    /// # Shape
    ///
    /// uint8 images of `channels`, at most 4, where the table says, to `[rows, height, width,
    /// channels]` or `[rows, channels, height, width]` of `dtype`.
    Resize {
        height: usize,
        width: usize,
        channels: usize,
        dtype: Dtype,
        layout: Layout,
        scale: [f32; 4],
        bias: [f32; 4],
    },
    /// Class numbers of a byte to wider ones.
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

/// Numbers of more than a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Integer {
    /// Of 4 bytes, signed.
    I32,
    /// Of 8 bytes, signed.
    I64,
}

impl Integer {
    /// Bytes of one.
    pub fn bytes(self) -> usize {
        match self {
            Integer::I32 => 4,
            Integer::I64 => 8,
        }
    }
}

/// A resize has nothing to go by, or rows that are as large as they will be.
const NO_IMAGES: KernelError = KernelError::OtherTable {
    takes: "images of any size; give a table of them, made by ResizeTable",
};

/// A table of images was given to what takes rows of one size.
const OTHER_TABLE: KernelError = KernelError::OtherTable {
    takes: "rows of one size, one after another or where views say",
};

/// Why a kernel cannot run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum KernelError {
    /// A row, or all of them, is more than indices and addresses can count.
    #[error(
        "{rows} rows of {height}x{width} px with {elements} elements per pixel are more than a \
         kernel can index ({MAX_ELEMENTS} elements per row); use smaller images or fewer rows"
    )]
    TooLarge {
        rows: usize,
        height: usize,
        width: usize,
        elements: usize,
    },

    /// A pixel without channels, or a mask without classes.
    #[error("a pixel has no {what}; give at least one")]
    Nothing { what: &'static str },

    /// A scale or a bias that is infinite or no number.
    #[error("{what} {value} of channel {channel} is not finite")]
    Factor {
        what: &'static str,
        channel: usize,
        value: f32,
    },

    /// Too many colours, or not a class for each.
    #[error(
        "{colours} colours and {classes} classes; give the same number of both, at most \
         {MAX_COLOURS}"
    )]
    Palette { colours: usize, classes: usize },

    /// One colour for two classes.
    #[error("the colour {},{},{} belongs to class {first} and class {second}", .colour[0], .colour[1], .colour[2])]
    TwoClasses {
        colour: [u8; 3],
        first: u8,
        second: u8,
    },

    /// Without views, the input is not the rows one after another.
    #[error("the input has {found} bytes; the rows take {expected}")]
    Input { expected: usize, found: usize },

    /// The output is not as long as all rows.
    #[error("the output has {found} bytes; the rows take {expected}")]
    Output { expected: usize, found: usize },

    /// Not a view for every row.
    #[error("there are {found} views for {rows} rows")]
    Views { rows: usize, found: usize },

    /// A view that reaches beyond the input, or that is none.
    #[error(
        "row {row} reads bytes from {offset} with {row_bytes} per line (flags {flags:#x}), which \
         does not fit an input of {input} bytes and lines of {line_bytes}"
    )]
    View {
        row: usize,
        offset: u64,
        row_bytes: u32,
        flags: u32,
        line_bytes: usize,
        input: usize,
    },

    /// More channels than a resize takes.
    #[error("images of {channels} channels are resized on the host; a kernel takes 4 at most")]
    Channels { channels: usize },

    /// A class number that has no place in the output.
    #[error("the number {unknown} for pixels without a class does not fit int32; use int64")]
    Unknown { unknown: i64 },

    /// A resize without a table, or a table that another kernel takes.
    #[error("this kernel takes {takes}")]
    OtherTable { takes: &'static str },

    /// A side that no image has here.
    #[error("row {row} has a side of {length} px, before or after; 1 to {MAX_SIDE} can be resized")]
    Side { row: usize, length: usize },

    /// An image that reaches beyond the input, or that is none.
    #[error("row {row} is {view:?}, which does not fit an input of {input} bytes")]
    Image {
        row: usize,
        view: ResizeView,
        input: usize,
    },

    /// Bytes that are no table.
    #[error("entry {row} of the resize table is outside of the table or of its image")]
    Table { row: usize },

    /// A table for another size.
    #[error(
        "the table resizes to {height}x{width}, the kernel to {expected_height}x{expected_width}"
    )]
    TableSize {
        height: usize,
        width: usize,
        expected_height: usize,
        expected_width: usize,
    },

    /// An address that elements, or a table, cannot be at.
    #[error("the {what} is at address {address:#x}, which is not a multiple of {align}")]
    Address {
        what: &'static str,
        address: u64,
        align: u64,
    },
}

impl Kernel {
    /// Bytes of the rows of the input, one after another; `None` if that is no number, as where a
    /// table says how large each is.
    pub fn input_bytes(&self, rows: usize) -> Option<usize> {
        if self.is_resize() {
            return None;
        }
        let (height, width) = self.size();
        let pixels = height.checked_mul(width)?;
        pixels.checked_mul(self.pixel_bytes())?.checked_mul(rows)
    }

    /// Bytes of the input up to the last that is read: of rows one after another, or of those that a
    /// table tells of; `None` if that is no number, or the table is not one for this kernel.
    pub fn reach(&self, rows: usize, table: Option<Table<'_>>) -> Option<usize> {
        match table {
            None => self.input_bytes(rows),
            Some(Table::Views(_)) if self.is_resize() => None,
            Some(Table::Views(views)) => {
                table::reach(views, &shape::LaunchShape::of(self, rows).ok()?)
            }
            Some(Table::Resize(table)) if self.is_resize() => table.input_bytes(self.pixel_bytes()),
            Some(Table::Resize(_)) => None,
        }
    }

    /// Bytes of the output; `None` if that is no number.
    pub fn output_bytes(&self, rows: usize) -> Option<usize> {
        let (height, width) = self.size();
        let pixels = height.checked_mul(width)?;
        let elements = pixels.checked_mul(self.pixel_elements())?;
        elements
            .checked_mul(self.element_bytes())?
            .checked_mul(rows)
    }

    /// Runs on the host, through the C that is compiled for it: the bits that a device gives.
    ///
    /// # Shape
    ///
    /// `input` is the rows one after another or, with a `table`, whatever that looks at; `output`
    /// needs no alignment.
    ///
    /// # Errors
    ///
    /// Those of [`Kernel::check`]; nothing is written then.
    ///
    /// # Cost
    ///
    /// One thread, some nanoseconds for 16 bytes of output; for tests and simulations.
    pub fn run(
        &self,
        rows: usize,
        input: &[u8],
        table: Option<Table<'_>>,
        output: &mut [u8],
    ) -> Result<(), KernelError> {
        self.check(rows, input.len(), table, output.len())?;
        host::run(self, rows, input, table, output)
    }

    /// Checks that everything the kernel reads and writes for so many rows is inside an input and
    /// an output of these lengths in bytes.
    ///
    /// # Errors
    ///
    /// Which of them does not fit, or what about the kernel itself makes no sense.
    pub fn check(
        &self,
        rows: usize,
        input_bytes: usize,
        table: Option<Table<'_>>,
        output_bytes: usize,
    ) -> Result<(), KernelError> {
        let shape = shape::LaunchShape::of(self, rows)?;
        match (table, shape.input_bytes) {
            (None, Some(expected)) if input_bytes != expected => {
                return Err(KernelError::Input {
                    expected,
                    found: input_bytes,
                });
            }
            (None, Some(_)) => {}
            (Some(Table::Views(views)), Some(_)) => {
                table::check(views, rows, &shape, input_bytes)?;
            }
            (Some(Table::Resize(table)), None) => table.check(rows, &shape, input_bytes)?,
            (_, Some(_)) => return Err(OTHER_TABLE),
            (_, None) => return Err(NO_IMAGES),
        }
        if output_bytes != shape.output_bytes {
            return Err(KernelError::Output {
                expected: shape.output_bytes,
                found: output_bytes,
            });
        }
        Ok(())
    }

    /// What to launch for memory at these device addresses, whose lengths went through
    /// [`Kernel::check`]: `table` is where its bytes lie on the device. Input and output must not
    /// overlap, and the fastest stores want an output at a multiple of 16.
    ///
    /// # Errors
    ///
    /// What `check` would say about the kernel and the number of rows; `Address` where the output
    /// is not aligned to its elements or the table to 8 bytes. Inputs may lie anywhere.
    pub fn launch(
        &self,
        rows: usize,
        input: u64,
        table: Option<u64>,
        output: u64,
    ) -> Result<Launch, KernelError> {
        launch::check_addresses(self, table, output)?;
        Launch::of(self, rows, input, table, output)
    }

    /// Height and width.
    fn size(&self) -> (usize, usize) {
        match *self {
            Kernel::Expand { height, width, .. }
            | Kernel::OneHot { height, width, .. }
            | Kernel::Classes { height, width, .. }
            | Kernel::Resize { height, width, .. }
            | Kernel::Widen { height, width, .. } => (height, width),
        }
    }

    /// Bytes of a pixel of the input.
    fn pixel_bytes(&self) -> usize {
        match *self {
            Kernel::Expand { channels, .. } | Kernel::Resize { channels, .. } => channels,
            Kernel::OneHot { .. } | Kernel::Widen { .. } => 1,
            Kernel::Classes { .. } => 3,
        }
    }

    /// Elements that a pixel has in the output.
    fn pixel_elements(&self) -> usize {
        match *self {
            Kernel::Expand { channels, .. } | Kernel::Resize { channels, .. } => channels,
            Kernel::OneHot { classes, .. } => classes,
            Kernel::Classes { .. } | Kernel::Widen { .. } => 1,
        }
    }

    /// Bytes of an element of the output.
    fn element_bytes(&self) -> usize {
        match *self {
            Kernel::Expand { dtype, .. }
            | Kernel::OneHot { dtype, .. }
            | Kernel::Resize { dtype, .. } => dtype.bytes(),
            Kernel::Classes { .. } => 1,
            Kernel::Widen { dtype, .. } => dtype.bytes(),
        }
    }

    /// Whether a table says how large each row of the input is.
    fn is_resize(&self) -> bool {
        matches!(self, Kernel::Resize { .. })
    }
}
