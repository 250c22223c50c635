//! The plan of a sample: plain data, made once when a pipeline opens.

use super::added_columns::{self, PaddedList};
use super::checks::{check_alone, check_order, check_transforms};
use super::coordinates;
use super::function::{self, FunctionCall};
use super::join::{self, JoinPlan};
use super::mirrored_paste::{self, MirroredPastePlan};
use super::mosaic::MosaicPlan;
use super::record_sizes::{self, RecordSize};
use crate::fields::kind::{KindPlan, PlanInput};
use crate::fields::kinds::KindPlans;
use crate::fields::pixels::files::Devices;
use crate::fields::pixels::plan::PixelPlan;
use crate::fields::pixels::planner::PixelPlanner;
use crate::fields::steps::{self, FieldStep, StepStage};
use crate::function::FunctionScope;
use crate::pipeline::{Decode, Pipeline};
use infeed_codec::transform::Transform;
use infeed_core::batch::{BatchRow, ColumnSpec, RowCell};
use infeed_core::error::Error;
use infeed_core::sample::{Field, Pixels};
use infeed_source::Source;

/// A pipeline ready to run.
#[derive(Debug)]
pub struct SamplePlan {
    /// Plan of each field that is an image or mask.
    pub(crate) pixels: Vec<Option<PixelPlan>>,
    pub(crate) columns: Vec<ColumnSpec>,
    /// Fields and columns of further batch layouts, in which the host does more or less of the
    /// row's work.
    pub(crate) others: Vec<(Vec<Option<PixelPlan>>, Vec<ColumnSpec>)>,
    pub(crate) transforms: Vec<Transform>,
    /// Index of the first transform whose steps are fused with later ones; `None` without fusion.
    pub(crate) fuses_from: Option<usize>,
    pub(crate) decode: Decode,
    pub(crate) seed: u64,
    /// `None` if each sample has one record.
    pub(crate) join: Option<JoinPlan>,
    /// Mirrored copies of objects.
    pub(crate) copies: Option<MirroredPastePlan>,
    /// Sizes that records have for transforms.
    pub(crate) sizes: Vec<RecordSize>,
    /// `None` if the host decodes all files.
    pub(crate) devices: Option<Devices>,
    /// User functions, those on samples first.
    pub(crate) calls: Vec<FunctionCall>,
    /// Row columns after the last sample function, with the lengths of lists and the `valid` mask.
    /// Functions do not see these.
    pub(crate) marked: Option<Vec<ColumnSpec>>,
    /// Lists that are padded.
    pub(crate) lists: Vec<PaddedList>,
    /// Plans of the other fields.
    pub(crate) kinds: Vec<Box<dyn KindPlan>>,
}

impl SamplePlan {
    /// Checks a description against the fields of its source.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] that names the part of the description and the fix.
    pub fn new(pipeline: &Pipeline, fields: &[Field]) -> Result<SamplePlan, Error> {
        SamplePlan::build(pipeline, fields, None, true)
    }

    /// Checks a description against its source.
    ///
    /// # Errors
    ///
    /// As [`SamplePlan::new`].
    pub fn over(pipeline: &Pipeline, source: &dyn Source) -> Result<SamplePlan, Error> {
        SamplePlan::build(pipeline, source.fields(), Some(source), true)
    }

    /// As [`SamplePlan::new`], up to the first function with an unknown output.
    pub(crate) fn as_far_as_known(
        pipeline: &Pipeline,
        fields: &[Field],
        source: Option<&dyn Source>,
    ) -> Result<SamplePlan, Error> {
        SamplePlan::build(pipeline, fields, source, false)
    }

    fn build(
        pipeline: &Pipeline,
        fields: &[Field],
        source: Option<&dyn Source>,
        strict: bool,
    ) -> Result<SamplePlan, Error> {
        check_order(pipeline)?;
        check_transforms(pipeline, fields)?;
        let all = strict || source.is_some();
        let input = PlanInput {
            pipeline,
            fields,
            source,
            all,
        };
        let mut kinds = KindPlans::plan_declared(&input)?;
        coordinates::check(pipeline, &pipeline.transforms, fields, all)?;
        let planner = PixelPlanner { pipeline, source };
        let mut pixels = Vec::with_capacity(fields.len());
        for (at, field) in fields.iter().enumerate() {
            let planned = match kinds.is_free(at) {
                true => planner.plan(at, field)?,
                false => None,
            };
            pixels.push(planned.map(|(plan, kind)| {
                kinds.set_column(at, kind);
                plan
            }));
        }
        kinds.add_others(&input)?;
        // The shape of masks is that of the images, which are planned now.
        let mut sizes = pixels.iter().flatten();
        let (kinds, kind_columns) = kinds.finish(sizes.find_map(|plan| plan.size));
        let columns = fields.iter().zip(kind_columns);
        let mut columns: Vec<ColumnSpec> = columns
            .filter_map(|(field, kind)| {
                let name = field.name.clone();
                Some(ColumnSpec { name, kind: kind? })
            })
            .collect();
        let adds = added_columns::check(pipeline)?;
        let join = join::plan(&input, &pixels)?;
        let copies = mirrored_paste::plan(&input)?;
        // Without a source, fields and function outputs may be unknown.
        let calls = match source {
            None if !strict => Vec::new(),
            _ => function::calls(pipeline, &columns, strict)?,
        };
        let mut lists = Vec::new();
        let mut marked = None;
        if let Some(call) = calls.last().filter(|_| adds) {
            let columns = marked.insert(call.columns.clone());
            lists = added_columns::add(pipeline, columns, &call.name)?;
        } else if adds && pipeline.python.is_empty() {
            lists = added_columns::add(pipeline, &mut columns, "the source")?;
        }
        Ok(SamplePlan {
            join,
            copies,
            sizes: record_sizes::plan(&input)?,
            devices: None,
            calls,
            marked,
            lists,
            kinds,
            pixels,
            columns,
            others: Vec::new(),
            transforms: pipeline.transforms.clone(),
            fuses_from: steps::fuses_from(pipeline),
            decode: pipeline.decode.clone().unwrap_or_default(),
            seed: pipeline.shuffle.map_or(0, |shuffle| shuffle.seed),
        })
    }

