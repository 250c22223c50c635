//! Record batches in memory, such as those of a table of another library.

use std::io;
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::UInt64Type;
use arrow_array::{Array as _, RecordBatch};
use arrow_schema::Schema;

use super::columns::ColumnRequest;
use super::columns::table::rows::Rows;
use super::columns::table::{Columns, FirstBytes, FirstValues, words};
use super::label::{label_field, label_value};
use super::left_out::LeftOut;
use super::resident_reads::{hand_over, resident_reads};
use super::resident_rows::ResidentRows;
use super::{Admission, Read, ReadError, Sink, Source};
use infeed_core::error::Error;
use infeed_core::sample::{Field, RecordId};

/// Concatenated record batches in memory.
#[derive(Debug)]
pub struct Batches {
    /// Name of the table in record names, such as `table`.
    name: String,
    columns: Columns,
    batches: Vec<Rows>,
    /// One past the last record of each batch.
    ends: Vec<u64>,
    /// Row of each record, if the records are not all rows in order.
    chosen: Option<Vec<u64>>,
    record_bytes: usize,
}

impl Batches {
    /// Creates a source from batches of one schema.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for columns that do not exist or cannot be converted as requested, or if
    /// there are no rows.
    pub fn new(
        name: impl Into<String>,
        schema: &Schema,
        batches: &[RecordBatch],
        wanted: &[ColumnRequest],
    ) -> Result<Batches, Error> {
        let name = name.into();
        let mut first = FirstBatches {
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
            chosen: None,
            record_bytes: bytes / end as usize,
        })
    }

    /// Chooses the rows that are the records, in this order: numbers in the first column of other
    /// batches, of type uint64. A row may be chosen several times.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for another type, a missing number or a row that does not exist, or if
    /// there are no numbers.
    pub fn with_rows(mut self, numbers: &[RecordBatch]) -> Result<Batches, Error> {
        let wrong = |problem: &str| Error::config("source", format!("{}: {problem}", self.name));
        let all = self.len();
        let mut chosen = Vec::with_capacity(numbers.iter().map(RecordBatch::num_rows).sum());
        for batch in numbers {
            let column = batch.columns().first();
            let column = column.and_then(|column| column.as_primitive_opt::<UInt64Type>());
            let column = column.filter(|column| column.null_count() == 0);
            let column = column.ok_or_else(|| wrong("its row numbers are not of type uint64"))?;
            chosen.extend_from_slice(column.values());
        }
        if chosen.is_empty() {
            return Err(wrong("no rows are chosen"));
        }
        if chosen.iter().any(|&row| row >= all) {
            return Err(wrong("a row is chosen that the table does not have"));
        }
        self.chosen = Some(chosen);
        Ok(self)
    }

    /// Returns the batch of a record, and its row in the batch.
    fn locate(&self, record: u64) -> (usize, usize) {
        let row = match &self.chosen {
            Some(chosen) => chosen[record as usize],
            None => record,
        };
        let at = self.ends.partition_point(|&end| end <= row);
        let first = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        (at, (row - first) as usize)
    }
}

impl ResidentRows for Batches {
    fn stored_bytes(&self, record: u64, field: usize) -> Option<&[u8]> {
        let (batch, row) = self.locate(record);
        self.batches.get(batch)?.stored_bytes(row, field)
    }

    fn copy(&self, record: u64, field: usize, to: &mut [u8]) -> bool {
        let (batch, row) = self.locate(record);
        let rows = self.batches.get(batch);
        rows.is_some_and(|rows| rows.copy(row, field, to))
    }

    fn is_mapped(&self) -> bool {
        // The bytes of a table may be mapped from a file, such as a cache of `datasets`.
        true
    }
}

impl Source for Batches {
    fn fields(&self) -> &[Field] {
        self.columns.fields()
    }

    fn len(&self) -> u64 {
        match &self.chosen {
            Some(chosen) => chosen.len() as u64,
            None => self.ends.last().copied().unwrap_or(0),
        }
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

    fn left_out(&self) -> Vec<LeftOut> {
        self.columns.left_out()
    }

    fn label(&self, record: u64) -> Option<i64> {
        let (at, dtype) = label_field(self.fields())?;
        let (batch, row) = self.locate(record);
        label_value(dtype, &self.batches[batch].field(row, at)?)
    }

    fn resident(&self) -> Option<&dyn ResidentRows> {
        Some(self)
    }

    fn plan(&self, run: &[u64], _room_bytes: u64) -> Vec<Read> {
        resident_reads(run, self.record_bytes)
    }

    fn read(
        &self,
        read: &Read,
        _admit: &mut Admission<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<(), ReadError> {
        hand_over(read, self.is_mapped(), sink, |record| {
            let (batch, row) = self.locate(record);
            self.batches[batch].get(row)
        });
        Ok(())
    }
}

/// The first batches, whose values decide the kinds of columns.
struct FirstBatches<'a> {
    name: &'a str,
    batches: &'a [RecordBatch],
}

impl FirstBatches<'_> {
    /// Returns a column of each batch that has rows.
    fn column(&self, column: usize) -> impl Iterator<Item = &Arc<dyn arrow_array::Array>> {
        let batches = self.batches.iter().filter(|batch| batch.num_rows() > 0);
        batches.filter_map(move |batch| batch.columns().get(column))
    }
}

impl FirstValues for FirstBatches<'_> {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn scan(
        &mut self,
        column: usize,
        children: &[String],
        seen: &mut FirstBytes,
    ) -> io::Result<()> {
        self.column(column)
            .for_each(|array| seen.add_values(array, children));
        Ok(())
    }

    fn words(&mut self, column: usize) -> io::Result<Option<Vec<String>>> {
        Ok(self.column(column).next().and_then(words))
    }
}
