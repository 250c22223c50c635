//! One batch of memory, cut into rows that are filled in parallel.
//!
//! A [`Slab`] is either whole, and then owned and readable like any buffer, or cut:
//! [`Slab::into_rows`] divides it into one [`Row`] per sample and a [`CutSlab`], which returns the
//! slab when no row is left. Every row shares ownership of the memory, so a row on a thread that
//! outlives everything else stays valid. The memory cannot be read while a row could write it,
//! because reading needs the slab, and the slab exists only after all rows are dropped.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::host::{HostBytes, OutOfMemory};

/// `rows` rows of `row_bytes` bytes each, one after another without gaps, at the beginning of
/// memory that may be longer.
#[derive(Debug)]
pub struct Slab {
    bytes: HostBytes,
    rows: usize,
    /// `rows * row_bytes` is at most the length of `bytes`.
    row_bytes: usize,
}

impl Slab {
    /// Makes a slab of zeros. Its first row is aligned to 64 bytes.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`], also when `rows * row_bytes` overflows.
    pub fn zeroed(rows: usize, row_bytes: usize) -> Result<Slab, OutOfMemory> {
        let failed = OutOfMemory {
            requested_bytes: usize::MAX,
        };
        let len = rows.checked_mul(row_bytes).ok_or(failed)?;
        Ok(Slab {
            bytes: HostBytes::zeroed(len)?,
            rows,
            row_bytes,
        })
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Length of a row in bytes; may be 0.
    pub fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// Divides the same memory into rows of another length, from its beginning, keeping their
    /// number. None if they do not fit.
    pub fn with_rows_of(self, row_bytes: usize) -> Option<Slab> {
        let len = self.rows.checked_mul(row_bytes)?;
        (len <= self.bytes.len()).then_some(Slab { row_bytes, ..self })
    }

    /// The memory itself, for `cuda` to pin.
    #[cfg(feature = "cuda")]
    pub(crate) fn memory_mut(&mut self) -> &mut HostBytes {
        &mut self.bytes
    }

    /// Cuts the slab into rows: row *n* is the *n*-th element of the vector. The rows keep the
    /// slab's contents.
    pub fn into_rows(self) -> (CutSlab, Vec<Row>) {
        let rows = self.rows;
        self.into_runs(rows, 1)
    }

    /// Cuts the first `rows` rows of the slab into runs of `run` neighbouring rows, the last of which
    /// may be shorter. The memory of a run is one [`Row`].
    ///
    /// # Panics
    ///
    /// If the slab has fewer than `rows` rows, or `run` is 0.
    pub fn into_runs(self, rows: usize, run: usize) -> (CutSlab, Vec<Row>) {
        assert!(rows <= self.rows, "a slab of {} rows", self.rows);
        let row_bytes = self.row_bytes;
        let start = self.bytes.start();
        let memory = Arc::new(self.bytes);
        let cut = (0..rows)
            .step_by(run)
            .map(|first| Row {
                // SAFETY: `first` is below `rows`, which is at most the rows of the slab, checked
                // above. The rows of a slab end within the allocation, checked in `zeroed` and in
                // `with_rows_of`, the only functions that set them; so this row and the next ones up
                // to `rows` are inside of the allocation.
                start: unsafe { start.add(first * row_bytes) },
                len: run.min(rows - first) * row_bytes,
                _memory: Arc::clone(&memory),
            })
            .collect();
        let slab = CutSlab {
            memory,
            rows: self.rows,
            row_bytes,
        };
        (slab, cut)
    }
}

impl AsRef<[u8]> for Slab {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsMut<[u8]> for Slab {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

/// One row of a cut [`Slab`], or a run of rows, which its owner can write.
pub struct Row {
    start: NonNull<u8>,
    len: usize,
    /// Keeps the memory alive and, while it exists, the slab cut. It is never dereferenced: a
    /// reference to all bytes would overlap the other rows.
    _memory: Arc<HostBytes>,
}

impl Row {
    /// Returns the bytes of this row. An earlier use of the slab may have left contents in them.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the row is inside of memory that `_memory` keeps alive, initialised at
        // allocation. No other reference overlaps: `into_runs` makes one row per range, a row is
        // not `Clone`, `&mut self` excludes a second slice of this row, and no code reads through
        // the `Arc` until `seal` has verified that every row is dropped.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }

    /// Returns the bytes of this row.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: as in `bytes_mut`; `&self` excludes writes meanwhile.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Row")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

// SAFETY: only a row gives access to its bytes, like a `Box<[u8]>`. The thread that drops the last
// `Arc` frees the shared memory, and `HostBytes` is `Send`.
unsafe impl Send for Row {}
// SAFETY: through a shared reference the bytes are only read.
unsafe impl Sync for Row {}

/// A slab that is cut into rows; becomes a slab again when all rows are dropped.
pub struct CutSlab {
    memory: Arc<HostBytes>,
    rows: usize,
    row_bytes: usize,
}

impl CutSlab {
    /// Whether every row has been dropped, so that [`seal`](CutSlab::seal) would succeed.
    pub fn is_done(&self) -> bool {
        Arc::strong_count(&self.memory) == 1
    }

