//! Rows of one batch as fields of records.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_buffer::NullBuffer;
use bytes::Bytes;

use super::Columns;
use super::cells::{Cells, ValueError, elements, struct_child};
use super::column::{Conversion, ReadColumn, ValueCheck};
use super::value_types::describe;
use infeed_core::error::Cause;

/// A batch whose rows can be read.
#[derive(Debug)]
pub(crate) struct Rows {
    columns: Vec<RowColumn>,
    len: usize,
}

#[derive(Debug)]
struct RowColumn {
    name: Arc<str>,
    /// Nulls of the column.
    nulls: Option<NullBuffer>,
    /// Nulls of the child that is read.
    child_nulls: Option<NullBuffer>,
    cells: Cells,
    check: ValueCheck,
}

impl Rows {
    /// Locates the columns of a batch by name; copies no value.
    ///
    /// # Errors
    ///
    /// The column that is missing or has another type.
    pub(crate) fn new(batch: &RecordBatch, columns: &Columns) -> Result<Rows, String> {
        let ready = columns.columns().iter().map(|column| {
            let array = batch.column_by_name(&column.path.column);
            let found = array.and_then(|array| struct_child(array, &column.path.children));
            let (array, nulls) =
                found.ok_or_else(|| format!("it has no column `{}`", column.name))?;
            RowColumn::new(&array, nulls, column).ok_or_else(|| {
                let found = describe(array.data_type());
                format!("column `{}` changed its type to {found}", column.name)
            })
        });
        Ok(Rows {
            columns: ready.collect::<Result<_, _>>()?,
            len: batch.num_rows(),
        })
    }

    /// Number of rows.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Stored bytes of one field of the record in a row; None if it is damaged, or stored in another
    /// layout.
    pub(crate) fn stored_bytes(&self, row: usize, field: usize) -> Option<&[u8]> {
        let column = self.columns.get(field)?;
        column.cells.stored_bytes(row).filter(|_| column.has(row))
    }

    /// Copies one field of the record in a row to memory of its size. Returns false if it is damaged,
    /// or stored in another layout.
    pub(crate) fn copy(&self, row: usize, field: usize, to: &mut [u8]) -> bool {
        let column = self.columns.get(field).filter(|column| column.has(row));
        column.is_some_and(|column| {
            let expected = match column.check {
                ValueCheck::Exactly(expected) => expected,
                _ => to.len(),
            };
            to.len() == expected && column.cells.copy(row, to)
        })
    }

    /// One field of the record in a row; None if it is damaged.
    pub(crate) fn field(&self, row: usize, field: usize) -> Option<Bytes> {
        self.columns.get(field)?.get(row).ok()
    }

    /// Fields of the record in a row, or the reason why it is invalid.
    pub(crate) fn get(&self, row: usize) -> Result<Vec<Bytes>, Cause> {
        let fields = self.columns.iter().map(|column| column.get(row));
        let fields: Result<Vec<Bytes>, ValueError> = fields.collect();
        fields.map_err(|problem| -> Cause { Arc::new(problem) })
    }
}

impl RowColumn {
    fn new(array: &ArrayRef, nulls: Option<NullBuffer>, column: &ReadColumn) -> Option<RowColumn> {
        let mut child_nulls = None;
        let cells = match &column.store {
            Conversion::Bytes { child: None } => Cells::bytes(array)?,
            Conversion::Bytes { child: Some(child) } => {
                let child = array.as_struct_opt()?.column_by_name(child)?;
                child_nulls = child.nulls().cloned();
                Cells::bytes(child)?
            }
            Conversion::Fixed { dtype, length } => Cells::fixed_size(array, *dtype, *length)?,
            Conversion::Wide { from } => Cells::Wide {
                elements: elements(array, *from)?,
                from: *from,
            },
            Conversion::Lists {
                dtype,
                depth,
                item,
                dims,
            } => Cells::lists(array, *dtype, (*depth, *item), dims.clone())?,
            Conversion::Classes(known) => Cells::classes(array, known)?,
        };
        Some(RowColumn {
            name: column.name.as_str().into(),
            nulls,
            child_nulls,
            cells,
            check: column.check,
        })
    }

    /// Whether the value of a row is not null.
    fn has(&self, row: usize) -> bool {
        !is_null(&self.nulls, row) && !is_null(&self.child_nulls, row)
    }

    fn get(&self, row: usize) -> Result<Bytes, ValueError> {
        if is_null(&self.nulls, row) {
            return Err(ValueError::Null(self.name.clone()));
        }
        if is_null(&self.child_nulls, row) {
            return Err(ValueError::OnlyPath(self.name.clone()));
        }
        let bytes = self.cells.get(row, &self.name)?;
        let (column, found) = (|| self.name.clone(), bytes.len());
        match self.check {
            ValueCheck::Exactly(expected) if found != expected => Err(ValueError::Length {
                column: column(),
                found,
                expected,
            }),
            ValueCheck::Elements(dtype) if !found.is_multiple_of(dtype.bytes()) => {
                Err(ValueError::Elements {
                    column: column(),
                    found,
                    dtype: dtype.name(),
                })
            }
            ValueCheck::Text if std::str::from_utf8(&bytes).is_err() => {
                Err(ValueError::NoText(column()))
            }
            _ => Ok(bytes),
        }
    }
}

fn is_null(nulls: &Option<NullBuffer>, row: usize) -> bool {
    let nulls = nulls.as_ref();
    nulls.is_some_and(|nulls| row < nulls.len() && nulls.is_null(row))
}
