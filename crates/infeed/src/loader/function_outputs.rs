//! Outputs of user functions, found by one call with the first record before any thread runs.

use super::failure::sample_error;
use crate::fields::failure::{SampleError, StageFailure};
use crate::fields::pixels::prepared_record::PixelState;
use crate::fields::scratch::Position;
use crate::function::{FunctionFailure, FunctionScope, ValueSink, ValueSpec};
use crate::maker::preview::PreviewStage;
use crate::maker::{SampleMaker, SampleRecord};
use crate::pipeline::{FieldSpec, FunctionSpec, Handle, Pipeline};
use crate::plan::SamplePlan;
use crate::plan::function::{ColumnOrigin, FunctionCall, takes};
use crate::plan::function_values::value_bytes;
use infeed_core::batch::{Array, Column, ColumnKind, ColumnSpec, Values};
use infeed_core::error::Error;
use infeed_core::sample::DType;
use infeed_source::{Source, read_one};

/// Number of records tried until one is good.
const ATTEMPTS: u64 = 8;

/// Returns a description with its functions bound and their outputs filled in. For unknown outputs,
/// reads the first record, makes a sample and calls the functions with it. Functions on batches get
/// a batch of that sample, with as many rows as a rank's batch if there are `ranks`.
///
/// # Errors
///
/// [`Error::Config`] for a function that is not available; the exception of a function; or the error
/// of the first records if all of them are bad.
pub(crate) fn resolve(
    pipeline: &Pipeline,
    source: &dyn Source,
    handles: &[Handle],
    ranks: u64,
) -> Result<Pipeline, Error> {
    let mut pipeline = pipeline.clone();
    pipeline.bind(handles)?;
    let Some(unknown) = pipeline.python.iter().find(|spec| spec.output.is_empty()) else {
        return Ok(pipeline);
    };
    let mut first = None;
    for record in 0..ATTEMPTS.min(source.len()) {
        match resolve_by(&pipeline, source, record, ranks) {
            Err(error) if error.is_bad_record() => {
                first.get_or_insert(error);
            }
            resolved => return resolved,
        }
    }
    Err(first.unwrap_or_else(|| {
        let problem = "the source has no record for a test call; declare its output";
        Error::config(unknown.part(), problem)
    }))
}

/// Finds the outputs with one record.
fn resolve_by(
    pipeline: &Pipeline,
    source: &dyn Source,
    record: u64,
    ranks: u64,
) -> Result<Pipeline, Error> {
    let mut resolved = pipeline.clone();
    let plan = SamplePlan::as_far_as_known(pipeline, source.fields(), Some(source))?;
    let at = Position {
        epoch: 0,
        position: record,
    };
    let found = read_one(source, record)?;
    let of = SampleRecord {
        record: &found,
        state: PixelState::Stored,
        at,
    };
    let stages = SampleMaker::new(&plan).preview(&[of], None);
    let stages = stages.map_err(|failed| sample_error(source, record, failed.failure))?;
    let mut values = stages.into_iter().last().map_or(Vec::new(), columns_of);
    let mut columns = plan.decoded_columns().to_vec();
    let pad = pipeline.batch.pad;
    let rows = pipeline
        .batch
        .per_rank
        .or(pipeline.batch.size.map(|size| size / ranks.max(1)));
    let rows = rows.unwrap_or(1).clamp(1, source.len().max(1)) as usize;
    let mut batches = false;
    for number in 0..pipeline.python.len() {
        let spec = &mut resolved.python[number];
        if spec.on == FunctionScope::Batch && !batches {
            batches = true;
            let both = values.iter().zip(&columns);
            values = both
                .map(|(one, spec)| repeat_column(one, spec, rows))
                .collect();
        }
        let known = resolved.python[number..]
            .iter()
            .all(|spec| !spec.output.is_empty());
        if known {
            break;
        }
        let spec = &mut resolved.python[number];
        let failed = |error| match spec.on {
            FunctionScope::Sample => sample_error(source, record, function_failure(spec, error)),
            FunctionScope::Batch => batch_error(spec, error),
        };
        let mut found = ReturnedValues::default();
        let taken = takes(spec, &columns)?;
        let inputs: Vec<Column> = taken.iter().map(|&at| values[at].clone()).collect();
        let running = start(spec)?;
        let seed = pipeline.shuffle.map_or(0, |shuffle| shuffle.seed);
        let draw = spec.on.draw_key(seed, 0, record, number as u64);
        let called = running.call(&inputs, draw, &mut found);
        drop(running);
        called.map_err(failed)?;
        if spec.output.is_empty() {
            let before: Vec<&ColumnSpec> = taken.iter().map(|&at| &columns[at]).collect();
            let output = found.output(&before, (spec.on == FunctionScope::Batch).then_some(rows));
            let failed = |error| match spec.on {
                FunctionScope::Sample => {
                    sample_error(source, record, function_failure(spec, error))
                }
                FunctionScope::Batch => batch_error(spec, error),
            };
            let output = output.map_err(|problem| failed(FunctionFailure::wrong(problem)))?;
            spec.output = output;
        }
        let call = FunctionCall::new(spec, number, &columns, pad)?;
        values = found.values(&call, &values, &inputs)?;
        columns = call.columns;
    }
    Ok(resolved)
}

