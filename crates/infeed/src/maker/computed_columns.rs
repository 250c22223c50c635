//! Samples of records that a cache keeps as the columns after user functions.

use super::kept_sample::{column, put};
use super::sample_maker::{SampleMaker, SampleRecord};
use crate::fields::failure::StageFailure;
use crate::fields::pixels::prepared_record::invalid_pixels_error;
use crate::plan::function_values::own_cells;
use infeed_core::batch::BatchRow;
use infeed_core::counters::Stage;

impl SampleMaker<'_> {
    /// Makes the sample of a record that holds the columns after the kept functions.
    pub(super) fn make_computed(
        &mut self,
        of: SampleRecord<'_>,
        row: &mut BatchRow,
    ) -> Result<(), StageFailure> {
        let plan = self.plan;
        let scratch = &mut self.scratch;
        let (first, rest) = plan.sample_calls().split_at(plan.kept_functions());
        let Some((unknown, fields)) = of.record.fields.split_last() else {
            return Err(invalid_pixels_error().in_field(0));
        };
        let count = first.last().map_or(0, |call| call.columns.len());
        let unknown = <[u8; 8]>::try_from(&unknown[..]).ok();
        let Some(unknown) = unknown.filter(|_| fields.len() == count) else {
            return Err(invalid_pixels_error().in_field(0));
        };
        scratch.unknown_pixels = u64::from_le_bytes(unknown);
        let mut between = own_cells(if rest.is_empty() { 0 } else { count });
        let cells = match rest.is_empty() {
            true => &mut row.cells[..],
            false => &mut between[..],
        };
        let mut copied = 0;
        for (field, (bytes, cell)) in fields.iter().zip(cells).enumerate() {
            let found = column(bytes).filter(|(shape, bytes)| put(shape, bytes, cell));
            found.ok_or_else(|| invalid_pixels_error().in_field(field))?;
            copied += bytes.len() as u64;
        }
        let counted = scratch.counted;
        scratch
            .counters
            .count(Stage::Write, counted, copied, copied);
        scratch.lap(Stage::Write);
        if !rest.is_empty() {
            self.call_rest(rest, &mut between, of.at, &mut row.cells)?;
        }
        let scratch = &mut self.scratch;
        scratch.meter.settle(&scratch.counters);
        Ok(())
    }
}
