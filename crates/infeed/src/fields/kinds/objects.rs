//! Objects of an image: boxes with their masks, which can be pasted on another image.

use super::boxes::BoxesPlan;
use super::masks::MasksPlan;
use super::moved_fields::MovedFields;
use crate::fields::failure::StageFailure;
use crate::fields::moving::{PaintedPlane, SampleImage};
use crate::fields::scratch::FieldScratch;
use infeed_codec::transform::MovingBox;
use infeed_core::sample::Record;

/// The objects of a pipeline.
#[derive(Debug)]
pub(crate) struct ObjectsPlan {
    boxes: Box<BoxesPlan>,
    masks: MasksPlan,
}

impl ObjectsPlan {
    /// Takes the objects of the declared fields. An error is the reason why they cannot be pasted.
    pub(crate) fn new(fields: MovedFields) -> Result<ObjectsPlan, String> {
        let MovedFields { mut boxes, points } = fields;
        if let Some(points) = points.first() {
            return Err(format!(
                "it pastes some objects of another image, and the points in `{}` belong to no \
                 object; add them to the columns of boxes",
                points.name()
            ));
        }
        let last = boxes.pop();
        if !boxes.is_empty() {
            return Err("a pipeline with it can have one field of boxes; remove one".to_owned());
        }
        if last.as_ref().is_some_and(|boxes| boxes.outlines.is_some()) {
            return Err(
                "it pastes objects by their masks, and outlines would not follow; declare the \
                 field with masks= instead of outlines="
                    .to_owned(),
            );
        }
        let objects = last.and_then(|mut boxes| {
            let masks = boxes.masks.take()?;
            Some(ObjectsPlan {
                boxes: Box::new(boxes),
                masks,
            })
        });
        objects.ok_or_else(|| {
            "it pastes objects by their masks; declare these with .boxes(..., masks=...)".to_owned()
        })
    }

    /// Returns the number of objects of a record.
    pub(crate) fn count(&self, record: &Record) -> u64 {
        self.boxes.count(&record.fields)
    }

    /// Returns the boxes of all objects of an image after its own steps.
    pub(crate) fn boxes(&self, image: &SampleImage<'_>) -> Result<Vec<MovingBox>, StageFailure> {
        Ok(self.boxes.move_boxes(image, &[])?.0)
    }

    /// Paints the masks of the objects that `boxes` keeps.
    pub(crate) fn masks(
        &self,
        image: &SampleImage<'_>,
        boxes: &[MovingBox],
        scratch: &mut FieldScratch,
    ) -> Result<Vec<PaintedPlane>, StageFailure> {
        self.masks.paint_planes(image, boxes, scratch)
    }
}
