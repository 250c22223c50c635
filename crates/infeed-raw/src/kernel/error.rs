//! Reasons why a kernel cannot run.

use super::operation::{MAX_COLOURS, MAX_ELEMENTS};
use super::views::{MAX_SIDE, ResizeView};

/// A resize without a table of images, or with rows of one size.
pub(super) const NO_IMAGES: KernelError = KernelError::OtherTable {
    takes: "images of any size; give a table of them, made by ResizeTable",
};

/// A table of images for a kernel that takes rows of one size.
pub(super) const OTHER_TABLE: KernelError = KernelError::OtherTable {
    takes: "rows of one size, one after another or at the positions of views",
};

/// Reason why a kernel cannot run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum KernelError {
    /// The size of a row, or of all rows, exceeds the range of indices and addresses.
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

    /// A scale or a bias that is infinite or NaN.
    #[error("{what} {value} of channel {channel} is not finite")]
    Factor {
        what: &'static str,
        channel: usize,
        value: f32,
    },

    /// Too many colours, or another number of classes.
    #[error(
        "{colours} colours and {classes} classes; give the same number of both, at most \
         {MAX_COLOURS}"
    )]
    Palette { colours: usize, classes: usize },

    /// One colour with two classes.
    #[error("the colour {},{},{} belongs to class {first} and class {second}", .colour[0], .colour[1], .colour[2])]
    TwoClasses {
        colour: [u8; 3],
        first: u8,
        second: u8,
    },

    /// Without views, the input's length must be that of all rows.
    #[error("the input has {found} bytes; the rows take {expected}")]
    Input { expected: usize, found: usize },

    /// The output's length differs from that of all rows.
    #[error("the output has {found} bytes; the rows take {expected}")]
    Output { expected: usize, found: usize },

    /// The numbers of views and rows differ.
    #[error("there are {found} views for {rows} rows")]
    Views { rows: usize, found: usize },

    /// A view that exceeds the input, or that is invalid.
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

    /// More channels than a resize supports.
    #[error("images of {channels} channels are resized on the host; a kernel takes 4 at most")]
    Channels { channels: usize },

    /// A class number that does not fit the output's type.
    #[error("the number {unknown} for pixels without a class does not fit int32; use int64")]
    Unknown { unknown: i64 },

    /// A resize without a table, or a table for another kernel.
    #[error("this kernel takes {takes}")]
    OtherTable { takes: &'static str },

    /// A side longer than this module supports, or 0.
    #[error("row {row} has a side of {length} px, before or after; 1 to {MAX_SIDE} can be resized")]
    Side { row: usize, length: usize },

    /// An image that exceeds the input, or that is invalid.
    #[error("row {row} is {view:?}, which does not fit an input of {input} bytes")]
    Image {
        row: usize,
        view: ResizeView,
        input: usize,
    },

    /// Bytes that are not a table.
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

    /// An address that is misaligned for elements or a table.
    #[error("the {what} is at address {address:#x}, which is not a multiple of {align}")]
    Address {
        what: &'static str,
        address: u64,
        align: u64,
    },
}
