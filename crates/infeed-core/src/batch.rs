//! Batches: workers write samples into rows of slabs, so a full batch needs no copy.
//!
//! A field of fixed shape is one slab, divided into rows that workers fill in place. A slab returns
//! to its pool when the last array that views it is dropped. Fields whose size differs by record
//! (padded images, lists, text) are kept by row and gathered when the batch is full.

mod gather;
mod parts;
mod room;
mod sealed;

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use infeed_raw::host::{HostBytes, OutOfMemory};
use infeed_raw::slab::{CutSlab, Row, Slab};

use crate::sample::DType;

use gather::gather;
pub use room::PrepareSlab;
use room::longest_row;

/// Description of one column of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnSpec {
    /// Name of the field.
    pub name: String,
    /// Kind of its values.
    pub kind: ColumnKind,
}

/// Values of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// Every row has this shape. The column is an array `[rows, shape…]`.
    Fixed {
        /// Element type.
        dtype: DType,
        /// Shape of one row.
        shape: Vec<usize>,
    },
    /// Rows of equal rank and different sizes. Zeros at the end of every axis pad them to the
    /// largest row of the batch. The column is an array `[rows, …]`.
    Padded {
        /// Element type.
        dtype: DType,
        /// Number of axes of one row.
        rank: usize,
    },
    /// Lists whose length differs by row. The column is all items one after another, and offsets.
    Ragged {
        /// Element type.
        dtype: DType,
        /// Shape of one item of a list; `[]` for lists of numbers.
        item: Vec<usize>,
    },
    /// Bytes.
    Bytes,
    /// UTF-8.
    Text,
}

impl ColumnKind {
    /// Returns the bytes of a row in a slab. None for kinds that are kept by row.
    pub fn row_bytes(&self) -> Option<usize> {
        match self {
            ColumnKind::Fixed { dtype, shape } => {
                Some(shape.iter().product::<usize>() * dtype.bytes())
            }
            _ => None,
        }
    }
}

/// Record number of padding rows, which have no record.
pub const PADDING: u64 = u64::MAX;

/// Samples of one step: a column per field, and the record number of each row.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Columns in field order.
    pub columns: Vec<Column>,
    /// Record number in the source, by row. A substituted row has the number of the substitute; a
    /// row that only pads the batch has [`PADDING`].
    pub records: Vec<u64>,
    /// Epoch, from 0.
    pub epoch: u64,
    /// Step in the epoch, from 0.
    pub step: u64,
}

impl Batch {
    /// Returns the values of a field.
    pub fn get(&self, name: &str) -> Option<&Values> {
        self.columns
            .iter()
            .find(|column| column.name == name)
            .map(|column| &column.values)
    }

    /// Returns the array of a numeric field. None for other kinds of columns.
    pub fn array(&self, name: &str) -> Option<&Array> {
        match self.get(name)? {
            Values::Array(array) => Some(array),
            _ => None,
        }
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.records.len()
    }

    /// Returns the number of rows that hold a record.
    pub fn samples(&self) -> usize {
        let holds = |record: &&u64| **record != PADDING;
        self.records.iter().filter(holds).count()
    }
}

/// A named column.
#[derive(Clone, Debug)]
pub struct Column {
    /// Name of the field.
    pub name: String,
    /// The values.
    pub values: Values,
}

/// The values of a column.
#[derive(Clone, Debug)]
pub enum Values {
    /// Numbers, `[rows, …]`.
    Array(Array),
    /// Row `i` is `values[offsets[i]..offsets[i + 1]]`.
    Ragged {
        /// All items, `[n, …]`.
        values: Array,
        /// Int64, `[rows + 1]`.
        offsets: Array,
    },
    /// One entry per row.
    Bytes(Vec<Vec<u8>>),
    /// One entry per row.
    Text(Vec<String>),
}

/// Numbers of one type and shape, row-major without gaps. Clones share the memory.
#[derive(Clone)]
pub struct Array {
    memory: Arc<ArrayMemory>,
    /// Offset of the first element in the memory, in bytes.
    begin: usize,
    shape: Vec<usize>,
    dtype: DType,
}

enum ArrayMemory {
    Pooled(PooledSlab),
    Slab(Slab),
    Own(HostBytes),
    Lent(Vec<u8>),
}