/// Starts a function for one call.
fn start(spec: &FunctionSpec) -> Result<Box<dyn crate::function::RunningFunction>, Error> {
    match &spec.bound.0 {
        Some(function) => function.start(spec.processes.min(1)),
        None => Err(Error::config(
            spec.part(),
            "the pipeline was opened without this function; pass its handle to open",
        )),
    }
}

fn function_failure(spec: &FunctionSpec, error: FunctionFailure) -> StageFailure {
    StageFailure {
        field: 0,
        transform: None,
        error: SampleError::Function {
            function: spec.function.clone(),
            error,
        },
    }
}

fn batch_error(spec: &FunctionSpec, error: FunctionFailure) -> Error {
    let function = spec.function.clone();
    match error {
        FunctionFailure::Raised(source) => Error::BatchFunction {
            epoch: 0,
            step: 0,
            function,
            source,
        },
        FunctionFailure::Process(source) => Error::Process { function, source },
        FunctionFailure::Closed => Error::Closed,
    }
}

pub(super) fn columns_of(stage: PreviewStage) -> Vec<Column> {
    let column = |(name, values)| Column { name, values };
    stage.fields.into_iter().map(column).collect()
}

/// Repeats the value of one sample as a column of `rows` rows.
fn repeat_column(column: &Column, spec: &ColumnSpec, rows: usize) -> Column {
    let lent = |bytes: Vec<u8>, shape: Vec<usize>, dtype: DType| {
        Array::from_returnable(bytes, shape, dtype)
            .expect("as many bytes as rows of the shape take")
    };
    let values = match &column.values {
        Values::Array(array) if matches!(spec.kind, ColumnKind::Ragged { .. }) => {
            let count = array.shape().first().copied().unwrap_or(0);
            let item = array.shape().iter().skip(1).copied();
            let shape = std::iter::once(rows * count).chain(item).collect();
            let ends = (0..=rows).flat_map(|row| ((row * count) as i64).to_ne_bytes());
            Values::Ragged {
                values: lent(array.bytes().repeat(rows), shape, array.dtype()),
                offsets: lent(ends.collect(), vec![rows + 1], DType::Int64),
            }
        }
        Values::Array(array) => {
            let shape = std::iter::once(rows).chain(array.shape().iter().copied());
            let bytes = array.bytes().repeat(rows);
            Values::Array(lent(bytes, shape.collect(), array.dtype()))
        }
        Values::Ragged { values, .. } => Values::Array(values.clone()),
        Values::Bytes(row) => Values::Bytes(row.iter().cycle().take(rows).cloned().collect()),
        Values::Text(row) => Values::Text(row.iter().cycle().take(rows).cloned().collect()),
    };
    Column {
        name: column.name.clone(),
        values,
    }
}

/// Accepts any output of a function.
#[derive(Default)]
pub(super) struct ReturnedValues(Vec<(String, ReturnedValue)>);

enum ReturnedValue {
    Array {
        dtype: DType,
        shape: Vec<usize>,
        bytes: Vec<u8>,
    },
    Bytes(Vec<u8>),
    Text(Vec<u8>),
    Same(usize),
}

impl ValueSink for ReturnedValues {
    fn room(&mut self, name: &str, spec: ValueSpec<'_>) -> Result<&mut [u8], String> {
        let len = value_bytes(spec).ok_or_else(|| format!("`{name}` is too large"))?;
        let bytes = vec![0; len];
        let value = match spec {
            ValueSpec::Array { dtype, shape } => ReturnedValue::Array {
                dtype,
                shape: shape.to_vec(),
                bytes,
            },
            ValueSpec::Bytes(_) => ReturnedValue::Bytes(bytes),
            ValueSpec::Text(_) => ReturnedValue::Text(bytes),
        };
        self.0.retain(|(known, _)| known != name);
        self.0.push((name.to_owned(), value));
        match self.0.last_mut() {
            Some((
                _,
                ReturnedValue::Array { bytes, .. }
                | ReturnedValue::Bytes(bytes)
                | ReturnedValue::Text(bytes),
            )) => Ok(bytes),
            _ => Ok(&mut []),
        }
    }

