//! Values that functions receive and return, and the cells that hold them.

use crate::function::{ValueSink, ValueSpec};
use infeed_core::batch::{Array, Column, ColumnKind, ColumnSpec, RowCell, Values};
use infeed_core::sample::DType;

/// Destination cells of a function's output.
pub(super) struct OutputCells<'a>(pub(super) Vec<OutputCell<'a>>);

/// The cell of one output.
pub(super) struct OutputCell<'a> {
    pub(super) column: &'a ColumnSpec,
    pub(super) cell: &'a mut RowCell,
    pub(super) full: bool,
}

impl ValueSink for OutputCells<'_> {
    fn room(&mut self, name: &str, spec: ValueSpec<'_>) -> Result<&mut [u8], String> {
        let names = || {
            let names = self.0.iter().map(|room| room.column.name.as_str());
            names.collect::<Vec<_>>()
        };
        let Some(at) = self.0.iter().position(|room| room.column.name == name) else {
            return Err(format!(
                "it returned `{name}`; its declared outputs are {:?}",
                names()
            ));
        };
        let room = &mut self.0[at];
        let len = fitting(room.column, spec)?;
        room.full = true;
        match &mut room.cell {
            RowCell::Slab(row) => Ok(row.bytes_mut()),
            RowCell::Own { shape, bytes } => {
                shape.clear();
                if let ValueSpec::Array { shape: found, .. } = spec {
                    shape.extend_from_slice(found);
                }
                bytes.clear();
                bytes.resize(len, 0);
                Ok(bytes)
            }
        }
    }

    fn same(&mut self, name: &str, _: usize) -> Result<(), String> {
        Err(format!("`{name}` of a sample is always copied"))
    }
}

/// Returns the bytes of a value if it fits its column.
fn fitting(column: &ColumnSpec, spec: ValueSpec<'_>) -> Result<usize, String> {
    let len = value_bytes(spec);
    let fits = match (&column.kind, spec) {
        (ColumnKind::Fixed { dtype, shape }, ValueSpec::Array { dtype: d, shape: s }) => {
            *dtype == d && shape == s
        }
        (ColumnKind::Padded { dtype, rank }, ValueSpec::Array { dtype: d, shape: s }) => {
            *dtype == d && *rank == s.len()
        }
        (ColumnKind::Ragged { dtype, item }, ValueSpec::Array { dtype: d, shape: s }) => {
            // An empty list has no type, and its items have no shape.
            s.first() == Some(&0) || (*dtype == d && s.get(1..) == Some(item.as_slice()))
        }
        (ColumnKind::Bytes, ValueSpec::Bytes(_)) | (ColumnKind::Text, ValueSpec::Text(_)) => true,
        _ => false,
    };
    match len {
        Some(len) if fits => Ok(len),
        _ => Err(format!(
            "it returned `{}` as {}, expected {}; return the same type and shape for all samples, \
             or declare its output",
            column.name,
            spec_text(spec),
            kind_text(&column.kind),
        )),
    }
}

pub(crate) fn value_bytes(spec: ValueSpec<'_>) -> Option<usize> {
    match spec {
        ValueSpec::Bytes(len) | ValueSpec::Text(len) => Some(len),
        ValueSpec::Array { dtype, shape } => shape
            .iter()
            .try_fold(dtype.bytes(), |bytes, &n| bytes.checked_mul(n)),
    }
}

fn spec_text(spec: ValueSpec<'_>) -> String {
    match spec {
        ValueSpec::Array { dtype, shape } => format!("{} {shape:?}", dtype.name()),
        ValueSpec::Bytes(_) => "bytes".to_owned(),
        ValueSpec::Text(_) => "text".to_owned(),
    }
}

