//! Boxes, masks of boxes and points of a pipeline, which move with the images of a sample: one, or
//! those of a mosaic or a paste.

use super::boxes::{self, BoxesPlan, KeptBoxes};
use super::points::{self, PointsPlan};
use crate::fields::cells::copy;
use crate::fields::failure::{PartFailure, StageFailure};
use crate::fields::kind::{DrawnSample, KindPlan, PlanInput, own_bytes};
use crate::fields::moving::{SampleImages, StageShapes};
use crate::fields::scratch::FieldScratch;
use infeed_codec::decode::ImageFrame;
use infeed_codec::transform::{MovingBox, Step, Transform};
use infeed_core::batch::{ColumnKind, RowCell};
use infeed_core::error::Error;
use infeed_core::sample::{Record, Size};

/// The declared boxes and points of a pipeline.
#[derive(Clone, Debug, Default)]
pub(crate) struct MovedFields {
    pub(crate) boxes: Vec<BoxesPlan>,
    /// Points that are not in the columns of boxes.
    pub(crate) points: Vec<PointsPlan>,
    /// Most boxes of a sample for each box of its records.
    copies: u64,
}

/// Boxes for each box of a record if copies of objects are pasted: the object, its copy, and the
/// outline of that in the step that pastes it.
const WITH_COPIES: u64 = 3;

/// Plans the declared boxes and points.
pub(super) fn plan(
    input: &PlanInput<'_>,
    _: &dyn Fn(usize) -> bool,
) -> Result<Vec<Box<dyn KindPlan>>, Error> {
    let moved = MovedFields::new(input)?;
    Ok(match moved.boxes.is_empty() && moved.points.is_empty() {
        true => Vec::new(),
        false => vec![Box::new(moved)],
    })
}

impl MovedFields {
    /// Checks the declarations.
    pub(crate) fn new(input: &PlanInput<'_>) -> Result<MovedFields, Error> {
        let PlanInput {
            pipeline,
            fields,
            all,
            ..
        } = *input;
        let points = points::plans(pipeline, fields, all)?;
        let (boxes, points) = boxes::plans(pipeline, fields, points, all)?;
        let pastes = |one: &Transform| one.mirrored_paste().is_some();
        let copies = match pipeline.transforms.iter().any(pastes) {
            true => WITH_COPIES,
            false => 1,
        };
        Ok(MovedFields {
            boxes,
            points,
            copies,
        })
    }

    /// Upper bound of the memory for the masks and outlines of a sample: their rows, and planes.
    fn shape_bytes(&self, (images, shared): SampleImages<'_>) -> u64 {
        let mut bytes = 0_u64;
        for boxes in &self.boxes {
            let (mut masks, mut count, mut largest, mut painted) = (0_u64, 0_u64, 0, 0);
            for image in images {
                let mut size = image.frame.size;
                largest = size.pixels().max(largest);
                for (at, (_, step)) in image.steps.iter().chain(shared).enumerate() {
                    // Copies are painted before their step, which may not be drawn yet.
                    let pastes = matches!(step, Step::PasteMirrored(_));
                    if pastes || (self.copies > 1 && at >= image.steps.len()) {
                        painted = size.pixels().max(painted);
                    }
                    size = step.output_size(size);
                    largest = size.pixels().max(largest);
                }
                painted = size.pixels().max(painted);
                let own = boxes.count(&image.record.fields) * self.copies;
                count = count.saturating_add(own);
                masks = masks.saturating_add(size.pixels().saturating_mul(own));
            }
            if boxes.masks.is_some() {
                // Two planes and an outline.
                bytes = bytes.saturating_add(masks).saturating_add(3 * largest);
            }
            if let Some(outlines) = &boxes.outlines {
                bytes = bytes.saturating_add(outlines.bytes(images, self.copies, count, painted));
            }
        }
        bytes
    }
}

impl KindPlan for MovedFields {
    fn columns(&self) -> Vec<(usize, ColumnKind)> {
        let boxes = self.boxes.iter().flat_map(BoxesPlan::columns);
        let points = self.points.iter().map(|plan| (plan.field, plan.kind()));
        boxes.chain(points).collect()
    }

