//! What functions of the user's return, found by calling them once: with the first record, before
//! anything runs.

use super::failed::sample_error;
use super::{Options, decoders};
use crate::batch::{Array, Column, ColumnKind, ColumnSpec, Values};
use crate::error::Error;
use crate::function::{Failed, Form, On, Sink};
use crate::pipeline::{FieldSpec, FunctionSpec, Handle, Pipeline};
use crate::plan::Plan;
use crate::plan::device::{DecodeBy, Placement};
use crate::plan::failure::{Failure, SampleError};
use crate::plan::function::{Call, Gives, form_bytes, takes};
use crate::plan::preview::PreviewStage;
use crate::plan::sample::{Bench, Position};
use crate::sample::DType;
use crate::source::{Source, read_one};

/// Records that are tried until one is good.
const ATTEMPTS: u64 = 8;

impl Pipeline {
    /// The description with its functions looked up and what they return filled in. Where that is
    /// not told, the first record is read and made into a sample, and they are called with it; those
    /// on batches with as many rows of it as a batch of one of `ranks` has.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a function that is not here; what it raised; or what is wrong with the
    /// first records, if all of them are bad.
    pub fn settled(
        &self,
        source: &dyn Source,
        handles: &[Handle],
        ranks: u64,
    ) -> Result<Pipeline, Error> {
        let mut pipeline = self.clone();
        pipeline.bind(handles)?;
        let Some(unknown) = pipeline.python.iter().find(|spec| spec.output.is_empty()) else {
            return Ok(pipeline);
        };
        let mut first = None;
        for record in 0..ATTEMPTS.min(source.len()) {
            match pipeline.settled_by(source, record, ranks) {
                Err(error) if error.is_bad_record() => {
                    first.get_or_insert(error);
                }
                settled => return settled,
            }
        }
        Err(first.unwrap_or_else(|| {
            let problem = "there is no record to call it with; tell what it returns as output";
            Error::config(unknown.part(), problem)
        }))
    }

    /// Opens the source and tells the columns of a batch, in field order.
    ///
    /// # Errors
    ///
    /// As [`Plan::new`], [`Pipeline::settled`], or as the source's own.
    pub fn describe(&self, handles: &[Handle]) -> Result<Vec<ColumnSpec>, Error> {
        let (plan, _) = self.planned(handles)?;
        Ok(plan.delivered().to_vec())
    }

    /// Opens the source and tells which records come, and what is done where.
    ///
    /// # Errors
    ///
    /// As [`Pipeline::describe`], [`Pipeline::select`] and [`Pipeline::order`].
    pub fn explain(&self, handles: &[Handle]) -> Result<String, Error> {
        let (plan, source) = self.planned(handles)?;
        let order = self.order(&*source, handles)?;
        Ok(format!("{}{plan}", self.selection(&*source, &order)))
    }

    /// As [`Pipeline::explain`], of batches that go to a device to which so much is left, files as `decode`
    /// says.
    ///
    /// # Errors
    ///
    /// As [`Pipeline::explain`]; [`Error::Config`] where there is nothing that the device could decode.
    pub fn explain_on(
        &self,
        handles: &[Handle],
        placement: Placement,
        decode: DecodeBy,
    ) -> Result<String, Error> {
        let options = Options {
            decode,
            ..Options::default()
        };
        decoders::check(&options, Some(placement))?;
        let (mut plan, source) = self.planned(handles)?;
        let placement = match decode.is_by_device() {
            true => Placement::Resize,
            false => placement,
        };
        plan.for_device_by(decode, placement, false)?;
        let order = self.order(&*source, handles)?;
        Ok(format!("{}{plan}", self.selection(&*source, &order)))
    }

    /// The plan and the source that it is made for; nothing runs.
    pub(super) fn planned(
        &self,
        handles: &[Handle],
    ) -> Result<(Plan, std::sync::Arc<dyn Source>), Error> {
        let source = self.open_source(handles)?;
        let settled = self.settled(&*source, handles, 1)?;
        let plan = Plan::over(&settled, &*source)?;
        Ok((plan, source))
    }

