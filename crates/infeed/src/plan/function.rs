//! Functions of the user's in a plan: the columns they take and give, and calling them on a sample.

use std::sync::{Arc, OnceLock};

use super::Plan;
use super::failure::{Failure, SampleError};
use super::sample::Position;
use crate::batch::{Array, BatchRow, Cell, Column, ColumnKind, ColumnSpec, Values};
use crate::counters::{Meter, Stage, ThreadCounters};
use crate::error::Error;
use crate::function::{Draw, Failed, Form, Function, On, Running, Sink, Spent};
use crate::pipeline::{FunctionSpec, Pipeline};
use crate::sample::{DType, FieldKind};

/// A function, and which columns it changes.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) name: String,
    pub(crate) on: On,
    pub(crate) processes: usize,
    /// Its number in the description, which keys its draws.
    number: u64,
    part: String,
    function: Option<Arc<dyn Function>>,
    running: OnceLock<Box<dyn Running>>,
    /// Columns that it is given.
    pub(crate) takes: Vec<usize>,
    /// Where each column behind it comes from.
    pub(crate) gives: Vec<Gives>,
    /// The columns behind it.
    pub(crate) columns: Vec<ColumnSpec>,
}

/// Where a column behind a function comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gives {
    /// The column of this number before it, which it was not given.
    Passed(usize),
    /// The function.
    Returned,
}

/// The functions of a description, as far as it is known what they return.
pub(super) fn calls(
    pipeline: &Pipeline,
    before: &[ColumnSpec],
    strict: bool,
) -> Result<Vec<Call>, Error> {
    let specs = &pipeline.python;
    let first = specs.iter().position(|spec| spec.on == On::Batch);
    let mut behind = specs.iter().skip(first.unwrap_or(specs.len()));
    if let Some(spec) = behind.find(|spec| spec.on == On::Sample) {
        let problem = "it is called with samples; put it before the functions on batches";
        return Err(Error::config(spec.part(), problem));
    }
    let mut calls: Vec<Call> = Vec::with_capacity(specs.len());
    let mut columns = before;
    let mut batches = false;
    for (number, spec) in pipeline.python.iter().enumerate() {
        if spec.on == On::Batch && !batches {
            batches = true;
            sized(pipeline, columns)?;
        }
        if spec.output.is_empty() {
            // The names can be held against what is there, and no more.
            takes(spec, columns)?;
            if strict {
                let problem = "what it returns is not known; tell it as output";
                return Err(Error::config(spec.part(), problem));
            }
            return Ok(calls);
        }
        calls.push(Call::new(spec, number, columns, pipeline.batch.pad)?);
        columns = &calls[number].columns;
    }
    sized(pipeline, columns)?;
    Ok(calls)
}

/// Refuses functions on samples that are mixed, which is done to finished rows.
pub(super) fn refuse_after_mixing(pipeline: &Pipeline) -> Result<(), Error> {
    match pipeline.python.iter().find(|spec| spec.on == On::Sample) {
        Some(spec) => {
            let problem = "MixUp and CutMix come last for a sample; leave them out, or call it \
                           with batches";
            Err(Error::config(spec.part(), problem))
        }
        None => Ok(()),
    }
}

/// Refuses columns whose rows differ where nobody asked for padding.
fn sized(pipeline: &Pipeline, columns: &[ColumnSpec]) -> Result<(), Error> {
    let differs = |column: &&ColumnSpec| matches!(column.kind, ColumnKind::Padded { .. });
    match columns.iter().find(differs) {
        Some(column) if !pipeline.batch.pad && !pipeline.batch.is_of_one() => {
            Err(super::unsized_image(&column.name))
        }
        _ => Ok(()),
    }
}

/// Numbers of the columns that a function is given.
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
                format!("no field `{name}`; there are {names:?}"),
            )
        })
    };
    fields.iter().map(place).collect()
}

