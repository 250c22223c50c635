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
        // Kept records need no bytes of their own; what is damaged is read alone.
        single_reads(&run)
    }

    fn read(
        &self,
        read: &Read,
        admit: &mut Admit<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<(), ReadError> {
        let mut missing = read.clone();
        missing.records.retain(|&(place, record)| {
            let held = self.held.get(&record);
            if let Some(held) = held {
                sink(place, Ok(held.clone()));
            }
            held.is_none()
        });
        if missing.records.is_empty() {
            return Ok(());
        }
        self.inner.read(&missing, admit, sink)
    }
}
