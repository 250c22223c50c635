//! Boxes that stay in a sample.

use bytes::Bytes;

use infeed_codec::transform::{MovingOutlines, ObjectMap, PaintedObject};
use infeed_core::sample::Size;

/// Position of a box of a sample.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BoxPosition {
    /// Position of its image in the sample.
    pub(crate) image: usize,
    /// Position among the boxes of the image that stay.
    pub(crate) at: usize,
}

/// Boxes of a record that stay in a sample.
pub(crate) struct KeptBoxes {
    /// Bytes of the columns, with the rows of all boxes.
    pub(super) columns: Vec<Bytes>,
    /// Numbers of the boxes in their record.
    pub(super) numbers: Vec<usize>,
    /// Left, top, right and bottom of each in pixels of the sample.
    pub(super) corners: Vec<[f64; 4]>,
    /// Outlines of all boxes of the record.
    pub(crate) outlines: Option<MovingOutlines>,
    /// Number of boxes of the record.
    pub(crate) of: usize,
    /// Size of the sample's image.
    pub(crate) size: Size,
}

impl KeptBoxes {
    /// Drops the boxes without these numbers.
    pub(crate) fn keep_only(&mut self, numbers: &[usize]) {
        let is_kept = self.numbers.iter().map(|number| numbers.contains(number));
        let mut is_kept = is_kept.collect::<Vec<bool>>().into_iter();
        self.corners.retain(|_| is_kept.next().unwrap_or(false));
        self.numbers.retain(|number| numbers.contains(number));
    }

    /// Returns the corners of the visible polygons of the outline of a box that stays.
    pub(crate) fn polygons(&self, at: usize) -> impl Iterator<Item = Vec<[f64; 2]>> {
        let number = self.numbers[at];
        let outlines = self.outlines.iter();
        outlines.flat_map(move |of| of.visible_polygons(number))
    }

    /// Paints the outline of a box that stays.
    pub(crate) fn paint(&self, at: usize, map: ObjectMap, scratch: &mut Vec<u8>) -> PaintedObject {
        let number = self.numbers[at];
        let outlines = self.outlines.as_ref();
        outlines.map_or_else(PaintedObject::default, |of| of.paint(number, map, scratch))
    }

    /// Returns left, top, right and bottom of each box, in pixels of the sample.
    pub(crate) fn corners(&self) -> &[[f64; 4]] {
        &self.corners
    }

    /// Returns the position of each box of a sample, by image and number of the box that stays.
    pub(crate) fn positions(images: &[KeptBoxes]) -> Vec<BoxPosition> {
        let images = images.iter().enumerate();
        let boxes = images.flat_map(|(image, of)| (0..of.numbers.len()).map(move |at| (image, at)));
        boxes.map(|(image, at)| BoxPosition { image, at }).collect()
    }

    /// Returns the numbers of the boxes in their record.
    pub(crate) fn numbers(&self) -> &[usize] {
        &self.numbers
    }
}
