//! User functions in a plan: their input and output columns, and their calls.

use std::sync::{Arc, OnceLock};

use super::function_values::{OutputCell, OutputCells, pass, values_from};
use crate::fields::failure::{SampleError, StageFailure};
use crate::fields::pixels::planner::unsized_image;
use crate::fields::scratch::Position;
use crate::function::{
    CallCost, Function, FunctionFailure, FunctionScope, RunningFunction, ValueSink,
};
use crate::pipeline::{FunctionSpec, Pipeline};
use infeed_core::batch::{Column, ColumnKind, ColumnSpec, RowCell};
use infeed_core::error::Error;
use infeed_core::sample::FieldKind;

/// A function and the columns that it changes.
#[derive(Debug)]
pub(crate) struct FunctionCall {
    pub(crate) name: String,
    pub(crate) on: FunctionScope,
    pub(crate) processes: usize,
    /// Version of the results of a deterministic function.
    pub(crate) version: Option<u64>,
    /// Index in the description; keys its random draws.
    pub(crate) number: u64,
    part: String,
    function: Option<Arc<dyn Function>>,
    running: OnceLock<Box<dyn RunningFunction>>,
    /// Indices of its input columns.
    pub(crate) takes: Vec<usize>,
    /// Origin of each column after it.
    pub(crate) gives: Vec<ColumnOrigin>,
    /// Columns after it.
    pub(crate) columns: Vec<ColumnSpec>,
}

/// Origin of a column after a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ColumnOrigin {
    /// An earlier column, by index, that passes unchanged.
    Passed(usize),
    /// The function's output.
    Returned,
}

/// Plans the functions of a description, up to the first one with an unknown output.
pub(crate) fn calls(
    pipeline: &Pipeline,
    before: &[ColumnSpec],
    strict: bool,
) -> Result<Vec<FunctionCall>, Error> {
    let specs = &pipeline.python;
    let first = specs
        .iter()
        .position(|spec| spec.on == FunctionScope::Batch);
    let mut behind = specs.iter().skip(first.unwrap_or(specs.len()));
    if let Some(spec) = behind.find(|spec| spec.on == FunctionScope::Sample) {
        let problem = "this function takes samples; put it before the functions on batches";
        return Err(Error::config(spec.part(), problem));
    }
    let mut calls: Vec<FunctionCall> = Vec::with_capacity(specs.len());
    let mut columns = before;
    let mut batches = false;
    for (number, spec) in pipeline.python.iter().enumerate() {
        if spec.on == FunctionScope::Batch && !batches {
            batches = true;
            check_row_sizes(pipeline, columns)?;
        }
        if spec.output.is_empty() {
            // Only the input names can be checked.
            takes(spec, columns)?;
            if strict {
                let problem = "the output of this function is unknown; declare it, as in \
                               output={\"name\": (\"float32\", (10,))}";
                return Err(Error::config(spec.part(), problem));
            }
            return Ok(calls);
        }
        calls.push(FunctionCall::new(
            spec,
            number,
            columns,
            pipeline.batch.pad,
        )?);
        columns = &calls[number].columns;
    }
    check_row_sizes(pipeline, columns)?;
    Ok(calls)
}

/// Rejects functions on samples together with mixing, which works on finished rows.
pub(crate) fn refuse_after_mixing(pipeline: &Pipeline) -> Result<(), Error> {
    match pipeline
        .python
        .iter()
        .find(|spec| spec.on == FunctionScope::Sample)
    {
        Some(spec) => {
            let problem = "it cannot follow MixUp or CutMix on samples; remove them, or call it \
                           with batches";
            Err(Error::config(spec.part(), problem))
        }
        None => Ok(()),
    }
}

