//! Boxes that stay in a sample.

use bytes::Bytes;

use infeed_core::sample::Size;

/// Boxes of a record that stay in a sample.
pub(crate) struct KeptBoxes {
    /// Bytes of the columns, with the rows of all boxes.
    pub(super) columns: Vec<Bytes>,
    /// Numbers of the boxes in their record.
    pub(super) numbers: Vec<usize>,
    /// Left, top, right and bottom of each in pixels of the sample.
    pub(super) corners: Vec<[f64; 4]>,
    /// Number of boxes of the record.
    pub(crate) of: usize,
    /// Size of the sample's image.
    pub(crate) size: Size,
}

impl KeptBoxes {
    /// Returns left, top, right and bottom of each box, in pixels of the sample.
    pub(crate) fn corners(&self) -> &[[f64; 4]] {
        &self.corners
    }

    /// Returns the numbers of the boxes in their record.
    pub(crate) fn numbers(&self) -> &[usize] {
        &self.numbers
    }
}
