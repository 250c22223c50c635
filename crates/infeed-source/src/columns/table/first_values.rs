//! The first values of a table, which decide the kinds of columns.

use std::io;

use arrow_array::{Array as _, ArrayRef};

use super::cells::{Cells, struct_child};
use infeed_codec::decode::Format;

/// Values of the first records, which decide the kinds of columns.
pub(crate) trait FirstValues {
    /// Location of the values for error messages.
    fn name(&self) -> String;

    /// Passes the first values of a column of bytes, or of a child of its structs, to `seen`.
    ///
    /// # Errors
    ///
    /// The storage's error, or the reason why all of the first values are invalid.
    fn scan(&mut self, column: usize, children: &[String], seen: &mut FirstBytes)
    -> io::Result<()>;

    /// Returns the words of a column's dictionary, if all of the data shares one.
    ///
    /// # Errors
    ///
    /// As [`FirstValues::scan`].
    fn words(&mut self, column: usize) -> io::Result<Option<Vec<String>>>;
}

/// Number of first values that decide whether a column of bytes holds images.
const FIRST_VALUES: usize = 16;

/// The first values of a column of bytes that are not null.
#[derive(Debug, Default)]
pub(crate) struct FirstBytes {
    values: usize,
    images: usize,
}

impl FirstBytes {
    /// Whether a value begins like an image. One is enough: the others may be damaged.
    pub(crate) fn has_image(&self) -> bool {
        self.images > 0
    }

    /// Whether there was any value.
    pub(crate) fn has_values(&self) -> bool {
        self.values > 0
    }

    /// Whether further values change nothing.
    pub(crate) fn is_decided(&self) -> bool {
        self.has_image() || self.values >= FIRST_VALUES
    }

    /// Looks at the values of an array, or of a child of its structs.
    pub(crate) fn add_values(&mut self, array: &ArrayRef, children: &[String]) {
        let found = struct_child(array, children);
        let Some((array, cells)) = found.and_then(|(array, _)| {
            let cells = Cells::bytes(&array)?;
            Some((array, cells))
        }) else {
            return;
        };
        for row in (0..array.len()).filter(|&row| array.is_valid(row)) {
            if self.is_decided() {
                return;
            }
            if let Ok(value) = cells.get(row, &"first".into()) {
                self.values += 1;
                self.images += usize::from(Format::of(&value).is_some());
            }
        }
    }
}
