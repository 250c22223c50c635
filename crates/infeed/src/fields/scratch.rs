//! Working memory of the fields of a sample, and the position that keys its draws.

use std::sync::Arc;

use infeed_codec::decode::{Decoder, Loss};
use infeed_codec::transform::TransformScratch;
use infeed_core::counters::{Meter, Stage, ThreadCounters};
use infeed_core::sample::Image;

/// A position in the order, which keys random draws.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Epoch, from 0.
    pub epoch: u64,
    /// Position in the epoch, from 0.
    pub position: u64,
}

/// Working memory of one worker for the fields of a sample. Buffers keep their capacity between
/// samples.
#[derive(Debug)]
pub struct FieldScratch {
    pub(crate) decoder: Decoder,
    pub(crate) images: [Image; 2],
    pub(crate) transform: TransformScratch,
    pub(crate) classes: ClassScratch,
    pub(crate) masks: MaskScratch,
    /// Decoded numbers of a field that is no image.
    pub(crate) numbers: Vec<f32>,
    /// Weight of a sample in the statistics of its stages: 1, or 0 for a partner, whose cost
    /// belongs to the sample that it is mixed into.
    pub(crate) counted: u64,
    /// Time by stage.
    pub(crate) meter: Meter,
    /// Counters of the worker.
    pub(crate) counters: Arc<ThreadCounters>,
    /// Number of decoder warnings about records that are still usable.
    pub(crate) warnings: u64,
    /// Data that decoded pixels do not have.
    pub(crate) losses: Vec<FieldLoss>,
    /// Pixels of unknown class in the masks of the last sample.
    pub(crate) unknown_pixels: u64,
}

/// Buffers for class numbers of all pixels.
#[derive(Debug, Default)]
pub(crate) struct ClassScratch {
    pub(crate) narrow: Vec<u8>,
    pub(crate) wide: Vec<u16>,
}

/// Planes that a worker keeps.
#[derive(Debug, Default)]
pub(crate) struct MaskScratch {
    pub(crate) planes: [Image; 2],
    pub(crate) outline: Vec<u8>,
}

impl FieldScratch {
    /// Creates empty buffers, and a meter for the calling thread.
    pub(crate) fn new(counters: Arc<ThreadCounters>) -> FieldScratch {
        FieldScratch {
            decoder: Decoder::new(),
            images: [Image::default(), Image::default()],
            transform: TransformScratch::default(),
            classes: ClassScratch::default(),
            masks: MaskScratch::default(),
            numbers: Vec::new(),
            counted: 1,
            meter: Meter::new(infeed_raw::machine::thread_cpu_time),
            counters,
            warnings: 0,
            losses: Vec::new(),
            unknown_pixels: 0,
        }
    }

    /// Releases memory that large samples needed.
    pub(crate) fn shrink(&mut self) {
        self.decoder = Decoder::new();
        self.images = Default::default();
        self.transform = TransformScratch::default();
        self.classes = ClassScratch::default();
        self.masks = MaskScratch::default();
        self.numbers = Vec::new();
    }

    /// Adds the time since the last lap to a stage.
    pub(crate) fn lap(&mut self, stage: Stage) {
        self.meter.lap(stage, &self.counters);
    }

    /// Leaves the time since the last lap, in which the worker waited, out of a stage.
    pub(crate) fn exclude_wait(&mut self, stage: Stage) {
        self.counters.add_wait(stage, self.meter.skip());
    }

    /// Counts the sample in a stage.
    pub(crate) fn count_sample(&self, stage: Stage) {
        self.counters.count(stage, self.counted, 0, 0);
    }

    /// Counts the written sample and ends the last lap.
    pub(crate) fn end_sample(&mut self) {
        self.count_sample(Stage::Write);
        self.lap(Stage::Write);
        self.meter.settle(&self.counters);
    }
}

/// Data of a field of a record that its decoded pixels do not have.
#[derive(Clone, Copy, Debug)]
pub struct FieldLoss {
    /// Number of the record.
    pub record: u64,
    /// Index of the field.
    pub field: usize,
    /// The lost data.
    pub loss: Loss,
}