pub(crate) fn kind_text(kind: &ColumnKind) -> String {
    match kind {
        ColumnKind::Fixed { dtype, shape } => format!("{} {shape:?}", dtype.name()),
        ColumnKind::Padded { dtype, rank } => format!("{} with {rank} axes", dtype.name()),
        ColumnKind::Ragged { dtype, item } if item.is_empty() => {
            format!("{} with one axis", dtype.name())
        }
        ColumnKind::Ragged { dtype, item } => {
            format!("{} with items of shape {item:?}", dtype.name())
        }
        ColumnKind::Bytes => "bytes".to_owned(),
        ColumnKind::Text => "text".to_owned(),
    }
}

/// Returns the shape of a list of items that takes this number of bytes.
pub(crate) fn list_shape(bytes: usize, dtype: DType, item: &[usize]) -> Vec<usize> {
    let item_bytes = (item.iter().product::<usize>() * dtype.bytes()).max(1);
    let items = std::iter::once(bytes / item_bytes);
    items.chain(item.iter().copied()).collect()
}

/// Copies a value that the function does not receive.
pub(super) fn pass(values: &Values, cell: &mut RowCell) {
    let (from, axes): (&[u8], &[usize]) = match values {
        Values::Array(array) => (array.bytes(), array.shape()),
        Values::Bytes(rows) => (rows.first().map_or(&[], Vec::as_slice), &[]),
        Values::Text(rows) => (rows.first().map_or(&[], |row| row.as_bytes()), &[]),
        Values::Ragged { values, .. } => (values.bytes(), values.shape()),
    };
    match cell {
        // Both have the column's length.
        RowCell::Slab(row) => row.bytes_mut().copy_from_slice(from),
        RowCell::Own { shape, bytes } => {
            *shape = axes.to_vec();
            bytes.clear();
            bytes.extend_from_slice(from);
        }
    }
}

/// Creates an empty own cell for each column.
pub(crate) fn own_cells(count: usize) -> Vec<RowCell> {
    let cell = || RowCell::Own {
        shape: Vec::new(),
        bytes: Vec::new(),
    };
    (0..count).map(|_| cell()).collect()
}

/// Takes the values of one sample out of own cells. Fails with the index of a column whose bytes do
/// not fit its shape.
pub(crate) fn values_from(
    columns: &[ColumnSpec],
    cells: &mut [RowCell],
) -> Result<Vec<Column>, usize> {
    let mut values = Vec::with_capacity(columns.len());
    for (at, (column, cell)) in columns.iter().zip(cells).enumerate() {
        let RowCell::Own { shape, bytes } = cell else {
            return Err(at);
        };
        let (shape, bytes) = (std::mem::take(shape), std::mem::take(bytes));
        let array = |bytes: Vec<u8>, dtype: DType, shape: Vec<usize>| {
            let whole = value_bytes(ValueSpec::Array {
                dtype,
                shape: &shape,
            });
            let fits = whole == Some(bytes.len());
            let array = Array::from_returnable(bytes, shape, dtype).filter(|_| fits);
            array.map(Values::Array).ok_or(at)
        };
        let values_of = match &column.kind {
            ColumnKind::Fixed { dtype, shape } => array(bytes, *dtype, shape.clone())?,
            ColumnKind::Padded { dtype, .. } => array(bytes, *dtype, shape)?,
            ColumnKind::Ragged { dtype, item } => {
                let shape = list_shape(bytes.len(), *dtype, item);
                array(bytes, *dtype, shape)?
            }
            ColumnKind::Bytes => Values::Bytes(vec![bytes]),
            ColumnKind::Text => Values::Text(vec![String::from_utf8_lossy(&bytes).into_owned()]),
        };
        values.push(Column {
            name: column.name.clone(),
            values: values_of,
        });
    }
    Ok(values)
}

/// Bytes of all values.
pub(crate) fn bytes_of(values: &[Column]) -> u64 {
    let bytes = values.iter().map(|column| match &column.values {
        Values::Array(array) => array.bytes().len(),
        Values::Ragged { values, .. } => values.bytes().len(),
        Values::Bytes(rows) => rows.iter().map(Vec::len).sum(),
        Values::Text(rows) => rows.iter().map(String::len).sum(),
    });
    bytes.map(|bytes| bytes as u64).sum()
}
