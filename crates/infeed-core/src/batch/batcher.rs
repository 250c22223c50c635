//! Batches in work: their rows, and the slabs and values that become columns.

use std::ops::Range;
use std::sync::Arc;

use infeed_raw::host::OutOfMemory;
use infeed_raw::slab::{CutSlab, Row};

use super::array::{Array, ArrayMemory};
use super::columns::{ColumnKind, ColumnSpec};
use super::finished_batch::{Batch, Column, PADDING, Values};
use super::gather::gather;
use super::pool::{PooledSlab, PrepareSlab, SlabPool};
use crate::sample::DType;

/// A sample's row in a batch, or a run of neighbouring rows: one cell per column.
#[derive(Debug, Default)]
pub struct BatchRow {
    /// Cells in column order.
    pub cells: Vec<RowCell>,
    /// Index of the layout of its batch.
    pub layout: usize,
}

/// Destination of one value of a sample.
#[derive(Debug)]
pub enum RowCell {
    /// A row of a slab, or a run of its rows. The worker must overwrite all of it.
    Slab(Row),
    /// Bytes outside of a slab, with their shape in padded columns.
    Own {
        /// Lengths of the axes (padded columns only).
        shape: Vec<usize>,
        /// The elements.
        bytes: Vec<u8>,
    },
}

/// Columns and pools of the batches of one pipeline.
///
/// A pipeline can have several batch layouts. They have the same columns, but rows of another type
/// and shape if the device does part of the work. Layouts share slabs.
#[derive(Debug)]
pub struct Batcher {
    /// Columns by layout.
    layouts: Vec<Vec<ColumnSpec>>,
    /// Slab pool by column; None for columns that are kept by row.
    pub(super) pools: Vec<Option<Arc<SlabPool>>>,
}

/// A batch being filled. Dropping it unfinished, after its rows, recycles its slabs.
#[derive(Debug)]
pub struct InFlightBatch {
    layout: usize,
    parts: Vec<Option<ColumnPart>>,
}

#[derive(Debug)]
struct ColumnPart {
    filling: Option<CutSlab>,
    pool: Arc<SlabPool>,
}

impl Drop for ColumnPart {
    fn drop(&mut self) {
        if let Some(Ok(slab)) = self.filling.take().map(CutSlab::seal) {
            self.pool.give(slab);
        }
    }
}

/// Result of filling a row.
#[derive(Debug)]
pub struct RowDone {
    /// Number of the record in the source.
    pub record: u64,
    /// Values of the columns that are kept by row, in column order. None for columns in slabs.
    pub own: Vec<Option<(Vec<usize>, Vec<u8>)>>,
}

impl BatchRow {
    /// Takes the values outside of slabs. Dropping the row releases its part of the slabs.
    pub fn finish(&mut self, record: u64) -> RowDone {
        let own = self.cells.iter_mut().map(|cell| match cell {
            RowCell::Slab(_) => None,
            RowCell::Own { shape, bytes } => Some((std::mem::take(shape), std::mem::take(bytes))),
        });
        RowDone {
            record,
            own: own.collect(),
        }
    }

    /// Turns the row into padding: zeros in slabs, no bytes in columns that are kept by row.
    pub fn blank(&mut self) -> RowDone {
        for cell in &mut self.cells {
            match cell {
                RowCell::Slab(row) => row.bytes_mut().fill(0),
                RowCell::Own { shape, bytes } => {
                    shape.clear();
                    bytes.clear();
                }
            }
        }
        self.finish(PADDING)
    }
}

impl Batcher {
    /// Creates a batcher with one layout, for at most `rows` rows. It keeps at most `keep` free
    /// slabs per column.
    pub fn new(columns: Vec<ColumnSpec>, rows: usize, keep: usize) -> Batcher {
        Batcher::with_layouts(vec![columns], rows, keep, None)
    }

    /// Creates a batcher with at least one layout. `ready` is applied to every new slab. All
    /// layouts must have the same columns in slabs.
    pub fn with_layouts(
        layouts: Vec<Vec<ColumnSpec>>,
        rows: usize,
        keep: usize,
        ready: Option<&PrepareSlab>,
    ) -> Batcher {
        let pool = |at: usize| {
            let row_bytes = longest_row(&layouts, at)?;
            Some(SlabPool::with_prepare(
                rows,
                row_bytes,
                keep,
                ready.cloned(),
            ))
        };
        let columns = layouts.first().map_or(0, Vec::len);
        let pools = (0..columns).map(pool).collect();
        Batcher { layouts, pools }
    }

    /// Sizes slabs for these layouts only, from now on.
    pub fn make_room(&self, layouts: Range<usize>) {
        let layouts = &self.layouts[layouts];
        for (at, pool) in self.pools.iter().enumerate() {
            if let (Some(pool), Some(row_bytes)) = (pool, longest_row(layouts, at)) {
                pool.make_room(row_bytes);
            }
        }
    }

    /// Returns the columns of the first layout.
    pub fn columns(&self) -> &[ColumnSpec] {
        &self.layouts[0]
    }

    /// Returns the bytes of the slabs of one batch, for the largest layout.
    pub fn slab_bytes(&self) -> u64 {
        self.pools
            .iter()
            .flatten()
            .map(|pool| pool.slab_bytes())
            .sum()
    }

    /// Returns the number of finished batches that are not dropped yet.
    pub fn live(&self) -> usize {
        self.pools
            .iter()
            .flatten()
            .map(|pool| pool.live())
            .max()
            .unwrap_or(0)
    }

