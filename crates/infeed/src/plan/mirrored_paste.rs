//! `MirroredPaste` of a pipeline, checked, and the copies of a sample.

use crate::fields::failure::{PartFailure, part_name};
use crate::fields::kind::PlanInput;
use crate::fields::kinds::moved_fields::MovedFields;
use crate::fields::kinds::objects::OutlinedObjectsPlan;
use crate::fields::moving::SampleImage;
use infeed_codec::transform::{MirroredPaste, Step};
use infeed_core::error::Error;
use infeed_core::sample::Size;

/// The mirrored copies of a pipeline.
#[derive(Debug)]
pub(crate) struct MirroredPastePlan {
    /// Index of the transform.
    pub(crate) number: usize,
    paste: MirroredPaste,
    objects: OutlinedObjectsPlan,
}

/// Checks the transform of a pipeline, if there is one.
pub(super) fn plan(input: &PlanInput<'_>) -> Result<Option<MirroredPastePlan>, Error> {
    let pipeline = input.pipeline;
    let mut all = pipeline.transforms.iter().enumerate();
    let found = all.find_map(|(number, one)| Some((number, one, one.mirrored_paste()?)));
    let Some((number, transform, paste)) = found else {
        return Ok(None);
    };
    let wrong = |problem: String| Err(Error::config(part_name(number, transform), problem));
    let mut rest = pipeline.transforms[number + 1..].iter();
    if let Some(after) = rest.find(|after| after.needs_boxes()) {
        return wrong(format!(
            "put it after {}, which crops around boxes",
            after.name()
        ));
    }
    if pipeline.fuse {
        return wrong("fuse=True would join the warps before and after it; remove fuse".to_owned());
    }
    match OutlinedObjectsPlan::new(MovedFields::new(input)?) {
        Err(problem) => wrong(problem),
        Ok(objects) => Ok(Some(MirroredPastePlan {
            number,
            paste: paste.clone(),
            objects,
        })),
    }
}

impl MirroredPastePlan {
    /// Inserts the step that pastes the copies of the objects of a canvas into the steps that its
    /// images share. `size` is that of the canvas before these. Returns the position of the step;
    /// none without copies.
    pub(crate) fn add_copies(
        &self,
        images: &[SampleImage<'_>],
        shared: &mut Vec<(usize, Step)>,
        size: Size,
    ) -> Result<Option<usize>, PartFailure> {
        let at = shared.partition_point(|(transform, _)| *transform < self.number);
        let before = &shared[..at];
        let size = before
            .iter()
            .fold(size, |size, (_, step)| step.output_size(size));
        let objects = self.objects.remaining_objects((images, before))?;
        Ok(self.paste.choose(&objects, size).map(|step| {
            shared.insert(at, (self.number, step));
            at
        }))
    }
}
