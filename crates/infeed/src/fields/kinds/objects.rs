//! Objects of an image: boxes with their masks or outlines, which can be pasted on an image.

use super::boxes::BoxesPlan;
use super::masks::MasksPlan;
use super::moved_fields::{MovedFields, remaining_boxes_per_image};
use crate::fields::failure::{PartFailure, StageFailure};
use crate::fields::moving::{PaintedPlane, SampleImage, SampleImages};
use crate::fields::scratch::FieldScratch;
use infeed_codec::transform::{MovingBox, OutlinedObject};
use infeed_core::sample::Record;

/// Returns the boxes of a pipeline that pastes objects, if it has any. An error is the reason why it
/// cannot.
fn single_boxes(fields: MovedFields) -> Result<Option<BoxesPlan>, String> {
    let MovedFields {
        mut boxes, points, ..
    } = fields;
    if let Some(points) = points.first() {
        return Err(format!(
            "it pastes objects, and the points in `{}` belong to no object; add them to the columns \
             of boxes",
            points.name()
        ));
    }
    let single = boxes.pop();
    match boxes.is_empty() {
        true => Ok(single),
        false => Err("a pipeline with it can have one field of boxes; remove one".to_owned()),
    }
}

/// The objects of a pipeline that have outlines.
#[derive(Debug)]
pub(crate) struct OutlinedObjectsPlan(Box<BoxesPlan>);

impl OutlinedObjectsPlan {
    /// Takes the objects of the declared fields. An error is the reason why they cannot be pasted.
    pub(crate) fn new(fields: MovedFields) -> Result<OutlinedObjectsPlan, String> {
        match single_boxes(fields)? {
            Some(boxes) if boxes.outlines.is_some() => Ok(OutlinedObjectsPlan(Box::new(boxes))),
            _ => Err(
                "it copies objects inside their outlines; declare these with .boxes(..., \
                 outlines=...)"
                    .to_owned(),
            ),
        }
    }

    /// Returns the objects that stay of all images.
    pub(crate) fn remaining_objects(
        &self,
        images: SampleImages<'_>,
    ) -> Result<Vec<OutlinedObject>, PartFailure> {
        let mut objects = Vec::new();
        let kept = remaining_boxes_per_image(&self.0, images)?;
        for (image, kept) in kept.iter().enumerate() {
            let left = kept.numbers().iter().zip(kept.corners()).enumerate();
            objects.extend(left.map(|(at, (number, corners))| OutlinedObject {
                number: [image, *number],
                corners: *corners,
                polygons: kept.polygons(at).collect(),
            }));
        }
        Ok(objects)
    }
}

/// The objects of a pipeline that have masks.
#[derive(Debug)]
pub(crate) struct ObjectsPlan {
    boxes: Box<BoxesPlan>,
    masks: MasksPlan,
}

impl ObjectsPlan {
    /// Takes the objects of the declared fields. An error is the reason why they cannot be pasted.
    pub(crate) fn new(fields: MovedFields) -> Result<ObjectsPlan, String> {
        let mut boxes = single_boxes(fields)?;
        if boxes.as_ref().is_some_and(|boxes| boxes.outlines.is_some()) {
            return Err(
                "it pastes objects by their masks, and outlines would not follow; declare the \
                 field with masks= instead of outlines="
                    .to_owned(),
            );
        }
        let masks = boxes.as_mut().and_then(|boxes| boxes.masks.take());
        match (boxes, masks) {
            (Some(boxes), Some(masks)) => Ok(ObjectsPlan {
                boxes: Box::new(boxes),
                masks,
            }),
            _ => Err(
                "it pastes objects by their masks; declare these with .boxes(..., masks=...)"
                    .to_owned(),
            ),
        }
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
