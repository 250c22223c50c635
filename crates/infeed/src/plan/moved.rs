//! The boxes and points of a sample, which move with its images: one, or those of a mosaic.

use super::Plan;
use super::boxes::{BoxesPlan, KeptBoxes};
use super::failure::StageFailure;
use super::mosaic::TileFailure;
use super::sample::{VisualField, copy};
use infeed_codec::decode::ImageFrame;
use infeed_codec::transform::Step;
use infeed_core::batch::RowCell;
use infeed_core::sample::Record;

/// An image of a sample, with which the boxes and points of its record move.
pub(super) struct SampleImage<'a> {
    record: &'a Record,
    frame: ImageFrame,
    /// Steps before those that all images of the sample share.
    steps: &'a [(usize, Step)],
}

/// Images of a sample, and the steps that they share.
pub(super) type SampleImages<'a> = (&'a [SampleImage<'a>], &'a [(usize, Step)]);

impl<'a> SampleImage<'a> {
    /// Creates an image of a record with its own steps.
    pub(super) fn new(
        record: &'a Record,
        first: &VisualField<'_>,
        steps: &'a [(usize, Step)],
    ) -> SampleImage<'a> {
        SampleImage {
            record,
            frame: first.frame,
            steps,
        }
    }
}

impl Plan {
    /// Writes the boxes that stay in a sample, with their columns, and the points.
    pub(super) fn write_boxes(
        &self,
        images: SampleImages<'_>,
        cells: &mut [RowCell],
    ) -> Result<(), TileFailure> {
        for boxes in &self.boxes {
            boxes.write(&kept(boxes, images)?, cells);
        }
        let (images, shared) = images;
        for points in &self.points {
            let mut moved = Vec::new();
            for (tile, image) in images.iter().enumerate() {
                let steps = image.steps.iter().chain(shared);
                let of = points.moved(&image.record.fields, image.frame, steps);
                moved.extend_from_slice(&of.map_err(|failure| TileFailure { tile, failure })?);
            }
            copy(points.field, &moved, &mut cells[points.field])?;
        }
        Ok(())
    }

    /// Returns left, top, right and bottom of the boxes that stay in a sample.
    pub(super) fn outlines(&self, images: SampleImages<'_>) -> Result<Vec<[f64; 4]>, StageFailure> {
        let mut outlines = Vec::new();
        for boxes in &self.boxes {
            for kept in kept(boxes, images)? {
                outlines.extend(kept.corners());
            }
        }
        Ok(outlines)
    }
}

/// Returns the boxes that stay of each image.
fn kept(
    boxes: &BoxesPlan,
    (images, shared): SampleImages<'_>,
) -> Result<Vec<KeptBoxes>, TileFailure> {
    let one = |(tile, image): (usize, &SampleImage<'_>)| {
        let steps = image.steps.iter().chain(shared);
        let kept = boxes.kept(&image.record.fields, image.frame, steps);
        kept.map_err(|failure| TileFailure { tile, failure })
    };
    images.iter().enumerate().map(one).collect()
}