    /// The same, by what one record becomes.
    fn settled_by(&self, source: &dyn Source, record: u64, ranks: u64) -> Result<Pipeline, Error> {
        let mut pipeline = self.clone();
        let plan = Plan::as_far_as_known(self, source.fields(), Some(source))?;
        let at = Position {
            epoch: 0,
            position: record,
        };
        let found = read_one(source, record)?;
        let stages = plan.preview(&found, at, &mut Bench::new());
        let stages = stages.map_err(|failure| sample_error(source, record, failure))?;
        let mut values = stages.into_iter().last().map_or(Vec::new(), columns_of);
        let mut columns = plan.decoded().to_vec();
        let pad = self.batch.pad;
        let rows = self
            .batch
            .per_rank
            .or(self.batch.size.map(|size| size / ranks.max(1)));
        let rows = rows.unwrap_or(1).clamp(1, source.len().max(1)) as usize;
        let mut batches = false;
        for number in 0..self.python.len() {
            let spec = &mut pipeline.python[number];
            if spec.on == On::Batch && !batches {
                batches = true;
                let both = values.iter().zip(&columns);
                values = both.map(|(one, spec)| repeated(one, spec, rows)).collect();
            }
            let known = pipeline.python[number..]
                .iter()
                .all(|spec| !spec.output.is_empty());
            if known {
                break;
            }
            let spec = &mut pipeline.python[number];
            let failed = |error| match spec.on {
                On::Sample => sample_error(source, record, function_failed(spec, error)),
                On::Batch => batch_error(spec, error),
            };
            let mut found = Found::default();
            let taken = takes(spec, &columns)?;
            let inputs: Vec<Column> = taken.iter().map(|&at| values[at].clone()).collect();
            let running = start(spec)?;
            let seed = self.shuffle.map_or(0, |shuffle| shuffle.seed);
            let draw = crate::function::Draw::new(spec.on, seed, 0, record, number as u64);
            let called = running.call(&inputs, draw, &mut found);
            drop(running);
            called.map_err(failed)?;
            if spec.output.is_empty() {
                let before: Vec<&ColumnSpec> = taken.iter().map(|&at| &columns[at]).collect();
                let output = found.output(&before, (spec.on == On::Batch).then_some(rows));
                let failed = |error| match spec.on {
                    On::Sample => sample_error(source, record, function_failed(spec, error)),
                    On::Batch => batch_error(spec, error),
                };
                let output = output.map_err(|problem| failed(Failed::wrong(problem)))?;
                spec.output = output;
            }
            let call = Call::new(spec, number, &columns, pad)?;
            values = found.values(&call, &values, &inputs)?;
            columns = call.columns;
        }
        Ok(pipeline)
    }
}

/// Starts a function for one call.
fn start(spec: &FunctionSpec) -> Result<Box<dyn crate::function::Running>, Error> {
    match &spec.bound.0 {
        Some(function) => function.start(spec.processes.min(1)),
        None => Err(Error::config(spec.part(), "it was not looked up")),
    }
}

fn function_failed(spec: &FunctionSpec, error: Failed) -> Failure {
    Failure {
        field: 0,
        transform: None,
        error: SampleError::Function {
            function: spec.function.clone(),
            error,
        },
    }
}

fn batch_error(spec: &FunctionSpec, error: Failed) -> Error {
    let function = spec.function.clone();
    match error {
        Failed::Raised(source) => Error::BatchFunction {
            epoch: 0,
            step: 0,
            function,
            source,
        },
        Failed::Process(source) => Error::Process { function, source },
        Failed::Closed => Error::Closed,
    }
}

fn columns_of(stage: PreviewStage) -> Vec<Column> {
    let column = |(name, values)| Column { name, values };
    stage.fields.into_iter().map(column).collect()
}