    fn same(&mut self, name: &str, input: usize) -> Result<(), String> {
        self.0.push((name.to_owned(), ReturnedValue::Same(input)));
        Ok(())
    }
}

impl ReturnedValues {
    /// Returns the output specification of the values; per row if they are a batch's. `before` are
    /// the inputs.
    fn output(
        &self,
        before: &[&ColumnSpec],
        rows: Option<usize>,
    ) -> Result<Vec<FieldSpec>, String> {
        if self.0.is_empty() {
            return Err("it returned no field".to_owned());
        }
        let spec = |(name, value): &(String, ReturnedValue)| {
            let mut spec = FieldSpec {
                name: name.clone(),
                from: None,
                kind: Some("tensor".to_owned()),
                dtype: None,
                shape: Vec::new(),
            };
            let mut kind = |kind: &str| spec.kind = Some(kind.to_owned());
            match value {
                ReturnedValue::Bytes(_) => kind("bytes"),
                ReturnedValue::Text(_) => kind("text"),
                ReturnedValue::Array { dtype, shape, .. } => {
                    let is_list = |column: &&ColumnSpec| match &column.kind {
                        ColumnKind::Ragged { item, .. } => {
                            column.name == *name && shape.get(1..) == Some(item.as_slice())
                        }
                        _ => false,
                    };
                    if rows.is_none() && before.iter().any(is_list) {
                        kind("ragged");
                        spec.shape = shape[1..].to_vec();
                    } else if let Some(rows) = rows {
                        let Some((_, rest)) = shape.split_first().filter(|(n, _)| **n == rows)
                        else {
                            return Err(format!(
                                "it returned `{name}` with shape {shape:?}; the first axis must be \
                                 the {rows} rows of the batch"
                            ));
                        };
                        spec.shape = rest.to_vec();
                    } else {
                        spec.shape = shape.clone();
                    }
                    spec.dtype = Some(*dtype);
                }
                ReturnedValue::Same(input) => match before.get(*input).map(|column| &column.kind) {
                    Some(ColumnKind::Fixed { dtype, shape }) => {
                        (spec.dtype, spec.shape) = (Some(*dtype), shape.clone());
                    }
                    Some(ColumnKind::Padded { dtype, rank }) => {
                        (spec.dtype, spec.shape) = (Some(*dtype), vec![0; *rank]);
                    }
                    Some(ColumnKind::Ragged { dtype, item }) => {
                        kind("ragged");
                        (spec.dtype, spec.shape) = (Some(*dtype), item.clone());
                    }
                    Some(ColumnKind::Bytes) => kind("bytes"),
                    Some(ColumnKind::Text) => kind("text"),
                    None => return Err(format!("it has no input {input}")),
                },
            }
            Ok(spec)
        };
        self.0.iter().map(spec).collect()
    }

    /// Returns the columns after the function.
    pub(super) fn values(
        mut self,
        call: &FunctionCall,
        before: &[Column],
        inputs: &[Column],
    ) -> Result<Vec<Column>, Error> {
        let missing = |name: &str| {
            Error::config(
                &call.name,
                format!("it did not return `{name}`, which its output declares"),
            )
        };
        let mut values = Vec::with_capacity(call.columns.len());
        for (spec, gives) in call.columns.iter().zip(&call.gives) {
            let found = match gives {
                ColumnOrigin::Passed(from) => before[*from].values.clone(),
                ColumnOrigin::Returned => {
                    let at = self.0.iter().position(|(name, _)| *name == spec.name);
                    match self.0.swap_remove(at.ok_or_else(|| missing(&spec.name))?).1 {
                        ReturnedValue::Array {
                            dtype,
                            shape,
                            bytes,
                        } => {
                            let array = Array::from_returnable(bytes, shape, dtype);
                            Values::Array(array.ok_or_else(|| missing(&spec.name))?)
                        }
                        ReturnedValue::Bytes(bytes) => Values::Bytes(vec![bytes]),
                        ReturnedValue::Text(bytes) => {
                            Values::Text(vec![String::from_utf8_lossy(&bytes).into_owned()])
                        }
                        ReturnedValue::Same(input) => inputs[input].values.clone(),
                    }
                }
            };
            values.push(Column {
                name: spec.name.clone(),
                values: found,
            });
        }
        Ok(values)
    }
}
