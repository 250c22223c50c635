//! User functions on finished batches. Their output is also written to pooled slabs.

use std::sync::Arc;

use crate::fields::scratch::Position;
use crate::function::{FunctionFailure, ValueSink, ValueSpec};
use crate::plan::SamplePlan;
use crate::plan::function::{ColumnOrigin, FunctionCall};
use crate::plan::function_values::{bytes_of, kind_text, value_bytes};
use infeed_core::batch::{
    Array, ArrayWriter, Batch, Column, ColumnKind, ColumnSpec, SlabPool, Values,
};
use infeed_core::counters::{Calls, Meter, Stage, StageStats, ThreadCounters, Timeline};
use infeed_core::error::Error;

/// Slab pools and counters of user functions on batches.
#[derive(Debug)]
pub(super) struct Finisher {
    /// For each function, one pool per column that it returns in a slab.
    pools: Vec<Vec<Option<Arc<SlabPool>>>>,
    counters: ThreadCounters,
}

impl Finisher {
    /// Creates the pools for batches of at most `rows` rows; each pool keeps `keep` free slabs.
    pub(super) fn new(
        plan: &SamplePlan,
        rows: usize,
        keep: usize,
        timeline: Option<Arc<Timeline>>,
    ) -> Finisher {
        let pool = |(column, gives): (&ColumnSpec, &ColumnOrigin)| match gives {
            ColumnOrigin::Passed(_) => None,
            ColumnOrigin::Returned => {
                let bytes = column.kind.row_bytes()?;
                Some(SlabPool::new(rows, bytes, keep))
            }
        };
        let pools = |call: &FunctionCall| call.columns.iter().zip(&call.gives).map(pool).collect();
        Finisher {
            pools: plan.batch_calls().iter().map(pools).collect(),
            counters: ThreadCounters::new(timeline),
        }
    }

    /// Bytes of the slabs that one batch needs in all functions.
    pub(super) fn slab_bytes(&self) -> u64 {
        let pools = self.pools.iter().flatten().flatten();
        pools.map(|pool| pool.slab_bytes()).sum()
    }

    /// Number of finished batches that are not dropped.
    pub(super) fn live(&self) -> usize {
        let pools = self.pools.iter().flatten().flatten();
        pools.map(|pool| pool.live()).max().unwrap_or(0)
    }

    pub(super) fn add_counts(&self, stage: Stage, sum: &mut StageStats, calls: &mut Calls) {
        self.counters.add_to(stage, sum);
        self.counters.add_calls(stage, calls);
    }

    /// Runs all functions on a batch; `position` is the position of its first row.
    pub(super) fn run(
        &self,
        plan: &SamplePlan,
        mut batch: Batch,
        position: u64,
    ) -> Result<Batch, Error> {
        let at = Position {
            epoch: batch.epoch,
            position,
        };
        let counts_samples = plan.sample_calls().is_empty();
        for (number, (call, pools)) in plan.batch_calls().iter().zip(&self.pools).enumerate() {
            let rows = batch.rows();
            let inputs = call.inputs(&batch.columns);
            let mut rooms = ColumnCells {
                call,
                pools,
                inputs: &inputs,
                rows,
                made: call.columns.iter().map(|_| None).collect(),
            };
            if rows == 0 {
                rooms.leave_empty();
            } else {
                let mut meter = Meter::new(infeed_raw::machine::thread_cpu_time);
                meter.begin_alone(&self.counters);
                let called = call.call(&inputs, plan.seed(), at, &mut rooms);
                let spent = called.as_ref().copied().unwrap_or_default();
                let (waited, elsewhere) = (spent.waited, spent.elsewhere);
                meter.lap_alone(Stage::Python, waited, elsewhere, &self.counters);
                called.map_err(|failed| error(&batch, &call.name, failed))?;
            }
            let made = rooms.columns(&batch.columns);
            let made =
                made.map_err(|problem| error(&batch, &call.name, FunctionFailure::wrong(problem)))?;
            let samples = if counts_samples && number == 0 {
                rows
            } else {
                0
            };
            let (taken, given) = (bytes_of(&inputs), bytes_of(&made));
            self.counters
                .count(Stage::Python, samples as u64, taken, given);
            drop(inputs);
            batch.columns = made;
        }
        Ok(batch)
    }
}

fn error(batch: &Batch, function: &str, failed: FunctionFailure) -> Error {
    let function = function.to_owned();
    match failed {
        FunctionFailure::Raised(source) => Error::BatchFunction {
            epoch: batch.epoch,
            step: batch.step,
            function,
            source,
        },
        FunctionFailure::Process(source) => Error::Process { function, source },
        FunctionFailure::Closed => Error::Closed,
    }
}

/// Destination of a function's columns.
struct ColumnCells<'a> {
    call: &'a FunctionCall,
    pools: &'a [Option<Arc<SlabPool>>],
    inputs: &'a [Column],
    rows: usize,
    made: Vec<Option<ReturnedColumn>>,
}

/// A returned column.
enum ReturnedColumn {
    Written(ArrayWriter, Vec<usize>),
    Same(Values),
}

