//! The boxes, masks and points of a sample, which move with its images: one, or those of a mosaic or a
//! paste.

use super::boxes::{self, BoxesPlan, KeptBoxes};
use super::cells::copy;
use super::failure::{StageFailure, TileFailure};
use super::moving::{SampleImage, SampleImages};
use super::points::{self, PointsPlan};
use super::scratch::FieldScratch;
use crate::pipeline::Pipeline;
use infeed_codec::decode::ImageFrame;
use infeed_codec::transform::MovingBox;
use infeed_core::batch::{Array, ColumnKind, RowCell};
use infeed_core::error::Error;
use infeed_core::sample::{Field, Record, Size};

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

/// The declared boxes and points of a pipeline.
#[derive(Clone, Debug, Default)]
pub(crate) struct MovedFields {
    pub(crate) boxes: Vec<BoxesPlan>,
    /// Points that are not in the columns of boxes.
    pub(crate) points: Vec<PointsPlan>,
}

impl MovedFields {
    /// Checks the declarations. `all` says whether `fields` are all fields of the source.
    pub(crate) fn new(
        pipeline: &Pipeline,
        fields: &[Field],
        all: bool,
    ) -> Result<MovedFields, Error> {
        let points = points::plans(pipeline, fields, all)?;
        let (boxes, points) = boxes::plans(pipeline, fields, points, all)?;
        Ok(MovedFields { boxes, points })
    }

    /// Returns the kind of the column of a field; `None` if the field does not move with the image.
    pub(crate) fn kind_of(&self, field: usize) -> Option<ColumnKind> {
        let boxes = self.boxes.iter().find_map(|plan| plan.kind_of(field));
        boxes.or_else(|| {
            let mut points = self.points.iter();
            Some(points.find(|plan| plan.field == field)?.kind())
        })
    }

    /// Whether the values of a field move with the image, and not only the choice of its rows.
    pub(crate) fn moves(&self, field: usize) -> bool {
        self.boxes.iter().any(|boxes| boxes.moves(field))
            || self.points.iter().any(|points| points.field == field)
    }

    /// Sets the size of all masks of boxes, and returns their fields.
    pub(crate) fn set_mask_size(&mut self, size: Option<Size>) -> Vec<usize> {
        let masks = self.boxes.iter_mut().filter_map(|plan| plan.masks.as_mut());
        let set = masks.map(|masks| {
            masks.size = size;
            masks.field
        });
        set.collect()
    }

    /// Whether boxes have masks.
    pub(crate) fn has_masks(&self) -> bool {
        self.boxes.iter().any(|boxes| boxes.masks.is_some())
    }

    /// Returns the boxes of a record before any step.
    pub(crate) fn start(
        &self,
        record: &Record,
        frame: ImageFrame,
    ) -> Result<Vec<MovingBox>, StageFailure> {
        let mut all = Vec::new();
        for boxes in &self.boxes {
            all.extend(boxes.start(&record.fields, frame)?);
        }
        Ok(all)
    }

    /// Upper bound of the memory for the boxes of a sample, and for the mask of each box, while it
    /// is made.
    pub(crate) fn scratch_bytes(&self, images: SampleImages<'_>) -> u64 {
        let records = images.0.iter().map(|image| &image.record.fields);
        let boxes = records.flat_map(|record| {
            let plans = self.boxes.iter();
            plans.map(move |boxes| boxes.scratch_bytes(record))
        });
        boxes.fold(self.mask_bytes(images), u64::saturating_add)
    }

    /// Upper bound of the memory for the masks of a sample: their rows, and planes.
    pub(crate) fn mask_bytes(&self, (images, shared): SampleImages<'_>) -> u64 {
        let (mut rows, mut largest) = (0_u64, 0);
        for boxes in self.boxes.iter().filter(|boxes| boxes.masks.is_some()) {
            for image in images {
                let mut size = image.frame.size;
                largest = size.pixels().max(largest);
                for (_, step) in image.steps.iter().chain(shared) {
                    size = step.output_size(size);
                    largest = size.pixels().max(largest);
                }
                let row = size
                    .pixels()
                    .saturating_mul(boxes.count(&image.record.fields));
                rows = rows.saturating_add(row);
            }
        }
        // Two planes and an outline.
        rows.saturating_add(3 * largest)
    }

    /// Writes the boxes that stay in a sample, with their columns and masks, and the points.
    pub(crate) fn write(
        &self,
        images: SampleImages<'_>,
        cells: &mut [RowCell],
        scratch: &mut FieldScratch,
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
    pub(crate) fn shapes(
        &self,
        images: SampleImages<'_>,
        scratch: &mut FieldScratch,
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
