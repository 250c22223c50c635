//! One sample: draws, decodes the needed region, transforms, and writes the row.

use super::sample_maker::{SampleMaker, SampleRecord};
use crate::fields::failure::{PartFailure, StageFailure};
use crate::fields::moving::SampleImage;
use crate::fields::pixels::header::{ArrangedPixels, VisualField};
use crate::fields::pixels::prepared_record::PixelState;
use crate::plan::join::{JoinDraw, JoinPlan};
use crate::plan::measure;
use infeed_codec::transform::Step;
use infeed_core::batch::BatchRow;

/// A sample of one record before its pixels are made.
pub(super) struct ArrangedSample<'r> {
    of: SampleRecord<'r>,
    visuals: Vec<VisualField<'r>>,
    /// The image, with which boxes and points move.
    image: Option<SampleImage<'r>>,
    /// The drawn steps.
    steps: Vec<(usize, Step)>,
    /// The steps of each visual field.
    arranged: Vec<ArrangedPixels>,
    /// Bytes of working memory.
    pub(super) bytes: u64,
}

impl<'a> SampleMaker<'a> {
    /// Makes a sample in its row. The first record is the sample's own: fields that no transform joins
    /// are copied from it. `drawn` joins the records; without it, there is one.
    ///
    /// # Errors
    ///
    /// The error of a record, the same on every run. The row's content is then unspecified.
    ///
    /// # Panics
    ///
    /// If there is no record, or fewer records than `drawn` joins.
    pub fn make(
        &mut self,
        records: &[SampleRecord<'_>],
        drawn: Option<&JoinDraw>,
        row: &mut BatchRow,
    ) -> Result<(), PartFailure> {
        let plan = self.plan;
        self.scratch.meter.start();
        let made = if records[0].state == PixelState::Computed {
            self.make_computed(records[0], row)
                .map_err(PartFailure::from)
        } else if plan.sample_calls().is_empty() {
            self.fill(records, drawn, row)
        } else {
            self.fill_and_call(records, drawn, row)
        };
        // The cost of the partners belongs to the sample.
        self.scratch.counted = 1;
        self.release();
        made?;
        measure(&plan.lists, row);
        Ok(())
    }

    /// Makes a sample up to the user functions.
    pub(super) fn fill(
        &mut self,
        records: &[SampleRecord<'_>],
        drawn: Option<&JoinDraw>,
        row: &mut BatchRow,
    ) -> Result<(), PartFailure> {
        self.scratch.unknown_pixels = 0;
        match (&self.plan.join, drawn) {
            (Some(join), Some(JoinDraw::Mosaic(drawn))) if let Some(own) = join.mosaic() => {
                self.fill_mosaic(records, (own, drawn), row)
            }
            (Some(JoinPlan::ImageMixUp(own)), Some(JoinDraw::ImageMixUp(drawn))) => {
                self.fill_blended(records, (own, drawn), row)
            }
            (Some(JoinPlan::CopyPaste(own)), Some(JoinDraw::CopyPaste(drawn))) => {
                self.fill_pasted(records, (own, drawn), row)
            }
            (Some(JoinPlan::Mix(own)), Some(JoinDraw::Mix(drawn))) => {
                self.fill_mixed(records, (own, drawn), row)
            }
            _ => {
                let sample = self.arrange(records[0], row.layout)?;
                self.reserve(0, sample.bytes)?;
                Ok(self.write(&sample, row)?)
            }
        }
    }

    /// Reads the headers of a record, draws its steps and arranges them. `layout` is that of the row.
    pub(super) fn arrange<'r>(
        &mut self,
        of: SampleRecord<'r>,
        layout: usize,
    ) -> Result<ArrangedSample<'r>, StageFailure>
    where
        'a: 'r,
    {
        let plan = self.plan;
        let visuals = self.headers(of, layout)?;
        let steps = self.draw(of, &visuals)?;
        let missing = plan.missing(&steps, of.state);
        let image = visuals.first();
        let image = image.map(|first| SampleImage::new(of.record, first.frame, &[]));
        let mut bytes = plan.function_inputs(of.record, layout);
        bytes += self.kind_bytes(of, (image.as_slice(), &steps));
        let mut arranged = Vec::with_capacity(visuals.len());
        for visual in &visuals {
            let pixels = visual.arrange(missing, &plan.decode);
            bytes += visual.scratch_bytes(&pixels, &self.scratch.decoder);
            bytes += plan.function_row(visual, &pixels.folded);
            arranged.push(pixels);
        }
        Ok(ArrangedSample {
            of,
            visuals,
            image,
            steps,
            arranged,
            bytes,
        })
    }

    /// Writes the row of an arranged sample, whose memory is reserved.
    pub(super) fn write(
        &mut self,
        sample: &ArrangedSample<'_>,
        row: &mut BatchRow,
    ) -> Result<(), StageFailure> {
        for (visual, pixels) in sample.visuals.iter().zip(&sample.arranged) {
            let cell = &mut row.cells[visual.field];
            visual.make(pixels, cell, &mut self.scratch)?;
        }
        let images = (sample.image.as_slice(), &sample.steps[..]);
        Ok(self.write_others(sample.of, images, row)?)
    }
}
