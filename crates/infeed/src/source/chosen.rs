//! Some records of another source, again and again: for trials on a few hundred of them.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::{Admit, PythonTime, Read, ReadError, Sink, Source, single_reads};
use crate::error::Error;
use crate::random::hash;
use crate::sample::{Field, Record, RecordId};

/// Records of another source by their numbers there, repeated until `len` is reached. Their ids
/// stay those of the other source.
#[derive(Debug)]
pub struct Chosen {
    inner: Arc<dyn Source>,
    records: Vec<u64>,
    len: u64,
    /// Their bytes, if they are kept.
    held: HashMap<u64, Record>,
}

impl Chosen {
    /// `records` of `inner`, over and over until there are `len`.
    ///
    /// # Panics
    ///
    /// If there are no records, or one is not in `inner`.
    pub fn new(inner: Arc<dyn Source>, records: Vec<u64>, len: u64) -> Chosen {
        assert!(!records.is_empty(), "a choice holds a record");
        let known = inner.len();
        assert!(
            records.iter().all(|&record| record < known),
            "in the source"
        );
        Chosen {
            inner,
            records,
            len,
            held: HashMap::new(),
        }
    }

    /// As [`Chosen::new`], the records read once and kept in memory: where they lie far away, what
    /// the cores give shows only so. Those that are damaged are read again each time.
    ///
    /// # Errors
    ///
    /// [`Error::Read`] if the storage fails.
    pub fn held(inner: Arc<dyn Source>, records: Vec<u64>, len: u64) -> Result<Chosen, Error> {
        let mut chosen = Chosen::new(inner, records, len);
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
}

impl Source for Chosen {
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
        // Reads name records as the other source does, so ids need no translation.
        self.inner.id(record, field)
    }

    fn files(&self, record: u64) -> Vec<PathBuf> {
        self.inner.files(record)
    }

    fn places(&self, record: u64) -> Vec<PathBuf> {
        self.inner.places(record)
    }

    fn classes(&self) -> Option<&[String]> {
        self.inner.classes()
    }

    fn run_length(&self) -> u64 {
        self.inner.run_length()
    }

    fn python(&self) -> Option<PythonTime> {
        self.inner.python()
    }

    fn parallel_reads(&self) -> Option<usize> {
        self.inner.parallel_reads()
    }

    fn plan(&self, run: &[u64], room_bytes: u64) -> Vec<Read> {
        let count = self.records.len() as u64;
        let run: Vec<u64> = run
            .iter()
            .map(|number| self.records[(number % count) as usize])
            .collect();
        if self.held.is_empty() {
            return self.inner.plan(&run, room_bytes);
        }
        // Kept records need no bytes of their own; what is damaged is read as its source plans it,
        // since the keys of reads are the source's own.
        let (kept, missing): (Vec<usize>, Vec<usize>) =
            (0..run.len()).partition(|&place| self.held.contains_key(&run[place]));
        let of = |places: &[usize]| places.iter().map(|&place| run[place]).collect::<Vec<u64>>();
        let mut reads = placed(single_reads(&of(&kept)), &kept);
        if !missing.is_empty() {
            let planned = self.inner.plan(&of(&missing), room_bytes);
            reads.extend(placed(planned, &missing));
        }
        reads
    }

    fn read(
        &self,
        read: &Read,
        admit: &mut Admit<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<(), ReadError> {
        let kept = |&(_, record): &(usize, u64)| self.held.contains_key(&record);
        if !read.records.iter().any(kept) {
            return self.inner.read(read, admit, sink);
        }
        // A read holds kept records or others, never both.
        for &(place, record) in &read.records {
            if let Some(held) = self.held.get(&record) {
                sink(place, Ok(held.clone()));
            }
        }
        Ok(())
    }
}

/// Reads of a part of a run, with the places that its records have in the whole.
fn placed(mut reads: Vec<Read>, places: &[usize]) -> Vec<Read> {
    for read in &mut reads {
        for (place, _) in &mut read.records {
            *place = places[*place];
        }
    }
    reads
}
