//! One sample: draws, decodes the needed region, transforms, and writes the row.

use super::sample_maker::{SampleMaker, SampleRecord};
use crate::fields::failure::StageFailure;
use crate::fields::moving::SampleImage;
use crate::fields::pixels::prepared::PixelState;
use infeed_core::batch::BatchRow;

impl SampleMaker<'_> {
    /// Makes the sample of a record in its row.
    ///
    /// # Errors
    ///
    /// The error of the record, the same on every run. The row's content is then unspecified.
    pub fn make(&mut self, of: SampleRecord<'_>, row: &mut BatchRow) -> Result<(), StageFailure> {
        if of.state == PixelState::Computed {
            return self.make_computed(of, row);
        }
        self.make_with(of.at, row, |maker, row| maker.fill(of, row))
    }

    /// Makes the sample of a record up to the user functions.
    pub(super) fn fill(
        &mut self,
        of: SampleRecord<'_>,
        row: &mut BatchRow,
    ) -> Result<(), StageFailure> {
        let plan = self.plan;
        self.scratch.fields.unknown_pixels = 0;
        let visuals = self.headers(of, row.form)?;
        let drawn = self.draw(of, &visuals)?;
        let missing = plan.missing(&drawn, of.state);
        let images = visuals
            .first()
            .map(|first| SampleImage::new(of.record, first.frame, &[]));
        let images = (images.as_slice(), &drawn[..]);
        let mut needed = plan.function_inputs(of.record, row.form);
        needed += self.kind_bytes(of, images);
        let mut arranged = Vec::with_capacity(visuals.len());
        for visual in &visuals {
            let pixels = visual.arrange(missing, &plan.decode);
            needed += visual.scratch_bytes(&pixels, &self.scratch.fields.decoder);
            needed += plan.function_row(visual, &pixels.folded);
            arranged.push(pixels);
        }
        self.reserve(needed).map_err(|error| error.in_field(0))?;
        for (visual, pixels) in visuals.iter().zip(&arranged) {
            let cell = &mut row.cells[visual.field];
            visual.make(pixels, cell, &mut self.scratch.fields)?;
        }
        Ok(self.write_others(of, images, row)?)
    }
}
