//! User functions on one sample.

use super::kept_sample::{KeptSample, put};
use super::sample_maker::{SampleMaker, SampleRecord};
use crate::fields::cells::cell_bytes;
use crate::fields::failure::{PartFailure, SampleError, StageFailure};
use crate::fields::pixels::prepared_record::invalid_pixels_error;
use crate::fields::scratch::Position;
use crate::plan::function::FunctionCall;
use crate::plan::function_values::{bytes_of, kind_text, own_cells, values_from};
use crate::plan::join::JoinDraw;
use infeed_core::batch::{BatchRow, Column, RowCell, Values};
use infeed_core::counters::Stage;

impl SampleMaker<'_> {
    /// Makes a sample in its row, with the user functions.
    pub(super) fn fill_and_call(
        &mut self,
        records: &[SampleRecord<'_>],
        drawn: Option<&JoinDraw>,
        row: &mut BatchRow,
    ) -> Result<(), PartFailure> {
        let mut columns = self.take_row();
        let filled = self.fill(records, drawn, &mut columns);
        let made = filled.and_then(|()| Ok(self.call_all(&mut columns, records[0].at, row)?));
        self.row = columns;
        made
    }

    /// Takes the row of the working memory and empties it.
    pub(super) fn take_row(&mut self) -> BatchRow {
        let mut row = std::mem::take(&mut self.row);
        for cell in &mut row.cells {
            if let RowCell::Own { shape, bytes } = cell {
                shape.clear();
                bytes.clear();
            }
        }
        let cell = || RowCell::Own {
            shape: Vec::new(),
            bytes: Vec::new(),
        };
        row.cells
            .resize_with(self.plan.decoded_columns().len(), cell);
        row
    }

    /// Makes the row of a sample whose columns before the functions are in `columns`.
    fn call_all(
        &mut self,
        columns: &mut BatchRow,
        at: Position,
        row: &mut BatchRow,
    ) -> Result<(), StageFailure> {
        let plan = self.plan;
        let values = values_from(plan.decoded_columns(), &mut columns.cells).map_err(|field| {
            let error = SampleError::Shape {
                found: "a byte count that does not fit its shape".to_owned(),
                expected: kind_text(&plan.decoded_columns()[field].kind),
                fix: "every record must have the shape its source declares",
            };
            error.in_field(field)
        })?;
        let values = (values, Some(columns));
        let calls = plan.sample_calls();
        let Some(mut bytes) = self.keep.take() else {
            return self.call(calls, values, at, &mut row.cells);
        };
        let keep = KeptSample {
            bytes: &mut bytes,
            unknown_pixels: self.scratch.unknown_pixels,
        };
        let (first, rest) = calls.split_at(plan.kept_functions());
        let mut kept = own_cells(first.last().map_or(0, |call| call.columns.len()));
        self.call(first, values, at, &mut kept)?;
        keep.write(&kept);
        self.keep = Some(bytes);
        self.call_rest(rest, &mut kept, at, &mut row.cells)
    }

    /// Makes a row of the columns after the kept functions, which are in own cells.
    pub(super) fn call_rest(
        &mut self,
        rest: &[FunctionCall],
        kept: &mut [RowCell],
        at: Position,
        row: &mut [RowCell],
    ) -> Result<(), StageFailure> {
        let plan = self.plan;
        let first = plan.sample_calls()[..plan.kept_functions()].last();
        if let Some(call) = first.filter(|_| !rest.is_empty()) {
            let values = (call.values(kept)?, None);
            return self.call(rest, values, at, row);
        }
        for (field, (from, to)) in kept.iter().zip(row).enumerate() {
            let is_put = match from {
                RowCell::Own { shape, bytes } => put(shape, bytes, to),
                RowCell::Slab(_) => false,
            };
            if !is_put {
                return Err(invalid_pixels_error().in_field(field));
            }
        }
        Ok(())
    }

    /// Calls some of the functions on samples, one after the other. `values` are the columns before
    /// the first one, and the row that their memory returns to; the columns after the last one go to
    /// `row`.
    fn call(
        &mut self,
        calls: &[FunctionCall],
        (mut values, mut columns): (Vec<Column>, Option<&mut BatchRow>),
        at: Position,
        row: &mut [RowCell],
    ) -> Result<(), StageFailure> {
        let all = self.plan.sample_calls().len() as u64;
        let (seed, scratch) = (self.plan.seed(), &mut self.scratch);
        let (meter, counters) = (&mut scratch.meter, &scratch.counters);
        for (number, call) in calls.iter().enumerate() {
            let is_last = number + 1 == calls.len();
            let mut between = own_cells(if is_last { 0 } else { call.columns.len() });
            meter.begin_alone(counters);
            let called = match is_last {
                true => call.fill(&values, seed, at, row.iter_mut()),
                false => call.fill(&values, seed, at, between.iter_mut()),
            };
            let spent = called.as_ref().copied().unwrap_or_default();
            meter.lap_alone(Stage::Python, spent.waited, spent.elsewhere, counters);
            called.map_err(|error| call.failure(error))?;
            let bytes_in = bytes_of(&values);
            if let Some(columns) = columns.take() {
                take_back(&mut values, columns);
            }
            let out: &[RowCell] = if is_last { row } else { &between };
            let bytes_out = out.iter().map(cell_bytes).sum();
            let samples = u64::from(call.number + 1 == all);
            counters.count(Stage::Python, samples, bytes_in, bytes_out);
            if !is_last {
                values = call.values(&mut between)?;
            }
        }
        Ok(())
    }
}

/// Returns memory to the row of columns, unless the function kept it.
fn take_back(values: &mut Vec<Column>, columns: &mut BatchRow) {
    for (column, cell) in values.drain(..).zip(&mut columns.cells) {
        if let (Values::Array(array), RowCell::Own { bytes, .. }) = (column.values, cell)
            && let Some(memory) = array.give_back()
        {
            *bytes = memory;
            bytes.clear();
        }
    }
}
