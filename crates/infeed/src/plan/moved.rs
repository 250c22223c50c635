//! The boxes and points of a sample, which move with its images: one, or those of a mosaic.

use super::Plan;
use super::boxes::{BoxesPlan, KeptBoxes};
use super::failure::StageFailure;
use super::mosaic::TileFailure;
use super::sample::{SampleScratch, VisualField, copy};
use infeed_codec::decode::ImageFrame;
use infeed_codec::transform::Step;
use infeed_core::batch::RowCell;
use infeed_core::sample::Record;

/// An image of a sample, with which the boxes and points of its record move.
pub(super) struct SampleImage<'a> {
    pub(super) record: &'a Record,
    pub(super) frame: ImageFrame,
    /// Steps before those that all images of the sample share.
    pub(super) steps: &'a [(usize, Step)],
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
    /// Writes the boxes that stay in a sample, with their columns and masks, and the points.
    pub(super) fn write_boxes(
        &self,
        images: SampleImages<'_>,
        cells: &mut [RowCell],
        scratch: &mut SampleScratch,
    ) -> Result<(), TileFailure> {
        for boxes in &self.boxes {
            let kept = kept(boxes, images)?;
            boxes.write(&kept, cells);
            if let Some(masks) = &boxes.masks {
                masks.write(images, &kept, cells, scratch)?;
            }
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
