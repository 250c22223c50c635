//! Finished batches, as the consumer gets them.

use super::array::Array;

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

impl Values {
    /// Returns the bytes of a row; `None` behind the last row.
    pub fn row_bytes(&self, row: usize) -> Option<&[u8]> {
        match self {
            Values::Array(array) => array.items(row, row + 1),
            Values::Ragged { values, offsets } => {
                let offset = |at: usize| {
                    let bytes = offsets.items(at, at + 1)?;
                    usize::try_from(i64::from_ne_bytes(bytes.try_into().ok()?)).ok()
                };
                values.items(offset(row)?, offset(row + 1)?)
            }
            Values::Bytes(rows) => rows.get(row).map(Vec::as_slice),
            Values::Text(rows) => rows.get(row).map(String::as_bytes),
        }
    }
}
