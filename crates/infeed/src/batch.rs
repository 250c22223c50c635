//! Samples into the rows of slabs: a batch is complete when its rows are, without a copy.
//!
//! A field of fixed shape is one slab, cut into rows that workers fill in place; a slab goes back
//! to its pool when the last array that views it is dropped. Fields whose size differs by record
//! (padded images, lists, text) are kept by row and gathered when the batch is full.

mod parts;
mod room;
mod sealed;

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use infeed_raw::host::{HostBytes, OutOfMemory};
use infeed_raw::slab::{Filling, Row, Slab};

use crate::sample::DType;

pub(crate) use room::Ready;
use room::longest_row;

/// What one column of a batch holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnSpec {
    /// Name of the field.
    pub name: String,
    /// Its values.
    pub kind: ColumnKind,
}

/// Values of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// Every row has this shape: an array `[rows, shape…]`.
    Fixed {
        /// Element type.
        dtype: DType,
        /// Shape of one row.
        shape: Vec<usize>,
    },
    /// Rows of equal rank and differing sizes, padded with zeros at the end of every axis to the
    /// largest of the batch: an array `[rows, …]`.
    Padded {
        /// Element type.
        dtype: DType,
        /// Number of axes of one row.
        rank: usize,
    },
    /// Lists of numbers: all values behind each other, and offsets.
    Ragged {
        /// Element type.
        dtype: DType,
    },
    /// Bytes.
    Bytes,
    /// UTF-8.
    Text,
}

impl ColumnKind {
    /// Bytes of a row that lies in a slab; none for kinds kept by row.
    pub fn row_bytes(&self) -> Option<usize> {
        match self {
            ColumnKind::Fixed { dtype, shape } => {
                Some(shape.iter().product::<usize>() * dtype.bytes())
            }
            _ => None,
        }
    }
}

/// Stands for the number of a record in rows of padding, which have none.
pub const PADDING: u64 = u64::MAX;

/// One step's samples: an array a field, and the numbers of the records they came from.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Columns in field order.
    pub columns: Vec<Column>,
    /// Number of each row's record in the source; a substitute's own, where one stands in;
    /// [`PADDING`] in rows that only fill the batch up.
    pub records: Vec<u64>,
    /// Epoch, from 0.
    pub epoch: u64,
    /// Step in the epoch, from 0.
    pub step: u64,
}

impl Batch {
    /// The column of a field.
    pub fn get(&self, name: &str) -> Option<&Values> {
        self.columns
            .iter()
            .find(|column| column.name == name)
            .map(|column| &column.values)
    }

    /// The array of a field of numbers.
    pub fn array(&self, name: &str) -> Option<&Array> {
        match self.get(name)? {
            Values::Array(array) => Some(array),
            _ => None,
        }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.records.len()
    }

    /// Number of rows that hold a record.
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
    /// Its values.
    pub values: Values,
}

/// The values of a column.
#[derive(Clone, Debug)]
pub enum Values {
    /// Numbers, `[rows, …]`.
    Array(Array),
    /// Row `i` is `values[offsets[i]..offsets[i + 1]]`.
    Ragged {
        /// All numbers, `[n]`.
        values: Array,
        /// Int64, `[rows + 1]`.
        offsets: Array,
    },
    /// One entry a row.
    Bytes(Vec<Vec<u8>>),
    /// One entry a row.
    Text(Vec<String>),
}

/// Numbers of one type and shape, row-major without gaps; cloning shares the memory.
#[derive(Clone)]
pub struct Array {
    memory: Arc<Memory>,
    /// Byte of the memory at which it begins.
    begin: usize,
    shape: Vec<usize>,
    dtype: DType,
}

enum Memory {
    Pooled(Pooled),
    Slab(Slab),
    Own(HostBytes),
    Lent(Vec<u8>),
}

impl Array {
    /// Lengths of the axes.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The elements, little-endian on the machines that are supported.
    pub fn bytes(&self) -> &[u8] {
        let whole = match &*self.memory {
            Memory::Pooled(pooled) => pooled.slab.as_ref().map_or(&[][..], AsRef::as_ref),
            Memory::Slab(slab) => slab.as_ref(),
            Memory::Own(bytes) => bytes,
            Memory::Lent(bytes) => bytes,
        };
        let len = self.shape.iter().product::<usize>() * self.dtype.bytes();
        &whole[self.begin..self.begin + len]
    }

