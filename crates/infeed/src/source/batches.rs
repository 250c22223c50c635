//! Record batches that are in memory already, such as those of a table of another library.

use std::io;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::Schema;
use bytes::Bytes;

use super::columns::rows::{Rows, first_bytes, words};
use super::columns::{Columns, First, Wanted};
use super::memory::{resident_reads, touch};
use super::{Admit, Read, ReadError, Sink, Source, is_label, whole};
use crate::error::Error;
use crate::sample::{Field, FieldKind, Record, RecordId};

/// Record batches in memory, one after another.
#[derive(Debug)]
pub struct Batches {
    /// What they are called in names of records, such as `table`.
    name: String,
    columns: Columns,
    batches: Vec<Rows>,
    /// One past the last record of each.
    ends: Vec<u64>,
    record_bytes: usize,
}

impl Batches {
    /// Takes batches of one schema.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for columns that are not there or cannot be what is wanted, or if there
    /// are no rows.
    pub fn new(
        name: impl Into<String>,
        schema: &Schema,
        batches: &[RecordBatch],
        wanted: &[Wanted],
    ) -> Result<Batches, Error> {
        let name = name.into();
        let mut first = FirstOf {
            name: &name,
            batches,
        };
        let columns = Columns::choose(schema, wanted, &mut first)?;
        let (mut rows, mut ends, mut end) = (Vec::new(), Vec::new(), 0_u64);
        for batch in batches.iter().filter(|batch| batch.num_rows() > 0) {
            end += batch.num_rows() as u64;
            ends.push(end);
            let made = Rows::new(batch, &columns);
            rows.push(made.map_err(|problem| Error::config("source", problem))?);
        }
        if end == 0 {
            return Err(Error::config("source", "the table has no rows"));
        }
        let bytes: usize = batches.iter().map(RecordBatch::get_array_memory_size).sum();
        Ok(Batches {
            name,
            columns,
            batches: rows,
            ends,
            record_bytes: bytes / end as usize,
        })
    }

    /// The batch of a record, and its row there.
    fn place(&self, record: u64) -> (usize, usize) {
        let at = self.ends.partition_point(|&end| end <= record);
        let first = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        (at, (record - first) as usize)
    }
}

impl Source for Batches {
    fn fields(&self) -> &[Field] {
        self.columns.fields()
    }

    fn len(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    fn id(&self, record: u64, _field: Option<usize>) -> RecordId {
        RecordId {
            index: record,
            name: format!("row {record} of {}", self.name),
        }
    }

    fn classes(&self) -> Option<&[String]> {
        self.columns.classes()
    }

    fn label(&self, record: u64) -> Option<i64> {
        let at = self.fields().iter().position(is_label)?;
        let FieldKind::Tensor { dtype, .. } = self.fields()[at].kind else {
            return None;
        };
        let (batch, row) = self.place(record);
        whole(dtype, &self.batches[batch].field(row, at)?)
    }

    fn plan(&self, run: &[u64], _room_bytes: u64) -> Vec<Read> {
        resident_reads(run, self.record_bytes)
    }

    fn read(
        &self,
        read: &Read,
        _admit: &mut Admit<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<(), ReadError> {
        for &(place, record) in &read.records {
            let (batch, row) = self.place(record);
            let fields = self.batches[batch].get(row);
            if let Ok(fields) = &fields {
                // A table may lie in a map of its library's, such as a cache of `datasets`.
                fields.iter().for_each(|bytes| touch(bytes));
            }
            let found = fields.map(|fields| Record {
                index: record,
                fields,
            });
            sink(place, found);
        }
        Ok(())
    }
}

/// The batches, to tell what columns are.
struct FirstOf<'a> {
    name: &'a str,
    batches: &'a [RecordBatch],
}

impl FirstOf<'_> {
    /// A column of each batch that has rows.
    fn column(&self, column: usize) -> impl Iterator<Item = &Arc<dyn arrow_array::Array>> {
        let batches = self.batches.iter().filter(|batch| batch.num_rows() > 0);
        batches.filter_map(move |batch| batch.columns().get(column))
    }
}

impl First for FirstOf<'_> {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn value(&mut self, column: usize, child: Option<&str>) -> io::Result<Option<Bytes>> {
        let mut columns = self.column(column);
        Ok(columns.find_map(|column| first_bytes(column, child)))
    }

    fn words(&mut self, column: usize) -> io::Result<Option<Vec<String>>> {
        Ok(self.column(column).next().and_then(words))
    }
}