    fn describe(&self, field: usize) -> &'static str {
        let moves = self.boxes.iter().any(|boxes| boxes.moves(field))
            || self.points.iter().any(|points| points.field == field);
        match moves {
            true => "moved with the image",
            false => "rows of the boxes that stay",
        }
    }

    fn set_image_size(&mut self, size: Option<Size>) {
        for plan in &mut self.boxes {
            if let Some(masks) = &mut plan.masks {
                masks.size = size;
            }
            if let Some(outlines) = &mut plan.outlines {
                outlines.size = size;
            }
        }
    }

    fn boxes(&self, record: &Record, frame: ImageFrame) -> Result<Vec<MovingBox>, StageFailure> {
        let mut all = Vec::new();
        for boxes in &self.boxes {
            all.extend(boxes.start(&record.fields, frame)?);
        }
        Ok(all)
    }

    fn needs_contents(&self) -> bool {
        let mut boxes = self.boxes.iter();
        boxes.any(|boxes| boxes.masks.is_some() || boxes.outlines.is_some())
    }

    fn scratch_bytes(&self, sample: &DrawnSample<'_>) -> u64 {
        let records = sample.images.0.iter().map(|image| &image.record.fields);
        let boxes = records.flat_map(|record| {
            let plans = self.boxes.iter();
            plans.map(move |boxes| boxes.scratch_bytes(record))
        });
        let boxes = boxes.fold(0, u64::saturating_add);
        let boxes = boxes.saturating_mul(self.copies);
        boxes.saturating_add(self.shape_bytes(sample.images))
    }

    fn row_bytes(&self, sample: &DrawnSample<'_>) -> u64 {
        let stored = own_bytes(sample.record, &self.columns());
        let stored = stored.saturating_mul(self.copies);
        stored.saturating_add(self.shape_bytes(sample.images))
    }

    fn write(
        &self,
        sample: &DrawnSample<'_>,
        cells: &mut [RowCell],
        scratch: &mut FieldScratch,
    ) -> Result<(), PartFailure> {
        let images = sample.images;
        for boxes in &self.boxes {
            let kept = remaining_boxes_per_image(boxes, images)?;
            let mut order = KeptBoxes::positions(&kept);
            let outline = &mut scratch.masks.outline;
            if let Some(outlines) = &boxes.outlines {
                outlines.write(&kept, &mut order, cells, outline)?;
            }
            boxes.write(&kept, &order, cells);
            if let Some(masks) = &boxes.masks {
                masks.write(images, &kept, cells, scratch)?;
            }
        }
        let (images, shared) = images;
        for points in &self.points {
            let mut moved = Vec::new();
            for (part, image) in images.iter().enumerate() {
                let steps = image.steps.iter().chain(shared);
                let of = points.move_points(&image.record.fields, image.frame, steps);
                moved.extend_from_slice(&of.map_err(|failure| PartFailure { part, failure })?);
            }
            copy(points.field, &moved, &mut cells[points.field])?;
        }
        Ok(())
    }

    fn add_shapes(
        &self,
        images: SampleImages<'_>,
        scratch: &mut FieldScratch,
        shapes: &mut StageShapes,
    ) -> Result<(), StageFailure> {
        for boxes in &self.boxes {
            let kept = remaining_boxes_per_image(boxes, images)?;
            let mut of_images = kept.iter().map(KeptBoxes::numbers);
            for image in images.0 {
                let (own, copies) = (of_images.next(), image.copies(images.1));
                let of_copies = copies.as_ref().and_then(|_| of_images.next());
                for points in boxes.points() {
                    shapes.points.extend(points.visible(image, images.1, own)?);
                    if let Some(copies) = &copies {
                        let visible = points.visible(&copies.image(), &[], of_copies)?;
                        shapes.points.extend(visible);
                    }
                }
            }
            let corners = kept.iter().flat_map(KeptBoxes::corners);
            shapes.boxes.extend(corners);
            if let Some(masks) = &boxes.masks {
                shapes.objects = masks.objects(images, &kept, scratch)?;
            }
            if let Some(outlines) = &boxes.outlines {
                shapes.objects = outlines.objects(&kept, &mut scratch.masks.outline);
            }
        }
        for points in &self.points {
            for image in images.0 {
                shapes.points.extend(points.visible(image, images.1, None)?);
            }
        }
        Ok(())
    }
}

/// Returns the boxes that stay of each image, each followed by those of the copies of its objects.
pub(super) fn remaining_boxes_per_image(
    boxes: &BoxesPlan,
    (images, shared): SampleImages<'_>,
) -> Result<Vec<KeptBoxes>, PartFailure> {
    let mut all = Vec::with_capacity(images.len());
    for (part, image) in images.iter().enumerate() {
        let failed = |failure| PartFailure { part, failure };
        all.push(boxes.remaining_boxes(image, shared).map_err(failed)?);
        if let Some(copies) = image.copies(shared) {
            let kept = boxes.remaining_boxes(&copies.image(), &[]);
            let mut kept = kept.map_err(failed)?;
            kept.keep_only(&copies.objects);
            all.push(kept);
        }
    }
    Ok(all)
}