    /// An array with memory of its own.
    ///
    /// # Errors
    ///
    /// If there is no memory.
    pub(crate) fn own(bytes: &[u8], shape: Vec<usize>, dtype: DType) -> Result<Array, OutOfMemory> {
        let mut memory = HostBytes::zeroed(bytes.len())?;
        memory.copy_from_slice(bytes);
        Ok(Array {
            memory: Arc::new(Memory::Own(memory)),
            begin: 0,
            shape,
            dtype,
        })
    }

    /// An array over a slab that is in no pool; None if it is shorter than the shape takes.
    pub(crate) fn of_slab(slab: Slab, shape: Vec<usize>, dtype: DType) -> Option<Array> {
        let needed = shape
            .iter()
            .try_fold(dtype.bytes(), |bytes, &n| bytes.checked_mul(n))?;
        (needed <= slab.as_ref().len()).then(|| Array {
            memory: Arc::new(Memory::Slab(slab)),
            begin: 0,
            shape,
            dtype,
        })
    }

    /// An array over bytes that are lent to others; None if they are fewer than its shape takes.
    pub(crate) fn lent(bytes: Vec<u8>, shape: Vec<usize>, dtype: DType) -> Option<Array> {
        let needed = shape
            .iter()
            .try_fold(dtype.bytes(), |bytes, &n| bytes.checked_mul(n))?;
        (needed <= bytes.len()).then(|| Array {
            memory: Arc::new(Memory::Lent(bytes)),
            begin: 0,
            shape,
            dtype,
        })
    }

