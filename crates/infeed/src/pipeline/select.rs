//! Selection of records: the filters, then a part of the split, then the first `take` records.

use std::fmt::Write as _;
use std::sync::Arc;

use super::Pipeline;
use super::filter::RecordFilter;
use super::split::RecordSplit;
use infeed_core::error::Error;
use infeed_core::order::Order;
use infeed_source::Source;
use infeed_source::selected_records::SelectedRecords;
use infeed_source::subset::{MAX_RECORDS, Subset};

/// Adds the index of a mix's part to an error.
fn of_part(at: usize, error: Error) -> Error {
    match error {
        Error::Config { part, problem } => {
            Error::config(part, format!("source {at} of the mix: {problem}"))
        }
        other => other,
    }
}

/// Selects the records of a source. In a weighted mix, selects in each part.
pub(super) fn select(
    pipeline: &Pipeline,
    source: Arc<dyn Source>,
) -> Result<Arc<dyn Source>, Error> {
    if !pipeline.selects() {
        return Ok(source);
    }
    check(pipeline)?;
    select_in(pipeline, source).map(|(selected, _)| selected)
}

/// Returns the numbers of the selected records in a source; `None` if all are selected.
pub(super) fn numbers(pipeline: &Pipeline, source: &dyn Source) -> Result<Option<Subset>, Error> {
    if !pipeline.selects() {
        return Ok(None);
    }
    check(pipeline)?;
    numbers_in(pipeline, source).map(Some)
}

/// Checks the selection as far as possible without a source.
pub(super) fn check(pipeline: &Pipeline) -> Result<(), Error> {
    pipeline.filter.iter().try_for_each(RecordFilter::check)?;
    if pipeline.take == Some(0) {
        let problem = "the number of records is 0; take at least 1";
        return Err(Error::config("take", problem));
    }
    pipeline.split.as_ref().map_or(Ok(()), RecordSplit::check)
}

/// Returns the selected records as a source and by number; for a weighted mix, of each part.
fn select_in(
    pipeline: &Pipeline,
    source: Arc<dyn Source>,
) -> Result<(Arc<dyn Source>, Subset), Error> {
    let Some((parts, weights)) = source.weighted_parts() else {
        let subset = subset_of(pipeline, &*source)?;
        let selected = SelectedRecords::new(source, subset.clone());
        return Ok((Arc::new(selected), subset));
    };
    refuse_take(pipeline)?;
    let parts = parts.iter().enumerate().map(|(at, part)| {
        let selected = select_in(pipeline, Arc::clone(part));
        selected.map_err(|error| of_part(at, error))
    });
    let (parts, subsets): (Vec<_>, Vec<_>) = parts
        .collect::<Result<Vec<_>, Error>>()?
        .into_iter()
        .unzip();
    let (subset, weights) = (Subset::concat(&subsets), weights.clone());
    let selected = SelectedRecords::with_parts(Arc::clone(&source), subset.clone(), parts, weights);
    Ok((Arc::new(selected), subset))
}

fn numbers_in(pipeline: &Pipeline, source: &dyn Source) -> Result<Subset, Error> {
    let Some((parts, _)) = source.weighted_parts() else {
        return subset_of(pipeline, source);
    };
    refuse_take(pipeline)?;
    let parts = parts.iter().enumerate().map(|(at, part)| {
        let numbers = numbers_in(pipeline, &**part);
        numbers.map_err(|error| of_part(at, error))
    });
    Ok(Subset::concat(&parts.collect::<Result<Vec<_>, _>>()?))
}

fn refuse_take(pipeline: &Pipeline) -> Result<(), Error> {
    if pipeline.take.is_none() {
        return Ok(());
    }
    let problem = "a weighted mix has no first records; set the epoch of the mix instead";
    Err(Error::config("take", problem))
}

fn subset_of(pipeline: &Pipeline, source: &dyn Source) -> Result<Subset, Error> {
    if source.len() > MAX_RECORDS {
        let problem = format!(
            "infeed can select from at most {MAX_RECORDS} records, and the source has {}; remove \
             filter, split and take",
            source.len()
        );
        return Err(Error::config("source", problem));
    }
    let mut subset = Subset::whole(source.len());
    for filter in &pipeline.filter {
        subset = filter.apply(source, &subset)?;
    }
    if let Some(split) = &pipeline.split {
        subset = split.apply(&subset)?;
    }
    Ok(match pipeline.take {
        Some(records) => subset.first(records),
        None => subset,
    })
}

/// Describes selection, weights and groups as lines of the plan. Empty if each record occurs once
/// per epoch, in any batch.
pub(super) fn describe(pipeline: &Pipeline, source: &dyn Source, order: &Order) -> String {
    let mut text = String::new();
    let mut line = |stage: &str, what: String| {
        let _ = match what.is_empty() {
            true => writeln!(text, "{stage}"),
            false => writeln!(text, "  {stage:<10} {what}"),
        };
    };
    if let Some(subset) = source.selection() {
        let (kept, all) = (subset.len(), subset.all());
        line(&format!("records: {kept} of {all}"), String::new());
    }
    for filter in &pipeline.filter {
        line("filter", filter.to_string());
    }
    if let Some(split) = &pipeline.split {
        line("split", split.to_string());
    }
    if let Some(records) = pipeline.take {
        line("take", format!("the first {records}"));
    }
    if pipeline.weights.is_some() || pipeline.repeat.is_some() {
        line(&format!("epoch: {} positions", order.len()), String::new());
    }
    if let Some(weights) = &pipeline.weights {
        line("weights", weights.to_string());
    }
    if let Some(passes) = pipeline.repeat {
        line("repeat", format!("{passes} passes"));
    }
    if let (Some(tokens), Some((ends, _))) = (pipeline.batch.max_tokens, order.batch_ends()) {
        let text = format!(
            "batches: {} full ones in an epoch, up to {tokens} tokens each",
            ends.len()
        );
        line(&text, String::new());
    } else if let Some(groups) = order.batch_groups() {
        line(
            &format!("batches: records of one group, of {groups} groups"),
            String::new(),
        );
    }
    text
}
