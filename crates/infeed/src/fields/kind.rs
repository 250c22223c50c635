//! A kind of data, as the planner and the maker of samples see it.

use std::fmt::Debug;

use super::failure::{PartFailure, StageFailure};
use super::moving::{SampleImages, StageShapes};
use super::scratch::{FieldScratch, Position};
use crate::pipeline::Pipeline;
use infeed_codec::decode::ImageFrame;
use infeed_codec::transform::MovingBox;
use infeed_core::batch::{ColumnKind, RowCell};
use infeed_core::sample::{Field, Record, Size};
use infeed_source::Source;

/// A pipeline and the fields of its source.
#[derive(Clone, Copy)]
pub(crate) struct PlanInput<'a> {
    pub(crate) pipeline: &'a Pipeline,
    pub(crate) fields: &'a [Field],
    /// `None` if only the fields are known.
    pub(crate) source: Option<&'a dyn Source>,
    /// Whether `fields` are all fields of the source.
    pub(crate) all: bool,
}

/// One sample, after its draws.
#[derive(Clone, Copy)]
pub(crate) struct DrawnSample<'a> {
    /// The sample's own record.
    pub(crate) record: &'a Record,
    /// Seed and position, which key the draws.
    pub(crate) seed: u64,
    pub(crate) at: Position,
    /// Images with which coordinates move.
    pub(crate) images: SampleImages<'a>,
}

/// Fields of one kind of data: the decisions of the planner, and the work for each sample.
///
/// Images and masks are planned and made apart, because all other kinds depend on their size.
pub(crate) trait KindPlan: Debug + Send + Sync {
    /// Returns the index of each field, with the column that it becomes.
    fn columns(&self) -> Vec<(usize, ColumnKind)>;

    /// Describes the work for a field, for the printed plan.
    fn describe(&self, field: usize) -> &'static str;

    /// Sets the size of the images of all samples; `None` if sizes differ.
    fn set_image_size(&mut self, _size: Option<Size>) {}

    /// Returns the boxes of a record before any step. Transforms may draw crops around them.
    fn boxes(&self, _: &Record, _: ImageFrame) -> Result<Vec<MovingBox>, StageFailure> {
        Ok(Vec::new())
    }

    /// Whether the kind only copies fields of one size from the source to the batch.
    fn only_copies(&self) -> bool {
        false
    }

    /// Whether the memory for a sample depends on more than the headers of its images.
    fn needs_contents(&self) -> bool {
        false
    }

    /// Upper bound of the working memory for a sample, in bytes.
    fn scratch_bytes(&self, _: &DrawnSample<'_>) -> u64 {
        0
    }

    /// Upper bound of the bytes of a sample's rows outside slabs.
    fn row_bytes(&self, sample: &DrawnSample<'_>) -> u64;

    /// Writes the fields of a sample to their cells.
    fn write(
        &self,
        sample: &DrawnSample<'_>,
        cells: &mut [RowCell],
        scratch: &mut FieldScratch,
    ) -> Result<(), PartFailure>;

    /// Adds the shapes of a sample that a preview draws on its image.
    fn add_shapes(
        &self,
        _: SampleImages<'_>,
        _: &mut FieldScratch,
        _: &mut StageShapes,
    ) -> Result<(), StageFailure> {
        Ok(())
    }
}

/// Bytes of the fields of a record that become columns outside slabs.
pub(crate) fn own_bytes(record: &Record, columns: &[(usize, ColumnKind)]) -> u64 {
    let own = columns
        .iter()
        .filter(|(_, kind)| kind.row_bytes().is_none());
    let bytes = own.map(|(field, _)| record.fields.get(*field).map_or(0, |bytes| bytes.len()));
    bytes.map(|bytes| bytes as u64).sum()
}