impl Call {
    /// A function of which it is told what it returns, behind the columns `before`.
    pub(crate) fn new(
        spec: &FunctionSpec,
        number: usize,
        before: &[ColumnSpec],
        pad: bool,
    ) -> Result<Call, Error> {
        if spec.on == On::Batch && spec.processes > 0 {
            let problem = "functions on batches run in this process; leave out processes";
            return Err(Error::config(spec.part(), problem));
        }
        let takes = takes(spec, before)?;
        let mut returned: Vec<ColumnSpec> = Vec::with_capacity(spec.output.len());
        for output in &spec.output {
            if returned.iter().any(|column| column.name == output.name) {
                let problem = format!("`{}` is told twice in its output", output.name);
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
                            "it returns `{}`, which it is not given; add that to its fields",
                            column.name
                        );
                        return Err(Error::config(spec.part(), problem));
                    }
                    (false, None) => {
                        gives.push(Gives::Passed(at));
                        columns.push(column.clone());
                    }
                    (true, Some(back)) => {
                        gives.push(Gives::Returned);
                        columns.push(returned.remove(back));
                    }
                    (true, None) => {}
                }
            }
        }
        gives.extend(returned.iter().map(|_| Gives::Returned));
        columns.extend(returned);
        Ok(Call {
            name: spec.function.clone(),
            on: spec.on,
            processes: spec.processes,
            number: number as u64,
            part: spec.part(),
            function: spec.bound.0.clone(),
            running: OnceLock::new(),
            takes,
            gives,
            columns,
        })
    }

    /// Starts the function, unless it runs already, in `most` processes at most.
    fn start(&self, most: usize) -> Result<(), Error> {
        if self.running.get().is_some() {
            return Ok(());
        }
        let Some(function) = &self.function else {
            let problem = "it was not looked up; open the pipeline with what it refers to";
            return Err(Error::config(&self.part, problem));
        };
        // A second start at the same time would be dropped, which ends its processes.
        let _ = self.running.set(function.start(self.processes.min(most))?);
        Ok(())
    }

    /// Calls the function.
    pub(crate) fn call(
        &self,
        inputs: &[Column],
        seed: u64,
        at: Position,
        sink: &mut dyn Sink,
    ) -> Result<Spent, Failed> {
        let draw = Draw::new(self.on, seed, at.epoch, at.position, self.number);
        match self.running.get() {
            Some(running) => running.call(inputs, draw, sink),
            None => Err(Failed::Closed),
        }
    }

    /// The columns that it is given, of those before it.
    pub(crate) fn inputs(&self, values: &[Column]) -> Vec<Column> {
        self.takes.iter().map(|&at| values[at].clone()).collect()
    }

    /// Calls it with a sample and fills a cell for each column behind it.
    fn fill<'a>(
        &self,
        values: &[Column],
        seed: u64,
        at: Position,
        cells: impl Iterator<Item = &'a mut Cell>,
    ) -> Result<Spent, Failed> {
        let mut rooms = Rooms(Vec::with_capacity(self.columns.len()));
        for ((column, gives), cell) in self.columns.iter().zip(&self.gives).zip(cells) {
            match gives {
                Gives::Returned => rooms.0.push(Room {
                    column,
                    cell,
                    full: false,
                }),
                Gives::Passed(from) => pass(&values[*from].values, cell),
            }
        }
        let spent = self.call(&self.inputs(values), seed, at, &mut rooms)?;
        match rooms.0.iter().find(|room| !room.full) {
            Some(room) => Err(Failed::wrong(format!(
                "it returned no `{}`",
                room.column.name
            ))),
            None => Ok(spent),
        }
    }
}

/// The kind of column that a value of the output makes.
fn kind(
    spec: &FunctionSpec,
    output: &crate::pipeline::FieldSpec,
    pad: bool,
) -> Result<ColumnKind, Error> {
    let named = |problem: String| {
        Error::config(spec.part(), format!("output `{}`: {problem}", output.name))
    };
    let mut told = output.clone();
    told.kind.get_or_insert_with(|| "tensor".to_owned());
    let field = told.field().map_err(|error| named(error.to_string()))?;
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
                return Err(named(format!("a row of {shape:?} is too large")));
            }
            ColumnKind::Fixed { dtype, shape }
        }
        Some(FieldKind::Bytes) => ColumnKind::Bytes,
        Some(FieldKind::Text) => ColumnKind::Text,
        Some(FieldKind::Ragged { dtype }) => ColumnKind::Ragged { dtype },
        _ => return Err(named("it must be tensor, ragged, bytes or text".to_owned())),
    })
}

/// Cells that a function's values are written into.
struct Rooms<'a>(Vec<Room<'a>>);

struct Room<'a> {
    column: &'a ColumnSpec,
    cell: &'a mut Cell,
    full: bool,
}

impl Sink for Rooms<'_> {
    fn room(&mut self, name: &str, form: Form<'_>) -> Result<&mut [u8], String> {
        let names = || {
            let names = self.0.iter().map(|room| room.column.name.as_str());
            names.collect::<Vec<_>>()
        };
        let Some(at) = self.0.iter().position(|room| room.column.name == name) else {
            return Err(format!("it returned `{name}`; known are {:?}", names()));
        };
        let room = &mut self.0[at];
        let len = fitting(room.column, form)?;
        room.full = true;
        match &mut room.cell {
            Cell::Slab(row) => Ok(row.bytes_mut()),
            Cell::Own { shape, bytes } => {
                shape.clear();
                if let Form::Array { shape: found, .. } = form {
                    shape.extend_from_slice(found);
                }
                bytes.clear();
                bytes.resize(len, 0);
                Ok(bytes)
            }
        }
    }

    fn same(&mut self, name: &str, _: usize) -> Result<(), String> {
        Err(format!("`{name}` of a sample is always copied"))
    }
}

