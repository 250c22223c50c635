//! One sample, stage by stage, without push-down or fusion. Serves for inspection, and as the
//! reference of the fast plan.

use std::ops::Range;

use super::sample_maker::{SampleMaker, SampleRecord};
use crate::fields::failure::{PartFailure, SampleError, StageFailure};
use crate::fields::moving::{SampleImage, SampleImages};
use crate::fields::pixels::header::VisualField;
use crate::fields::steps::Flips;
use crate::plan::function_values::values_from;
use crate::plan::join::{JoinDraw, JoinPlan};
use crate::plan::measure;
use infeed_codec::decode::Request;
use infeed_codec::transform::{PixelView, Step};
use infeed_core::batch::{Array, Values};
use infeed_core::error::MemoryPurpose;
use infeed_core::sample::{Image, Pixels, Region};

pub use crate::fields::moving::StageShapes;

/// A sample after one stage.
#[derive(Clone, Debug)]
pub struct PreviewStage {
    /// `decode`, the name of a transform, or `output`.
    pub name: &'static str,
    /// Drawn parameters as text; empty without draws.
    pub draws: String,
    /// Values by field: images as `[H, W, C]`; in the last stage, one row of the batch. The stage
    /// of `MixUp` and `CutMix` has the finished partner.
    pub fields: Vec<(String, Values)>,
    /// Boxes, points and masks that stay.
    pub shapes: StageShapes,
}

