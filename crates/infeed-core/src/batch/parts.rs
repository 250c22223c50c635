//! Divides a batch among several devices. The parts share its memory.

use std::ops::Range;

use infeed_raw::host::OutOfMemory;

use super::array::Array;
use super::finished_batch::{Batch, Column, Values};
use crate::sample::DType;

impl Values {
    fn rows(&self, range: Range<usize>) -> Result<Values, OutOfMemory> {
        Ok(match self {
            Values::Array(array) => Values::Array(array.rows(range)),
            Values::Ragged { values, offsets } => {
                let taken = range.len() + 1;
                let offsets: Vec<i64> = offsets.integers().skip(range.start).take(taken).collect();
                let first = offsets.first().copied().unwrap_or(0);
                let last = offsets.last().copied().unwrap_or(first);
                let own: Vec<u8> = offsets
                    .iter()
                    .flat_map(|offset| (offset - first).to_ne_bytes())
                    .collect();
                Values::Ragged {
                    values: values.rows(first as usize..last as usize),
                    offsets: Array::own(&own, vec![offsets.len()], DType::Int64)?,
                }
            }
            Values::Bytes(rows) => Values::Bytes(rows[range].to_vec()),
            Values::Text(rows) => Values::Text(rows[range].to_vec()),
        })
    }
}

impl Batch {
    /// Divides the batch into this number of consecutive parts. Their row counts are equal, or
    /// differ by at most one. Arrays share the memory of the batch.
    ///
    /// # Errors
    ///
    /// If memory for the offsets of ragged columns cannot be allocated.
    pub fn cut(self, parts: usize) -> Result<Vec<Batch>, OutOfMemory> {
        if parts == 1 {
            return Ok(vec![self]);
        }
        let rows = self.rows();
        let part = |number: usize| {
            let range = rows * number / parts..rows * (number + 1) / parts;
            let column = |column: &Column| {
                Ok(Column {
                    name: column.name.clone(),
                    values: column.values.rows(range.clone())?,
                })
            };
            Ok(Batch {
                columns: self.columns.iter().map(column).collect::<Result<_, _>>()?,
                records: self.records[range.clone()].to_vec(),
                epoch: self.epoch,
                step: self.step,
            })
        };
        (0..parts).map(part).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(values: &[i64], shape: &[usize]) -> Array {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_ne_bytes()).collect();
        Array::own(&bytes, shape.to_vec(), DType::Int64).expect("memory")
    }

    #[test]
    fn parts_are_the_rows_in_order_of_every_kind_of_column() {
        let columns = [
            (
                "pair",
                Values::Array(array(&[1, 2, 3, 4, 5, 6, 7, 8], &[4, 2])),
            ),
            (
                "list",
                Values::Ragged {
                    values: array(&[10, 20, 30, 40, 50], &[5]),
                    offsets: array(&[0, 2, 2, 3, 5], &[5]),
                },
            ),
            (
                "text",
                Values::Text(["a", "b", "c", "d"].map(str::to_owned).into()),
            ),
            ("bytes", Values::Bytes((0..4).map(|n| vec![n; 2]).collect())),
        ];
        let batch = Batch {
            columns: columns
                .map(|(name, values)| Column {
                    name: name.to_owned(),
                    values,
                })
                .into(),
            records: vec![7, 8, 9, 6],
            epoch: 2,
            step: 5,
        };

        let parts = batch.cut(2).expect("memory");

        assert_eq!(parts.len(), 2);
        let second = &parts[1];
        assert_eq!((second.epoch, second.step, second.rows()), (2, 5, 2));
        assert_eq!(second.records, [9, 6]);
        let Some(Values::Array(pair)) = second.get("pair") else {
            panic!("an array");
        };
        assert_eq!(pair.shape(), [2, 2]);
        assert_eq!(pair.integers().collect::<Vec<_>>(), [5, 6, 7, 8]);
        let Some(Values::Ragged { values, offsets }) = second.get("list") else {
            panic!("a list");
        };
        assert_eq!(values.integers().collect::<Vec<_>>(), [30, 40, 50]);
        assert_eq!(offsets.integers().collect::<Vec<_>>(), [0, 1, 3]);
        let Some(Values::Text(text)) = second.get("text") else {
            panic!("text");
        };
        assert_eq!(text, &["c", "d"]);
        let Some(Values::Bytes(bytes)) = parts[0].get("bytes") else {
            panic!("bytes");
        };
        assert_eq!(bytes, &[vec![0, 0], vec![1, 1]]);
    }

    #[test]
    fn uneven_parts_hold_all_rows() {
        let batch = |rows: usize| Batch {
            columns: Vec::new(),
            records: (0..rows as u64).collect(),
            epoch: 0,
            step: 0,
        };
        let rows = |parts: Vec<Batch>| parts.iter().map(Batch::rows).collect::<Vec<_>>();

        assert_eq!(rows(batch(3).cut(1).expect("memory")), [3]);
        assert_eq!(rows(batch(7).cut(3).expect("memory")), [2, 2, 3]);
        assert_eq!(rows(batch(1).cut(2).expect("memory")), [0, 1]);
    }
}
