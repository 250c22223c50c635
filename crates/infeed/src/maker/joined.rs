//! Samples of several records: `Mosaic` and `CopyPaste`.

use super::sample_maker::{SampleMaker, SampleRecord};
use crate::fields::failure::TileFailure;
use crate::plan::join::{JoinDraw, JoinPlan};
use infeed_core::batch::BatchRow;

impl SampleMaker<'_> {
    /// Makes the sample of several records in its row. The first one is the sample's own: fields that
    /// are neither images nor boxes are copied from it.
    ///
    /// # Errors
    ///
    /// The error of a record, the same on every run. The row's content is then unspecified.
    pub fn make_joined(
        &mut self,
        records: &[SampleRecord<'_>],
        drawn: &JoinDraw,
        row: &mut BatchRow,
    ) -> Result<(), TileFailure> {
        let Some(join) = &self.plan.join else {
            return Ok(self.make(records[0], row)?);
        };
        let mut canvases = std::mem::take(&mut self.scratch.canvases);
        let made = self.make_with(records[0].at, row, |maker, row| match (join, drawn) {
            (JoinPlan::Mosaic(own), JoinDraw::Mosaic(drawn)) => {
                maker.fill_mosaic(records, (own, drawn), &mut canvases, row)
            }
            (JoinPlan::CopyPaste(own), JoinDraw::CopyPaste(drawn)) => {
                maker.fill_pasted(records, (own, drawn), &mut canvases, row)
            }
            _ => Ok(maker.fill(records[0], row)?),
        });
        // The cost of the partners belongs to the sample.
        self.scratch.fields.counted = 1;
        self.scratch.canvases = canvases;
        made
    }
}
