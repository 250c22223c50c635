//! Random parameters of a sample: functions of the seed, the epoch and the position.

use std::ops::Range;

use super::join::JoinDraw;
use super::sample_plan::SamplePlan;
use crate::fields::failure::{SampleError, StageFailure};
use crate::fields::scratch::Position;
use infeed_codec::decode::ImageFrame;
use infeed_codec::transform::{MovingBox, Rng, Step, Transform, fuse};
use infeed_core::sample::{Record, Size};

/// An image after the steps that were drawn for it so far.
pub(crate) struct DrawnImage {
    /// Index of its field.
    pub(crate) field: usize,
    pub(crate) size: Size,
    /// Boxes, if draws depend on them.
    pub(crate) boxes: Vec<MovingBox>,
    /// Sizes of the record, each with the index of the transform that takes it.
    pub(crate) sizes: Vec<(usize, Size)>,
    /// Steps, each with the index of its transform.
    pub(crate) steps: Vec<(usize, Step)>,
}

impl DrawnImage {
    /// Adds a step of a transform.
    pub(crate) fn add(&mut self, transform: usize, step: Step) {
        for one in &mut self.boxes {
            one.follow(&step, self.size);
        }
        self.size = step.output_size(self.size);
        self.steps.push((transform, step));
    }

    /// Fuses the steps from a number on whose transforms have at least this index. `size` is that of
    /// the image before these steps.
    fn fuse(&mut self, number: usize, index: usize, size: Size) {
        let mut own = self.steps.split_off(number);
        let kept = own.iter().take_while(|(transform, _)| *transform < index);
        let (kept, size) = kept.fold((0, size), |(kept, size), (_, step)| {
            (kept + 1, step.output_size(size))
        });
        let rest = own.split_off(kept);
        self.steps.append(&mut own);
        self.steps.append(&mut fuse(rest, size));
    }
}

impl SamplePlan {
    /// Draws the partners of a position: a function of the seed, epoch, position and the positions
    /// in `near`. None if its record is alone.
    pub fn join(&self, at: Position, near: impl FnOnce() -> Range<u64>) -> Option<JoinDraw> {
        let rng =
            |position: u64, number: usize| Rng::new(self.seed, at.epoch, position, number as u64);
        self.join.as_ref()?.draw(at.position, near, rng)
    }

    /// Returns the image of a record before any step, with its boxes if draws depend on them.
    pub(crate) fn undrawn(
        &self,
        record: &Record,
        field: usize,
        frame: ImageFrame,
    ) -> Result<DrawnImage, StageFailure> {
        let mut boxes = Vec::new();
        if self.transforms.iter().any(Transform::needs_boxes) {
            for plan in &self.kinds {
                boxes.extend(plan.boxes(record, frame)?);
            }
        }
        let sizes = self.sizes.iter().map(|own| own.read(record));
        Ok(DrawnImage {
            field,
            size: frame.size,
            boxes,
            sizes: sizes.collect::<Result<_, _>>()?,
            steps: Vec::new(),
        })
    }

    /// Draws the steps of some transforms.
    pub(crate) fn draw_more(
        &self,
        transforms: Range<usize>,
        at: Position,
        drawn: &mut DrawnImage,
    ) -> Result<(), StageFailure> {
        let (first, size) = (drawn.steps.len(), drawn.size);
        for number in transforms {
            let transform = &self.transforms[number];
            let mut rng = Rng::new(self.seed, at.epoch, at.position, number as u64);
            let left = drawn.boxes.iter().filter(|one| one.is_left());
            let boxes: Vec<[f64; 4]> = left.map(MovingBox::visible).collect();
            let own = drawn.sizes.iter().find(|(at, _)| *at == number);
            let own = own.and_then(|(_, size)| transform.with_size(*size));
            let steps = own
                .as_ref()
                .unwrap_or(transform)
                .draw_around(drawn.size, &boxes, &mut rng)
                .map_err(|error| StageFailure {
                    field: drawn.field,
                    transform: Some(transform.name()),
                    error: SampleError::Transform(error),
                })?;
            steps.into_iter().for_each(|step| drawn.add(number, step));
        }
        if let Some(index) = self.fuses_from {
            drawn.fuse(first, index, size);
        }
        Ok(())
    }

    /// Draws the steps of some transforms on an image of this size that a transform joined of these
    /// images.
    pub(crate) fn draw_joined<'a>(
        &self,
        transforms: Range<usize>,
        size: Size,
        images: impl Iterator<Item = &'a DrawnImage>,
        at: Position,
    ) -> Result<Vec<(usize, Step)>, StageFailure> {
        let mut canvas = DrawnImage {
            field: 0,
            size,
            boxes: Vec::new(),
            sizes: Vec::new(),
            steps: Vec::new(),
        };
        for image in images {
            canvas.field = image.field;
            canvas.boxes.extend_from_slice(&image.boxes);
        }
        self.draw_more(transforms, at, &mut canvas)?;
        Ok(canvas.steps)
    }
}