/// Bytes of a value, if its column can hold it.
fn fitting(column: &ColumnSpec, form: Form<'_>) -> Result<usize, String> {
    let len = form_bytes(form);
    let fits = match (&column.kind, form) {
        (ColumnKind::Fixed { dtype, shape }, Form::Array { dtype: d, shape: s }) => {
            *dtype == d && shape == s
        }
        (ColumnKind::Padded { dtype, rank }, Form::Array { dtype: d, shape: s }) => {
            *dtype == d && *rank == s.len()
        }
        (ColumnKind::Ragged { dtype }, Form::Array { dtype: d, shape: s }) => {
            *dtype == d && s.len() == 1
        }
        (ColumnKind::Bytes, Form::Bytes(_)) | (ColumnKind::Text, Form::Text(_)) => true,
        _ => false,
    };
    match len {
        Some(len) if fits => Ok(len),
        _ => Err(format!(
            "it returned `{}` as {} where {} is known; make all samples alike, or tell its output",
            column.name,
            form_text(form),
            kind_text(&column.kind),
        )),
    }
}

pub(crate) fn form_bytes(form: Form<'_>) -> Option<usize> {
    match form {
        Form::Bytes(len) | Form::Text(len) => Some(len),
        Form::Array { dtype, shape } => shape
            .iter()
            .try_fold(dtype.bytes(), |bytes, &n| bytes.checked_mul(n)),
    }
}

fn form_text(form: Form<'_>) -> String {
    match form {
        Form::Array { dtype, shape } => format!("{} {shape:?}", dtype.name()),
        Form::Bytes(_) => "bytes".to_owned(),
        Form::Text(_) => "text".to_owned(),
    }
}

pub(crate) fn kind_text(kind: &ColumnKind) -> String {
    match kind {
        ColumnKind::Fixed { dtype, shape } => format!("{} {shape:?}", dtype.name()),
        ColumnKind::Padded { dtype, rank } => format!("{} with {rank} axes", dtype.name()),
        ColumnKind::Ragged { dtype } => format!("{} with one axis", dtype.name()),
        ColumnKind::Bytes => "bytes".to_owned(),
        ColumnKind::Text => "text".to_owned(),
    }
}

/// Copies a value that a function was not given.
fn pass(values: &Values, cell: &mut Cell) {
    let (from, axes): (&[u8], &[usize]) = match values {
        Values::Array(array) => (array.bytes(), array.shape()),
        Values::Bytes(rows) => (rows.first().map_or(&[], Vec::as_slice), &[]),
        Values::Text(rows) => (rows.first().map_or(&[], |row| row.as_bytes()), &[]),
        Values::Ragged { values, .. } => (values.bytes(), values.shape()),
    };
    match cell {
        // Of one length: both are the column's.
        Cell::Slab(row) => row.bytes_mut().copy_from_slice(from),
        Cell::Own { shape, bytes } => {
            *shape = axes.to_vec();
            bytes.clear();
            bytes.extend_from_slice(from);
        }
    }
}

/// An empty cell of its own for each column.
fn own_cells(count: usize) -> Vec<Cell> {
    let cell = || Cell::Own {
        shape: Vec::new(),
        bytes: Vec::new(),
    };
    (0..count).map(|_| cell()).collect()
}

/// The values of one sample, taken out of cells of their own; a number of a column whose bytes are
/// not of its shape, where there is one.
fn values_from(columns: &[ColumnSpec], cells: &mut [Cell]) -> Result<Vec<Column>, usize> {
    let mut values = Vec::with_capacity(columns.len());
    for (at, (column, cell)) in columns.iter().zip(cells).enumerate() {
        let Cell::Own { shape, bytes } = cell else {
            return Err(at);
        };
        let (shape, bytes) = (std::mem::take(shape), std::mem::take(bytes));
        let array = |bytes: Vec<u8>, dtype: DType, shape: Vec<usize>| {
            let whole = form_bytes(Form::Array {
                dtype,
                shape: &shape,
            });
            let fits = whole == Some(bytes.len());
            let array = Array::lent(bytes, shape, dtype).filter(|_| fits);
            array.map(Values::Array).ok_or(at)
        };
        let values_of = match &column.kind {
            ColumnKind::Fixed { dtype, shape } => array(bytes, *dtype, shape.clone())?,
            ColumnKind::Padded { dtype, .. } => array(bytes, *dtype, shape)?,
            ColumnKind::Ragged { dtype } => {
                let count = bytes.len() / dtype.bytes();
                array(bytes, *dtype, vec![count])?
            }
            ColumnKind::Bytes => Values::Bytes(vec![bytes]),
            ColumnKind::Text => Values::Text(vec![String::from_utf8_lossy(&bytes).into_owned()]),
        };
        values.push(Column {
            name: column.name.clone(),
            values: values_of,
        });
    }
    Ok(values)
}

