//! Hashes of the contents of rows.

use twox_hash::XxHash3_64;

use super::keys::RowKey;
use infeed_core::batch::{Batch, Values};
use infeed_core::error::Error;
use infeed_core::random::hash;

/// Separates these hashes from other uses.
const ROWS: u64 = 0x726f_7768_6173_6801;

/// Maximum number of bytes of an array's row that are hashed.
const MAX_BYTES: usize = 4 << 10;

/// Evenly spaced pieces of a longer row that are hashed.
const PIECES: usize = 8;
const PIECE_BYTES: usize = MAX_BYTES / PIECES;

/// Bits of a hash that a key keeps.
const KEY_BITS: u32 = 48;

/// Hashes of the rows of a batch, over its fields in order.
///
/// Of a row of an array, at most 4 KiB count, in 8 evenly spaced pieces. Rows of other fields (text,
/// bytes, ragged rows) count wholly. The names of the fields, and the types of their elements, do
/// not count. Source: XXH3 for bytes. The hash has no key: it detects accidental differences, not
/// deliberate ones.
#[derive(Clone, Debug, Default)]
pub struct RowHashes {
    /// One for each row; `None` before the first field.
    rows: Option<Vec<u64>>,
}

impl RowHashes {
    /// Adds an array of `rows` rows of equal length.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if the fields before it have another number of rows.
    pub fn add_array(&mut self, name: &str, rows: usize, bytes: &[u8]) -> Result<(), Error> {
        let length = bytes.len() / rows.max(1);
        self.add(name, rows, |row| {
            hash_pieces(&bytes[row * length..(row + 1) * length])
        })
    }

    /// Adds a field with one value of any length per row.
    ///
    /// # Errors
    ///
    /// As [`RowHashes::add_array`].
    pub fn add_values(&mut self, name: &str, values: &[impl AsRef<[u8]>]) -> Result<(), Error> {
        self.add(name, values.len(), |row| {
            XxHash3_64::oneshot(values[row].as_ref())
        })
    }

    /// Returns the key of each row of a batch.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if the batch has no columns.
    pub fn of_batch(batch: &Batch) -> Result<Vec<RowKey>, Error> {
        let rows = batch.rows();
        let mut hashes = RowHashes::default();
        for column in &batch.columns {
            match &column.values {
                Values::Array(array) => hashes.add_array(&column.name, rows, array.bytes()),
                values => hashes.add(&column.name, rows, |row| {
                    XxHash3_64::oneshot(values.row_bytes(row).unwrap_or_default())
                }),
            }?;
        }
        hashes.keys()
    }

    /// Returns the key of each row.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if no field was added.
    pub fn keys(&self) -> Result<Vec<RowKey>, Error> {
        let Some(rows) = &self.rows else {
            let problem = "a batch has no arrays; pass a loader of batches";
            return Err(Error::config("certify", problem));
        };
        let short = |&row: &u64| RowKey::Hash(row & ((1 << KEY_BITS) - 1));
        Ok(rows.iter().map(short).collect())
    }

    fn add(&mut self, name: &str, count: usize, of: impl Fn(usize) -> u64) -> Result<(), Error> {
        let rows = self.rows.get_or_insert_with(|| vec![ROWS; count]);
        if rows.len() != count {
            let problem = format!(
                "field {name} of a batch has {count} rows and the fields before it have {}; pass \
                 ids=",
                rows.len()
            );
            return Err(Error::config("certify", problem));
        }
        for (row, state) in rows.iter_mut().enumerate() {
            *state = hash(&[*state, of(row)]);
        }
        Ok(())
    }
}

/// Returns the hash of a row, or of its pieces and its length.
fn hash_pieces(row: &[u8]) -> u64 {
    if row.len() <= MAX_BYTES {
        return XxHash3_64::oneshot(row);
    }
    let mut pieces = [0; MAX_BYTES];
    for (number, piece) in pieces.chunks_exact_mut(PIECE_BYTES).enumerate() {
        let begin = number * (row.len() - PIECE_BYTES) / (PIECES - 1);
        piece.copy_from_slice(&row[begin..begin + PIECE_BYTES]);
    }
    hash(&[row.len() as u64, XxHash3_64::oneshot(&pieces)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use infeed_core::batch::{Array, Column};
    use infeed_core::sample::DType;

    fn keys(fields: &[(usize, &[u8])]) -> Vec<RowKey> {
        let mut hashes = RowHashes::default();
        for (rows, bytes) in fields {
            hashes.add_array("x", *rows, bytes).expect("equal rows");
        }
        hashes.keys().expect("a field")
    }

    #[test]
    fn the_hash_of_a_row_never_changes() {
        let long: Vec<u8> = (0..40_000_u32).map(|n| n.to_le_bytes()[1]).collect();

        let texts: Vec<String> = keys(&[(2, b"abcd"), (2, &long)])
            .iter()
            .map(RowKey::text)
            .collect();

        // Records are compared between versions and machines.
        assert_eq!(texts, ["d5244d24af44", "da32c7231304"]);
    }

    #[test]
    fn the_first_and_the_last_byte_of_a_long_row_count_and_so_does_its_length() {
        let whole = vec![7; 10_000];
        for at in [0, 9_999] {
            let mut changed = whole.clone();
            changed[at] = 8;
            assert_ne!(keys(&[(1, &whole)]), keys(&[(1, &changed)]));
        }
        assert_ne!(keys(&[(1, &whole)]), keys(&[(1, &whole[1..])]));
    }

    #[test]
    fn fields_count_in_their_order_and_rows_separately() {
        assert_ne!(keys(&[(1, b"a"), (1, b"b")]), keys(&[(1, b"b"), (1, b"a")]));
        assert_eq!(keys(&[(2, b"ab")])[1..], keys(&[(1, b"b")]));
        assert_eq!(keys(&[(3, b"")]).len(), 3);
    }

    #[test]
    fn columns_of_a_batch_count_as_the_same_fields_of_another_loader() {
        let numbers = |numbers: &[i64], shape: &[usize]| {
            let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_ne_bytes()).collect();
            Array::own(&bytes, shape.to_vec(), DType::Int64).expect("memory")
        };
        let column = |name: &str, values| Column {
            name: name.to_owned(),
            values,
        };
        let boxes = numbers(&[1, 2, 3, 4, 5, 6], &[3, 2]);
        let batch = Batch {
            columns: vec![
                column("x", Values::Array(numbers(&[8, 9], &[2]))),
                column("text", Values::Text(vec!["one".into(), "two".into()])),
                column(
                    "boxes",
                    Values::Ragged {
                        values: boxes.clone(),
                        offsets: numbers(&[0, 1, 3], &[3]),
                    },
                ),
            ],
            records: vec![0, 1],
            epoch: 0,
            step: 0,
        };
        let mut others = RowHashes::default();
        let x = numbers(&[8, 9], &[2]);
        others.add_array("x", 2, x.bytes()).expect("two rows");
        others.add_values("text", &["one", "two"]).expect("two");
        let (first, second) = boxes.bytes().split_at(16);
        others.add_values("boxes", &[first, second]).expect("two");

        let hashes = RowHashes::of_batch(&batch).expect("columns");
        assert_eq!(hashes, others.keys().expect("rows"));
    }
}
