//! Tables of kernels as the device has them, so that a kernel uses the device's bytes and not the
//! host's.

use infeed_raw::kernel::{Kernel, KernelError, ResizeTable, RowView, Table};

/// A table read from the device's memory.
pub(super) enum DeviceTable {
    Views(Vec<RowView>),
    Resize(ResizeTable),
}

impl DeviceTable {
    /// Reads the table of a kernel for `rows` rows.
    ///
    /// # Errors
    ///
    /// If the bytes are not a valid table.
    pub(super) fn read(
        kernel: &Kernel,
        rows: usize,
        bytes: &[u8],
    ) -> Result<DeviceTable, KernelError> {
        match *kernel {
            Kernel::Resize { height, width, .. } => {
                let table = ResizeTable::from_bytes(height, width, rows, bytes.to_vec())?;
                Ok(DeviceTable::Resize(table))
            }
            _ => Ok(DeviceTable::Views(views_from(bytes, rows))),
        }
    }

    pub(super) fn as_table(&self) -> Table<'_> {
        match self {
            DeviceTable::Views(views) => Table::Views(views),
            DeviceTable::Resize(table) => Table::Resize(table),
        }
    }
}

/// Reads a table of views from the device's bytes. Returns one view per row if there are enough
/// bytes.
fn views_from(bytes: &[u8], rows: usize) -> Vec<RowView> {
    let word = |bytes: &[u8], at: usize| -> u32 {
        let mut word = [0; 4];
        word.copy_from_slice(&bytes[at..at + 4]);
        u32::from_ne_bytes(word)
    };
    let view = |view: &[u8]| {
        let mut offset = [0; 8];
        offset.copy_from_slice(&view[..8]);
        RowView {
            offset: u64::from_ne_bytes(offset),
            row_bytes: word(view, 8),
            flags: word(view, 12),
        }
    };
    let size = size_of::<RowView>();
    bytes.chunks_exact(size).take(rows).map(view).collect()
}
