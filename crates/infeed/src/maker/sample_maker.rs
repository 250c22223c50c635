//! The maker of samples, with the parts of its work that all samples share: headers, draws, and the
//! fields that are no images.

use std::sync::Arc;

use super::memory::SampleMemory;
use super::shared_tiles::SharedTiles;
use crate::fields::failure::{PartFailure, SampleError, StageFailure};
use crate::fields::kind::DrawnSample;
use crate::fields::moving::{SampleImage, SampleImages};
use crate::fields::pixels::header::VisualField;
use crate::fields::pixels::prepared_record::PixelState;
use crate::fields::scratch::{FieldScratch, Position};
use crate::plan::SamplePlan;
use infeed_codec::transform::{Step, Transform};
use infeed_core::batch::BatchRow;
use infeed_core::counters::{Stage, ThreadCounters};
use infeed_core::sample::{Image, Record, Size};

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

/// Makes samples on one thread. Its buffers keep their capacity between samples.
#[derive(Debug)]
pub struct SampleMaker<'a> {
    pub(super) plan: &'a SamplePlan,
    /// Memory, counters and notes of the fields.
    pub(crate) scratch: FieldScratch,
    /// `None` without a limit of memory.
    memory: Option<SampleMemory<'a>>,
    /// Columns of a sample before the user functions, or of a sample that is mixed into another one.
    pub(super) row: BatchRow,
    /// Images and masks of a sample of several records.
    pub(super) canvases: Vec<Image>,
    /// Images and masks of both images of a blended sample.
    pub(super) blended: [Vec<Image>; 2],
    /// Tiles of mosaics that all workers share.
    pub(super) tiles: Arc<SharedTiles>,
    /// Buffer in which records are prepared for the cache.
    pub(crate) prepared: Vec<u8>,
    /// Destination of what a cache keeps of the next sample, if the plan keeps the results of
    /// functions.
    pub(crate) keep: Option<Vec<u8>>,
}

impl<'a> SampleMaker<'a> {
    /// Creates a maker without a limit of memory.
    pub fn new(plan: &'a SamplePlan) -> SampleMaker<'a> {
        SampleMaker::with_counters(plan, Arc::new(ThreadCounters::new(None)))
    }

    /// Creates a maker that adds to the counters of the calling thread.
    pub(crate) fn with_counters(
        plan: &'a SamplePlan,
        counters: Arc<ThreadCounters>,
    ) -> SampleMaker<'a> {
        SampleMaker {
            plan,
            scratch: FieldScratch::new(counters),
            memory: None,
            row: BatchRow::default(),
            canvases: Vec::new(),
            blended: [Vec::new(), Vec::new()],
            tiles: Arc::default(),
            prepared: Vec::new(),
            keep: None,
        }
    }

    /// Reserves the working memory of each sample before it is allocated.
    #[must_use]
    pub(crate) fn with_memory(self, memory: SampleMemory<'a>) -> SampleMaker<'a> {
        let memory = Some(memory);
        SampleMaker { memory, ..self }
    }

    /// Uses the tiles of a loader.
    #[must_use]
    pub(crate) fn with_tiles(self, tiles: &Arc<SharedTiles>) -> SampleMaker<'a> {
        let tiles = Arc::clone(tiles);
        SampleMaker { tiles, ..self }
    }

    /// Limits the bytes of working memory of each sample from now on.
    pub(crate) fn limit(&mut self, bytes: u64) {
        if let Some(memory) = &mut self.memory {
            memory.limit(bytes);
        }
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
        let decoder = &mut self.scratch.decoder;
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
        let image = [SampleImage::new(of.record, first.frame, &[])];
        let added = self.add_copies(&image, &mut drawn.steps, first.frame.size);
        added.map_err(|failed| failed.failure)?;
        Ok(drawn.steps)
    }

    /// Adds the step that pastes mirrored copies of objects to the steps that images share, if the
    /// plan has one. `size` is that of the image before these. Returns the position of the step.
    pub(super) fn add_copies(
        &self,
        images: &[SampleImage<'_>],
        shared: &mut Vec<(usize, Step)>,
        size: Size,
    ) -> Result<Option<usize>, PartFailure> {
        match &self.plan.copies {
            Some(own) => own.add_copies(images, shared, size),
            None => Ok(None),
        }
    }

    /// Reserves working memory before it is allocated. `part` is the number of the record that needs
    /// most of it.
    pub(super) fn reserve(&mut self, part: usize, bytes: u64) -> Result<(), PartFailure> {
        self.scratch.lap(Stage::Decode);
        if let Some(memory) = &mut self.memory {
            let reserved = memory.reserve(bytes.saturating_add(self.plan.mixed_row_bytes()));
            reserved.map_err(|error| PartFailure {
                part,
                failure: error.in_field(0),
            })?;
        }
        self.scratch.exclude_wait(Stage::Decode);
        Ok(())
    }

    /// Releases the memory that only a large sample needed.
    pub(super) fn release(&mut self) {
        let permit = self.memory.as_mut().and_then(SampleMemory::take);
        if permit.is_some() {
            self.scratch.shrink();
            self.row.cells.clear();
            self.canvases = Vec::new();
            self.blended = [Vec::new(), Vec::new()];
            self.prepared = Vec::new();
        }
    }

    /// Upper bound of the working memory for the fields of a sample that are no images.
    pub(super) fn kind_bytes(&self, of: SampleRecord<'_>, images: SampleImages<'_>) -> u64 {
        let sample = self.drawn_sample(of, images);
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
    ) -> Result<(), PartFailure> {
        let sample = self.drawn_sample(of, images);
        let scratch = &mut self.scratch;
        for plan in &self.plan.kinds {
            plan.write(&sample, &mut row.cells, scratch)?;
        }
        scratch.end_sample();
        Ok(())
    }

    /// Returns a sample as the kinds of its fields see it.
    pub(super) fn drawn_sample<'r>(
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
