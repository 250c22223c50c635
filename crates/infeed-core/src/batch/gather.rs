//! Columns that are kept by row: bytes, text, ragged and padded values.

use infeed_raw::host::{HostBytes, OutOfMemory};

use super::array::{Array, ArrayMemory};
use super::columns::ColumnKind;
use super::finished_batch::Values;
use crate::sample::DType;

/// Combines the rows of a column that is kept by row.
pub(super) fn gather(
    kind: &ColumnKind,
    rows: Vec<(Vec<usize>, Vec<u8>)>,
) -> Result<Values, OutOfMemory> {
    let values = rows.iter().map(|(_, bytes)| bytes);
    Ok(match kind {
        ColumnKind::Bytes => Values::Bytes(rows.into_iter().map(|(_, bytes)| bytes).collect()),
        ColumnKind::Text => {
            let text = |(_, bytes): (_, Vec<u8>)| String::from_utf8_lossy(&bytes).into_owned();
            Values::Text(rows.into_iter().map(text).collect())
        }
        ColumnKind::Ragged { dtype, item } => {
            let item_bytes = (item.iter().product::<usize>() * dtype.bytes()).max(1);
            let mut offsets = vec![0_i64];
            let mut all = Vec::new();
            for bytes in values {
                all.extend_from_slice(bytes);
                offsets.push((all.len() / item_bytes) as i64);
            }
            let shape = [all.len() / item_bytes]
                .into_iter()
                .chain(item.iter().copied());
            let starts: Vec<u8> = offsets
                .iter()
                .flat_map(|offset| offset.to_ne_bytes())
                .collect();
            Values::Ragged {
                values: Array::own(&all, shape.collect(), *dtype)?,
                offsets: Array::own(&starts, vec![offsets.len()], DType::Int64)?,
            }
        }
        ColumnKind::Padded { dtype, rank } => Values::Array(pad(&rows, *dtype, *rank)?),
        ColumnKind::Fixed { .. } => unreachable!("fixed columns lie in slabs"),
    })
}

/// Returns one array whose rows have the largest length of every axis, padded with zeros.
fn pad(rows: &[(Vec<usize>, Vec<u8>)], dtype: DType, rank: usize) -> Result<Array, OutOfMemory> {
    let mut largest = vec![0; rank];
    for (shape, _) in rows {
        for (largest, &length) in largest.iter_mut().zip(shape) {
            *largest = length.max(*largest);
        }
    }
    let row_bytes = largest.iter().product::<usize>() * dtype.bytes();
    let mut memory = HostBytes::zeroed(rows.len() * row_bytes)?;
    for ((shape, bytes), row) in rows.iter().zip(memory.chunks_exact_mut(row_bytes.max(1))) {
        // A row that only pads the batch has no shape.
        if shape.len() < rank {
            continue;
        }
        // Copy runs along the last axis. `at` is the index on the axes before it.
        let run = shape.last().copied().unwrap_or(1) * dtype.bytes();
        let outer = &shape[..rank.saturating_sub(1)];
        let mut at = vec![0; outer.len()];
        for source in bytes.chunks_exact(run.max(1)) {
            let index = at
                .iter()
                .zip(&largest)
                .fold(0, |index, (&i, &n)| index * n + i);
            let to = index * largest.last().copied().unwrap_or(1) * dtype.bytes();
            row[to..to + run].copy_from_slice(source);
            for axis in (0..outer.len()).rev() {
                at[axis] += 1;
                if at[axis] < outer[axis] {
                    break;
                }
                at[axis] = 0;
            }
        }
    }
    let shape = std::iter::once(rows.len()).chain(largest).collect();
    Ok(Array::over(ArrayMemory::Own(memory), shape, dtype))
}
