//! A column that is read.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::DataType;

use super::path::ColumnPath;
use infeed_core::sample::DType;

/// Child of a struct column that holds the bytes of a file, as in Hugging Face tables.
pub(crate) const BYTES: &str = "bytes";

/// Conversion of a column's values to the bytes of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Conversion {
    /// Bytes or text as they are; those of a child, where the column is a struct.
    Bytes { child: Option<&'static str> },
    /// A fixed number of elements per record.
    Fixed { dtype: DType, length: usize },
    /// Integers widened to int64.
    Wide { from: DType },
    /// Lists nested `depth` deep; with `dims`, each of exactly that shape. An item of the innermost
    /// lists has `item` elements.
    Lists {
        dtype: DType,
        depth: usize,
        item: usize,
        dims: Option<Vec<usize>>,
    },
    /// Words of a dictionary as class numbers.
    Classes(Arc<HashMap<String, i64>>),
}

/// A column that is read.
#[derive(Clone, Debug)]
pub(crate) struct ReadColumn {
    /// Name in the table. That of a child of a struct has dots, such as `objects.bbox`.
    pub(crate) name: String,
    /// Location of the column, or of the child.
    pub(crate) path: ColumnPath,
    /// Type in the table.
    pub(super) data_type: DataType,
    pub(crate) store: Conversion,
    pub(crate) check: ValueCheck,
    /// Meaning of the numbers according to the metadata: class names and the shape of tensors. It
    /// must be the same in every file.
    pub(super) classes: Option<Vec<String>>,
    pub(super) shape: Option<Vec<usize>>,
}

/// Requirement on a value beyond its column's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueCheck {
    Nothing,
    /// A number of bytes.
    Exactly(usize),
    /// A multiple of the element size.
    Elements(DType),
    /// UTF-8.
    Text,
}
