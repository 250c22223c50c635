//! What a trainer and its feeders must agree on, so that a batch has the same bits whoever makes it.

use super::prepare::Prepared;
use super::state::{self, hex};
use crate::error::Error;
use crate::function::Identity;
use crate::pipeline::{FunctionSpec, Pipeline};
use crate::plan::function::kind_text;
use crate::random::hash_bytes;
use crate::wire::bits;
use crate::wire::hello::{CONTENTS, Fact};
use crate::wire::looks::{self, Look};

/// Longest text of columns or functions that is shown; of a longer one, its hash.
const TEXT_BYTES: usize = 1000;

/// All of them, those first that say most where they differ; `looks` are what some records hold.
///
/// # Errors
///
/// [`Error::Config`] for a function that no other machine can run; or if this machine fails its
/// self-test.
pub(super) fn facts(prepared: &Prepared, looks: &[Look]) -> Result<Vec<Fact>, Error> {
    let Prepared {
        begin,
        job,
        pipeline,
        ..
    } = prepared;
    let fact = |name: &str, value: String| Fact {
        name: name.to_owned(),
        value,
    };
    let number = |number: Option<u64>| number.map_or("none".to_owned(), |n| n.to_string());
    let tail = match (begin.drop_last, begin.tail) {
        (true, _) => "drop",
        (false, Some(tail)) => tail.name(),
        (false, None) => "keep",
    };
    let columns: Vec<String> = job
        .plan()
        .columns()
        .iter()
        .map(|column| format!("{} {}", column.name, kind_text(&column.kind)))
        .collect();
    // Functions on batches are called where batches are put together, which is the trainer.
    let rows = pipeline.without_batch_functions();
    let description = state::fingerprint(&rows, job.order().fingerprint());
    let (functions, language) = functions(&rows)?;
    let mut facts = vec![
        fact("infeed", env!("CARGO_PKG_VERSION").to_owned()),
        fact("data", begin.data.clone()),
        fact("records", begin.records.to_string()),
        fact(CONTENTS, looks::text(looks)),
        fact("functions", functions),
        fact("description", hex(description)),
        fact("seed", number(begin.seed)),
        fact(
            "order",
            format!("{}, windows {}", begin.order, number(begin.window)),
        ),
        fact("batch", format!("{} rows, tail {tail}", begin.batch)),
        fact("columns", shown(columns.join(", "))),
        fact("bits", hex(bits::own()?)),
    ];
    if let Some(language) = language {
        let behind = facts.iter().position(|fact| fact.name == "functions");
        facts.insert(behind.map_or(0, |at| at + 1), fact("language", language));
    }
    Ok(facts)
}

/// A text, if it is short; else its hash.
fn shown(text: String) -> String {
    match text.len() > TEXT_BYTES {
        true => hex(hash_bytes(text.as_bytes())),
        false => text,
    }
}

/// What the functions on samples are, and what they run on, if there are any.
fn functions(pipeline: &Pipeline) -> Result<(String, Option<String>), Error> {
    let (mut told, mut language) = (Vec::new(), None);
    for spec in &pipeline.python {
        let Identity { code, language: on } = identity(spec)?;
        told.push(format!("{} ({code})", spec.function));
        language.get_or_insert(on);
    }
    match told.is_empty() {
        true => Ok(("none".to_owned(), None)),
        false => Ok((shown(told.join("; ")), language)),
    }
}

/// What a function is, if feeders can find it by its name.
fn identity(spec: &FunctionSpec) -> Result<Identity, Error> {
    let refused = |why: String| {
        let problem = format!(
            "the function {} cannot run on feeders, which import functions by module and name: {why}",
            spec.function
        );
        Error::config("feeders", problem)
    };
    match (&spec.bound.0, spec.handle) {
        (Some(function), None) => function.identity().map_err(refused),
        _ if spec.function.starts_with("__main__:") => Err(refused(
            "it is of the script or notebook that runs; put it in a module that they can import"
                .to_owned(),
        )),
        _ => Err(refused(
            "no module has it under a name; define it in one that they can import, with `def`"
                .to_owned(),
        )),
    }
}