impl Plan {
    /// The functions that samples go through.
    pub(crate) fn sample_calls(&self) -> &[Call] {
        let end = self.calls.partition_point(|call| call.on == On::Sample);
        &self.calls[..end]
    }

    /// The functions that batches go through.
    pub(crate) fn batch_calls(&self) -> &[Call] {
        &self.calls[self.sample_calls().len()..]
    }

    /// Starts all functions; those in other processes in `most` at most, since more than threads
    /// that call them would have nothing to do.
    ///
    /// # Errors
    ///
    /// As [`Function::start`].
    pub fn start(&self, most: usize) -> Result<(), Error> {
        self.calls.iter().try_for_each(|call| call.start(most))
    }

    /// Makes the row of a sample whose columns before the functions are in `scratch`.
    pub(super) fn through_functions(
        &self,
        scratch: &mut BatchRow,
        at: Position,
        row: &mut BatchRow,
        meter: &mut Meter,
        counters: &ThreadCounters,
    ) -> Result<(), Failure> {
        let mut values = values_from(&self.columns, &mut scratch.cells).map_err(|field| {
            let error = SampleError::Shape {
                found: "other bytes than its shape takes".to_owned(),
                expected: kind_text(&self.columns[field].kind),
                mend: "every record must have the shape its source declares",
            };
            Failure {
                field,
                transform: None,
                error,
            }
        })?;
        let calls = self.sample_calls();
        for (number, call) in calls.iter().enumerate() {
            let failed = |error| Failure {
                field: 0,
                transform: None,
                error: SampleError::Function {
                    function: call.name.clone(),
                    error,
                },
            };
            let is_last = number + 1 == calls.len();
            let mut between = own_cells(if is_last { 0 } else { call.columns.len() });
            meter.begin_alone(counters);
            let called = match is_last {
                true => call.fill(&values, self.seed, at, row.cells.iter_mut()),
                false => call.fill(&values, self.seed, at, between.iter_mut()),
            };
            let spent = called.as_ref().copied().unwrap_or_default();
            meter.lap_alone(Stage::Python, spent.waited, spent.elsewhere, counters);
            called.map_err(failed)?;
            let bytes_in = bytes_of(&values);
            if number == 0 {
                take_back(&mut values, scratch);
            }
            let out = if is_last { &row.cells } else { &between };
            let bytes_out = out.iter().map(super::sample::cell_bytes).sum();
            counters.count(Stage::Python, u64::from(is_last), bytes_in, bytes_out);
            if !is_last {
                let unlike = |_| failed(Failed::wrong("its values cannot be taken on"));
                values = values_from(&call.columns, &mut between).map_err(unlike)?;
            }
        }
        Ok(())
    }

    /// Bytes that a sample takes in between the functions, beside what comes before the first.
    pub(super) fn function_bytes(&self) -> u64 {
        let columns = self.sample_calls().iter().flat_map(|call| &call.columns);
        let bytes = columns.filter_map(|column| column.kind.row_bytes());
        bytes.map(|bytes| bytes as u64).sum()
    }
}

/// Memory goes back to where the next sample is written, unless the function kept hold of it.
fn take_back(values: &mut Vec<Column>, scratch: &mut BatchRow) {
    for (column, cell) in values.drain(..).zip(&mut scratch.cells) {
        if let (Values::Array(array), Cell::Own { bytes, .. }) = (column.values, cell)
            && let Some(memory) = array.give_back()
        {
            *bytes = memory;
            bytes.clear();
        }
    }
}

/// Bytes of all values.
pub(crate) fn bytes_of(values: &[Column]) -> u64 {
    let bytes = values.iter().map(|column| match &column.values {
        Values::Array(array) => array.bytes().len(),
        Values::Ragged { values, .. } => values.bytes().len(),
        Values::Bytes(rows) => rows.iter().map(Vec::len).sum(),
        Values::Text(rows) => rows.iter().map(String::len).sum(),
    });
    bytes.map(|bytes| bytes as u64).sum()
}
