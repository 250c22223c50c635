//! Rows that are handed on as they lie in their slabs, and not made into a batch.

use std::sync::Arc;

use super::{Array, Memory, Pooled, Tray};
use crate::sample::DType;

impl Tray {
    /// The slabs of so many rows, which were all dropped, as bytes by row; None for columns that lie in
    /// none.
    pub(crate) fn sealed(mut self, rows: usize) -> Vec<Option<Array>> {
        let parts = self.parts.iter_mut().map(|part| {
            let part = part.as_mut()?;
            let slab = part.filling.take()?.seal().ok()?;
            let shape = vec![rows, slab.row_bytes()];
            let memory = Arc::new(Memory::Pooled(Pooled::new(slab, &part.pool)));
            Some(Array {
                memory,
                begin: 0,
                shape,
                dtype: DType::UInt8,
            })
        });
        parts.collect()
    }
}