    /// Returns the slab with its written rows. Never blocks.
    ///
    /// # Errors
    ///
    /// Itself, unchanged, while a row still exists.
    pub fn seal(self) -> Result<Slab, CutSlab> {
        let CutSlab {
            memory,
            rows,
            row_bytes,
        } = self;
        // `try_unwrap` acquires the releases of all dropped `Arc`s: writes through the rows are
        // visible, on whatever thread they were made.
        match Arc::try_unwrap(memory) {
            Ok(bytes) => Ok(Slab {
                bytes,
                rows,
                row_bytes,
            }),
            Err(memory) => Err(CutSlab {
                memory,
                rows,
                row_bytes,
            }),
        }
    }
}

impl fmt::Debug for CutSlab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filling")
            .field("rows", &self.rows)
            .field("row_bytes", &self.row_bytes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;

    #[test]
    fn rows_written_on_many_threads_keep_their_positions() {
        let (filling, rows) = Slab::zeroed(16, 33).unwrap().into_rows();

        let threads: Vec<_> = rows
            .into_iter()
            .enumerate()
            .map(|(n, mut row)| thread::spawn(move || row.bytes_mut().fill(n as u8)))
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());

        let slab = filling.seal().unwrap();
        for (n, row) in slab.as_ref().chunks(33).enumerate() {
            assert_eq!(row, [n as u8; 33]);
        }
    }

    #[test]
    fn runs_have_all_rows_once_and_the_last_run_may_be_shorter() {
        let (filling, mut runs) = Slab::zeroed(9, 3).unwrap().into_runs(7, 4);

        let lengths: Vec<usize> = runs.iter().map(|run| run.bytes().len()).collect();
        for (n, run) in runs.iter_mut().enumerate() {
            run.bytes_mut().fill(n as u8 + 1);
        }
        drop(runs);

        assert_eq!(lengths, [12, 9]);
        let slab = filling.seal().unwrap();
        let expected = [[1; 12].as_slice(), &[2; 9], &[0; 6]].concat();
        assert_eq!((slab.rows(), slab.as_ref()), (9, &expected[..]));
    }

    #[test]
    fn seal_sees_all_writes_whichever_thread_drops_the_last_row() {
        let (mut filling, rows) = Slab::zeroed(4, 8).unwrap().into_rows();
        let (dropped, done) = mpsc::channel();
        for mut row in rows {
            let dropped = dropped.clone();
            thread::spawn(move || {
                row.bytes_mut().fill(9);
                drop(row);
                dropped.send(()).unwrap();
            });
        }

        // Sealed by spinning, without the ordering of a thread join.
        let slab = loop {
            match filling.seal() {
                Ok(slab) => break slab,
                Err(still) => filling = still,
            }
            thread::yield_now();
        };

        assert_eq!(slab.as_ref(), [9; 32]);
        (0..4).for_each(|_| done.recv().unwrap());
    }

    #[test]
    fn a_slab_cannot_be_sealed_while_a_row_exists() {
        let (filling, mut rows) = Slab::zeroed(2, 4).unwrap().into_rows();
        let last = rows.pop();
        drop(rows);

        assert!(!filling.is_done());
        let filling = filling.seal().unwrap_err();

        drop(last);
        assert!(filling.is_done());
        assert_eq!(filling.seal().unwrap().rows(), 2);
    }

    #[test]
    fn a_row_outlives_its_cut_slab() {
        let (filling, mut rows) = Slab::zeroed(3, 4).unwrap().into_rows();
        drop(filling);

        let mut row = rows.remove(1);
        drop(rows);
        row.bytes_mut().fill(1);

        assert_eq!(row.bytes(), [1; 4]);
    }

    #[test]
    fn a_recycled_slab_keeps_its_memory_and_its_contents() {
        let mut slab = Slab::zeroed(2, 2).unwrap();
        slab.as_mut().copy_from_slice(&[1, 2, 3, 4]);
        let address = slab.as_ref().as_ptr();

        let (filling, rows) = slab.into_rows();
        assert_eq!(rows[1].bytes(), [3, 4]);
        drop(rows);

        let slab = filling.seal().unwrap();
        assert_eq!(slab.as_ref().as_ptr(), address);
    }

    #[test]
    fn memory_is_divided_into_rows_of_another_length_if_they_fit() {
        let slab = Slab::zeroed(3, 8).unwrap();
        let address = slab.as_ref().as_ptr();

        let (filling, mut rows) = slab.with_rows_of(2).unwrap().into_rows();
        for (n, row) in rows.iter_mut().enumerate() {
            row.bytes_mut().fill(n as u8 + 1);
        }
        drop(rows);

        let slab = filling.seal().unwrap();
        assert_eq!((slab.rows(), slab.row_bytes()), (3, 2));
        assert_eq!(slab.as_ref()[..7], [1, 1, 2, 2, 3, 3, 0]);
        assert_eq!(slab.as_ref().as_ptr(), address);
        let whole = slab.with_rows_of(8).unwrap();
        assert_eq!(whole.as_ref().len(), 24);
        assert!(whole.with_rows_of(9).is_none());
        assert!(
            Slab::zeroed(3, 8)
                .unwrap()
                .with_rows_of(usize::MAX)
                .is_none()
        );
    }

    #[test]
    fn rows_of_no_bytes_and_slabs_of_no_rows_work() {
        let (filling, mut rows) = Slab::zeroed(3, 0).unwrap().into_rows();
        assert_eq!(rows.len(), 3);
        assert!(rows[2].bytes_mut().is_empty());
        drop(rows);
        assert_eq!(filling.seal().unwrap().row_bytes(), 0);

        let (filling, rows) = Slab::zeroed(0, 10).unwrap().into_rows();
        assert!(rows.is_empty());
        assert!(filling.seal().is_ok());
    }

    #[test]
    fn a_slab_whose_size_overflows_is_out_of_memory() {
        assert!(Slab::zeroed(usize::MAX, 2).is_err());
    }
}
