//! Columns that no field of the source has: lengths of padded lists, and the mark of padding rows.

use super::function_values::list_shape;
use crate::function::FunctionScope;
use crate::pipeline::{FunctionSpec, Pipeline, RaggedLayout, Tail};
use infeed_core::batch::{BatchRow, ColumnKind, ColumnSpec, RowCell};
use infeed_core::error::Error;
use infeed_core::sample::DType;

/// Boolean column of batches with `Tail::Pad`: whether a row has a record. The last column.
pub const VALID: &str = "valid";

/// A column of lists that the batch pads to the longest.
#[derive(Clone, Debug)]
pub(crate) struct PaddedList {
    at: usize,
    dtype: DType,
    item: Vec<usize>,
    /// Column of the lengths; `None` if the lists are as long as others.
    count: Option<usize>,
}

/// Whether a batch has further columns. Rejects functions that would not expect them.
pub(crate) fn check(pipeline: &Pipeline) -> Result<bool, Error> {
    let marks = pipeline.batch.settled_tail()? == Tail::Pad;
    let counts = pipeline.batch.ragged == RaggedLayout::Pad;
    let on_batches = |spec: &&FunctionSpec| spec.on == FunctionScope::Batch;
    if let Some(spec) = pipeline.python.iter().find(on_batches) {
        let problem = if marks {
            "tail=\"pad\" adds a field and rows that the function does not expect; use tail=\"wrap\" \
             or \"drop\", or call it with samples"
        } else if counts {
            "ragged=\"pad\" pads lists and adds their lengths, which the function does not expect; \
             use ragged=\"offsets\", or call it with samples"
        } else {
            return Ok(false);
        };
        return Err(Error::config(spec.part(), problem));
    }
    Ok(marks || counts)
}

/// Adds the columns to those of `part`: the source, or the last function on samples.
pub(crate) fn add(
    pipeline: &Pipeline,
    columns: &mut Vec<ColumnSpec>,
    part: &str,
) -> Result<Vec<PaddedList>, Error> {
    let mut lists = Vec::new();
    if pipeline.batch.ragged == RaggedLayout::Pad {
        // Fields with one row per box are as long as the boxes.
        let declared = pipeline.declared_boxes();
        let follows = |name: &String, columns: &[ColumnSpec]| {
            declared.iter().any(|spec| {
                let is_own = spec.columns.contains(name) || spec.masks.as_ref() == Some(name);
                is_own && columns.iter().any(|of| of.name == spec.field)
            })
        };
        for at in 0..columns.len() {
            let ColumnKind::Ragged { dtype, item } = columns[at].kind.clone() else {
                continue;
            };
            let rank = 1 + item.len();
            columns[at].kind = ColumnKind::Padded { dtype, rank };
            let mut count = None;
            if !follows(&columns[at].name, columns) {
                count = Some(columns.len());
                let name = format!("{}_count", columns[at].name);
                let other = "use ragged=\"offsets\"";
                push(columns, name, DType::Int64, "ragged=\"pad\"", part, other)?;
            }
            lists.push(PaddedList {
                at,
                dtype,
                item,
                count,
            });
        }
    }
    if pipeline.batch.settled_tail()? == Tail::Pad {
        let other = "use tail=\"wrap\" or \"drop\"";
        push(
            columns,
            VALID.to_owned(),
            DType::Bool,
            "tail=\"pad\"",
            part,
            other,
        )?;
    }
    Ok(lists)
}

/// Appends a column of one number per row.
fn push(
    columns: &mut Vec<ColumnSpec>,
    name: String,
    dtype: DType,
    cause: &str,
    part: &str,
    other: &str,
) -> Result<(), Error> {
    if columns.iter().any(|column| column.name == name) {
        let problem = format!(
            "{cause} adds a field `{name}`, and {part} has one; give that another name, or {other}"
        );
        return Err(Error::config("batch", problem));
    }
    let shape = Vec::new();
    let kind = ColumnKind::Fixed { dtype, shape };
    columns.push(ColumnSpec { name, kind });
    Ok(())
}

/// Sets the shapes of the lists of a row, and their lengths.
pub(crate) fn measure(lists: &[PaddedList], row: &mut BatchRow) {
    for list in lists {
        let Some(RowCell::Own { shape, bytes }) = row.cells.get_mut(list.at) else {
            continue;
        };
        *shape = list_shape(bytes.len(), list.dtype, &list.item);
        let length = shape.first().map_or(0, |&length| length as i64);
        match list.count.and_then(|at| row.cells.get_mut(at)) {
            Some(RowCell::Slab(count)) => count.bytes_mut().copy_from_slice(&length.to_le_bytes()),
            Some(RowCell::Own { bytes, .. }) => *bytes = length.to_le_bytes().to_vec(),
            None => {}
        }
    }
}