impl Array {
    /// Returns the lengths of the axes.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns the element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the bytes of the elements, little-endian on all supported machines.
    pub fn bytes(&self) -> &[u8] {
        let whole = match &*self.memory {
            ArrayMemory::Pooled(pooled) => pooled.slab.as_ref().map_or(&[][..], AsRef::as_ref),
            ArrayMemory::Slab(slab) => slab.as_ref(),
            ArrayMemory::Own(bytes) => bytes,
            ArrayMemory::Lent(bytes) => bytes,
        };
        let len = self.shape.iter().product::<usize>() * self.dtype.bytes();
        &whole[self.begin..self.begin + len]
    }

    /// Copies `bytes` to an array in new memory.
    ///
    /// # Errors
    ///
    /// If the memory cannot be allocated.
    pub fn own(bytes: &[u8], shape: Vec<usize>, dtype: DType) -> Result<Array, OutOfMemory> {
        let mut memory = HostBytes::zeroed(bytes.len())?;
        memory.copy_from_slice(bytes);
        Ok(Array {
            memory: Arc::new(ArrayMemory::Own(memory)),
            begin: 0,
            shape,
            dtype,
        })
    }

    /// Creates an array over a slab without a pool. None if the slab is too small for the shape.
    pub fn of_slab(slab: Slab, shape: Vec<usize>, dtype: DType) -> Option<Array> {
        let needed = shape
            .iter()
            .try_fold(dtype.bytes(), |bytes, &n| bytes.checked_mul(n))?;
        (needed <= slab.as_ref().len()).then(|| Array {
            memory: Arc::new(ArrayMemory::Slab(slab)),
            begin: 0,
            shape,
            dtype,
        })
    }

    /// Creates an array over bytes that [`Array::give_back`] can return. None if there are too few
    /// bytes for the shape.
    pub fn lent(bytes: Vec<u8>, shape: Vec<usize>, dtype: DType) -> Option<Array> {
        let needed = shape
            .iter()
            .try_fold(dtype.bytes(), |bytes, &n| bytes.checked_mul(n))?;
        (needed <= bytes.len()).then(|| Array {
            memory: Arc::new(ArrayMemory::Lent(bytes)),
            begin: 0,
            shape,
            dtype,
        })
    }

    /// Returns the bytes given to [`Array::lent`]. None if the array has other memory, or another
    /// clone of it exists.
    pub fn give_back(self) -> Option<Vec<u8>> {
        match Arc::try_unwrap(self.memory) {
            Ok(ArrayMemory::Lent(bytes)) => Some(bytes),
            _ => None,
        }
    }
}

impl AsRef<[u8]> for Array {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Array({} {:?})", self.dtype.name(), self.shape)
    }
}

/// Slabs of one size, for reuse.
///
/// Fresh memory from the operating system costs a page fault every 4 KiB. A loader that allocates
/// memory for each batch spends most of its time on page faults.
#[derive(Debug)]
pub struct SlabPool {
    rows: usize,
    /// Bytes of a row in the layout with the longest rows.
    row_bytes: usize,
    ready: Option<PrepareSlab>,
    /// Most free slabs that the pool keeps.
    keep: usize,
    free: Mutex<IdleSlabs>,
    /// Slabs in finished batches.
    live: AtomicUsize,
}

impl SlabPool {
    /// Creates a pool for slabs of `rows` rows. It keeps at most `keep` free slabs.
    pub fn new(rows: usize, row_bytes: usize, keep: usize) -> Arc<SlabPool> {
        SlabPool::readied(rows, row_bytes, keep, None)
    }

    fn readied(
        rows: usize,
        row_bytes: usize,
        keep: usize,
        ready: Option<PrepareSlab>,
    ) -> Arc<SlabPool> {
        let free = Mutex::new(IdleSlabs {
            slabs: VecDeque::new(),
            made: 0,
            room: row_bytes,
        });
        Arc::new(SlabPool {
            rows,
            row_bytes,
            ready,
            keep,
            free,
            live: AtomicUsize::new(0),
        })
    }

    /// Returns the largest size of a slab, in bytes.
    pub fn slab_bytes(&self) -> u64 {
        self.rows as u64 * self.row_bytes as u64
    }

