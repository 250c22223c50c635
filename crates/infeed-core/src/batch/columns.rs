//! Names, element types and shapes of the columns of a batch.

use crate::sample::DType;

/// Description of one column of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnSpec {
    /// Name of the field.
    pub name: String,
    /// Kind of its values.
    pub kind: ColumnKind,
}

/// Values of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// Every row has this shape. The column is an array `[rows, shape…]`.
    Fixed {
        /// Element type.
        dtype: DType,
        /// Shape of one row.
        shape: Vec<usize>,
    },
    /// Rows of equal rank and different sizes. Zeros at the end of every axis pad them to the
    /// largest row of the batch. The column is an array `[rows, …]`.
    Padded {
        /// Element type.
        dtype: DType,
        /// Number of axes of one row.
        rank: usize,
    },
    /// Lists whose length differs by row. The column is all items one after another, and offsets.
    Ragged {
        /// Element type.
        dtype: DType,
        /// Shape of one item of a list; `[]` for lists of numbers.
        item: Vec<usize>,
    },
    /// Bytes.
    Bytes,
    /// UTF-8.
    Text,
}

impl ColumnKind {
    /// Returns the bytes of a row in a slab. None for kinds that are kept by row.
    pub fn row_bytes(&self) -> Option<usize> {
        match self {
            ColumnKind::Fixed { dtype, shape } => {
                Some(shape.iter().product::<usize>() * dtype.bytes())
            }
            _ => None,
        }
    }
}
