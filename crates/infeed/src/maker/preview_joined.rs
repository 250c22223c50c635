//! Samples of several records, stage by stage.

use super::copy_paste::{choose, paste_where, resize_to_canvas};
use super::mix::mix;
use super::mosaic::{clear, place_tile};
use super::parts::paste;
use super::preview::{PreviewStage, StageShapes, no_memory};
use super::sample_maker::{SampleMaker, SampleRecord};
use crate::fields::failure::PartFailure;
use crate::fields::moving::SampleImage;
use crate::fields::steps::Flips;
use crate::plan::join::{CopyPastePlan, MosaicPlan};
use crate::plan::mix::MixPlan;
use infeed_codec::transform::{CopyPasteDraw, Mixing, MosaicDraw, PixelView};
use infeed_core::batch::{Array, RowCell, Values};
use infeed_core::sample::Image;

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
        let plan = self.plan;
        let place = |tile, image, _: &[_]| place_tile((own, draw), tile, image);
        let parts = self.draw_parts(records, (0, own.number), place)?;
        let (mut stages, mut canvases) = (Vec::new(), Vec::new());
        for (tile, (of, part)) in records.iter().zip(&parts).enumerate() {
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
                    let mut canvas = Image::default();
                    clear(own, &visuals[at], drawn.image.size.whole(), &mut canvas)?;
                    canvases.push((*field, canvas));
                }
                let view = PixelView::from(pixels);
                paste(view, Flips::default(), drawn.region, &mut canvases[at].1);
            }
            if tile == 0 {
                stages = own_stages;
            }
        }
        let size = own.mosaic.size.square();
        let images = parts.iter().map(|part| &part.drawn.image);
        let after = plan.draw_after(own.number, size, images, records[0].at)?;
        let images = records.iter().zip(&parts);
        let images: Vec<SampleImage<'_>> = images.map(|(of, part)| part.image(*of)).collect();
        let shapes = self.shapes((&images, &[]))?;
        stages.push(self.stage("Mosaic", draw.to_string(), &canvases, shapes)?);
        let boxed = (&images[..], &after[..]);
        let rest = own.number + 1..plan.transforms.len();
        let visuals = &parts[0].visuals;
        let erase = self.preview_steps(rest, visuals, boxed, &mut canvases, &mut stages)?;
        stages.push(self.output(records[0], boxed, &canvases, &erase)?);
        Ok(stages)
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
        let start = [SampleImage::new(records[0].record, visuals[0].frame, &[])];
        let boxed = (&start[..], &parts[0].drawn.image.steps[..]);
        let mut pixels = self.decoded_whole(visuals)?;
        let mut stages = self.first_stage(visuals, boxed.0, &pixels)?;
        let before = 0..own.number;
        self.preview_steps(before, visuals, boxed, &mut pixels, &mut stages)?;
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
        let after = plan.draw_after(own.number, size, first, records[0].at)?;
        let images = both.into_iter().zip(&objects);
        let images: Vec<SampleImage<'_>> = images
            .map(|(image, objects)| image.with_pasted(objects))
            .collect();
        let shapes = self.shapes((&images, &[]))?;
        stages.push(self.stage("CopyPaste", draw.to_string(), &pixels, shapes)?);
        let boxed = (&images[..], &after[..]);
        let rest = own.number + 1..plan.transforms.len();
        let erase = self.preview_steps(rest, visuals, boxed, &mut pixels, &mut stages)?;
        stages.push(self.output(records[0], boxed, &pixels, &erase)?);
        Ok(stages)
    }
}