    /// Returns the number of slabs in finished batches that are not dropped yet.
    pub fn live(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }

    /// Returns a slab with rows of `row_bytes` bytes.
    fn take(&self, row_bytes: usize) -> Result<Slab, OutOfMemory> {
        let mut free = self.lock();
        let size = self.rows * free.room;
        // Drop one slab of an outdated size per new slab, not all at once in a consumer's call.
        let is_other = |slab: &Slab| slab.as_ref().len() != size;
        let other = match free.slabs.front() {
            Some(first) if is_other(first) => free.slabs.pop_front(),
            _ => None,
        };
        // Create all slabs before reusing one, and reuse the longest free slab first. Memory then
        // reaches its peak in the first steps and stays there.
        if free.made >= self.keep
            && let Some(slab) = free.slabs.pop_front()
            && let Some(slab) = slab.with_rows_of(row_bytes)
        {
            return Ok(slab);
        }
        free.made += 1;
        let room = free.room.max(row_bytes);
        drop(free);
        drop(other);
        let mut slab = Slab::zeroed(self.rows, room)?;
        if let Some(PrepareSlab(ready)) = &self.ready {
            ready(&mut slab);
        }
        slab.with_rows_of(row_bytes).ok_or(OutOfMemory {
            requested_bytes: usize::MAX,
        })
    }

    fn give(&self, slab: Slab) {
        let mut free = self.lock();
        let fits = slab.as_ref().len() == self.rows * free.room;
        if fits && free.slabs.len() < self.keep {
            free.slabs.push_back(slab);
        }
    }

    /// Sets the row size of slabs from now on, in bytes. Slabs of another size are dropped as new
    /// ones are made.
    fn make_room(&self, row_bytes: usize) {
        let mut free = self.lock();
        if std::mem::replace(&mut free.room, row_bytes) != row_bytes {
            free.made = 0;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, IdleSlabs> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Free slabs of a pool.
#[derive(Debug)]
struct IdleSlabs {
    slabs: VecDeque<Slab>,
    /// Number of slabs made of this size.
    made: usize,
    /// Row size of new slabs, in bytes.
    room: usize,
}

/// A slab in a finished batch. Dropping it returns the slab to its pool.
struct PooledSlab {
    slab: Option<Slab>,
    pool: Arc<SlabPool>,
}

impl PooledSlab {
    fn new(slab: Slab, pool: &Arc<SlabPool>) -> PooledSlab {
        pool.live.fetch_add(1, Ordering::Relaxed);
        PooledSlab {
            slab: Some(slab),
            pool: Arc::clone(pool),
        }
    }
}

impl Drop for PooledSlab {
    fn drop(&mut self) {
        self.pool.live.fetch_sub(1, Ordering::Relaxed);
        if let Some(slab) = self.slab.take() {
            self.pool.give(slab);
        }
    }
}

/// An array being written. Dropping it unfinished returns its slab to the pool.
pub struct ArrayWriter {
    place: WriterMemory,
    len: usize,
}

enum WriterMemory {
    Slab(Option<Slab>, Arc<SlabPool>),
    Own(Option<HostBytes>),
}

impl Drop for WriterMemory {
    fn drop(&mut self) {
        if let WriterMemory::Slab(slab, pool) = self
            && let Some(slab) = slab.take()
        {
            pool.give(slab);
        }
    }
}

impl ArrayWriter {
    /// Creates a writer for the first `len` bytes of a slab of a pool.
    pub fn pooled(pool: &Arc<SlabPool>, len: usize) -> Result<ArrayWriter, OutOfMemory> {
        let place = WriterMemory::Slab(Some(pool.take(pool.row_bytes)?), Arc::clone(pool));
        Ok(ArrayWriter { place, len })
    }

    /// Creates a writer for `len` bytes of new memory.
    pub fn own(len: usize) -> Result<ArrayWriter, OutOfMemory> {
        let place = WriterMemory::Own(Some(HostBytes::zeroed(len)?));
        Ok(ArrayWriter { place, len })
    }

    /// Returns the bytes to write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let whole = match &mut self.place {
            WriterMemory::Slab(slab, _) => slab.as_mut().map_or(&mut [][..], AsMut::as_mut),
            WriterMemory::Own(bytes) => bytes.as_mut().map_or(&mut [][..], |bytes| bytes),
        };
        let len = self.len.min(whole.len());
        &mut whole[..len]
    }

    /// Returns the array. `shape` must not need more bytes than the writer has.
    pub fn finish(self, shape: Vec<usize>, dtype: DType) -> Array {
        let ArrayWriter { mut place, .. } = self;
        let memory = match &mut place {
            WriterMemory::Slab(slab, pool) => {
                pool.live.fetch_add(1, Ordering::Relaxed);
                ArrayMemory::Pooled(PooledSlab {
                    slab: slab.take(),
                    pool: Arc::clone(pool),
                })
            }
            WriterMemory::Own(bytes) => {
                ArrayMemory::Own(bytes.take().expect("it is finished once"))
            }
        };
        Array {
            memory: Arc::new(memory),
            begin: 0,
            shape,
            dtype,
        }
    }
}

/// A sample's row in a batch: one cell per column.
#[derive(Debug, Default)]
pub struct BatchRow {
    /// Cells in column order.
    pub cells: Vec<RowCell>,
    /// Index of the layout of its batch.
    pub form: usize,
}

/// Destination of one value of a sample.
#[derive(Debug)]
pub enum RowCell {
    /// A row of a slab. The worker must overwrite all of it.
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
    forms: Vec<Vec<ColumnSpec>>,
    /// Slab pool by column; None for columns that are kept by row.
    pools: Vec<Option<Arc<SlabPool>>>,
}

/// A batch being filled. Dropping it unfinished, after its rows, recycles its slabs.
#[derive(Debug)]
pub struct InFlightBatch {
    form: usize,
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
        Batcher::of_forms(vec![columns], rows, keep, None)
    }