impl ColumnCells<'_> {
    /// Returns the index of a column that the function may return.
    fn place(&self, name: &str) -> Result<usize, String> {
        let returned = self.call.columns.iter().zip(&self.call.gives);
        let mut returned = returned
            .enumerate()
            .filter(|(_, (_, gives))| **gives == ColumnOrigin::Returned);
        let found = returned.find(|(_, (column, _))| column.name == name);
        found.map(|(at, _)| at).ok_or_else(|| {
            let names = self.call.columns.iter().zip(&self.call.gives);
            let names = names.filter(|(_, gives)| **gives == ColumnOrigin::Returned);
            let names: Vec<&str> = names.map(|(column, _)| column.name.as_str()).collect();
            format!("it returned `{name}`; its declared outputs are {names:?}")
        })
    }

    fn unlike(&self, column: usize, found: &str) -> String {
        let ColumnSpec { name, kind } = &self.call.columns[column];
        format!(
            "it returned `{name}` as {found}, expected {} rows of {}",
            self.rows,
            kind_text(kind)
        )
    }

    /// Creates empty columns for a batch without rows.
    fn leave_empty(&mut self) {
        for (made, column) in self.made.iter_mut().zip(&self.call.columns) {
            let rest = match &column.kind {
                ColumnKind::Fixed { shape, .. } => shape.clone(),
                ColumnKind::Padded { rank, .. } => vec![0; *rank],
                ColumnKind::Bytes => {
                    *made = Some(ReturnedColumn::Same(Values::Bytes(Vec::new())));
                    continue;
                }
                ColumnKind::Text => {
                    *made = Some(ReturnedColumn::Same(Values::Text(Vec::new())));
                    continue;
                }
                ColumnKind::Ragged { .. } => {
                    let same = self.inputs.iter().find(|input| input.name == column.name);
                    *made = same.map(|input| ReturnedColumn::Same(input.values.clone()));
                    continue;
                }
            };
            let shape = std::iter::once(0).chain(rest).collect();
            *made = ArrayWriter::own(0)
                .ok()
                .map(|making| ReturnedColumn::Written(making, shape));
        }
    }

    /// Returns the columns after the function.
    fn columns(self, before: &[Column]) -> Result<Vec<Column>, String> {
        let specs = self.call.columns.iter().zip(&self.call.gives);
        let column =
            |((spec, gives), made): ((&ColumnSpec, &ColumnOrigin), Option<ReturnedColumn>)| {
                let values = match (gives, made) {
                    (ColumnOrigin::Passed(from), _) => before[*from].values.clone(),
                    (ColumnOrigin::Returned, Some(ReturnedColumn::Same(values))) => values,
                    (ColumnOrigin::Returned, Some(ReturnedColumn::Written(making, shape))) => {
                        let (ColumnKind::Fixed { dtype, .. } | ColumnKind::Padded { dtype, .. }) =
                            &spec.kind
                        else {
                            return Err(format!("`{}` is not an array", spec.name));
                        };
                        Values::Array(making.finish(shape, *dtype))
                    }
                    (ColumnOrigin::Returned, None) => {
                        return Err(format!("it did not return `{}`", spec.name));
                    }
                };
                Ok(Column {
                    name: spec.name.clone(),
                    values,
                })
            };
        specs.zip(self.made).map(column).collect()
    }
}

impl ValueSink for ColumnCells<'_> {
    fn room(&mut self, name: &str, spec: ValueSpec<'_>) -> Result<&mut [u8], String> {
        let at = self.place(name)?;
        let ValueSpec::Array { dtype, shape } = spec else {
            return Err(self.unlike(at, "a value that is not an array"));
        };
        let fits = match &self.call.columns[at].kind {
            ColumnKind::Fixed {
                dtype: known,
                shape: row,
            } => *known == dtype && shape.split_first() == Some((&self.rows, row.as_slice())),
            ColumnKind::Padded { dtype: known, rank } => {
                *known == dtype && shape.first() == Some(&self.rows) && shape.len() == rank + 1
            }
            _ => false,
        };
        let len = match value_bytes(spec) {
            Some(len) if fits => len,
            _ => return Err(self.unlike(at, &format!("{} {shape:?}", dtype.name()))),
        };
        let making = match &self.pools[at] {
            Some(pool) => ArrayWriter::from_pool(pool, len),
            None => ArrayWriter::own(len),
        };
        let making = making.map_err(|error| error.to_string())?;
        match self.made[at].insert(ReturnedColumn::Written(making, shape.to_vec())) {
            ReturnedColumn::Written(making, _) => Ok(making.bytes_mut()),
            ReturnedColumn::Same(_) => Ok(&mut []),
        }
    }

    fn same(&mut self, name: &str, input: usize) -> Result<(), String> {
        let at = self.place(name)?;
        let Some(column) = self.inputs.get(input) else {
            return Err(format!("it has no input {input}"));
        };
        let alike = |array: &Array, dtype, rank: usize| {
            array.dtype() == dtype && array.shape().len() == rank + 1
        };
        let fits = match (&self.call.columns[at].kind, &column.values) {
            (ColumnKind::Fixed { dtype, shape }, Values::Array(array)) => {
                alike(array, *dtype, shape.len()) && array.shape()[1..] == shape[..]
            }
            (ColumnKind::Padded { dtype, rank }, Values::Array(array)) => {
                alike(array, *dtype, *rank)
            }
            (ColumnKind::Ragged { dtype, item }, Values::Ragged { values, .. }) => {
                alike(values, *dtype, item.len()) && values.shape()[1..] == item[..]
            }
            (ColumnKind::Bytes, Values::Bytes(_)) | (ColumnKind::Text, Values::Text(_)) => true,
            _ => false,
        };
        if !fits {
            return Err(self.unlike(at, &format!("its input `{}`", column.name)));
        }
        self.made[at] = Some(ReturnedColumn::Same(column.values.clone()));
        Ok(())
    }
}
