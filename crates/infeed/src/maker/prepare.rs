//! Samples up to the first random transform, for the cache of decoded records.
//!
//! A prepared record holds these pixels in place of its encoded images. Making a sample of it runs the
//! remaining transforms and gives the same bits as the stored record.

use bytes::Bytes;

use super::sample_maker::{SampleMaker, SampleRecord};
use crate::fields::failure::StageFailure;
use crate::fields::pixels::header::{ArrangedPixels, VisualField};
use crate::fields::pixels::prepared_record::{PixelState, SIZE_BYTES, layout};
use crate::fields::scratch::{FieldScratch, Position};
use infeed_codec::decode::ImageFrame;
use infeed_core::counters::Stage;
use infeed_core::sample::Record;

impl SampleMaker<'_> {
    /// Decodes a record and runs its leading transforms. Asks `has_room` before decoding whether
    /// the bytes of the result are wanted. Returns them; `None` if they are not, or if a decoder
    /// warns about the record, so that the warning is repeated in every epoch.
    ///
    /// # Errors
    ///
    /// The error of the record. It may concern pixels that its sample does not use.
    pub(crate) fn prepare(
        &mut self,
        record: &Record,
        has_room: impl FnOnce(u64) -> bool,
    ) -> Result<Option<Vec<u8>>, StageFailure> {
        let prepared = self.prepare_fields(record, has_room);
        self.release();
        prepared
    }

    fn prepare_fields(
        &mut self,
        record: &Record,
        has_room: impl FnOnce(u64) -> bool,
    ) -> Result<Option<Vec<u8>>, StageFailure> {
        let plan = self.plan;
        self.scratch.meter.start();
        // No prepared transform draws at random, so any position gives the same steps.
        let of = SampleRecord {
            record,
            state: PixelState::Stored,
            at: Position::default(),
        };
        let visuals = self.headers(of, 0)?;
        let end = plan.prepared_transforms();
        let mut drawn = self.draw(of, &visuals)?;
        drawn.retain(|(transform, _)| *transform < end);
        let mut arranged = Vec::with_capacity(visuals.len());
        let mut needed = 0;
        let mut lengths: Vec<usize> = record.fields.iter().map(Bytes::len).collect();
        for visual in &visuals {
            let work = visual.arrange(&drawn, &plan.decode);
            needed += visual.scratch_bytes(&work, &self.scratch.decoder);
            let pixels = work.folded.view.size.pixels() * visual.pixel_bytes() as u64;
            lengths[visual.field] = SIZE_BYTES.saturating_add(pixels as usize);
            arranged.push(work);
        }
        let Some((starts, total)) = layout(&lengths).filter(|(_, total)| has_room(*total as u64))
        else {
            return Ok(None);
        };
        self.reserve(0, needed + total as u64)?;
        let mut bytes = std::mem::take(&mut self.prepared);
        bytes.resize(total, 0);
        bytes[..4].copy_from_slice(&(lengths.len() as u32).to_le_bytes());
        for (at, length) in lengths.iter().enumerate() {
            bytes[4 + 4 * at..][..4].copy_from_slice(&(*length as u32).to_le_bytes());
        }
        for (field, stored) in record.fields.iter().enumerate() {
            if plan.pixels[field].is_none() {
                bytes[starts[field]..][..stored.len()].copy_from_slice(stored);
            }
        }
        let scratch = &mut self.scratch;
        let before = scratch.warnings;
        for (visual, work) in visuals.iter().zip(&arranged) {
            let to = &mut bytes[starts[visual.field]..][..lengths[visual.field]];
            prepare_field(visual, work, to, scratch)?;
        }
        scratch.meter.settle(&scratch.counters);
        if scratch.warnings > before {
            scratch.warnings = before;
            return Ok(None);
        }
        Ok(Some(bytes))
    }
}

/// Writes one visual field of a prepared record.
fn prepare_field(
    visual: &VisualField<'_>,
    work: &ArrangedPixels,
    to: &mut [u8],
    scratch: &mut FieldScratch,
) -> Result<(), StageFailure> {
    visual.with_pixels(work, scratch, |view| {
        let size = view.size();
        let (header, pixels) = to.split_at_mut(SIZE_BYTES);
        let ImageFrame {
            size: of,
            orientation,
        } = visual.frame;
        let numbers = [
            size.height,
            size.width,
            of.height,
            of.width,
            orientation.into(),
        ];
        for (to, number) in header.chunks_exact_mut(4).zip(numbers) {
            to.copy_from_slice(&number.to_le_bytes());
        }
        let row_bytes = (view.width() * view.pixel_bytes()).max(1);
        for (y, row) in pixels.chunks_exact_mut(row_bytes).enumerate() {
            row.copy_from_slice(view.row(y));
        }
        Ok(())
    })?;
    scratch.lap(Stage::Decode);
    Ok(())
}
