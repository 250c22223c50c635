//! Positions of one row or image in the input of a kernel.

/// Maximum length of a side of an image, before or after.
pub const MAX_SIDE: u32 = 1 << 20;

/// Position of one row of the batch in the input. A table has one view for each row. The kernel
/// reads it on the device, so its layout is fixed: 16 bytes, native byte order.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowView {
    /// First byte of the first line, in bytes from the start of the input.
    pub offset: u64,
    /// Bytes from the start of a line to the start of the next, at least the length of a line.
    pub row_bytes: u32,
    /// [`RowView::FLIP_X`] and [`RowView::FLIP_Y`], or 0.
    pub flags: u32,
}

const _: () = assert!(size_of::<RowView>() == 16 && align_of::<RowView>() == 8);

impl RowView {
    /// Mirrors left and right.
    pub const FLIP_X: u32 = 1;
    /// Mirrors top and bottom.
    pub const FLIP_Y: u32 = 2;
    /// Bytes of a view in a table.
    pub const BYTES: usize = size_of::<RowView>();

    /// Returns the views as bytes, as a device reads them.
    pub fn bytes(table: &[RowView]) -> &[u8] {
        // SAFETY: a view is two words of 8 bytes without gaps (the assertion above: 8 + 4 + 4), so
        // every byte is initialised; the length is that of the slice, which is borrowed.
        unsafe { std::slice::from_raw_parts(table.as_ptr().cast(), size_of_val(table)) }
    }
}

/// An image in the input of a resize.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResizeView {
    /// First byte of the first line, in bytes from the start of the input.
    pub offset: u64,
    /// Bytes from the start of a line to the start of the next, at least the length of a line.
    pub row_bytes: u32,
    /// [`RowView::FLIP_X`] and [`RowView::FLIP_Y`], or 0: mirrors the resized image.
    pub flags: u32,
    /// Lines.
    pub height: u32,
    /// Pixels of a line.
    pub width: u32,
}
