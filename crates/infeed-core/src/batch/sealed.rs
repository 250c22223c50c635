//! Access to filled slabs without finishing the batch.

use std::sync::Arc;

use super::{Array, ArrayMemory, InFlightBatch, PooledSlab};
use crate::sample::DType;

impl InFlightBatch {
    /// Returns the slabs as arrays of bytes `[rows, row bytes]`, in column order. None for columns
    /// that are kept by row. The caller must have dropped all rows.
    pub fn sealed(mut self, rows: usize) -> Vec<Option<Array>> {
        let parts = self.parts.iter_mut().map(|part| {
            let part = part.as_mut()?;
            let slab = part.filling.take()?.seal().ok()?;
            let shape = vec![rows, slab.row_bytes()];
            let memory = Arc::new(ArrayMemory::Pooled(PooledSlab::new(slab, &part.pool)));
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
