//! Arrays of numbers, and their memory: a slab of a pool, or other bytes.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use infeed_raw::host::{HostBytes, OutOfMemory};
use infeed_raw::slab::Slab;

use super::pool::{PooledSlab, SlabPool};
use crate::sample::DType;

/// Numbers of one type and shape, row-major without gaps. Clones share the memory.
#[derive(Clone)]
pub struct Array {
    pub(super) memory: Arc<ArrayMemory>,
    /// Offset of the first element in the memory, in bytes.
    begin: usize,
    shape: Vec<usize>,
    dtype: DType,
}

pub(super) enum ArrayMemory {
    Pooled(PooledSlab),
    Slab(Slab),
    Own(HostBytes),
    Returnable(Vec<u8>),
}

impl Array {
    pub(super) fn over(memory: ArrayMemory, shape: Vec<usize>, dtype: DType) -> Array {
        Array {
            memory: Arc::new(memory),
            begin: 0,
            shape,
            dtype,
        }
    }

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
            ArrayMemory::Returnable(bytes) => bytes,
        };
        let len = self.shape.iter().product::<usize>() * self.dtype.bytes();
        &whole[self.begin..self.begin + len]
    }

    /// Returns the bytes of the items from `begin` to `end` on the first axis; `None` if there are
    /// fewer items.
    pub fn items(&self, begin: usize, end: usize) -> Option<&[u8]> {
        let item = self.shape.iter().skip(1).product::<usize>() * self.dtype.bytes();
        self.bytes()
            .get(begin.checked_mul(item)?..end.checked_mul(item)?)
    }

    /// Copies `bytes` to an array in new memory.
    ///
    /// # Errors
    ///
    /// If the memory cannot be allocated.
    pub fn own(bytes: &[u8], shape: Vec<usize>, dtype: DType) -> Result<Array, OutOfMemory> {
        let mut memory = HostBytes::zeroed(bytes.len())?;
        memory.copy_from_slice(bytes);
        Ok(Array::over(ArrayMemory::Own(memory), shape, dtype))
    }

    /// Creates an array over a slab without a pool. None if the slab is too small for the shape.
    pub fn of_slab(slab: Slab, shape: Vec<usize>, dtype: DType) -> Option<Array> {
        let needed = shape
            .iter()
            .try_fold(dtype.bytes(), |bytes, &n| bytes.checked_mul(n))?;
        (needed <= slab.as_ref().len()).then(|| Array::over(ArrayMemory::Slab(slab), shape, dtype))
    }

    /// Creates an array over bytes that [`Array::give_back`] can return. None if there are too few
    /// bytes for the shape.
    pub fn from_returnable(bytes: Vec<u8>, shape: Vec<usize>, dtype: DType) -> Option<Array> {
        let needed = shape
            .iter()
            .try_fold(dtype.bytes(), |bytes, &n| bytes.checked_mul(n))?;
        (needed <= bytes.len()).then(|| Array::over(ArrayMemory::Returnable(bytes), shape, dtype))
    }

    /// Returns the bytes given to [`Array::from_returnable`]. None if the array has other memory, or another
    /// clone of it exists.
    pub fn give_back(self) -> Option<Vec<u8>> {
        match Arc::try_unwrap(self.memory) {
            Ok(ArrayMemory::Returnable(bytes)) => Some(bytes),
            _ => None,
        }
    }

    /// Returns the rows of a range, over the same memory. The range must be inside the array.
    pub(super) fn rows(&self, range: Range<usize>) -> Array {
        let row: usize = self.shape.iter().skip(1).product::<usize>() * self.dtype.bytes();
        let mut shape = self.shape.clone();
        if let Some(rows) = shape.first_mut() {
            *rows = range.len();
        }
        Array {
            memory: self.memory.clone(),
            begin: self.begin + range.start * row,
            shape,
            dtype: self.dtype,
        }
    }

    /// Returns the elements of an Int64 array.
    pub(super) fn integers(&self) -> impl Iterator<Item = i64> {
        let word = |bytes: &[u8]| bytes.try_into().map_or(0, i64::from_ne_bytes);
        self.bytes().chunks_exact(8).map(word)
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
    pub fn from_pool(pool: &Arc<SlabPool>, len: usize) -> Result<ArrayWriter, OutOfMemory> {
        let place = WriterMemory::Slab(Some(pool.take_longest()?), Arc::clone(pool));
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
                let slab = slab.take().expect("it is finished once");
                ArrayMemory::Pooled(PooledSlab::new(slab, pool))
            }
            WriterMemory::Own(bytes) => {
                ArrayMemory::Own(bytes.take().expect("it is finished once"))
            }
        };
        Array::over(memory, shape, dtype)
    }
}