/// A value of one sample as the column of a batch whose rows are all that sample.
fn repeated(column: &Column, spec: &ColumnSpec, rows: usize) -> Column {
    let lent = |bytes: Vec<u8>, shape: Vec<usize>, dtype: DType| {
        Array::lent(bytes, shape, dtype).expect("as many bytes as rows of the shape take")
    };
    let values = match &column.values {
        Values::Array(array) if matches!(spec.kind, ColumnKind::Ragged { .. }) => {
            let count = array.bytes().len() / array.dtype().bytes();
            let ends = (0..=rows).flat_map(|row| ((row * count) as i64).to_ne_bytes());
            Values::Ragged {
                values: lent(
                    array.bytes().repeat(rows),
                    vec![rows * count],
                    array.dtype(),
                ),
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

/// Takes whatever a function returns.
#[derive(Default)]
pub(super) struct Found(Vec<(String, Value)>);

enum Value {
    Array {
        dtype: DType,
        shape: Vec<usize>,
        bytes: Vec<u8>,
    },
    Bytes(Vec<u8>),
    Text(Vec<u8>),
    Same(usize),
}

impl Sink for Found {
    fn room(&mut self, name: &str, form: Form<'_>) -> Result<&mut [u8], String> {
        let len = form_bytes(form).ok_or_else(|| format!("`{name}` is too large"))?;
        let bytes = vec![0; len];
        let value = match form {
            Form::Array { dtype, shape } => Value::Array {
                dtype,
                shape: shape.to_vec(),
                bytes,
            },
            Form::Bytes(_) => Value::Bytes(bytes),
            Form::Text(_) => Value::Text(bytes),
        };
        self.0.retain(|(known, _)| known != name);
        self.0.push((name.to_owned(), value));
        match self.0.last_mut() {
            Some((_, Value::Array { bytes, .. } | Value::Bytes(bytes) | Value::Text(bytes))) => {
                Ok(bytes)
            }
            _ => Ok(&mut []),
        }
    }

    fn same(&mut self, name: &str, input: usize) -> Result<(), String> {
        self.0.push((name.to_owned(), Value::Same(input)));
        Ok(())
    }
}

impl Found {
    /// What the values are, by row where they are those of a batch; `before` are the inputs.
    fn output(
        &self,
        before: &[&ColumnSpec],
        rows: Option<usize>,
    ) -> Result<Vec<FieldSpec>, String> {
        if self.0.is_empty() {
            return Err("it returned no field".to_owned());
        }
        let spec = |(name, value): &(String, Value)| {
            let mut spec = FieldSpec {
                name: name.clone(),
                from: None,
                kind: Some("tensor".to_owned()),
                dtype: None,
                shape: Vec::new(),
            };
            let mut kind = |kind: &str| spec.kind = Some(kind.to_owned());
            match value {
                Value::Bytes(_) => kind("bytes"),
                Value::Text(_) => kind("text"),
                Value::Array { dtype, shape, .. } => {
                    let was_ragged = before.iter().any(|column| {
                        column.name == *name && matches!(column.kind, ColumnKind::Ragged { .. })
                    });
                    if was_ragged && rows.is_none() && shape.len() == 1 {
                        kind("ragged");
                    } else if let Some(rows) = rows {
                        let Some((_, rest)) = shape.split_first().filter(|(n, _)| **n == rows)
                        else {
                            return Err(format!(
                                "it returned `{name}` with the shape {shape:?}, where the first \
                                 axis of a batch has its {rows} rows"
                            ));
                        };
                        spec.shape = rest.to_vec();
                    } else {
                        spec.shape = shape.clone();
                    }
                    spec.dtype = Some(*dtype);
                }
                Value::Same(input) => match before.get(*input).map(|column| &column.kind) {
                    Some(ColumnKind::Fixed { dtype, shape }) => {
                        (spec.dtype, spec.shape) = (Some(*dtype), shape.clone());
                    }
                    Some(ColumnKind::Padded { dtype, rank }) => {
                        (spec.dtype, spec.shape) = (Some(*dtype), vec![0; *rank]);
                    }
                    Some(ColumnKind::Ragged { dtype }) => {
                        kind("ragged");
                        spec.dtype = Some(*dtype);
                    }
                    Some(ColumnKind::Bytes) => kind("bytes"),
                    Some(ColumnKind::Text) => kind("text"),
                    None => return Err(format!("there is no input {input}")),
                },
            }
            Ok(spec)
        };
        self.0.iter().map(spec).collect()
    }

    /// The columns behind a function that returned this.
    pub(super) fn values(
        mut self,
        call: &Call,
        before: &[Column],
        inputs: &[Column],
    ) -> Result<Vec<Column>, Error> {
        let missing = |name: &str| {
            Error::config(
                &call.name,
                format!("it returned no `{name}`, which its output tells"),
            )
        };
        let mut values = Vec::with_capacity(call.columns.len());
        for (spec, gives) in call.columns.iter().zip(&call.gives) {
            let found = match gives {
                Gives::Passed(from) => before[*from].values.clone(),
                Gives::Returned => {
                    let at = self.0.iter().position(|(name, _)| *name == spec.name);
                    match self.0.swap_remove(at.ok_or_else(|| missing(&spec.name))?).1 {
                        Value::Array {
                            dtype,
                            shape,
                            bytes,
                        } => {
                            let array = Array::lent(bytes, shape, dtype);
                            Values::Array(array.ok_or_else(|| missing(&spec.name))?)
                        }
                        Value::Bytes(bytes) => Values::Bytes(vec![bytes]),
                        Value::Text(bytes) => {
                            Values::Text(vec![String::from_utf8_lossy(&bytes).into_owned()])
                        }
                        Value::Same(input) => inputs[input].values.clone(),
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

/// The stages of a preview with those of the functions behind them: what the first is given, what
/// each returns, and the row again.
pub(super) fn through_functions(
    plan: &Plan,
    at: Position,
    mut stages: Vec<PreviewStage>,
) -> Result<Vec<PreviewStage>, Failure> {
    let calls = plan.sample_calls();
    let Some(row) = stages.last_mut().filter(|_| !calls.is_empty()) else {
        return Ok(stages);
    };
    row.name = "row";
    let mut values = columns_of(row.clone());
    for call in calls {
        let failed = |error| Failure {
            field: 0,
            transform: None,
            error: SampleError::Function {
                function: call.name.clone(),
                error,
            },
        };
        let mut found = Found::default();
        let inputs = call.inputs(&values);
        let called = call.call(&inputs, plan.seed(), at, &mut found);
        called.map_err(failed)?;
        values = found
            .values(call, &values, &inputs)
            .map_err(|error| failed(Failed::wrong(error.to_string())))?;
        let field = |column: &Column| (column.name.clone(), column.values.clone());
        stages.push(PreviewStage {
            name: "python",
            draws: call.name.clone(),
            fields: values.iter().map(field).collect(),
        });
    }
    if let Some(last) = stages.last().cloned() {
        stages.push(PreviewStage {
            name: "output",
            draws: String::new(),
            ..last
        });
    }
    Ok(stages)
}