    /// Creates a batcher with at least one layout. `ready` is applied to every new slab. All
    /// layouts must have the same columns in slabs.
    pub fn of_forms(
        forms: Vec<Vec<ColumnSpec>>,
        rows: usize,
        keep: usize,
        ready: Option<&PrepareSlab>,
    ) -> Batcher {
        let pool = |at: usize| {
            let row_bytes = longest_row(&forms, at)?;
            Some(SlabPool::readied(rows, row_bytes, keep, ready.cloned()))
        };
        let columns = forms.first().map_or(0, Vec::len);
        let pools = (0..columns).map(pool).collect();
        Batcher { forms, pools }
    }

    /// Sizes slabs for these layouts only, from now on.
    pub fn make_room(&self, forms: Range<usize>) {
        let forms = &self.forms[forms];
        for (at, pool) in self.pools.iter().enumerate() {
            if let (Some(pool), Some(row_bytes)) = (pool, longest_row(forms, at)) {
                pool.make_room(row_bytes);
            }
        }
    }

    /// Returns the columns of the first layout.
    pub fn columns(&self) -> &[ColumnSpec] {
        &self.forms[0]
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
        self.begin_as(0, rows)
    }

    /// Like [`Batcher::begin`], in the layout of index `form`.
    pub fn begin_as(
        &self,
        form: usize,
        rows: usize,
    ) -> Result<(InFlightBatch, Vec<BatchRow>), OutOfMemory> {
        let columns = &self.forms[form];
        let mut parts = Vec::with_capacity(columns.len());
        let mut begun: Vec<BatchRow> = Vec::with_capacity(rows);
        begun.resize_with(rows, || BatchRow {
            cells: Vec::with_capacity(columns.len()),
            form,
        });
        for (column, pool) in columns.iter().zip(&self.pools) {
            match (pool, column.kind.row_bytes()) {
                (Some(pool), Some(row_bytes)) => {
                    let (filling, slots) = pool.take(row_bytes)?.into_rows();
                    // A short last batch leaves rows of the slab unused.
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
        Ok((InFlightBatch { form, parts }, begun))
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
        let specs = &self.forms[in_flight.form];
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
        let memory = Arc::new(ArrayMemory::Pooled(PooledSlab::new(slab, &self.pool)));
        let shape = std::iter::once(kept.len())
            .chain(shape.iter().copied())
            .collect();
        Array {
            memory,
            begin: 0,
            shape,
            dtype,
        }
    }
}

#[cfg(test)]
mod tests;
