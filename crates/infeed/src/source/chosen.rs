//! Some records of another source, again and again: for trials on a few hundred of them.

use std::path::PathBuf;
use std::sync::Arc;

use super::{Admit, Read, ReadError, Sink, Source};
use crate::sample::{Field, RecordId};

/// Records of another source by their numbers there, repeated until `len` is reached. Their ids
/// stay those of the other source.
#[derive(Debug)]
pub struct Chosen {
    inner: Arc<dyn Source>,
    records: Vec<u64>,
    len: u64,
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
        }
    }
}

impl Source for Chosen {
    fn fields(&self) -> &[Field] {
        self.inner.fields()
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn id(&self, record: u64, field: Option<usize>) -> RecordId {
        // Reads name records as the other source does, so ids need no translation.
        self.inner.id(record, field)
    }

    fn files(&self, record: u64) -> Vec<PathBuf> {
        self.inner.files(record)
    }

    fn classes(&self) -> Option<&[String]> {
        self.inner.classes()
    }

    fn run_length(&self) -> u64 {
        self.inner.run_length()
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
        self.inner.plan(&run, room_bytes)
    }

    fn read(
        &self,
        read: &Read,
        admit: &mut Admit<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<(), ReadError> {
        self.inner.read(read, admit, sink)
    }
}