    /// The bytes that were lent, if nobody else holds on to them.
    pub(crate) fn give_back(self) -> Option<Vec<u8>> {
        match Arc::try_unwrap(self.memory) {
            Ok(Memory::Lent(bytes)) => Some(bytes),
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

/// Slabs of one size, used again and again.
///
/// Memory fresh from the operating system costs a page fault every 4 KiB; loaders that allocate
/// each batch anew are bound by that.
#[derive(Debug)]
pub struct Pool {
    rows: usize,
    /// Of the longest rows that it is for.
    row_bytes: usize,
    ready: Option<Ready>,
    /// Free slabs kept at most.
    keep: usize,
    free: Mutex<Free>,
    /// Slabs in finished batches.
    live: AtomicUsize,
}

impl Pool {
    /// A pool of slabs of `rows` rows, of which `keep` are kept while free.
    pub fn new(rows: usize, row_bytes: usize, keep: usize) -> Arc<Pool> {
        Pool::readied(rows, row_bytes, keep, None)
    }

    fn readied(rows: usize, row_bytes: usize, keep: usize, ready: Option<Ready>) -> Arc<Pool> {
        let free = Mutex::new(Free {
            slabs: VecDeque::new(),
            made: 0,
            room: row_bytes,
        });
        Arc::new(Pool {
            rows,
            row_bytes,
            ready,
            keep,
            free,
            live: AtomicUsize::new(0),
        })
    }

    /// Bytes of one slab, at most.
    pub fn slab_bytes(&self) -> u64 {
        self.rows as u64 * self.row_bytes as u64
    }

    /// Finished batches that are not dropped yet.
    pub fn live(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }

    /// A slab with rows of so many bytes.
    fn take(&self, row_bytes: usize) -> Result<Slab, OutOfMemory> {
        let mut free = self.lock();
        let size = self.rows * free.room;
        // One of another size goes for each that is made, and not all at once in a consumer's call.
        let is_other = |slab: &Slab| slab.as_ref().len() != size;
        let other = match free.slabs.front() {
            Some(first) if is_other(first) => free.slabs.pop_front(),
            _ => None,
        };
        // All are made before one is used again, and the one that rested longest goes first, so
        // that memory reaches its height in the first steps and stays there.
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
        if let Some(Ready(ready)) = &self.ready {
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

    /// Lets slabs have room for rows of so many bytes from now on. Others go as these are made.
    fn make_room(&self, row_bytes: usize) {
        let mut free = self.lock();
        if std::mem::replace(&mut free.room, row_bytes) != row_bytes {
            free.made = 0;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Slabs at rest.
#[derive(Debug)]
struct Free {
    slabs: VecDeque<Slab>,
    /// How many were made of this size.
    made: usize,
    /// Bytes of a row that slabs have room for.
    room: usize,
}

/// A slab in a batch; goes back to its pool when dropped.
struct Pooled {
    slab: Option<Slab>,
    pool: Arc<Pool>,
}

impl Pooled {
    fn new(slab: Slab, pool: &Arc<Pool>) -> Pooled {
        pool.live.fetch_add(1, Ordering::Relaxed);
        Pooled {
            slab: Some(slab),
            pool: Arc::clone(pool),
        }
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        self.pool.live.fetch_sub(1, Ordering::Relaxed);
        if let Some(slab) = self.slab.take() {
            self.pool.give(slab);
        }
    }
}

/// An array that is being written; dropped unfinished, it gives its slab back.
pub(crate) struct Making {
    place: Place,
    len: usize,
}

enum Place {
    Slab(Option<Slab>, Arc<Pool>),
    Own(Option<HostBytes>),
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Place::Slab(slab, pool) = self
            && let Some(slab) = slab.take()
        {
            pool.give(slab);
        }
    }
}

impl Making {
    /// In a slab of a pool, of which it takes `len` bytes at most.
    pub(crate) fn pooled(pool: &Arc<Pool>, len: usize) -> Result<Making, OutOfMemory> {
        let place = Place::Slab(Some(pool.take(pool.row_bytes)?), Arc::clone(pool));
        Ok(Making { place, len })
    }

    /// In memory of its own.
    pub(crate) fn own(len: usize) -> Result<Making, OutOfMemory> {
        let place = Place::Own(Some(HostBytes::zeroed(len)?));
        Ok(Making { place, len })
    }

    /// Its bytes.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let whole = match &mut self.place {
            Place::Slab(slab, _) => slab.as_mut().map_or(&mut [][..], AsMut::as_mut),
            Place::Own(bytes) => bytes.as_mut().map_or(&mut [][..], |bytes| bytes),
        };
        let len = self.len.min(whole.len());
        &mut whole[..len]
    }

    /// The array, whose shape takes no more bytes than were asked for.
    pub(crate) fn finish(self, shape: Vec<usize>, dtype: DType) -> Array {
        let Making { mut place, .. } = self;
        let memory = match &mut place {
            Place::Slab(slab, pool) => {
                pool.live.fetch_add(1, Ordering::Relaxed);
                Memory::Pooled(Pooled {
                    slab: slab.take(),
                    pool: Arc::clone(pool),
                })
            }
            Place::Own(bytes) => Memory::Own(bytes.take().expect("it is finished once")),
        };
        Array {
            memory: Arc::new(memory),
            begin: 0,
            shape,
            dtype,
        }
    }
}

/// A sample's place in a batch: one cell a column.
#[derive(Debug, Default)]
pub struct BatchRow {
    /// Cells in column order.
    pub cells: Vec<Cell>,
    /// Which form its batch has.
    pub(crate) form: usize,
}

/// Where one value of a sample goes.
#[derive(Debug)]
pub enum Cell {
    /// A row of a slab, to be overwritten whole.
    Slab(Row),
    /// Bytes of its own, with their shape where the column is padded.
    Own {
        /// Lengths of the axes (padded columns only).
        shape: Vec<usize>,
        /// The elements.
        bytes: Vec<u8>,
    },
}

/// Columns and pools of the batches of one pipeline.
///
/// A batch has one of several forms, if there are several: the same columns, with rows of another type
/// and shape where a device makes the rest of them. Forms share their slabs.
#[derive(Debug)]
pub struct Batcher {
    /// The columns of each form.
    forms: Vec<Vec<ColumnSpec>>,
    /// One for each column that lies in slabs.
    pools: Vec<Option<Arc<Pool>>>,
}

/// A batch being filled. Dropped unfinished, after its rows, it recycles its slabs.
#[derive(Debug)]
pub struct Tray {
    form: usize,
    parts: Vec<Option<Part>>,
}

#[derive(Debug)]
struct Part {
    filling: Option<Filling>,
    pool: Arc<Pool>,
}

impl Drop for Part {
    fn drop(&mut self) {
        if let Some(Ok(slab)) = self.filling.take().map(Filling::seal) {
            self.pool.give(slab);
        }
    }
}

/// What a filled row leaves for the batch.
#[derive(Debug)]
pub struct RowDone {
    /// Number of the record in the source.
    pub record: u64,
    /// The cells that lie in no slab, in column order; the others are None.
    pub own: Vec<Option<(Vec<usize>, Vec<u8>)>>,
}

impl BatchRow {
    /// Takes what lies in no slab; the slab's rows are given up when the row is dropped.
    pub fn finish(&mut self, record: u64) -> RowDone {
        let own = self.cells.iter_mut().map(|cell| match cell {
            Cell::Slab(_) => None,
            Cell::Own { shape, bytes } => Some((std::mem::take(shape), std::mem::take(bytes))),
        });
        RowDone {
            record,
            own: own.collect(),
        }
    }

    /// Makes it a row of padding: zeros, and nothing in columns that are kept by row.
    pub fn blank(&mut self) -> RowDone {
        for cell in &mut self.cells {
            match cell {
                Cell::Slab(row) => row.bytes_mut().fill(0),
                Cell::Own { shape, bytes } => {
                    shape.clear();
                    bytes.clear();
                }
            }
        }
        self.finish(PADDING)
    }
}

impl Batcher {
    /// Batches of at most `rows` rows; `keep` free slabs a column are kept.
    pub fn new(columns: Vec<ColumnSpec>, rows: usize, keep: usize) -> Batcher {
        Batcher::of_forms(vec![columns], rows, keep, None)
    }

    /// Batches of several forms, at least one, with something to do to every new slab. All forms have
    /// the same columns in slabs.
    pub(crate) fn of_forms(
        forms: Vec<Vec<ColumnSpec>>,
        rows: usize,
        keep: usize,
        ready: Option<&Ready>,
    ) -> Batcher {
        let pool = |at: usize| {
            let row_bytes = longest_row(&forms, at)?;
            Some(Pool::readied(rows, row_bytes, keep, ready.cloned()))
        };
        let columns = forms.first().map_or(0, Vec::len);
        let pools = (0..columns).map(pool).collect();
        Batcher { forms, pools }
    }

    /// Lets slabs have room for rows of these forms, and for no others, from now on.
    pub(crate) fn make_room(&self, forms: Range<usize>) {
        let forms = &self.forms[forms];
        for (at, pool) in self.pools.iter().enumerate() {
            if let (Some(pool), Some(row_bytes)) = (pool, longest_row(forms, at)) {
                pool.make_room(row_bytes);
            }
        }
    }

    /// The columns, of the first form.
    pub fn columns(&self) -> &[ColumnSpec] {
        &self.forms[0]
    }

    /// Bytes of the slabs of one batch, of whatever form.
    pub fn slab_bytes(&self) -> u64 {
        self.pools
            .iter()
            .flatten()
            .map(|pool| pool.slab_bytes())
            .sum()
    }

    /// Finished batches that are not dropped yet.
    pub fn live(&self) -> usize {
        self.pools
            .iter()
            .flatten()
            .map(|pool| pool.live())
            .max()
            .unwrap_or(0)
    }

    /// Begins a batch of `rows` rows, of the first form.
    ///
    /// # Errors
    ///
    /// If no slab is free and the operating system gives none.
    pub fn begin(&self, rows: usize) -> Result<(Tray, Vec<BatchRow>), OutOfMemory> {
        self.begin_as(0, rows)
    }

    /// As [`Batcher::begin`], of another form.
    pub(crate) fn begin_as(
        &self,
        form: usize,
        rows: usize,
    ) -> Result<(Tray, Vec<BatchRow>), OutOfMemory> {
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
                        row.cells.push(Cell::Slab(slot));
                    }
                    parts.push(Some(Part {
                        filling: Some(filling),
                        pool: Arc::clone(pool),
                    }));
                }
                _ => {
                    for row in &mut begun {
                        row.cells.push(Cell::Own {
                            shape: Vec::new(),
                            bytes: Vec::new(),
                        });
                    }
                    parts.push(None);
                }
            }
        }
        Ok((Tray { form, parts }, begun))
    }

    /// Makes the batch of a tray whose rows were all dropped. A row that is None is left out and
    /// those after it close up.
    ///
    /// # Errors
    ///
    /// If gathered columns get no memory.
    pub fn finish(
        &self,
        mut tray: Tray,
        mut rows: Vec<Option<RowDone>>,
        epoch: u64,
        step: u64,
    ) -> Result<Batch, OutOfMemory> {
        let kept: Vec<usize> = (0..rows.len()).filter(|&row| rows[row].is_some()).collect();
        let specs = &self.forms[tray.form];
        let mut columns = Vec::with_capacity(specs.len());
        for (at, (spec, part)) in specs.iter().zip(&mut tray.parts).enumerate() {
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

impl Part {
    /// The slab as an array of the kept rows, moved together.
    fn close_up(&mut self, kept: &[usize], dtype: DType, shape: &[usize]) -> Array {
        let filling = self.filling.take().expect("a part is closed once");
        let mut slab = filling
            .seal()
            .expect("the conveyor drops all rows before it closes a tray");
        let row = slab.row_bytes();
        for (to, &from) in kept.iter().enumerate() {
            if from != to {
                slab.as_mut()
                    .copy_within(from * row..(from + 1) * row, to * row);
            }
        }
        let memory = Arc::new(Memory::Pooled(Pooled::new(slab, &self.pool)));
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

fn gather(kind: &ColumnKind, rows: Vec<(Vec<usize>, Vec<u8>)>) -> Result<Values, OutOfMemory> {
    let values = rows.iter().map(|(_, bytes)| bytes);
    Ok(match kind {
        ColumnKind::Bytes => Values::Bytes(rows.into_iter().map(|(_, bytes)| bytes).collect()),
        ColumnKind::Text => {
            let text = |(_, bytes): (_, Vec<u8>)| String::from_utf8_lossy(&bytes).into_owned();
            Values::Text(rows.into_iter().map(text).collect())
        }
        ColumnKind::Ragged { dtype } => {
            let mut offsets = vec![0_i64];
            let mut all = Vec::new();
            for bytes in values {
                all.extend_from_slice(bytes);
                offsets.push((all.len() / dtype.bytes()) as i64);
            }
            let count = all.len() / dtype.bytes();
            let starts: Vec<u8> = offsets
                .iter()
                .flat_map(|offset| offset.to_ne_bytes())
                .collect();
            Values::Ragged {
                values: Array::own(&all, vec![count], *dtype)?,
                offsets: Array::own(&starts, vec![offsets.len()], DType::Int64)?,
            }
        }
        ColumnKind::Padded { dtype, rank } => Values::Array(pad(&rows, *dtype, *rank)?),
        ColumnKind::Fixed { .. } => unreachable!("fixed columns lie in slabs"),
    })
}

/// One array as large as the largest row along every axis, zeros beyond each row's own part.
fn pad(rows: &[(Vec<usize>, Vec<u8>)], dtype: DType, rank: usize) -> Result<Array, OutOfMemory> {
    let mut largest = vec![0; rank];
    for (shape, _) in rows {
        for (largest, &length) in largest.iter_mut().zip(shape) {
            *largest = length.max(*largest);
        }
    }
    let row_bytes = largest.iter().product::<usize>() * dtype.bytes();
    let mut memory = HostBytes::zeroed(rows.len() * row_bytes)?;
    for ((shape, bytes), row) in rows.iter().zip(memory.chunks_exact_mut(row_bytes.max(1))) {
        // A row of padding has no shape.
        if shape.len() < rank {
            continue;
        }
        // Copies runs along the last axis, `at` counting through the axes before it.
        let run = shape.last().copied().unwrap_or(1) * dtype.bytes();
        let outer = &shape[..rank.saturating_sub(1)];
        let mut at = vec![0; outer.len()];
        for source in bytes.chunks_exact(run.max(1)) {
            let index = at
                .iter()
                .zip(&largest)
                .fold(0, |index, (&i, &n)| index * n + i);
            let to = index * largest.last().copied().unwrap_or(1) * dtype.bytes();
            row[to..to + run].copy_from_slice(source);
            for axis in (0..outer.len()).rev() {
                at[axis] += 1;
                if at[axis] < outer[axis] {
                    break;
                }
                at[axis] = 0;
            }
        }
    }
    let shape = std::iter::once(rows.len()).chain(largest).collect();
    Ok(Array {
        memory: Arc::new(Memory::Own(memory)),
        begin: 0,
        shape,
        dtype,
    })
}

#[cfg(test)]
mod tests;
