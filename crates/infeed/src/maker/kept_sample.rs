//! Bytes of a sample after user functions, which the cache of decoded records keeps.
//!
//! They are as of a prepared record ([`prepared_record`](crate::fields::pixels::prepared_record)), with a field per
//! column: the number of axes (u32) and their lengths (u64), then the bytes. The last field is the number
//! of pixels of unknown class (u64).

use crate::fields::cells::cell_bytes;
use crate::fields::pixels::prepared_record::layout;
use infeed_core::batch::RowCell;

/// Destination of what a cache keeps of a sample.
pub(super) struct KeptSample<'a> {
    pub(super) bytes: &'a mut Vec<u8>,
    /// Pixels of unknown class in the masks of the sample.
    pub(super) unknown_pixels: u64,
}

impl KeptSample<'_> {
    /// Writes the columns of a sample, which are in own cells. Writes nothing for over 4 GiB.
    pub(super) fn write(self, cells: &[RowCell]) {
        self.bytes.clear();
        let axes = |cell: &RowCell| match cell {
            RowCell::Own { shape, .. } => shape.clone(),
            RowCell::Slab(_) => Vec::new(),
        };
        let lengths = cells.iter().map(|cell| {
            let header = 4 + 8 * axes(cell).len();
            header + cell_bytes(cell) as usize
        });
        let lengths: Vec<usize> = lengths.chain([8]).collect();
        let Some((starts, total)) = layout(&lengths) else {
            return;
        };
        self.bytes.resize(total, 0);
        let mut put = |at: usize, bytes: &[u8]| {
            self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
            at + bytes.len()
        };
        put(0, &(lengths.len() as u32).to_le_bytes());
        for (field, length) in lengths.iter().enumerate() {
            put(4 + 4 * field, &(*length as u32).to_le_bytes());
        }
        for (cell, &start) in cells.iter().zip(&starts) {
            let axes = axes(cell);
            let mut at = put(start, &(axes.len() as u32).to_le_bytes());
            for axis in axes {
                at = put(at, &(axis as u64).to_le_bytes());
            }
            if let RowCell::Own { bytes, .. } = cell {
                put(at, bytes);
            }
        }
        if let Some(&last) = starts.last() {
            put(last, &self.unknown_pixels.to_le_bytes());
        }
    }
}

/// Splits a kept column into its shape and its bytes. `None` for other bytes.
pub(super) fn column(field: &[u8]) -> Option<(Vec<usize>, &[u8])> {
    let (count, rest) = field.split_first_chunk::<4>()?;
    let count = u32::from_le_bytes(*count) as usize;
    let (axes, bytes) = rest.split_at_checked(count.checked_mul(8)?)?;
    let axis = |bytes: &[u8]| {
        let number = u64::from_le_bytes(bytes.try_into().ok()?);
        usize::try_from(number).ok()
    };
    Some((
        axes.chunks_exact(8).map(axis).collect::<Option<_>>()?,
        bytes,
    ))
}

/// Copies a column to a cell. Returns false if the cell has another length.
pub(super) fn put(shape: &[usize], bytes: &[u8], cell: &mut RowCell) -> bool {
    match cell {
        RowCell::Slab(row) => {
            let to = row.bytes_mut();
            let fits = to.len() == bytes.len();
            if fits {
                to.copy_from_slice(bytes);
            }
            fits
        }
        RowCell::Own {
            shape: to_shape,
            bytes: to,
        } => {
            to_shape.clear();
            to_shape.extend_from_slice(shape);
            to.clear();
            to.extend_from_slice(bytes);
            true
        }
    }
}