/// Rejects columns whose rows differ in size if the batch has no padding.
fn check_row_sizes(pipeline: &Pipeline, columns: &[ColumnSpec]) -> Result<(), Error> {
    let differs = |column: &&ColumnSpec| matches!(column.kind, ColumnKind::Padded { .. });
    match columns.iter().find(differs) {
        Some(column) if !pipeline.batch.pad && !pipeline.batch.is_of_one() => {
            Err(unsized_image(&column.name))
        }
        _ => Ok(()),
    }
}

/// Indices of a function's input columns.
pub(crate) fn takes(spec: &FunctionSpec, before: &[ColumnSpec]) -> Result<Vec<usize>, Error> {
    let Some(fields) = &spec.fields else {
        return Ok((0..before.len()).collect());
    };
    let place = |name: &String| {
        let found = before.iter().position(|column| column.name == *name);
        found.ok_or_else(|| {
            let names: Vec<&str> = before.iter().map(|column| column.name.as_str()).collect();
            Error::config(
                spec.part(),
                format!("no field `{name}`; use one of {names:?}"),
            )
        })
    };
    fields.iter().map(place).collect()
}

impl FunctionCall {
    /// Plans a function with a known output, after the columns `before`.
    pub(crate) fn new(
        spec: &FunctionSpec,
        number: usize,
        before: &[ColumnSpec],
        pad: bool,
    ) -> Result<FunctionCall, Error> {
        if spec.on == FunctionScope::Batch && spec.processes > 0 {
            let problem = "functions on batches run in this process; remove processes";
            return Err(Error::config(spec.part(), problem));
        }
        if spec.on == FunctionScope::Batch && spec.version.is_some() {
            let problem = "a cache keeps no batches; remove version";
            return Err(Error::config(spec.part(), problem));
        }
        let takes = takes(spec, before)?;
        let mut returned: Vec<ColumnSpec> = Vec::with_capacity(spec.output.len());
        for output in &spec.output {
            if returned.iter().any(|column| column.name == output.name) {
                let problem = format!("the output declares `{}` twice; remove one", output.name);
                return Err(Error::config(spec.part(), problem));
            }
            returned.push(ColumnSpec {
                name: output.name.clone(),
                kind: kind(spec, output, pad)?,
            });
        }
        let (mut gives, mut columns) = (Vec::new(), Vec::new());
        if spec.fields.is_some() {
            for (at, column) in before.iter().enumerate() {
                let back = returned.iter().position(|of| of.name == column.name);
                match (takes.contains(&at), back) {
                    (false, Some(_)) => {
                        let problem = format!(
                            "the function returns `{0}`, which is not among its inputs; add `{0}` \
                             to fields",
                            column.name
                        );
                        return Err(Error::config(spec.part(), problem));
                    }
                    (false, None) => {
                        gives.push(ColumnOrigin::Passed(at));
                        columns.push(column.clone());
                    }
                    (true, Some(back)) => {
                        gives.push(ColumnOrigin::Returned);
                        columns.push(returned.remove(back));
                    }
                    (true, None) => {}
                }
            }
        }
        gives.extend(returned.iter().map(|_| ColumnOrigin::Returned));
        columns.extend(returned);
        Ok(FunctionCall {
            name: spec.function.clone(),
            on: spec.on,
            processes: spec.processes,
            version: spec.version,
            number: number as u64,
            part: spec.part(),
            function: spec.bound.0.clone(),
            running: OnceLock::new(),
            takes,
            gives,
            columns,
        })
    }

    /// Starts the function if it does not run yet, in at most `most` processes.
    pub(crate) fn start(&self, most: usize) -> Result<(), Error> {
        if self.running.get().is_some() {
            return Ok(());
        }
        let Some(function) = &self.function else {
            let problem = "the pipeline was opened without this function; pass its handle to open";
            return Err(Error::config(&self.part, problem));
        };
        // A concurrent second start is dropped, which ends its processes.
        let _ = self.running.set(function.start(self.processes.min(most))?);
        Ok(())
    }

    /// Returns the file and the name by which other processes find the function.
    pub(crate) fn location(&self) -> Option<String> {
        self.function.as_ref()?.location()
    }

