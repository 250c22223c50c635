//! Samples of several records, stage by stage.

use super::copy_paste::{choose, paste_where, resize_to_canvas};
use super::image_mixup::{ArrangedImage, ImageSource};
use super::mix::{blend, mix};
use super::mosaic::{ArrangedMosaic, clear};
use super::parts::{SamplePart, paste};
use super::preview::{PreviewStage, StageShapes, no_memory};
use super::sample_maker::{SampleMaker, SampleRecord};
use crate::fields::failure::{PartFailure, StageFailure};
use crate::fields::moving::SampleImage;
use crate::fields::steps::Flips;
use crate::plan::image_mixup::{ImageMixUpPlan, MixedImages};
use crate::plan::join::CopyPastePlan;
use crate::plan::mix::MixPlan;
use crate::plan::mosaic::MosaicPlan;
use infeed_codec::transform::{CopyPasteDraw, Mixing, MosaicDraw, PixelView};
use infeed_core::batch::{Array, RowCell, Values};
use infeed_core::sample::{Image, Region};

/// Images and masks, each with the number of its field.
type FieldImages = Vec<(usize, Image)>;

/// A mosaic after some of its stages.
struct PreviewedMosaic {
    stages: Vec<PreviewStage>,
    pixels: FieldImages,
    /// Rectangles to erase in the row, and their values.
    erase: Vec<(Region, Vec<f64>)>,
}

