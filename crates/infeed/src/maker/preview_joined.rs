//! Samples of several records, stage by stage.

use super::copy_paste::{choose, draw_part, paste_where};
use super::mosaic::{clear, draw_tile};
use super::parts::{SamplePart, paste};
use super::preview::PreviewStage;
use super::sample_maker::{SampleMaker, SampleRecord};
use crate::fields::failure::TileFailure;
use crate::fields::moving::SampleImage;
use crate::fields::pixels::header::VisualField;
use crate::fields::steps::Flips;
use crate::plan::join::{CopyPastePlan, JoinDraw, JoinPlan, MosaicPlan};
use infeed_codec::transform::{CopyPasteDraw, MosaicDraw, PixelView};
use infeed_core::sample::Image;

impl SampleMaker<'_> {
    /// Runs the records of a joined sample through every stage. Up to the joining transform, the
    /// stages are those of the first record.
    ///
    /// # Errors
    ///
    /// As [`SampleMaker::make_joined`].
    pub fn preview_joined(
        &mut self,
        records: &[SampleRecord<'_>],
        drawn: &JoinDraw,
    ) -> Result<Vec<PreviewStage>, TileFailure> {
        match (&self.plan.join, drawn) {
            (Some(JoinPlan::Mosaic(own)), JoinDraw::Mosaic(drawn)) => {
                self.preview_mosaic(records, (own, drawn))
            }
            (Some(JoinPlan::CopyPaste(own)), JoinDraw::CopyPaste(drawn)) => {
                self.preview_pasted(records, (own, drawn))
            }
            _ => Ok(self.preview(records[0])?),
        }
    }

    /// Runs the four records of a mosaic through every stage.
    fn preview_mosaic(
        &mut self,
        records: &[SampleRecord<'_>],
        (own, draw): (&MosaicPlan, &MosaicDraw),
    ) -> Result<Vec<PreviewStage>, TileFailure> {
        let plan = self.plan;
        let draw_one = |(tile, of), first: &VisualField<'_>, _: &[SamplePart<'_>]| {
            draw_tile(plan, (own, draw), tile, of, first)
        };
        let parts = self.draw_parts(records, 0, draw_one)?;
        let (mut stages, mut canvases) = (Vec::new(), Vec::new());
        for (tile, (of, part)) in records.iter().zip(&parts).enumerate() {
            let failed = |failure| TileFailure { tile, failure };
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
    fn preview_pasted(
        &mut self,
        records: &[SampleRecord<'_>],
        (own, draw): (&CopyPastePlan, &CopyPasteDraw),
    ) -> Result<Vec<PreviewStage>, TileFailure> {
        let plan = self.plan;
        let draw_one = |(_, of), first: &VisualField<'_>, before: &[SamplePart<'_>]| {
            let canvas = before.first().map(|part| part.drawn.image.size);
            draw_part(plan, own, of, first, canvas)
        };
        let parts = self.draw_parts(records, 0, draw_one)?;
        let size = parts[0].drawn.image.size;
        let image = |tile: usize| parts[tile].image(records[tile]);
        let visuals = &parts[0].visuals;
        let start = [SampleImage::new(records[0].record, visuals[0].frame, &[])];
        let boxed = (&start[..], &parts[0].drawn.image.steps[..]);
        let mut pixels = self.decoded_whole(visuals)?;
        let mut stages = self.first_stage(visuals, boxed.0, &pixels)?;
        let before = 0..own.number;
        self.preview_steps(before, visuals, boxed, &mut pixels, &mut stages)?;
        let in_other = |failure| TileFailure { tile: 1, failure };
        let (mut pasted, _) = own.boxes.moved(&image(1), &[]).map_err(in_other)?;
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
            .map(|(image, objects)| image.pasted(objects))
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