    /// Calls the function.
    pub(crate) fn call(
        &self,
        inputs: &[Column],
        seed: u64,
        at: Position,
        sink: &mut dyn ValueSink,
    ) -> Result<CallCost, FunctionFailure> {
        let draw = self.on.draw_key(seed, at.epoch, at.position, self.number);
        match self.running.get() {
            Some(running) => running.call(inputs, draw, sink),
            None => Err(FunctionFailure::Closed),
        }
    }

    /// Returns the error of a call.
    pub(crate) fn failure(&self, error: FunctionFailure) -> StageFailure {
        let function = self.name.clone();
        SampleError::Function { function, error }.in_field(0)
    }

    /// Takes the columns after the function out of own cells.
    pub(crate) fn values(&self, cells: &mut [RowCell]) -> Result<Vec<Column>, StageFailure> {
        let unlike = |_| FunctionFailure::wrong("its values have the wrong format");
        values_from(&self.columns, cells).map_err(|field| self.failure(unlike(field)))
    }

    /// Selects the function's inputs from the columns before it.
    pub(crate) fn inputs(&self, values: &[Column]) -> Vec<Column> {
        self.takes.iter().map(|&at| values[at].clone()).collect()
    }

    /// Calls the function with a sample and fills a cell for each column after it.
    pub(crate) fn fill<'a>(
        &self,
        values: &[Column],
        seed: u64,
        at: Position,
        cells: impl Iterator<Item = &'a mut RowCell>,
    ) -> Result<CallCost, FunctionFailure> {
        let mut rooms = OutputCells(Vec::with_capacity(self.columns.len()));
        for ((column, gives), cell) in self.columns.iter().zip(&self.gives).zip(cells) {
            match gives {
                ColumnOrigin::Returned => rooms.0.push(OutputCell {
                    column,
                    cell,
                    full: false,
                }),
                ColumnOrigin::Passed(from) => pass(&values[*from].values, cell),
            }
        }
        let spent = self.call(&self.inputs(values), seed, at, &mut rooms)?;
        match rooms.0.iter().find(|room| !room.full) {
            Some(room) => Err(FunctionFailure::wrong(format!(
                "it did not return `{}`",
                room.column.name
            ))),
            None => Ok(spent),
        }
    }
}

/// Returns the column kind of an output.
fn kind(
    spec: &FunctionSpec,
    output: &crate::pipeline::FieldSpec,
    pad: bool,
) -> Result<ColumnKind, Error> {
    let named = |problem: String| {
        Error::config(spec.part(), format!("output `{}`: {problem}", output.name))
    };
    let mut complete = output.clone();
    complete.kind.get_or_insert_with(|| "tensor".to_owned());
    let field = complete.field().map_err(|error| named(error.to_string()))?;
    Ok(match field.map(|field| field.kind) {
        Some(FieldKind::Tensor { dtype, shape }) if pad && !shape.is_empty() => {
            let rank = shape.len();
            ColumnKind::Padded { dtype, rank }
        }
        Some(FieldKind::Tensor { dtype, shape }) => {
            let bytes = shape
                .iter()
                .try_fold(dtype.bytes(), |bytes, &n| bytes.checked_mul(n));
            if bytes.is_none_or(|bytes| bytes > isize::MAX as usize / 2) {
                return Err(named(format!(
                    "a row of {shape:?} is too large; use a smaller shape"
                )));
            }
            ColumnKind::Fixed { dtype, shape }
        }
        Some(FieldKind::Bytes) => ColumnKind::Bytes,
        Some(FieldKind::Text) => ColumnKind::Text,
        Some(FieldKind::Ragged { dtype }) => ColumnKind::Ragged {
            dtype,
            item: complete.shape,
        },
        _ => {
            let problem = "this kind is not possible; use tensor, ragged, bytes or text";
            return Err(named(problem.to_owned()));
        }
    })
}