impl SampleMaker<'_> {
    /// Runs both records of a mix through every stage. The stage of the transform has the row of the
    /// partner.
    pub(super) fn preview_mixed(
        &mut self,
        records: &[SampleRecord<'_>],
        (own, drawn): (&MixPlan, &Mixing),
    ) -> Result<Vec<PreviewStage>, PartFailure> {
        let in_other = |failure| PartFailure { part: 1, failure };
        let mut stages = self.preview_one(records[0])?;
        let mut of_partner = self.preview_one(records[1]).map_err(in_other)?;
        let (Some(mut output), Some(other)) = (stages.pop(), of_partner.pop()) else {
            return Ok(stages);
        };
        let row = |stage: &PreviewStage| {
            let mut row = self.plan.spare_row();
            for (cell, (_, values)) in row.cells.iter_mut().zip(&stage.fields) {
                if let (RowCell::Own { bytes, .. }, Values::Array(array)) = (cell, values) {
                    bytes.extend_from_slice(array.bytes());
                }
            }
            row
        };
        let mut mixed = row(&output);
        mix(self.plan, (own, drawn), &mut row(&other), &mut mixed).map_err(in_other)?;
        for (at, (_, values)) in output.fields.iter_mut().enumerate() {
            if let (RowCell::Own { bytes, .. }, Values::Array(array)) = (&mixed.cells[at], &*values)
            {
                let mixed = Array::own(bytes, array.shape().to_vec(), array.dtype());
                *values = Values::Array(mixed.map_err(|_| no_memory(at))?);
            }
        }
        stages.push(PreviewStage {
            name: drawn.blend.name(),
            draws: drawn.to_string(),
            fields: other.fields,
            shapes: StageShapes::default(),
        });
        stages.push(output);
        Ok(stages)
    }

    /// Runs the four records of a mosaic through every stage.
    pub(super) fn preview_mosaic(
        &mut self,
        records: &[SampleRecord<'_>],
        (own, draw): (&MosaicPlan, &MosaicDraw),
    ) -> Result<Vec<PreviewStage>, PartFailure> {
        let all = self.plan.transforms.len();
        let mosaic = self.arrange_mosaic(records, (own, draw.center), (0, all))?;
        let text = draw.to_string();
        let mut shown = self.preview_canvas(records, own, &mosaic, (all, text))?;
        let images = images_of(records, &mosaic.parts);
        let boxed = (&images[..], &mosaic.after[..]);
        let output = self.output(records[0], boxed, &shown.pixels, &shown.erase)?;
        shown.stages.push(output);
        Ok(shown.stages)
    }

    /// Runs the records of two images through every stage.
    pub(super) fn preview_blended(
        &mut self,
        records: &[SampleRecord<'_>],
        (own, draw): (&ImageMixUpPlan, &MixedImages),
    ) -> Result<Vec<PreviewStage>, PartFailure> {
        let plan = self.plan;
        let (first, second) = self.arrange_images(own, (records, draw), 0)?;
        let (mut stages, mut pixels) = self.preview_image(own, &first)?;
        let (_, others) = self.preview_image(own, &second)?;
        for ((_, image), (_, other)) in pixels.iter_mut().zip(&others) {
            blend(
                image.depth.dtype(),
                draw.share,
                &mut image.data,
                &other.data,
            );
        }
        let transforms = own.number + 1..plan.transforms.len();
        let parts = || first.parts().iter().chain(second.parts());
        let drawn = parts().map(|part| &part.drawn.image);
        let after = plan.draw_joined(transforms.clone(), first.size(), drawn, records[0].at)?;
        let images = images_of(records, parts());
        let shapes = self.shapes((&images, &[]))?;
        stages.push(self.stage("ImageMixUp", draw.to_string(), &pixels, shapes)?);
        let boxed = (&images[..], &after[..]);
        let visuals = &first.parts()[0].visuals;
        let erase = self.preview_steps(transforms, visuals, boxed, &mut pixels, &mut stages)?;
        stages.push(self.output(records[0], boxed, &pixels, &erase)?);
        Ok(stages)
    }

    /// Runs one of two images through the stages up to the one that blends them. Returns these and
    /// its pixels.
    fn preview_image(
        &mut self,
        own: &ImageMixUpPlan,
        image: &ArrangedImage<'_, '_>,
    ) -> Result<(Vec<PreviewStage>, FieldImages), PartFailure> {
        let made = match (&image.source, &own.mosaic) {
            (ImageSource::Mosaic(arranged), Some(mosaic)) => {
                let end = (own.number, String::new());
                let made = self.preview_canvas(image.records, mosaic, arranged, end);
                made.map(|shown| (shown.stages, shown.pixels))
            }
            _ => self
                .preview_record(image.records[0], &image.parts()[0], own.number)
                .map_err(PartFailure::from),
        };
        made.map_err(|failure| image.place_failure(failure))
    }

    /// Runs a record through the stages up to a transform.
    fn preview_record(
        &mut self,
        of: SampleRecord<'_>,
        part: &SamplePart<'_>,
        end: usize,
    ) -> Result<(Vec<PreviewStage>, FieldImages), StageFailure> {
        let visuals = &part.visuals;
        let start = [SampleImage::new(of.record, visuals[0].frame, &[])];
        let boxed = (&start[..], &part.drawn.image.steps[..]);
        let mut pixels = self.decoded_whole(visuals)?;
        let mut stages = self.first_stage(visuals, boxed.0, &pixels)?;
        self.preview_steps(0..end, visuals, boxed, &mut pixels, &mut stages)?;
        Ok((stages, pixels))
    }

    /// Runs the four records of a mosaic through the stages up to a transform. `draws` describes the
    /// mosaic.
    fn preview_canvas(
        &mut self,
        records: &[SampleRecord<'_>],
        own: &MosaicPlan,
        mosaic: &ArrangedMosaic<'_>,
        (end, draws): (usize, String),
    ) -> Result<PreviewedMosaic, PartFailure> {
        let (mut stages, mut canvases) = (Vec::new(), FieldImages::new());
        for (tile, (of, part)) in records.iter().zip(&mosaic.parts).enumerate() {
            let failed = |failure| PartFailure {
                part: tile,
                failure,
            };
            let (visuals, drawn) = (&part.visuals, &part.drawn);
            let mut pixels = self.decoded_whole(visuals).map_err(failed)?;
            let image = [SampleImage::new(of.record, visuals[0].frame, &[])];
            let boxed = (&image[..], &drawn.image.steps[..drawn.visible]);
            let first = self.first_stage(visuals, boxed.0, &pixels);
            let mut own_stages = first.map_err(failed)?;
            let before = 0..own.number;
            self.preview_steps(before, visuals, boxed, &mut pixels, &mut own_stages)
                .map_err(failed)?;
            for (_, step) in boxed.1.iter().filter(|(of, _)| *of == own.number) {
                self.preview_step(step, &mut pixels).map_err(failed)?;
            }
            for (at, (field, pixels)) in pixels.iter().enumerate() {
                if tile == 0 {
                    let (mut canvas, whole) = (Image::default(), own.mosaic.size.square().whole());
                    clear(own, &visuals[at], whole, &mut canvas)?;
                    canvases.push((*field, canvas));
                }
                let view = PixelView::from(pixels);
                paste(view, Flips::default(), drawn.region, &mut canvases[at].1);
            }
            if tile == 0 {
                stages = own_stages;
            }
        }
        // Without the steps after the mosaic, which may be those of each image already.
        let tiles = records.iter().zip(&mosaic.parts).map(|(of, part)| {
            let steps = &part.drawn.image.steps[..=part.drawn.visible];
            SampleImage::new(of.record, part.visuals[0].frame, steps).with_number(part.number)
        });
        let images: Vec<SampleImage<'_>> = tiles.collect();
        let shapes = self.shapes((&images, &[]))?;
        stages.push(self.stage("Mosaic", draws, &canvases, shapes)?);
        let boxed = (&images[..], &mosaic.after[..]);
        let visuals = &mosaic.parts[0].visuals;
        let rest = own.number + 1..end;
        let erase = self.preview_steps(rest, visuals, boxed, &mut canvases, &mut stages)?;
        Ok(PreviewedMosaic {
            stages,
            pixels: canvases,
            erase,
        })
    }

    /// Runs both records of a paste through every stage.
    pub(super) fn preview_pasted(
        &mut self,
        records: &[SampleRecord<'_>],
        (own, draw): (&CopyPastePlan, &CopyPasteDraw),
    ) -> Result<Vec<PreviewStage>, PartFailure> {
        let plan = self.plan;
        let place = |_, image, before: &[_]| Ok(resize_to_canvas(own, image, before));
        let parts = self.draw_parts(records, (0, own.number), place)?;
        let size = parts[0].drawn.image.size;
        let image = |number: usize| parts[number].image(records[number]);
        let visuals = &parts[0].visuals;
        let (mut stages, mut pixels) = self.preview_record(records[0], &parts[0], own.number)?;
        let in_other = |failure| PartFailure { part: 1, failure };
        let mut pasted = own.objects.boxes(&image(1)).map_err(in_other)?;
        choose(draw, &mut pasted);
        let both = [image(0), image(1)];
        let (objects, alpha) = self.paste_objects(own, &both, pasted, size)?;
        let mut other = self.decoded_whole(&parts[1].visuals).map_err(in_other)?;
        for (_, step) in &parts[1].drawn.image.steps {
            self.preview_step(step, &mut other).map_err(in_other)?;
        }
        for ((_, canvas), (_, other)) in pixels.iter_mut().zip(&other) {
            paste_where(PixelView::from(other), Flips::default(), &alpha, canvas);
        }
        let first = std::iter::once(&parts[0].drawn.image);
        let rest = own.number + 1..plan.transforms.len();
        let after = plan.draw_joined(rest.clone(), size, first, records[0].at)?;
        let images = both.into_iter().zip(&objects);
        let images: Vec<SampleImage<'_>> = images
            .map(|(image, objects)| image.with_pasted(objects))
            .collect();
        let shapes = self.shapes((&images, &[]))?;
        stages.push(self.stage("CopyPaste", draw.to_string(), &pixels, shapes)?);
        let boxed = (&images[..], &after[..]);
        let erase = self.preview_steps(rest, visuals, boxed, &mut pixels, &mut stages)?;
        stages.push(self.output(records[0], boxed, &pixels, &erase)?);
        Ok(stages)
    }
}

/// Returns the images of a sample's records.
fn images_of<'s>(
    records: &'s [SampleRecord<'_>],
    parts: impl IntoIterator<Item = &'s SamplePart<'s>>,
) -> Vec<SampleImage<'s>> {
    let images = records.iter().zip(parts);
    images.map(|(of, part)| part.image(*of)).collect()
}