    /// Begins a batch of `rows` rows in the first layout.
    ///
    /// # Errors
    ///
    /// If no slab is free and no memory can be allocated.
    pub fn begin(&self, rows: usize) -> Result<(InFlightBatch, Vec<BatchRow>), OutOfMemory> {
        self.begin_as(0, rows, 1)
    }

    /// Like [`Batcher::begin`], in the layout of index `layout`, and in runs of `run` rows, the last of
    /// which may be shorter. Only columns in slabs can be filled in runs of several rows.
    ///
    /// # Errors
    ///
    /// As [`Batcher::begin`].
    ///
    /// # Panics
    ///
    /// If `run` is 0.
    pub fn begin_as(
        &self,
        layout: usize,
        rows: usize,
        run: usize,
    ) -> Result<(InFlightBatch, Vec<BatchRow>), OutOfMemory> {
        let columns = &self.layouts[layout];
        let mut parts = Vec::with_capacity(columns.len());
        let mut begun: Vec<BatchRow> = Vec::with_capacity(rows.div_ceil(run));
        begun.resize_with(rows.div_ceil(run), || BatchRow {
            cells: Vec::with_capacity(columns.len()),
            layout,
        });
        for (column, pool) in columns.iter().zip(&self.pools) {
            match (pool, column.kind.row_bytes()) {
                (Some(pool), Some(row_bytes)) => {
                    // A short last batch leaves rows of the slab unused.
                    let (filling, slots) = pool.take(row_bytes)?.into_runs(rows, run);
                    for (row, slot) in begun.iter_mut().zip(slots) {
                        row.cells.push(RowCell::Slab(slot));
                    }
                    parts.push(Some(ColumnPart {
                        filling: Some(filling),
                        pool: Arc::clone(pool),
                    }));
                }
                _ => {
                    for row in &mut begun {
                        row.cells.push(RowCell::Own {
                            shape: Vec::new(),
                            bytes: Vec::new(),
                        });
                    }
                    parts.push(None);
                }
            }
        }
        Ok((InFlightBatch { layout, parts }, begun))
    }

    /// Finishes a batch. The caller must have dropped all of its rows. Rows with None are removed,
    /// and later rows move up.
    ///
    /// # Errors
    ///
    /// If memory for columns that are kept by row cannot be allocated.
    pub fn finish(
        &self,
        mut in_flight: InFlightBatch,
        mut rows: Vec<Option<RowDone>>,
        epoch: u64,
        step: u64,
    ) -> Result<Batch, OutOfMemory> {
        let kept: Vec<usize> = (0..rows.len()).filter(|&row| rows[row].is_some()).collect();
        let specs = &self.layouts[in_flight.layout];
        let mut columns = Vec::with_capacity(specs.len());
        for (at, (spec, part)) in specs.iter().zip(&mut in_flight.parts).enumerate() {
            let values = match (part, &spec.kind) {
                (Some(part), ColumnKind::Fixed { dtype, shape }) => {
                    Values::Array(part.close_up(&kept, *dtype, shape))
                }
                (_, kind) => {
                    let own = rows
                        .iter_mut()
                        .flatten()
                        .filter_map(|row| row.own[at].take());
                    gather(kind, own.collect())?
                }
            };
            columns.push(Column {
                name: spec.name.clone(),
                values,
            });
        }
        let records = rows.into_iter().flatten().map(|row| row.record).collect();
        Ok(Batch {
            columns,
            records,
            epoch,
            step,
        })
    }
}

impl InFlightBatch {
    /// Returns the slabs as arrays of bytes `[rows, row bytes]`, in column order. None for columns
    /// that are kept by row. The caller must have dropped all rows.
    pub fn into_arrays(mut self, rows: usize) -> Vec<Option<Array>> {
        let parts = self.parts.iter_mut().map(|part| {
            let part = part.as_mut()?;
            let slab = part.filling.take()?.seal().ok()?;
            let shape = vec![rows, slab.row_bytes()];
            let memory = ArrayMemory::Pooled(PooledSlab::new(slab, &part.pool));
            Some(Array::over(memory, shape, DType::UInt8))
        });
        parts.collect()
    }
}

impl ColumnPart {
    /// Returns the slab as an array of the kept rows, without gaps.
    fn close_up(&mut self, kept: &[usize], dtype: DType, shape: &[usize]) -> Array {
        let filling = self.filling.take().expect("a part is closed once");
        let mut slab = filling
            .seal()
            .expect("the executor drops all rows before it closes an in-flight batch");
        let row = slab.row_bytes();
        for (to, &from) in kept.iter().enumerate() {
            if from != to {
                slab.as_mut()
                    .copy_within(from * row..(from + 1) * row, to * row);
            }
        }
        let memory = ArrayMemory::Pooled(PooledSlab::new(slab, &self.pool));
        let shape = std::iter::once(kept.len())
            .chain(shape.iter().copied())
            .collect();
        Array::over(memory, shape, dtype)
    }
}

/// Returns the bytes of the longest row of a column over all layouts. None if the column is kept by
/// row.
fn longest_row(layouts: &[Vec<ColumnSpec>], column: usize) -> Option<usize> {
    let bytes = layouts
        .iter()
        .map(|layout| layout.get(column)?.kind.row_bytes());
    bytes.collect::<Option<Vec<usize>>>()?.into_iter().max()
}
