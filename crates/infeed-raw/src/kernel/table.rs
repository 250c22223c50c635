//! Positions of rows that are not contiguous: crops of larger images, mirrored images, and images
//! to resize.

use std::sync::Arc;

use super::shape::LaunchShape;
use super::{KernelError, ResizeTable};

/// Positions of rows, which a kernel reads from a separate memory.
#[derive(Clone, Copy, Debug)]
pub enum Table<'a> {
    /// Rows of one size. All kernels but [`Kernel::Resize`](super::Kernel::Resize) take them.
    Views(&'a [RowView]),
    /// Images of any size, for [`Kernel::Resize`](super::Kernel::Resize).
    Resize(&'a ResizeTable),
}

impl<'a> Table<'a> {
    /// Returns the bytes that a device reads.
    pub fn bytes(&self) -> &'a [u8] {
        match self {
            Table::Views(views) => RowView::bytes(views),
            Table::Resize(table) => table.bytes(),
        }
    }

    /// Returns the same bytes, shared, so that they can be kept while they are copied.
    pub fn shared(&self) -> Arc<Vec<u8>> {
        match self {
            Table::Views(views) => Arc::new(RowView::bytes(views).to_vec()),
            Table::Resize(table) => Arc::clone(table.bytes()),
        }
    }
}

impl<'a> From<&'a [RowView]> for Table<'a> {
    fn from(views: &'a [RowView]) -> Table<'a> {
        Table::Views(views)
    }
}

impl<'a> From<&'a ResizeTable> for Table<'a> {
    fn from(table: &'a ResizeTable) -> Table<'a> {
        Table::Resize(table)
    }
}

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

    /// Returns the end of the view's last line in the input, for images of this shape.
    fn end(&self, shape: &LaunchShape) -> Option<usize> {
        let offset = usize::try_from(self.offset).ok()?;
        let (Some(lines_before), true) = (shape.height.checked_sub(1), shape.width > 0) else {
            return Some(offset);
        };
        let last = (self.row_bytes as usize).checked_mul(lines_before)?;
        offset.checked_add(last)?.checked_add(shape.line_bytes)
    }
}

/// Returns the end of the last line of all views.
pub(super) fn reach(views: &[RowView], shape: &LaunchShape) -> Option<usize> {
    let mut ends = views.iter().map(|view| view.end(shape));
    ends.try_fold(0, |end, next| Some(end.max(next?)))
}

/// Checks that there is a view for every row, and that its lines are inside of the input.
pub(super) fn check(
    views: &[RowView],
    rows: usize,
    shape: &LaunchShape,
    input_bytes: usize,
) -> Result<(), KernelError> {
    if views.len() != rows {
        return Err(KernelError::Views {
            rows,
            found: views.len(),
        });
    }
    for (row, view) in views.iter().enumerate() {
        let is_inside = view.end(shape).is_some_and(|end| end <= input_bytes);
        let is_apart = view.row_bytes as usize >= shape.line_bytes;
        let is_known = view.flags & !(RowView::FLIP_X | RowView::FLIP_Y) == 0;
        if !(is_inside && is_apart && is_known) {
            return Err(KernelError::View {
                row,
                offset: view.offset,
                row_bytes: view.row_bytes,
                flags: view.flags,
                line_bytes: shape.line_bytes,
                input: input_bytes,
            });
        }
    }
    Ok(())
}
