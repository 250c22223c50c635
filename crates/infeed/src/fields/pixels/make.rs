//! Pixels of one sample: decoding, steps, and the row.

use super::files::leave_file;
use super::header::{ArrangedPixels, VisualField};
use crate::fields::cells::cell_bytes;
use crate::fields::failure::{SampleError, StageFailure};
use crate::fields::scratch::{ClassScratch, FieldLoss, FieldScratch};
use infeed_codec::decode::PixelTable;
use infeed_codec::transform::PixelView;
use infeed_core::batch::RowCell;
use infeed_core::counters::Stage;

impl VisualField<'_> {
    /// Decodes, transforms and writes the field.
    pub(crate) fn make(
        &self,
        arranged: &ArrangedPixels,
        cell: &mut RowCell,
        scratch: &mut FieldScratch,
    ) -> Result<(), StageFailure> {
        let folded = &arranged.folded;
        if let (Some(request), RowCell::Slab(cell)) = (&arranged.request, &mut *cell)
            && let Some(bytes) = leave_file(self, folded, request, cell.bytes_mut())
        {
            scratch.counters.count(Stage::Write, 0, bytes, bytes);
            scratch.lap(Stage::Write);
            return Ok(());
        }
        let write = |view: PixelView<'_>, pixels: Option<&_>, classes: &mut ClassScratch| {
            let (flips, erase) = (folded.flips, &folded.erase);
            let unknown = self.plan.write(view, pixels, flips, erase, cell, classes);
            let bytes_in = view.height() * view.width() * view.pixel_bytes();
            let unknown = unknown.map_err(|error| error.in_field(self.field))?;
            Ok((unknown, bytes_in as u64))
        };
        let (unknown, bytes_in) = self.run(arranged, scratch, true, write)?;
        scratch.unknown_pixels += unknown;
        let bytes_out = cell_bytes(cell);
        scratch.counters.count(Stage::Write, 0, bytes_in, bytes_out);
        scratch.lap(Stage::Write);
        Ok(())
    }

    /// Decodes the field, runs the steps that need a pass, and passes the resulting pixels to `write`.
    pub(crate) fn with_pixels<T>(
        &self,
        arranged: &ArrangedPixels,
        scratch: &mut FieldScratch,
        write: impl FnOnce(PixelView<'_>) -> Result<T, StageFailure>,
    ) -> Result<T, StageFailure> {
        self.run(arranged, scratch, false, |view, _, _| write(view))
    }

    /// Decodes the field, runs the steps that need a pass, and passes the region to write to `write`.
    /// If `writes_row`, a device may resize afterwards, and the region may hold positions in a table of
    /// pixels, which `write` gets too.
    fn run<T>(
        &self,
        ArrangedPixels { folded, request }: &ArrangedPixels,
        scratch: &mut FieldScratch,
        writes_row: bool,
        write: impl FnOnce(
            PixelView<'_>,
            Option<&PixelTable>,
            &mut ClassScratch,
        ) -> Result<T, StageFailure>,
    ) -> Result<T, StageFailure> {
        let failed = |error: SampleError| error.in_field(self.field);
        let [first, second] = &mut scratch.images;
        let (mut current, mut other) = (first, second);
        let mut pixels = None;
        let raw = match (request, &self.header) {
            (Some(request), Some(header)) => {
                let decoder = &mut scratch.decoder;
                let decode = |error| failed(SampleError::Decode(error));
                if writes_row && self.plan.takes_positions(folded) {
                    pixels = decoder
                        .decode_positions(self.bytes, header, request, current)
                        .map_err(decode)?;
                }
                if pixels.is_none() {
                    let warnings = decoder
                        .decode(self.bytes, header, request, current)
                        .map_err(decode)?;
                    scratch.warnings += u64::from(warnings);
                    let (record, field) = (self.record, self.field);
                    let losses = decoder.losses().map(|loss| FieldLoss {
                        record,
                        field,
                        loss,
                    });
                    scratch.losses.extend(losses);
                }
                let out = current.data.len() as u64;
                scratch.counters.count(
                    Stage::Decode,
                    scratch.counted,
                    self.bytes.len() as u64,
                    out,
                );
                scratch.meter.lap(Stage::Decode, &scratch.counters);
                None
            }
            _ => Some(
                self.view(folded.region)
                    .map_err(|e| failed(SampleError::Transform(e)))?,
            ),
        };
        // Raw pixels are read in place until a step copies them.
        let mut raw = raw;
        let size = raw.as_ref().map_or(current.size, PixelView::size);
        let shorter;
        let folded = if writes_row && self.plan.resized_behind(folded, size) {
            shorter = folded.without_middle(size);
            &shorter
        } else {
            folded
        };
        for step in &folded.middle {
            let is_mask = self.plan.is_mask;
            let input = raw.take().unwrap_or_else(|| PixelView::from(&*current));
            let bytes_in = (input.height() * input.width() * input.pixel_bytes()) as u64;
            step.apply(input, other, is_mask, &mut scratch.transform)
                .map_err(|error| StageFailure {
                    field: self.field,
                    transform: Some(step.name()),
                    error: SampleError::Transform(error),
                })?;
            scratch
                .counters
                .count(Stage::Transform, 0, bytes_in, other.data.len() as u64);
            std::mem::swap(&mut current, &mut other);
        }
        if !folded.middle.is_empty() {
            scratch
                .counters
                .count(Stage::Transform, scratch.counted, 0, 0);
            scratch.meter.lap(Stage::Transform, &scratch.counters);
        }
        let whole = raw.unwrap_or_else(|| PixelView::from(&*current));
        let view = whole
            .crop(folded.view)
            .map_err(|e| failed(SampleError::Transform(e)))?;
        write(view, pixels.as_ref(), &mut scratch.classes)
    }
}
