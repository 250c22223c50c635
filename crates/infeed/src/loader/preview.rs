//! One sample after each stage, made on the calling thread.

use super::failure::sample_error;
use super::function_outputs::{ReturnedValues, columns_of};
use crate::fields::failure::{SampleError, StageFailure};
use crate::fields::pixels::prepared_record::PixelState;
use crate::fields::scratch::Position;
use crate::function::FunctionFailure;
use crate::maker::preview::{PreviewStage, StageShapes};
use crate::maker::{SampleMaker, SampleRecord};
use crate::plan::SamplePlan;
use crate::plan::join::JoinDraw;
use infeed_core::batch::Column;
use infeed_core::error::Error;
use infeed_core::order::Order;
use infeed_core::sample::{Record, RecordId};
use infeed_source::{Source, read_one};

/// Returns the record at a position, and its sample after each stage.
///
/// # Errors
///
/// [`Error::Config`] for a position that the order does not have, or the error of the record.
pub(crate) fn stages(
    plan: &SamplePlan,
    source: &dyn Source,
    order: &Order,
    at: Position,
) -> Result<(RecordId, Vec<PreviewStage>), Error> {
    let Position { epoch, position } = at;
    if position >= order.len() {
        let problem = format!("position {position} is not below {} records", order.len());
        return Err(Error::config("preview", problem));
    }
    let index = order.epoch(epoch).get(position);
    let id = source.id(index, None);
    let record = read_one(source, index)?;
    plan.start(1)?;
    let failed = |failure| sample_error(source, index, failure);
    let drawn = plan.join(at, || order.near(epoch, position));
    let stages = preview_records(plan, source, order, (&record, at), drawn.as_ref())?;
    let stages = through_functions(plan, at, stages).map_err(failed)?;
    Ok((id, stages))
}

/// Returns the stages of a sample up to the functions. `drawn` joins the record with others.
fn preview_records(
    plan: &SamplePlan,
    source: &dyn Source,
    order: &Order,
    (own, at): (&Record, Position),
    drawn: Option<&JoinDraw>,
) -> Result<Vec<PreviewStage>, Error> {
    let permutation = order.epoch(at.epoch);
    let positions = drawn.map_or(&[][..], JoinDraw::partners).iter();
    let partners = positions
        .map(|&position| {
            let epoch = at.epoch;
            let record = read_one(source, permutation.get(position))?;
            Ok((record, Position { epoch, position }))
        })
        .collect::<Result<Vec<_>, Error>>()?;
    let others = partners.iter().map(|(record, at)| (record, *at));
    let all = std::iter::once((own, at)).chain(others);
    let records: Vec<SampleRecord<'_>> =
        all.map(|(record, at)| stored_record(record, at)).collect();
    let made = SampleMaker::new(plan).preview(&records, drawn);
    let mut stages = made.map_err(|failed| {
        let record = records[failed.part].record.index;
        sample_error(source, record, failed.failure)
    })?;
    let joining = drawn.and_then(|drawn| {
        let name = drawn.name();
        stages.iter_mut().find(|stage| stage.name == name)
    });
    if let Some(stage) = joining {
        let names = partners.iter();
        let names = names.map(|(record, _)| source.id(record.index, None).to_string());
        let names = names.collect::<Vec<_>>().join(", ");
        let word = if partners.len() == 1 {
            "partner"
        } else {
            "partners"
        };
        stage.draws = format!("{}; {word} {names}", stage.draws);
    }
    Ok(stages)
}

/// Returns a record as the source stores it.
fn stored_record(record: &Record, at: Position) -> SampleRecord<'_> {
    let state = PixelState::Stored;
    SampleRecord { record, state, at }
}

/// Adds the stages of the functions to a preview: the input of the first one, the output of each,
/// and the final row.
fn through_functions(
    plan: &SamplePlan,
    at: Position,
    mut stages: Vec<PreviewStage>,
) -> Result<Vec<PreviewStage>, StageFailure> {
    let calls = plan.sample_calls();
    let Some(row) = stages.last_mut().filter(|_| !calls.is_empty()) else {
        return Ok(stages);
    };
    row.name = "row";
    let mut values = columns_of(row.clone());
    for call in calls {
        let failed = |error| StageFailure {
            field: 0,
            transform: None,
            error: SampleError::Function {
                function: call.name.clone(),
                error,
            },
        };
        let mut found = ReturnedValues::default();
        let inputs = call.inputs(&values);
        let called = call.call(&inputs, plan.seed(), at, &mut found);
        called.map_err(failed)?;
        values = found
            .values(call, &values, &inputs)
            .map_err(|error| failed(FunctionFailure::wrong(error.to_string())))?;
        let field = |column: &Column| (column.name.clone(), column.values.clone());
        stages.push(PreviewStage {
            name: "python",
            draws: call.name.clone(),
            fields: values.iter().map(field).collect(),
            shapes: StageShapes::default(),
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
