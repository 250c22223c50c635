//! Tables of kernels as they lie on the device: what a kernel uses, and not what the host says.

use infeed_raw::kernel::{Kernel, KernelError, ResizeTable, RowView, Table};

/// A table read from a memory of the device.
pub(super) enum OwnTable {
    Views(Vec<RowView>),
    Resize(ResizeTable),
}

impl OwnTable {
    /// The table of a kernel for so many rows.
    ///
    /// # Errors
    ///
    /// If the bytes are none.
    pub(super) fn read(
        kernel: &Kernel,
        rows: usize,
        bytes: &[u8],
    ) -> Result<OwnTable, KernelError> {
        match *kernel {
            Kernel::Resize { height, width, .. } => {
                let table = ResizeTable::from_bytes(height, width, rows, bytes.to_vec())?;
                Ok(OwnTable::Resize(table))
            }
            _ => Ok(OwnTable::Views(views_from(bytes, rows))),
        }
    }

    pub(super) fn as_table(&self) -> Table<'_> {
        match self {
            OwnTable::Views(views) => Table::Views(views),
            OwnTable::Resize(table) => Table::Resize(table),
        }
    }
}

/// A table of views as it lies on the device; as many as there are rows, if it is long enough.
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
