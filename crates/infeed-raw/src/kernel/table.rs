//! Positions of rows that are not contiguous: crops of larger images, mirrored images, and images
//! to resize.

use std::sync::Arc;

use super::error::KernelError;
use super::resize::ResizeTable;
use super::shape::LaunchShape;
use super::views::RowView;

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
    pub fn to_arc(&self) -> Arc<Vec<u8>> {
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

impl RowView {
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