impl SampleMaker<'_> {
    /// Runs the records of a sample through every stage separately. Up to the transform that joins
    /// them, the stages are those of the first record.
    ///
    /// # Errors
    ///
    /// As [`SampleMaker::make`].
    ///
    /// # Panics
    ///
    /// As [`SampleMaker::make`].
    pub fn preview(
        &mut self,
        records: &[SampleRecord<'_>],
        drawn: Option<&JoinDraw>,
    ) -> Result<Vec<PreviewStage>, PartFailure> {
        match (&self.plan.join, drawn) {
            (Some(join), Some(JoinDraw::Mosaic(drawn))) if let Some(own) = join.mosaic() => {
                self.preview_mosaic(records, (own, drawn))
            }
            (Some(JoinPlan::ImageMixUp(own)), Some(JoinDraw::ImageMixUp(drawn))) => {
                self.preview_blended(records, (own, drawn))
            }
            (Some(JoinPlan::CopyPaste(own)), Some(JoinDraw::CopyPaste(drawn))) => {
                self.preview_pasted(records, (own, drawn))
            }
            (Some(JoinPlan::Mix(own)), Some(JoinDraw::Mix(drawn))) => {
                self.preview_mixed(records, (own, drawn))
            }
            _ => Ok(self.preview_one(records[0])?),
        }
    }

    /// Runs one record through every stage.
    pub(super) fn preview_one(
        &mut self,
        of: SampleRecord<'_>,
    ) -> Result<Vec<PreviewStage>, StageFailure> {
        let visuals = self.headers(of, 0)?;
        let drawn = self.draw(of, &visuals)?;
        let images = visuals
            .first()
            .map(|first| SampleImage::new(of.record, first.frame, &[]));
        let boxed = (images.as_slice(), &drawn[..]);
        let mut pixels = self.decoded_whole(&visuals)?;
        let mut stages = self.first_stage(&visuals, boxed.0, &pixels)?;
        let all = 0..self.plan.transforms.len();
        let erase = self.preview_steps(all, &visuals, boxed, &mut pixels, &mut stages)?;
        stages.push(self.output(of, boxed, &pixels, &erase)?);
        Ok(stages)
    }

    /// Decodes the images and masks of a record.
    pub(super) fn decoded_whole(
        &mut self,
        visuals: &[VisualField<'_>],
    ) -> Result<Vec<(usize, Image)>, StageFailure> {
        let mut images = Vec::with_capacity(visuals.len());
        for visual in visuals {
            let failed = |error: SampleError| error.in_field(visual.field);
            let mut image = Image::default();
            match &visual.header {
                Some(header) => {
                    let request = Request {
                        orient: self.plan.decode.orient,
                        ..Request::whole(header, visual.plan.mode)
                    };
                    self.scratch
                        .decoder
                        .decode(visual.bytes, header, &request, &mut image)
                        .map_err(|error| failed(SampleError::Decode(error)))?;
                }
                None => {
                    image.reset(visual.size, visual.plan.channels, visual.plan.depth);
                    image.data.copy_from_slice(visual.bytes);
                }
            }
            images.push((visual.field, image));
        }
        Ok(images)
    }

    /// Returns the stage of the decoder, if there is one.
    pub(super) fn first_stage(
        &mut self,
        visuals: &[VisualField<'_>],
        boxed: &[SampleImage<'_>],
        images: &[(usize, Image)],
    ) -> Result<Vec<PreviewStage>, StageFailure> {
        let is_encoded = |visual: &VisualField<'_>| visual.plan.stored == Pixels::Encoded;
        if !visuals.iter().any(is_encoded) {
            return Ok(Vec::new());
        }
        let shapes = self.shapes((boxed, &[]))?;
        Ok(vec![self.stage("decode", String::new(), images, shapes)?])
    }

    /// Runs some transforms and adds their stages. Returns the rectangles to erase in the row.
    pub(super) fn preview_steps(
        &mut self,
        transforms: Range<usize>,
        visuals: &[VisualField<'_>],
        (boxed, drawn): SampleImages<'_>,
        images: &mut [(usize, Image)],
        stages: &mut Vec<PreviewStage>,
    ) -> Result<Vec<(Region, Vec<f64>)>, StageFailure> {
        let mut erase = Vec::new();
        for number in transforms {
            let own = drawn.iter().filter(|(of, _)| *of == number);
            let own: Vec<&Step> = own.map(|(_, step)| step).collect();
            let mut planned = visuals.iter().flat_map(|visual| &visual.plan.steps);
            if planned.any(|step| step.transform == number && step.erases_row()) {
                erase.extend(own.iter().filter_map(|step| match step {
                    Step::Erase { region, value } => Some((*region, value.clone())),
                    _ => None,
                }));
                continue;
            }
            if own.is_empty() {
                continue;
            }
            for step in &own {
                self.preview_step(step, images)?;
            }
            let draws: Vec<String> = own.iter().map(|step| step.to_string()).collect();
            let so_far = drawn.partition_point(|(of, _)| *of <= number);
            let shapes = self.shapes((boxed, &drawn[..so_far]))?;
            let name = self.plan.transforms[number].name();
            stages.push(self.stage(name, draws.join(", "), images, shapes)?);
        }
        Ok(erase)
    }

    /// Applies a step to images and masks.
    pub(super) fn preview_step(
        &mut self,
        step: &Step,
        images: &mut [(usize, Image)],
    ) -> Result<(), StageFailure> {
        for (field, image) in images {
            let is_mask = matches!(&self.plan.pixels[*field], Some(plan) if plan.is_mask);
            if is_mask && !step.applies_to_masks() {
                continue;
            }
            let mut out = Image::default();
            step.apply(
                PixelView::from(&*image),
                &mut out,
                is_mask,
                &mut self.scratch.transform,
            )
            .map_err(|error| StageFailure {
                field: *field,
                transform: Some(step.name()),
                error: SampleError::Transform(error),
            })?;
            *image = out;
        }
        Ok(())
    }

    /// Returns boxes, points and masks that stay in a sample, in pixels of its image.
    pub(super) fn shapes(&mut self, images: SampleImages<'_>) -> Result<StageShapes, StageFailure> {
        let mut shapes = StageShapes::default();
        for plan in &self.plan.kinds {
            plan.add_shapes(images, &mut self.scratch, &mut shapes)?;
        }
        Ok(shapes)
    }

    pub(super) fn stage(
        &self,
        name: &'static str,
        draws: String,
        images: &[(usize, Image)],
        shapes: StageShapes,
    ) -> Result<PreviewStage, StageFailure> {
        let value = |(field, image): &(usize, Image)| {
            let shape = vec![image.height(), image.width(), image.channels];
            let array = Array::own(&image.data, shape, image.depth.dtype())
                .map_err(|_| no_memory(*field))?;
            Ok((self.plan.columns[*field].name.clone(), Values::Array(array)))
        };
        let fields = images
            .iter()
            .map(value)
            .collect::<Result<_, StageFailure>>()?;
        Ok(PreviewStage {
            name,
            draws,
            fields,
            shapes,
        })
    }

    pub(super) fn output(
        &mut self,
        of: SampleRecord<'_>,
        boxed: SampleImages<'_>,
        images: &[(usize, Image)],
        erase: &[(Region, Vec<f64>)],
    ) -> Result<PreviewStage, StageFailure> {
        let shapes = self.shapes(boxed)?;
        let plan = self.plan;
        let sample = self.drawn_sample(of, boxed);
        let mut row = plan.spare_row();
        let scratch = &mut self.scratch;
        for kind in &plan.kinds {
            kind.write(&sample, &mut row.cells, scratch)?;
        }
        for (field, image) in images {
            let Some(pixels) = &plan.pixels[*field] else {
                continue;
            };
            let erase = if pixels.is_mask { &[][..] } else { erase };
            let written = pixels.write(
                PixelView::from(image),
                None,
                Flips::default(),
                erase,
                &mut row.cells[*field],
                &mut scratch.classes,
            );
            written.map_err(|error| error.in_field(*field))?;
        }
        measure(&plan.lists, &mut row);
        let fields = plan.pixels.len();
        let columns = &plan.columns[..fields];
        let values = values_from(columns, &mut row.cells[..fields]).map_err(no_memory)?;
        let fields = values
            .into_iter()
            .map(|column| (column.name, column.values));
        Ok(PreviewStage {
            name: "output",
            draws: String::new(),
            fields: fields.collect(),
            shapes,
        })
    }
}

pub(super) fn no_memory(field: usize) -> StageFailure {
    let error = SampleError::TooLarge {
        purpose: MemoryPurpose::Preview,
        needed_bytes: 0,
        limit_bytes: 0,
    };
    error.in_field(field)
}
