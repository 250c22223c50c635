//! Facts on which trainer and feeders must agree, so that every machine makes the same bits.

use crate::wire::bits;
use crate::wire::content_hashes::{self, ContentHash};
use crate::wire::hello::{CONTENTS, Fact};
use infeed::function::FunctionIdentity;
use infeed::loader::remote::RunDescription;
use infeed::pipeline::{FunctionSpec, Pipeline};
use infeed_core::error::Error;
use infeed_core::random::hash_bytes;

/// Maximum length in bytes of a columns or functions text; a longer text is replaced by its hash.
const TEXT_BYTES: usize = 1000;

/// Returns all facts. The facts that best explain a difference come first. `hashes` are those of
/// some records.
///
/// # Errors
///
/// [`Error::Config`] for a function that no other machine can run, or if this machine fails its
/// self-test.
pub(crate) fn facts(run: &RunDescription, hashes: &[ContentHash]) -> Result<Vec<Fact>, Error> {
    let begin = &run.begin;
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
    let (functions, language) = functions(&run.rows)?;
    let mut facts = vec![
        fact("infeed", env!("CARGO_PKG_VERSION").to_owned()),
        fact("data", begin.data.clone()),
        fact("records", begin.records.to_string()),
        fact(CONTENTS, content_hashes::text(hashes)),
        fact("functions", functions),
        fact("description", run.fingerprint.clone()),
        fact("seed", number(begin.seed)),
        fact(
            "order",
            format!("{}, windows {}", begin.order, number(begin.window)),
        ),
        fact("batch", format!("{} rows, tail {tail}", begin.batch)),
        fact("columns", shorten(run.columns_text())),
        fact("bits", hex(bits::own()?)),
    ];
    if let Some(language) = language {
        let behind = facts.iter().position(|fact| fact.name == "functions");
        facts.insert(behind.map_or(0, |at| at + 1), fact("language", language));
    }
    Ok(facts)
}

/// Formats a fingerprint.
fn hex(fingerprint: u64) -> String {
    format!("{fingerprint:016x}")
}

/// Returns a short text unchanged, and the hash of a long one.
fn shorten(text: String) -> String {
    match text.len() > TEXT_BYTES {
        true => hex(hash_bytes(text.as_bytes())),
        false => text,
    }
}

/// Returns the identities of the functions on samples, and their language if there are any.
fn functions(pipeline: &Pipeline) -> Result<(String, Option<String>), Error> {
    let (mut identities, mut language) = (Vec::new(), None);
    for spec in &pipeline.python {
        let FunctionIdentity { code, language: on } = identity(spec)?;
        identities.push(format!("{} ({code})", spec.function));
        language.get_or_insert(on);
    }
    match identities.is_empty() {
        true => Ok(("none".to_owned(), None)),
        false => Ok((shorten(identities.join("; ")), language)),
    }
}

/// Returns the identity of a function, if feeders can import it by name.
fn identity(spec: &FunctionSpec) -> Result<FunctionIdentity, Error> {
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
            "it is defined in the running script or notebook; move it to a module that the feeders \
             can import"
                .to_owned(),
        )),
        _ => Err(refused(
            "no module contains it by name; define it with `def` in a module that the feeders can \
             import"
                .to_owned(),
        )),
    }
}