    /// Columns of a batch while its rows are filled, in field order.
    pub fn columns(&self) -> &[ColumnSpec] {
        match (&self.marked, self.sample_calls().last()) {
            (Some(columns), _) => columns,
            (None, Some(call)) => &call.columns,
            (None, None) => &self.columns,
        }
    }

    /// Columns of a batch while its rows are filled, for each of its layouts.
    pub(crate) fn layouts(&self) -> Vec<Vec<ColumnSpec>> {
        let others = self.others.iter().map(|(_, columns)| columns.clone());
        std::iter::once(self.columns().to_vec())
            .chain(others)
            .collect()
    }

    /// Images and masks of a batch layout, 0 if there is only one.
    pub(crate) fn pixels_of(&self, layout: usize) -> &[Option<PixelPlan>] {
        let other = layout.checked_sub(1).and_then(|at| self.others.get(at));
        other.map_or(&self.pixels, |(pixels, _)| pixels)
    }

    /// Columns of a delivered batch: [`SamplePlan::columns`] after the functions on batches.
    pub fn delivered_columns(&self) -> &[ColumnSpec] {
        match self.batch_calls().last() {
            Some(call) => &call.columns,
            None => self.columns(),
        }
    }

    /// Columns of a sample before any function.
    pub(crate) fn decoded_columns(&self) -> &[ColumnSpec] {
        &self.columns
    }

    /// Seed of the random draws.
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// Whether only a region of some encoded images is decoded.
    pub fn decodes_regions(&self) -> bool {
        let mut encoded = self.pixels.iter().flatten();
        encoded.any(|plan| {
            let decodes = |step: &FieldStep| step.stage == StepStage::Decode;
            plan.stored == Pixels::Encoded && plan.steps.iter().any(decodes)
        })
    }

    /// Returns the mosaic, if there is one.
    pub(crate) fn mosaic(&self) -> Option<&MosaicPlan> {
        self.join.as_ref()?.mosaic()
    }

    /// Functions on samples.
    pub(crate) fn sample_calls(&self) -> &[FunctionCall] {
        let end = self
            .calls
            .partition_point(|call| call.on == FunctionScope::Sample);
        &self.calls[..end]
    }

    /// Functions on batches.
    pub(crate) fn batch_calls(&self) -> &[FunctionCall] {
        &self.calls[self.sample_calls().len()..]
    }

    /// Starts all functions, those in other processes in at most `most`: more processes than
    /// calling threads would be idle.
    ///
    /// # Errors
    ///
    /// As [`Function::start`](crate::function::Function::start).
    pub fn start(&self, most: usize) -> Result<(), Error> {
        self.calls.iter().try_for_each(|call| call.start(most))
    }

    /// Bytes of a sample's columns after each function.
    pub(crate) fn function_bytes(&self) -> u64 {
        let columns = self.sample_calls().iter().flat_map(|call| &call.columns);
        let bytes = columns.filter_map(|column| column.kind.row_bytes());
        bytes.map(|bytes| bytes as u64).sum()
    }

    /// Creates a row with its own memory.
    pub fn spare_row(&self) -> BatchRow {
        let cell = |_| RowCell::Own {
            shape: Vec::new(),
            bytes: Vec::new(),
        };
        BatchRow {
            cells: self.columns.iter().map(cell).collect(),
            ..BatchRow::default()
        }
    }

    /// Bytes of the row that is mixed into another one; 0 without mixing.
    pub(crate) fn mixed_row_bytes(&self) -> u64 {
        if !matches!(self.join, Some(JoinPlan::Mix(_))) {
            return 0;
        }
        let bytes = self.columns.iter().filter_map(|c| c.kind.row_bytes());
        bytes.sum::<usize>() as u64
    }

    /// Whether samples are copies of the fields of their records, each of one size. Batches then have
    /// the columns of the fields and, with padding, the `valid` mask.
    pub(crate) fn only_copies(&self) -> bool {
        self.kinds.iter().all(|plan| plan.only_copies())
            && self.pixels.iter().all(Option::is_none)
            && self.others.is_empty()
            && self.transforms.is_empty()
            && self.join.is_none()
            && self.copies.is_none()
            && self.lists.is_empty()
            && self.sample_calls().is_empty()
    }

    /// Whether samples have no fixed size, so that rows are stored separately until the batch is
    /// full.
    pub fn has_own_cells(&self) -> bool {
        self.columns()
            .iter()
            .any(|column| column.kind.row_bytes().is_none())
    }
}

/// Checks a description as far as possible without reading its data. Palettes are read.
///
/// # Errors
///
/// As [`SamplePlan::new`].
pub(crate) fn check(pipeline: &Pipeline) -> Result<(), Error> {
    pipeline.check_selection()?;
    match pipeline.source.known_fields()? {
        Some(fields) => SamplePlan::as_far_as_known(pipeline, &fields, None).map(drop),
        // Only records show the fields; opening the source checks the rest.
        None => pipeline
            .batch
            .settled_tail()
            .and_then(|_| check_order(pipeline))
            .and_then(|()| check_alone(pipeline)),
    }
}
