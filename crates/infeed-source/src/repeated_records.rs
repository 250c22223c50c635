//! Selected records of another source, repeated: for trials on a few hundred of them.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use super::left_out::LeftOut;
use super::{Admission, PythonTime, Read, ReadError, ResidentRows, Sink, Source, single_reads};
use infeed_core::error::Error;
use infeed_core::random::hash;
use infeed_core::sample::{Field, Record, RecordId};

/// Records of another source by their numbers in it, repeated until `len` is reached. Their ids are
/// those of the other source.
#[derive(Debug)]
pub struct RepeatedRecords {
    inner: Arc<dyn Source>,
    records: Vec<u64>,
    len: u64,
    /// Records that are kept in memory.
    held: HashMap<u64, Record>,
}

impl RepeatedRecords {
    /// Repeats `records` of `inner` until there are `len`.
    ///
    /// # Panics
    ///
    /// If `records` is empty, or holds a number that `inner` does not have.
    pub fn new(inner: Arc<dyn Source>, records: Vec<u64>, len: u64) -> RepeatedRecords {
        assert!(!records.is_empty(), "a choice holds a record");
        let known = inner.len();
        assert!(
            records.iter().all(|&record| record < known),
            "in the source"
        );
        RepeatedRecords {
            inner,
            records,
            len,
            held: HashMap::new(),
        }
    }

    /// Like [`RepeatedRecords::new`], but reads the records once and keeps them in memory. Where
    /// storage is slow, only this shows the speed of the CPU cores. Damaged records are read again
    /// each time.
    ///
    /// # Errors
    ///
    /// [`Error::Read`] if the storage fails.
    pub fn in_memory(
        inner: Arc<dyn Source>,
        records: Vec<u64>,
        len: u64,
    ) -> Result<RepeatedRecords, Error> {
        let mut chosen = RepeatedRecords::new(inner, records, len);
        let inner = &*chosen.inner;
        for read in inner.plan(&chosen.records, u64::MAX) {
            inner
                .read(&read, &mut |_| Ok(()), &mut |_, found| {
                    if let Ok(record) = found {
                        chosen.held.insert(record.index, record);
                    }
                })
                .map_err(|error| error.about(inner))?;
        }
        Ok(chosen)
    }

    /// Returns the number of a record in the other source.
    fn number(&self, record: u64) -> u64 {
        self.records[(record % self.records.len() as u64) as usize]
    }
}

impl ResidentRows for RepeatedRecords {
    fn stored_bytes(&self, record: u64, field: usize) -> Option<&[u8]> {
        let rows = self.inner.resident()?;
        rows.stored_bytes(self.number(record), field)
    }

    fn copy(&self, record: u64, field: usize, to: &mut [u8]) -> bool {
        let rows = self.inner.resident();
        rows.is_some_and(|rows| rows.copy(self.number(record), field, to))
    }

    fn is_mapped(&self) -> bool {
        self.inner.resident().is_some_and(|rows| rows.is_mapped())
    }
}

impl Source for RepeatedRecords {
    fn fields(&self) -> &[Field] {
        self.inner.fields()
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn fingerprint(&self) -> u64 {
        hash(&[self.inner.fingerprint(), self.len, hash(&self.records)])
    }

    fn id(&self, record: u64, field: Option<usize>) -> RecordId {
        // Read errors name records as the inner source does, so ids need no translation.
        self.inner.id(record, field)
    }

    fn files(&self, record: u64) -> Vec<PathBuf> {
        self.inner.files(record)
    }

    fn local_files(&self, record: u64) -> Vec<PathBuf> {
        self.inner.local_files(record)
    }

    fn field_in_memory(&self, record: u64, field: usize) -> Option<Bytes> {
        self.inner.field_in_memory(record, field)
    }

    fn classes(&self) -> Option<&[String]> {
        self.inner.classes()
    }

    fn left_out(&self) -> Vec<LeftOut> {
        self.inner.left_out()
    }

    fn run_length(&self) -> u64 {
        self.inner.run_length()
    }

    fn resident(&self) -> Option<&dyn ResidentRows> {
        self.inner.resident().is_some().then_some(self)
    }

    fn python(&self) -> Option<PythonTime> {
        self.inner.python()
    }

    fn parallel_reads(&self) -> Option<usize> {
        self.inner.parallel_reads()
    }

    fn plan(&self, run: &[u64], room_bytes: u64) -> Vec<Read> {
        let run: Vec<u64> = run.iter().map(|&record| self.number(record)).collect();
        if self.held.is_empty() {
            return self.inner.plan(&run, room_bytes);
        }
        // Kept records hold no further bytes. Damaged records are read as the inner source plans
        // them, since it defines the keys of reads.
        let (kept, missing): (Vec<usize>, Vec<usize>) =
            (0..run.len()).partition(|&position| self.held.contains_key(&run[position]));
        let of = |positions: &[usize]| {
            positions
                .iter()
                .map(|&position| run[position])
                .collect::<Vec<u64>>()
        };
        let mut reads = translate_positions(single_reads(&of(&kept)), &kept);
        if !missing.is_empty() {
            let planned = self.inner.plan(&of(&missing), room_bytes);
            reads.extend(translate_positions(planned, &missing));
        }
        reads
    }

    fn read(
        &self,
        read: &Read,
        admit: &mut Admission<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<(), ReadError> {
        let kept = |&(_, record): &(usize, u64)| self.held.contains_key(&record);
        if !read.records.iter().any(kept) {
            return self.inner.read(read, admit, sink);
        }
        // A read holds either kept records or others, never both.
        for &(position, record) in &read.records {
            if let Some(held) = self.held.get(&record) {
                sink(position, Ok(held.clone()));
            }
        }
        Ok(())
    }
}

/// Translates the positions of reads from a part of a run to the whole run.
fn translate_positions(mut reads: Vec<Read>, positions: &[usize]) -> Vec<Read> {
    for read in &mut reads {
        for (position, _) in &mut read.records {
            *position = positions[*position];
        }
    }
    reads
}
