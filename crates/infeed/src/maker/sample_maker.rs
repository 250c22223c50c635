//! The maker of samples, with the parts of its work that all samples share: headers, draws, and the
//! fields that are no images.

use super::scratch::SampleScratch;
use crate::fields::failure::{SampleError, StageFailure, TileFailure};
use crate::fields::kind::DrawnSample;
use crate::fields::moving::SampleImages;
use crate::fields::pixels::header::VisualField;
use crate::fields::pixels::prepared::PixelState;
use crate::fields::scratch::{AdmitMemory, Position};
use crate::plan::SamplePlan;
use infeed_codec::transform::{Step, Transform};
use infeed_core::batch::BatchRow;
use infeed_core::counters::Stage;
use infeed_core::sample::Record;

/// A record of a sample.
#[derive(Clone, Copy, Debug)]
pub struct SampleRecord<'a> {
    /// The record.
    pub record: &'a Record,
    /// Its images and masks.
    pub state: PixelState,
    /// Position whose random draws it gets.
    pub at: Position,
}

/// Makes samples on one thread.
pub struct SampleMaker<'a> {
    pub(super) plan: &'a SamplePlan,
    pub(super) scratch: &'a mut SampleScratch,
    /// `None` without a limit of memory.
    admit: Option<AdmitMemory<'a>>,
    /// Destination of what a cache keeps of a sample, if the plan keeps the results of functions.
    pub(super) keep: Option<Vec<u8>>,
}

impl<'a> SampleMaker<'a> {
    /// Creates a maker without a limit of memory.
    pub fn new(plan: &'a SamplePlan, scratch: &'a mut SampleScratch) -> SampleMaker<'a> {
        SampleMaker {
            plan,
            scratch,
            admit: None,
            keep: None,
        }
    }

    /// Calls `admit` with the bytes of working memory of each sample, before they are allocated.
    #[must_use]
    pub fn within(self, admit: AdmitMemory<'a>) -> SampleMaker<'a> {
        let admit = Some(admit);
        SampleMaker { admit, ..self }
    }

    /// Writes what a cache keeps of a sample to a buffer, which [`SampleMaker::kept`] returns.
    #[must_use]
    pub(crate) fn keeping(self, keep: Option<Vec<u8>>) -> SampleMaker<'a> {
        SampleMaker { keep, ..self }
    }

    /// Returns the buffer of [`SampleMaker::keeping`].
    pub(crate) fn kept(self) -> Option<Vec<u8>> {
        self.keep
    }

    /// Reads headers and checks that each record is complete, even if only a part of it is used.
    pub(super) fn headers<'r>(
        &mut self,
        of: SampleRecord<'r>,
        layout: usize,
    ) -> Result<Vec<VisualField<'r>>, StageFailure>
    where
        'a: 'r,
    {
        let plan = self.plan;
        let decoder = &mut self.scratch.fields.decoder;
        let mut visuals: Vec<VisualField<'r>> = Vec::with_capacity(of.record.fields.len());
        let fields = plan.pixels_of(layout).iter().zip(&of.record.fields);
        for (field, (pixels, bytes)) in fields.enumerate() {
            let Some(pixels) = pixels else {
                continue;
            };
            let failed = |error: SampleError| error.in_field(field);
            let record = of.record.index;
            let field = (field, pixels);
            let mut visual =
                VisualField::read(record, field, bytes, of.state, &plan.decode, decoder)?;
            visual.is_devices = pixels.leaves_files && plan.is_by_device(record);
            if let Some(header) = &visual.header {
                let checked = decoder.check(visual.bytes, header, plan.decode.verify);
                checked.map_err(|error| failed(SampleError::Decode(error)))?;
            }
            if let Some(first) = visuals.first()
                && first.size != visual.size
                && plan.transforms.iter().any(Transform::changes_geometry)
            {
                return Err(failed(SampleError::Shape {
                    found: format!("{} px", visual.size),
                    expected: format!("{} px, the size of `{}`", first.size, first.plan.name),
                    fix: "an image and its mask must have the same size",
                }));
            }
            visuals.push(visual);
        }
        Ok(visuals)
    }

    /// Draws every random parameter, from sizes and boxes alone. Returns the steps, each with the
    /// index of its transform.
    pub(super) fn draw(
        &self,
        of: SampleRecord<'_>,
        visuals: &[VisualField<'_>],
    ) -> Result<Vec<(usize, Step)>, StageFailure> {
        let Some(first) = visuals.first() else {
            return Ok(Vec::new());
        };
        let plan = self.plan;
        let mut drawn = plan.undrawn(of.record, first.field, first.frame)?;
        plan.draw_more(0..plan.transforms.len(), of.at, &mut drawn)?;
        Ok(drawn.steps)
    }

    /// Reserves working memory before it is allocated.
    pub(super) fn reserve(&mut self, bytes: u64) -> Result<(), SampleError> {
        self.scratch.fields.lap(Stage::Decode);
        if let Some(admit) = &mut self.admit {
            admit(bytes)?;
        }
        self.scratch.fields.waited(Stage::Decode);
        Ok(())
    }

    /// Upper bound of the working memory for the fields of a sample that are no images.
    pub(super) fn kind_bytes(&self, of: SampleRecord<'_>, images: SampleImages<'_>) -> u64 {
        let sample = self.drawn(of, images);
        let plans = self.plan.kinds.iter();
        let bytes = plans.map(|plan| plan.scratch_bytes(&sample));
        bytes.fold(0, u64::saturating_add)
    }

    /// Writes the fields of a sample that are no images, and ends the sample.
    pub(super) fn write_others(
        &mut self,
        of: SampleRecord<'_>,
        images: SampleImages<'_>,
        row: &mut BatchRow,
    ) -> Result<(), TileFailure> {
        let sample = self.drawn(of, images);
        let scratch = &mut self.scratch.fields;
        for plan in &self.plan.kinds {
            plan.write(&sample, &mut row.cells, scratch)?;
        }
        scratch.end_sample();
        Ok(())
    }

    /// Returns a sample as the kinds of its fields see it.
    pub(super) fn drawn<'r>(
        &self,
        of: SampleRecord<'r>,
        images: SampleImages<'r>,
    ) -> DrawnSample<'r> {
        DrawnSample {
            record: of.record,
            seed: self.plan.seed(),
            at: of.at,
            images,
        }
    }
}
