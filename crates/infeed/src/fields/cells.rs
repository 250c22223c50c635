//! Cells of a row: copies of bytes, and their lengths.

use super::failure::{SampleError, StageFailure};
use infeed_core::batch::RowCell;

/// Copies the bytes of a field to its cell.
pub(crate) fn copy(field: usize, bytes: &[u8], cell: &mut RowCell) -> Result<(), StageFailure> {
    match cell {
        RowCell::Slab(row) => copy_exactly(field, bytes, row.bytes_mut()),
        RowCell::Own { bytes: to, .. } => {
            to.clear();
            to.extend_from_slice(bytes);
            Ok(())
        }
    }
}

/// Copies the bytes of a field to memory of their size.
pub(crate) fn copy_exactly(field: usize, bytes: &[u8], to: &mut [u8]) -> Result<(), StageFailure> {
    if to.len() != bytes.len() {
        let error = SampleError::Shape {
            found: format!("{} bytes", bytes.len()),
            expected: format!("{}", to.len()),
            fix: "every record must have the shape its source declares",
        };
        return Err(error.in_field(field));
    }
    to.copy_from_slice(bytes);
    Ok(())
}

pub(crate) fn cell_bytes(cell: &RowCell) -> u64 {
    match cell {
        RowCell::Slab(row) => row.bytes().len() as u64,
        RowCell::Own { bytes, .. } => bytes.len() as u64,
    }
}

/// Returns the bytes of a cell, to change them.
pub(crate) fn bytes_of(cell: &mut RowCell) -> &mut [u8] {
    match cell {
        RowCell::Slab(row) => row.bytes_mut(),
        RowCell::Own { bytes, .. } => bytes,
    }
}

/// Fills a cell that is kept by row.
pub(crate) fn put(cell: &mut RowCell, values: Vec<u8>) {
    if let RowCell::Own { shape, bytes } = cell {
        shape.clear();
        *bytes = values;
    }
}
