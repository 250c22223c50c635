//! What a trainer and its feeders must agree on, so that a batch has the same bits whoever makes it.

use super::state::{State, hex};
use crate::batch::ColumnSpec;
use crate::error::Error;
use crate::pipeline::Pipeline;
use crate::plan::function::kind_text;
use crate::random::hash_bytes;
use crate::wire::bits;
use crate::wire::hello::Fact;

/// Longest text of columns that is shown; of a longer one, its hash.
const COLUMNS_BYTES: usize = 1000;

/// All of them, those first that say most where they differ.
///
/// # Errors
///
/// If this machine fails its self-test.
pub(super) fn facts(begin: &State, columns: &[ColumnSpec]) -> Result<Vec<Fact>, Error> {
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
    let columns: Vec<String> = columns
        .iter()
        .map(|column| format!("{} {}", column.name, kind_text(&column.kind)))
        .collect();
    let mut columns = columns.join(", ");
    if columns.len() > COLUMNS_BYTES {
        columns = hex(hash_bytes(columns.as_bytes()));
    }
    Ok(vec![
        fact("infeed", env!("CARGO_PKG_VERSION").to_owned()),
        fact("data", begin.data.clone()),
        fact("records", begin.records.to_string()),
        fact("description", begin.description.clone()),
        fact("seed", number(begin.seed)),
        fact(
            "order",
            format!("{}, windows {}", begin.order, number(begin.window)),
        ),
        fact("batch", format!("{} rows, tail {tail}", begin.batch)),
        fact("columns", columns),
        fact("bits", hex(bits::own()?)),
    ])
}

/// Functions of the user's run where they were defined.
///
/// # Errors
///
/// [`Error::Config`] if the pipeline has one.
pub(super) fn refuse_functions(pipeline: &Pipeline) -> Result<(), Error> {
    match pipeline.python.first() {
        None => Ok(()),
        Some(spec) => {
            let problem = format!(
                "the function {} cannot run on a feeder, which takes no code; run this pipeline \
                 without feeders, or call the function in the training loop",
                spec.function
            );
            Err(Error::config("feeders", problem))
        }
    }
}
