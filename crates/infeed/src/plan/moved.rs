//! The boxes, masks and points of a sample, which move with its images: one, or those of a mosaic or a
//! paste.

use super::Plan;
use super::boxes::{BoxesPlan, KeptBoxes};
use super::copy_paste::PastedObjects;
use super::failure::StageFailure;
use super::mosaic::TileFailure;
use super::sample::{SampleScratch, VisualField, copy};
use infeed_codec::decode::ImageFrame;
use infeed_codec::transform::Step;
use infeed_core::batch::{Array, RowCell};
use infeed_core::sample::Record;

/// An image of a sample, with which the boxes and points of its record move.
pub(super) struct SampleImage<'a> {
    pub(super) record: &'a Record,
    pub(super) frame: ImageFrame,
    /// Steps before those that all images of the sample share.
    pub(super) steps: &'a [(usize, Step)],
    /// Boxes and masks after these steps, if objects were pasted.
    pub(super) pasted: Option<&'a PastedObjects>,
}

/// Boxes, points and masks of a stage of a preview.
#[derive(Clone, Debug, Default)]
pub struct StageShapes {
    /// Left, top, right and bottom of the boxes that stay, in pixels.
    pub boxes: Vec<[f64; 4]>,
    /// Column and row of each visible point.
    pub points: Vec<[f64; 2]>,
    /// Object of each pixel, uint8 `[height, width]`: 0 for none, else a number from 1. `None`
    /// without masks.
    pub objects: Option<Array>,
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
            pasted: None,
        }
    }

    /// Sets boxes and masks after the image's own steps.
    pub(super) fn pasted(self, objects: &'a PastedObjects) -> SampleImage<'a> {
        let pasted = Some(objects);
        SampleImage { pasted, ..self }
    }
}

impl Plan {
    /// Bytes of memory for the boxes of a sample, and for the mask of each box, while it is made.
    pub(super) fn box_bytes(&self, images: SampleImages<'_>) -> u64 {
        let records = images.0.iter().map(|image| &image.record.fields);
        let boxes = records.flat_map(|record| {
            let plans = self.boxes.iter();
            plans.map(move |boxes| boxes.scratch_bytes(record))
        });
        boxes.fold(self.mask_bytes(images), u64::saturating_add)
    }

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

    /// Returns boxes, points and masks that stay in a sample, in pixels of its image.
    pub(super) fn shapes(
        &self,
        images: SampleImages<'_>,
        scratch: &mut SampleScratch,
    ) -> Result<StageShapes, StageFailure> {
        let mut shapes = StageShapes::default();
        for boxes in &self.boxes {
            let kept = kept(boxes, images)?;
            for (image, kept) in images.0.iter().zip(&kept) {
                shapes.boxes.extend(kept.corners());
                for points in boxes.points() {
                    shapes
                        .points
                        .extend(points.visible(image, images.1, Some(kept.numbers()))?);
                }
            }
            if let Some(masks) = &boxes.masks {
                shapes.objects = masks.objects(images, &kept, scratch)?;
            }
        }
        for points in &self.points {
            for image in images.0 {
                shapes.points.extend(points.visible(image, images.1, None)?);
            }
        }
        Ok(shapes)
    }
}

/// Returns the boxes that stay of each image.
fn kept(
    boxes: &BoxesPlan,
    (images, shared): SampleImages<'_>,
) -> Result<Vec<KeptBoxes>, TileFailure> {
    let one = |(tile, image): (usize, &SampleImage<'_>)| {
        let kept = boxes.kept(image, shared);
        kept.map_err(|failure| TileFailure { tile, failure })
    };
    images.iter().enumerate().map(one).collect()
}
